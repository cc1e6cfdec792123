package fio

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// maxReport bounds one report. json+ of one job takes some 20 KB, and grows with the spread of
// its latencies to at most 200 KB.
const maxReport = 4 << 20

// latencies are part of a report: how often each latency, in nanoseconds, was seen.
type latencies struct {
	N    uint64            `json:"N"`
	Bins map[string]uint64 `json:"bins"`
}

// direction is one of a job's reads, writes and trims.
type direction struct {
	Runtime int64     `json:"runtime"` // in milliseconds, by fio's own clock
	Total   uint64    `json:"total_ios"`
	Lat     latencies `json:"lat_ns"`
}

// Report is one of fio's status reports in json+. All counts are since the start of fio.
type Report struct {
	Jobs []struct {
		Error      int       `json:"error"`
		TotalError uint64    `json:"total_err"`
		Read       direction `json:"read"`
		Write      direction `json:"write"`
		Trim       direction `json:"trim"`
		Sync       struct {
			Lat latencies `json:"lat_ns"`
		} `json:"sync"`
	} `json:"jobs"`
}

// counts are a report's sums over jobs and directions.
type counts struct {
	total  uint64 // I/Os by fio's own count
	io     map[time.Duration]uint64
	sync   map[time.Duration]uint64
	errors uint64
	ran    time.Duration
}

// ParseReport reads one report.
func ParseReport(text []byte) (*Report, error) {
	var r Report
	if err := json.Unmarshal(text, &r); err != nil {
		return nil, fmt.Errorf("fio report: %w", err)
	}
	if len(r.Jobs) == 0 {
		return nil, fmt.Errorf("fio report has no jobs")
	}
	now, err := r.counts()
	if err != nil {
		return nil, err
	}
	if now.total > 0 && len(now.io) == 0 {
		return nil, fmt.Errorf("fio report has %d I/Os and the latency of none: want lat_ns.bins, which --output-format=json+ and --lat_percentiles=1 give", now.total)
	}
	return &r, nil
}

func (r *Report) counts() (counts, error) {
	c := counts{io: map[time.Duration]uint64{}, sync: map[time.Duration]uint64{}}
	add := func(to map[time.Duration]uint64, bins map[string]uint64) error {
		for key, n := range bins {
			ns, err := strconv.ParseInt(key, 10, 64)
			if err != nil || ns < 0 {
				return fmt.Errorf("fio report: %q is not a latency in nanoseconds", key)
			}
			to[time.Duration(ns)] += n
		}
		return nil
	}
	for _, j := range r.Jobs {
		c.errors += j.TotalError
		for _, d := range []direction{j.Read, j.Write, j.Trim} {
			c.total += d.Total
			c.ran = max(c.ran, time.Duration(max(d.Runtime, 0))*time.Millisecond)
			if err := add(c.io, d.Lat.Bins); err != nil {
				return c, err
			}
		}
		if err := add(c.sync, j.Sync.Lat.Bins); err != nil {
			return c, err
		}
	}
	return c, nil
}

// splitter puts fio's lines together to reports. fio prints them one after the other, which is
// no JSON as a whole, with messages between; a report's first and last lines are lone braces.
type splitter struct {
	text   strings.Builder
	inside bool
	report func([]byte)
	other  func(line string)
}

func (s *splitter) line(line string) {
	if line == "{" { // also after one that was cut off
		s.text.Reset()
		s.inside = true
	}
	if !s.inside {
		if line != "" {
			s.other(line)
		}
		return
	}
	if s.text.Len() > maxReport {
		s.inside = false
		s.report([]byte("{")) // counted as not understood
		return
	}
	s.text.WriteString(line)
	s.text.WriteByte('\n')
	if line == "}" {
		s.inside = false
		s.report([]byte(s.text.String()))
	}
}
