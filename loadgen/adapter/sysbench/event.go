package sysbench

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/plumbline/plumbline/loadgen/adapter"
	"github.com/plumbline/plumbline/loadgen/metrics"
)

// Event is one line of loadgen.lua's output.
type Event struct {
	// Kind is 'c' completed, 'f' failed, 'r' retried.
	Kind byte
	// Response and Service are of a completed event; a failed one has Response only.
	Response, Service time.Duration
	// Error is the kind of error an event was retried for, or failed by, Words the text of the latter.
	Error metrics.ErrorKind
	Words string
}

// ParseEvent reads a line.
func ParseEvent(line string) (Event, error) {
	f := strings.Fields(line)
	bad := fmt.Errorf("event line of sysbench has an unknown form")
	if len(f) < 2 || len(f[0]) != 1 {
		return Event{}, bad
	}
	e := Event{Kind: f[0][0]}
	microseconds := func(s string) (time.Duration, error) {
		n, err := strconv.ParseInt(s, 10, 64)
		if err != nil || n < 0 || n > int64((1<<63-1)/time.Microsecond) {
			return 0, bad
		}
		return time.Duration(n) * time.Microsecond, nil
	}
	var err error
	switch {
	case e.Kind == 'c' && len(f) == 3:
		if e.Response, err = microseconds(f[1]); err == nil {
			e.Service, err = microseconds(f[2])
		}
		if err == nil && e.Service > e.Response {
			err = bad
		}
	case e.Kind == 'f':
		e.Response, err = microseconds(f[1])
		e.Words = strings.Join(f[2:], " ")
		// Without words it is a connection that is gone.
		if e.Error = adapter.KindOf(e.Words); e.Words == "" {
			e.Error = metrics.Connection
		}
	case e.Kind == 'r' && len(f) == 2:
		e.Error = errorKind(f[1])
	default:
		err = bad
	}
	if err != nil {
		return Event{}, err
	}
	return e, nil
}

// errorKind sorts the errors sysbench retries by the server's number: MySQL's 1213 and 1205
// (deadlock, lock wait), 1020 and 1062 (changed row, duplicate key) and so on; for PostgreSQL
// sysbench ignores only serialization failures and deadlocks and has no number.
func errorKind(number string) metrics.ErrorKind {
	switch number {
	case "1213":
		return metrics.Deadlock
	case "1205":
		return metrics.Timeout
	case "0", "1020":
		return metrics.Serialization
	case "2006", "2011", "2013", "2055":
		return metrics.Connection
	}
	return metrics.Other
}

// Summary is what sysbench counted itself, as it reports at its end.
type Summary struct {
	Seen   bool
	Events uint64
}

// Line takes a line of sysbench's report.
func (s *Summary) Line(line string) {
	rest, ok := strings.CutPrefix(strings.TrimSpace(line), "total number of events:")
	if !ok {
		return
	}
	if n, err := strconv.ParseUint(strings.TrimSpace(rest), 10, 64); err == nil {
		s.Events, s.Seen = n, true
	}
}
