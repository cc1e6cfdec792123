package pgbench

import (
	"strconv"
	"strings"
)

// Summary is what pgbench itself counted, as it reports at its end.
type Summary struct {
	Seen                       bool
	Processed, Failed, Skipped uint64
	LatencyMean, LatencyStddev float64 // milliseconds
	LagMean, LagMax, TPS       float64 // milliseconds, milliseconds, transactions per second
}

// Line takes one line of pgbench's standard output.
func (s *Summary) Line(line string) {
	count := func(prefix string) (uint64, bool) {
		rest, ok := strings.CutPrefix(line, prefix)
		if !ok {
			return 0, false
		}
		end := strings.IndexFunc(rest, func(r rune) bool { return r < '0' || r > '9' })
		if end < 0 {
			end = len(rest)
		}
		n, err := strconv.ParseUint(rest[:end], 10, 64)
		return n, err == nil
	}
	number := func(text string) float64 {
		f, _ := strconv.ParseFloat(text, 64)
		return f
	}
	if n, ok := count("number of transactions actually processed: "); ok {
		s.Processed, s.Seen = n, true
	} else if n, ok := count("number of failed transactions: "); ok {
		s.Failed = n
	} else if n, ok := count("number of transactions skipped: "); ok {
		s.Skipped = n
	}
	switch f := strings.Fields(line); {
	case strings.HasPrefix(line, "latency average = ") && len(f) >= 4:
		s.LatencyMean = number(f[3])
	case strings.HasPrefix(line, "latency stddev = ") && len(f) >= 4:
		s.LatencyStddev = number(f[3])
	case strings.HasPrefix(line, "rate limit schedule lag: avg ") && len(f) >= 8:
		s.LagMean = number(f[5])
		s.LagMax = number(strings.TrimRight(f[7], ")"))
	case strings.HasPrefix(line, "tps = ") && len(f) >= 3:
		s.TPS = number(f[2])
	}
}
