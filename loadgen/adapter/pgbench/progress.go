package pgbench

import (
	"fmt"
	"regexp"
	"strconv"
)

// Progress is one report of pgbench --progress.
type Progress struct {
	// TPS is transactions per second since the last report.
	TPS float64
	// Latency, Stddev and Lag are means in milliseconds; NaN where there was no transaction.
	Latency, Stddev, Lag float64
	// Failed and Skipped are transactions since the last report.
	Failed, Skipped uint64
}

// progressLine fits 13 (no failed), 14, and 15 to 18 (failed; retried with --max-tries). pgbench
// prints NaN, or -nan, for the means of an interval without transactions.
var progressLine = regexp.MustCompile(`^progress: [\d.]+ s, ([\d.]+) tps, lat (-?nan|-?NaN|[\d.]+) ms stddev (-?nan|-?NaN|[\d.]+)` +
	`(?:, (\d+) failed)?(?:, lag (-?nan|-?NaN|[\d.]+) ms(?:, (\d+) skipped)?)?(?:, \d+ retried, \d+ retries)?$`)

// ParseProgress reads a report. ok is false for a line that is none.
func ParseProgress(line string) (p Progress, ok bool, err error) {
	if len(line) < 9 || line[:9] != "progress:" {
		return p, false, nil
	}
	m := progressLine.FindStringSubmatch(line)
	if m == nil {
		return p, true, fmt.Errorf("pgbench progress report of an unknown form")
	}
	float := func(s string) float64 {
		if s == "" {
			return 0
		}
		if s[0] == '-' {
			s = s[1:]
		}
		f, ferr := strconv.ParseFloat(s, 64)
		if ferr != nil && err == nil {
			err = fmt.Errorf("pgbench progress report: %q is not a number", s)
		}
		return f
	}
	count := func(s string) uint64 {
		if s == "" {
			return 0
		}
		n, cerr := strconv.ParseUint(s, 10, 64)
		if cerr != nil && err == nil {
			err = fmt.Errorf("pgbench progress report: %q is not a count", s)
		}
		return n
	}
	p = Progress{TPS: float(m[1]), Latency: float(m[2]), Stddev: float(m[3]),
		Failed: count(m[4]), Lag: float(m[5]), Skipped: count(m[6])}
	return p, true, err
}
