package pgbench

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/plumbline/plumbline/loadgen/metrics"
)

// Outcome is what became of a transaction.
type Outcome int

// The outcomes in pgbench's transaction log.
const (
	Completed Outcome = iota
	Skipped           // by --latency-limit, before it was sent
	Failed
)

// Transaction is one line of pgbench's transaction log.
type Transaction struct {
	Outcome Outcome
	// Kind is the kind of a failure.
	Kind metrics.ErrorKind
	// Latency counts from the scheduled start to the end, Lag from the scheduled start to the
	// real one. pgbench gives them for completed transactions only.
	Latency, Lag time.Duration
	// Retries is how often it was retried after a serialization failure or deadlock.
	Retries uint64
}

// failures are the words pgbench puts in the place of the latency of a failed transaction:
// "failed" since 15, the kinds with --failures-detailed, "other" with --continue-on-error.
var failures = map[string]metrics.ErrorKind{
	"failed":        metrics.Other,
	"serialization": metrics.Serialization,
	"deadlock":      metrics.Deadlock,
	"other":         metrics.Other,
}

// ParseTransaction reads a line of the per-transaction log that pgbench 14 to 18 write:
//
//	client transaction latency|skipped|failure script epoch microseconds [lag] [retries]
//
// (PostgreSQL manual, pgbench, "Per-Transaction Logging"). Times are in microseconds. The lag is there if rated is
// set (--rate).
func ParseTransaction(line string, rated bool) (Transaction, error) {
	var t Transaction
	f := strings.Fields(line)
	if !rated && len(f) >= 6 {
		f = slices.Insert(f, 6, "0")
	}
	if len(f) != 7 && len(f) != 8 {
		return t, fmt.Errorf("pgbench log line has %d fields, want 6 to 8", len(strings.Fields(line)))
	}
	var numbers [8]uint64
	for i, s := range f {
		if i == 2 {
			continue
		}
		n, err := strconv.ParseUint(s, 10, 63)
		if err != nil {
			return t, fmt.Errorf("pgbench log line: field %d is not a number", i+1)
		}
		numbers[i] = n
	}
	t.Retries = numbers[7]
	if f[2] == "skipped" {
		t.Outcome = Skipped
		return t, nil
	}
	if kind, ok := failures[f[2]]; ok {
		t.Outcome, t.Kind = Failed, kind
		return t, nil
	}
	latency, err := strconv.ParseUint(f[2], 10, 63)
	if err != nil {
		return t, fmt.Errorf("pgbench log line: field 3 is neither a latency nor a known outcome")
	}
	lag := numbers[6]
	const most = uint64(1<<63-1) / uint64(time.Microsecond)
	if latency > most || lag > latency {
		return t, fmt.Errorf("pgbench log line: lag of %d us and latency of %d us cannot be", lag, latency)
	}
	t.Latency, t.Lag = time.Duration(latency)*time.Microsecond, time.Duration(lag)*time.Microsecond
	return t, nil
}
