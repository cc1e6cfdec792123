// Package k6 runs a SQL statement at a fixed rate with k6 and its extension xk6-sql, and reads
// every iteration from its JSON output. k6 is the familiar tool here and not the sharpest: its
// times include its JavaScript, and it does not report how long an iteration waited for its turn,
// so there are service times only.
package k6

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/plumbline/plumbline/loadgen/adapter"
	"github.com/plumbline/plumbline/loadgen/metrics"
)

//go:embed loadgen.js
var script []byte

const (
	// stopGrace is how long k6 may take to end its iterations.
	stopGrace = 10 * time.Second
	// complaintPause is the least time between two log lines on errors.
	complaintPause = 10 * time.Second
)

// Config configures a run of k6.
type Config struct {
	// Path is a k6 with xk6-sql and its drivers for postgres and mysql.
	Path string
	// Engine is postgres or mysql; DSN is in the form of libpq or go-sql-driver.
	Engine, DSN string
	// Query is the statement.
	Query string
	// Rate is iterations per second, VUs how many may be under way at once.
	Rate float64
	VUs  int
	// Generators share Rate and VUs, each with its segment of the execution; Generator is this one's number, from 0.
	Generator, Generators int
	// RemoteWrite is the address of a Prometheus to which k6 itself writes its own metrics, with
	// stale markers and native histograms; "" for none.
	RemoteWrite string
	// WorkDir is where a small folder is made, the system's own for temporary files if empty.
	WorkDir string
}

// Tool is a k6 load.
type Tool struct {
	config   Config
	load     *metrics.Load
	log      *slog.Logger
	up       func()
	pid      atomic.Int64
	mu       sync.Mutex
	finished Summary // of all runs so far
}

// New checks config. up is called with each iteration seen.
func New(config Config, load *metrics.Load, log *slog.Logger, up func()) (*Tool, error) {
	if config.Rate < 0.001 || config.VUs < 1 || config.Query == "" {
		return nil, fmt.Errorf("k6 needs a query, a rate of at least 0.001 and one VU")
	}
	if config.VUs < config.Generators {
		return nil, fmt.Errorf("%d VUs are too few for %d generators: some would have none", config.VUs, config.Generators)
	}
	if config.Engine != "mysql" {
		if _, err := adapter.PostgresConfig(config.DSN); err != nil {
			return nil, fmt.Errorf("--dsn: %w", err)
		}
	} else if _, err := mysql.ParseDSN(config.DSN); err != nil {
		return nil, errors.New("--dsn: connection string: not of the form user:password@unix(/path)/database or user:password@tcp(host:port)/database")
	}
	return &Tool{config: config, load: load, log: log, up: up}, nil
}

// segment is k6's own way to divide a load: of it each generator does the part between two fractions.
func (c Config) segment() []string {
	if c.Generators < 2 {
		return nil
	}
	var sequence []string
	for i := range c.Generators + 1 {
		sequence = append(sequence, fmt.Sprintf("%d/%d", i, c.Generators))
	}
	sequence[0], sequence[c.Generators] = "0", "1"
	// The tag distinguishes what k6 itself writes to Prometheus.
	return []string{"--tag=generator=" + strconv.Itoa(c.Generator), "--execution-segment=" + sequence[c.Generator] + ":" + sequence[c.Generator+1], "--execution-segment-sequence=" + strings.Join(sequence, ",")}
}

// run is what is known of one k6 process.
type run struct {
	*Tool
	seen      atomic.Uint64
	summary   Summary
	lastWords string
	reported  time.Time
}

