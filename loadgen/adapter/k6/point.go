package k6

import (
	"encoding/json"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/plumbline/plumbline/loadgen/metrics"
)

// Point is what one line of k6's JSON output reports of the load.
type Point struct {
	// Done is set if an iteration ended, Duration is how long it took.
	Done     bool
	Duration time.Duration
	// Failed is the kind of a failed iteration's error, "" for a good one.
	Failed metrics.ErrorKind
	// Dropped is how many iterations found no free VU.
	Dropped uint64
}

// ParsePoint reads a line of k6's JSON output, of which each describes a metric or gives a point
// of one (k6 documentation, JSON output; seen with 1.8). ok is false for a line that is about
// something else.
func ParsePoint(line string) (p Point, ok bool, err error) {
	var l struct {
		Metric string `json:"metric"`
		Type   string `json:"type"`
		Data   struct {
			Value float64           `json:"value"`
			Tags  map[string]string `json:"tags"`
		} `json:"data"`
	}
	if err := json.Unmarshal([]byte(line), &l); err != nil {
		return p, false, fmt.Errorf("line of k6's output is no JSON object")
	}
	if l.Type != "Point" || l.Data.Tags["scenario"] != "load" {
		return p, false, nil // setup and teardown are in no scenario
	}
	switch l.Metric {
	case "iteration_duration": // milliseconds
		if v := l.Data.Value; v < 0 || v > math.MaxInt64/1e6 {
			return p, false, fmt.Errorf("k6 reports an iteration of %v ms", v)
		}
		p.Done, p.Duration = true, time.Duration(l.Data.Value*float64(time.Millisecond))
		switch l.Data.Tags["failed"] {
		case "no":
		default:
			// The script derives a kind from the error's words.
			p.Failed = metrics.Other
			if kind := metrics.ErrorKind(l.Data.Tags["failed"]); slices.Contains(metrics.Kinds(), kind) {
				p.Failed = kind
			}
		}
	case "dropped_iterations":
		if v := l.Data.Value; v < 0 || v > 1e9 || v != math.Trunc(v) {
			return p, false, fmt.Errorf("k6 reports %v dropped iterations", v)
		}
		p.Dropped = uint64(l.Data.Value)
	default:
		return p, false, nil
	}
	return p, true, nil
}

// status fits k6's progress.
var status = regexp.MustCompile(`^running .* (\d+) complete and \d+ interrupted iterations$`)

// Summary is what k6 counted itself, by its last line of progress.
type Summary struct {
	Seen      bool
	Completed uint64
}

// Line takes a line of k6's standard output.
func (s *Summary) Line(line string) {
	if m := status.FindStringSubmatch(strings.TrimSpace(line)); m != nil {
		if n, err := strconv.ParseUint(m[1], 10, 64); err == nil {
			s.Completed, s.Seen = n, true
		}
	}
}
