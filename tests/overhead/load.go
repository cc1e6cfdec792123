package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/plumbline/plumbline/tests/results/rows"
)

// result is what one run of the load gave.
type result struct {
	// tps is the throughput, which suffers from all that the machine does besides.
	tps float64
	// cpu is the CPU time per transaction, of the server's connections and of the client
	// together, in seconds. Tracing that runs in these tasks is in it; other load hardly is.
	cpu float64
	// fast is the mean time of the fastest tenth of the transactions, in seconds: of those that
	// no other load came between.
	fast float64
	// p99 is the time within which 99 of 100 transactions ended, in seconds.
	p99 float64
	// transactions is their number.
	transactions float64
}

var (
	tpsLine   = regexp.MustCompile(`(?m)^tps = ([0-9.]+)`)
	countLine = regexp.MustCompile(`(?m)^number of transactions actually processed: ([0-9]+)`)
)

// load runs pgbench once.
func (o options) load(ctx context.Context, workload string, srv server) (result, error) {
	args := []string{"-n", "-M", "prepared", "-c", strconv.Itoa(o.clients), "-j", strconv.Itoa(min(o.clients, 2)), "-T", strconv.Itoa(int(o.seconds.Seconds()))}
	if workload == "select" {
		args = append(args, "-S")
	}
	dir, err := os.MkdirTemp("", "overhead-")
	if err != nil {
		return result{}, err
	}
	defer os.RemoveAll(dir)
	args = append(args, "-l", "--log-prefix="+filepath.Join(dir, "log"))
	before, err := childrenTime(srv.pid)
	if err != nil {
		return result{}, err
	}
	cmd := exec.CommandContext(ctx, o.pgbench, append(args, o.dsn)...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return result{}, fmt.Errorf("pgbench: %w\n%s", err, out)
	}
	tps, err := number(tpsLine, out)
	if err != nil {
		return result{}, err
	}
	count, err := number(countLine, out)
	if err != nil {
		return result{}, err
	}
	times, err := transactionTimes(dir)
	if err != nil {
		return result{}, err
	}
	server, err := o.ended(ctx, srv.pid, before)
	if err != nil {
		return result{}, err
	}
	client := cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	return result{tps: tps, cpu: (server + client).Seconds() / count, fast: fastestTenth(times), p99: rows.Quantile(times, 0.99), transactions: count}, nil
}

// transactionTimes reads the transactions' times, in seconds, from pgbench's logs.
func transactionTimes(dir string) (times []float64, err error) {
	logs, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		return nil, err
	}
	for _, log := range logs {
		text, err := os.ReadFile(log)
		if err != nil {
			return nil, err
		}
		for line := range strings.Lines(string(text)) {
			const duration = 2 // in microseconds
			fields := strings.Fields(line)
			if len(fields) <= duration {
				return nil, fmt.Errorf("pgbench's log has a line %q", line)
			}
			us, err := strconv.ParseFloat(fields[duration], 64)
			if err != nil {
				return nil, fmt.Errorf("pgbench's log has a line %q: %w", line, err)
			}
			times = append(times, us/1e6)
		}
	}
	if len(times) < 10 {
		return nil, fmt.Errorf("pgbench logged only %d transactions", len(times))
	}
	return times, nil
}

// fastestTenth returns the mean of the fastest tenth of times, of which there are ten at least.
func fastestTenth(times []float64) float64 {
	times = slices.Sorted(slices.Values(times))
	fastest := times[:len(times)/10]
	sum := 0.0
	for _, t := range fastest {
		sum += t
	}
	return sum / float64(len(fastest))
}

// ended waits until the load's connections have ended and returns their CPU time.
func (o options) ended(ctx context.Context, postmaster int, before time.Duration) (time.Duration, error) {
	last := before
	for quiet := 0; ; {
		now, err := childrenTime(postmaster)
		if err != nil {
			return 0, err
		}
		if now == last && now > before {
			quiet++
		} else {
			quiet = 0
		}
		if last = now; quiet == 3 {
			return now - before, nil
		}
		select {
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func number(line *regexp.Regexp, out []byte) (float64, error) {
	m := line.FindSubmatch(out)
	if m == nil {
		return 0, fmt.Errorf("pgbench printed nothing like %s:\n%s", line, out)
	}
	return strconv.ParseFloat(string(m[1]), 64)
}