// Once runs k6 until it ends or ctx does.
func (t *Tool) Once(ctx context.Context) adapter.Ended {
	folder, err := os.MkdirTemp(t.config.WorkDir, "loadgen-k6-")
	if err != nil {
		return adapter.Ended{Reason: metrics.StartFailed, Err: err}
	}
	defer os.RemoveAll(folder)
	// k6's driver for PostgreSQL knows one host, and less of sockets and TLS than libpq.
	dsn := t.config.DSN
	if t.config.Engine != "mysql" {
		reached, err := adapter.Reach(ctx, dsn)
		if err != nil {
			if ctx.Err() == nil {
				t.load.Error(adapter.Kind(ctx, err))
			}
			return adapter.Ended{Reason: metrics.ServerDown, Err: err}
		}
		dsn = reached.Plain(dsn)
	}
	path := filepath.Join(folder, "loadgen.js")
	if err := os.WriteFile(path, script, 0o600); err != nil {
		return adapter.Ended{Reason: metrics.StartFailed, Err: err}
	}
	points, write, err := os.Pipe()
	if err != nil {
		return adapter.Ended{Reason: metrics.StartFailed, Err: err}
	}
	defer points.Close()
	r := &run{Tool: t}
	var reading sync.WaitGroup
	reading.Go(func() { adapter.Lines(points, r.point) })
	command := []string{t.config.Path, "run", "--no-color", "--no-usage-report", "--address=",
		// Without a summary and thresholds k6 does not keep every sample in memory.
		"--summary-mode=disabled", "--no-thresholds", "--out=json=/dev/fd/3"}
	env := []string{"LOADGEN_ENGINE=" + t.config.Engine, "LOADGEN_K6_DSN=" + dsn, "LOADGEN_QUERY=" + t.config.Query,
		"LOADGEN_RATE=" + strconv.FormatFloat(t.config.Rate, 'f', -1, 64), "LOADGEN_VUS=" + strconv.Itoa(t.config.VUs)}
	command = append(command, t.config.segment()...)
	if t.config.RemoteWrite != "" {
		command = append(command, "--out=experimental-prometheus-rw")
		env = append(env, "K6_PROMETHEUS_RW_SERVER_URL="+t.config.RemoteWrite, "K6_PROMETHEUS_RW_STALE_MARKERS=true",
			"K6_PROMETHEUS_RW_TREND_AS_NATIVE_HISTOGRAM=true")
	}
	p := adapter.Process{
		Command: append(command, path), Env: env, Unset: adapter.Resolved, Files: []*os.File{write}, Stop: syscall.SIGINT, Grace: stopGrace,
		Stdout: r.summary.Line, Stderr: r.complaint, Started: func(pid int) { t.pid.Store(int64(pid)) },
	}
	err = p.Run(ctx)
	t.pid.Store(0)
	write.Close()
	reading.Wait()
	return r.ended(err)
}

func (r *run) point(line string) {
	p, ok, err := ParsePoint(line)
	if err != nil {
		r.load.ParseError()
		r.log.Error("line left out", "err", err)
		return
	}
	if !ok {
		return
	}
	if p.Dropped > 0 {
		r.load.Offered(p.Dropped)
		for range p.Dropped {
			r.load.Skipped(metrics.Late, 0)
		}
		return
	}
	defer r.up() // what it is seen by is over, and began before
	r.seen.Add(1)
	r.load.Offered(1)
	if p.Failed != "" {
		r.load.Failed(p.Failed, 0)
		return
	}
	r.load.Served(p.Duration, 1)
}

// complaint logs k6's errors, but not each of a flood, and keeps the first, to report it if k6 ends.
func (r *run) complaint(line string) {
	r.log.Debug("line of k6", "line", line)
	if !strings.Contains(line, "level=error") {
		return
	}
	_, text, _ := strings.Cut(line, "msg=")
	if r.lastWords == "" {
		r.lastWords = text
	}
	if time.Since(r.reported) >= complaintPause {
		r.reported = time.Now()
		r.log.Warn("k6 reports an error; more within 10 s are only counted", "line", text)
	}
}

func (r *run) ended(err error) adapter.Ended {
	// Not after a kill: the last line of progress is then of some time before.
	if r.summary.Seen && adapter.KilledBy(err) == 0 {
		r.mu.Lock()
		r.finished.Seen = true
		r.finished.Completed += r.summary.Completed
		r.mu.Unlock()
		if got := r.seen.Load(); got < r.summary.Completed {
			r.load.Lost(r.summary.Completed - got)
			r.log.Error("k6 did iterations it did not report", "iterations", r.summary.Completed-got)
		}
	}
	// k6's codes of a configuration that it does not take, and of a script that fails before its first iteration.
	code := adapter.ExitCode(err)
	refused := r.seen.Load() == 0 && (code == 104 || code == 107) && adapter.KindOf(r.lastWords) == metrics.Other
	return adapter.End("k6", err, r.lastWords, adapter.Unserved(adapter.KindOf(r.lastWords)) && r.seen.Load() == 0, refused)
}

// Total is the sum of what the k6 processes that ended in good order reported.
func (t *Tool) Total() Summary {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.finished
}

// PID is the process ID of the k6 under way, 0 if there is none.
func (t *Tool) PID() int { return int(t.pid.Load()) }
