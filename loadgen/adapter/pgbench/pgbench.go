// Package pgbench runs PostgreSQL's pgbench at a fixed rate and reads every transaction from
// its log as it happens. pgbench plans its transactions ahead (--rate) and counts latency from
// the planned start, so its load is an open loop for as long as it has clients to spare.
package pgbench

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/plumbline/plumbline/loadgen/adapter"
	"github.com/plumbline/plumbline/loadgen/metrics"
)

const (
	// forever is pgbench's --time: it needs one, so that it ends in good order on SIGALRM, the
	// signal of its own timer, and prints its totals. Ten years, in seconds.
	forever = 315360000
	// stopGrace is how long pgbench may take for that when the server does not answer.
	stopGrace = 5 * time.Second
	// abortGrace is how long pgbench may go on after it lost a client. Without that client it
	// would go on at a lower rate and never say so again.
	abortGrace = time.Second
)

// start makes the log names lead to the terminals, one for each thread as pgbench names them
// (PREFIX.PID, PREFIX.PID.1, …), and becomes pgbench: only that way the process ID is known
// before pgbench opens its log.
const start = `prefix=$1 threads=$2; shift 2
ln -s "$1" "$prefix.$$" || exit 1; shift; n=1
while [ $n -lt $threads ]; do ln -s "$1" "$prefix.$$.$n" || exit 1; shift; n=$((n+1)); done
exec "$@"`

// Config says what pgbench is to do.
type Config struct {
	// Path is the program.
	Path string
	// DSN is a connection string or database name; what it leaves open comes from PG*.
	DSN string
	// Rate is transactions per second over all clients; 0: as many as possible, a closed loop,
	// in which there are no intended starts and so no response times.
	Rate float64
	// Clients and Jobs are connections and threads.
	Clients, Jobs int
	// Protocol is simple, extended or prepared.
	Protocol string
	// Builtin names a script of pgbench's own; Script is a file that is run instead.
	Builtin, Script string
	// LatencyLimit makes pgbench skip transactions that are already later than this; 0: never.
	LatencyLimit time.Duration
	// MaxTries bounds how often a transaction is tried that fails to serialize; 1: no retries.
	MaxTries int
	// Scale is the scale factor Init makes the tables with.
	Scale int
	// WorkDir is where a small folder of links is made, the system's own for temporary files
	// if empty.
	WorkDir string
}

// Tool is a pgbench load.
type Tool struct {
	config   Config
	dsn      string // without the password
	env      []string
	load     *metrics.Load
	log      *slog.Logger
	up       func()
	mu       sync.Mutex
	finished Summary // of all runs so far
	pid      atomic.Int64
}

// New checks config. up is called with each transaction seen.
func New(config Config, load *metrics.Load, log *slog.Logger, up func()) (*Tool, error) {
	rest, password, err := adapter.SplitPassword(config.DSN)
	if err != nil {
		return nil, err
	}
	t := &Tool{config: config, dsn: rest, load: load, log: log, up: up}
	if password != "" {
		t.env = append(t.env, "PGPASSWORD="+password)
	}
	// The log and the errors are read by a program: no translations.
	t.env = append(t.env, "LC_ALL=C")
	t.config.Jobs = min(max(config.Jobs, 1), config.Clients)
	return t, nil
}

// arguments are pgbench's, the connection left out.
func (t *Tool) arguments(prefix string) []string {
	c := t.config
	a := []string{
		"--time=" + strconv.Itoa(forever),
		"--client=" + strconv.Itoa(c.Clients), "--jobs=" + strconv.Itoa(c.Jobs), "--protocol=" + c.Protocol,
		"--progress=1", "--log", "--log-prefix=" + prefix,
	}
	if c.Rate > 0 {
		a = append(a, "--rate="+strconv.FormatFloat(c.Rate, 'f', -1, 64))
	}
	if c.Script != "" {
		a = append(a, "--no-vacuum", "--file="+c.Script)
	} else {
		a = append(a, "--builtin="+c.Builtin)
	}
	if c.LatencyLimit > 0 {
		a = append(a, "--latency-limit="+strconv.FormatFloat(float64(c.LatencyLimit)/float64(time.Millisecond), 'f', -1, 64))
	}
	if c.MaxTries > 1 {
		a = append(a, "--max-tries="+strconv.Itoa(c.MaxTries))
	}
	return a
}

// run is what is known of one pgbench process.
type run struct {
	*Tool
	stop       context.CancelFunc
	completed  atomic.Uint64
	serverDown atomic.Bool
	summary    Summary
	lastWords  string
	abort      *time.Timer
}

// Once runs pgbench until it ends or ctx does.
func (t *Tool) Once(ctx context.Context) adapter.Ended {
	folder, err := os.MkdirTemp(t.config.WorkDir, "loadgen-pgbench-")
	if err != nil {
		return adapter.Ended{Reason: metrics.StartFailed, Err: err}
	}
	defer os.RemoveAll(folder)
	prefix := filepath.Join(folder, "log")
	command := []string{"/bin/sh", "-c", start, "sh", prefix, strconv.Itoa(t.config.Jobs)}
	var terminals []*terminal
	for range t.config.Jobs {
		terminal, err := newTerminal()
		if err != nil {
			return adapter.Ended{Reason: metrics.StartFailed, Err: err}
		}
		defer terminal.Close()
		terminals = append(terminals, terminal)
		command = append(command, terminal.path)
	}
	command = append(append(command, t.config.Path), t.arguments(prefix)...)
	if t.dsn != "" {
		command = append(command, t.dsn)
	}

	ctx, stop := context.WithCancel(ctx)
	defer stop()
	r := &run{Tool: t, stop: stop}
	var reading sync.WaitGroup
	for _, terminal := range terminals {
		reading.Go(func() { adapter.Lines(terminal.master, r.transaction) })
	}
	p := adapter.Process{
		Command: command, Env: t.env, Stop: syscall.SIGALRM, Grace: stopGrace,
		Stdout: r.stdout, Stderr: r.stderr, Started: func(pid int) { t.pid.Store(int64(pid)) },
	}
	err = p.Run(ctx)
	t.pid.Store(0)
	for _, terminal := range terminals {
		terminal.keep.Close()
	}
	reading.Wait()
	return r.ended(err)
}

func (r *run) ended(err error) adapter.Ended {
	if r.abort != nil {
		r.abort.Stop()
	}
	if r.summary.Seen {
		r.mu.Lock()
		r.finished.Seen = true
		r.finished.Processed += r.summary.Processed
		r.finished.Failed += r.summary.Failed
		r.finished.Skipped += r.summary.Skipped
		r.mu.Unlock()
		if got := r.completed.Load(); got < r.summary.Processed {
			lost := r.summary.Processed - got
			r.load.Lost(lost)
			r.log.Error("pgbench did transactions its log did not show", "transactions", lost)
		}
	}
	e := adapter.Ended{Reason: metrics.Exited, Err: adapter.Describe("pgbench", err, r.lastWords)}
	switch {
	case adapter.NotStarted(err):
		e.Reason = metrics.StartFailed
	case r.serverDown.Load():
		e.Reason = metrics.ServerDown
	case adapter.KilledBy(err) != 0:
		e.Reason = metrics.Killed
	}
	return e
}

// transaction takes one line of the log.
func (r *run) transaction(line string) {
	t, err := ParseTransaction(line, r.config.Rate > 0)
	if err != nil {
		r.load.ParseError()
		r.log.Error("line of pgbench's log left out", "err", err)
		return
	}
	r.up()
	r.load.Offered(1)
	switch t.Outcome {
	case Completed:
		r.completed.Add(1)
		if r.config.Rate > 0 {
			r.load.Completed(t.Latency, t.Latency-t.Lag)
		} else {
			r.load.Served(t.Latency, 1)
		}
	case Skipped:
		r.load.Skipped(metrics.Late, r.config.LatencyLimit)
	case Failed:
		r.load.Failed(t.Kind, 0)
	}
}

func (r *run) stdout(line string) { r.summary.Line(line) }

func (r *run) stderr(line string) {
	if p, ok, err := ParseProgress(line); ok {
		if err != nil {
			r.load.ParseError()
			r.log.Error("progress report left out", "err", err)
			return
		}
		r.load.Reported(p.TPS)
		return
	}
	text, ok := strings.CutPrefix(line, "pgbench: error: ")
	if !ok {
		text, ok = strings.CutPrefix(line, "pgbench: fatal: ")
	}
	if !ok || strings.HasPrefix(text, "Run was aborted") {
		r.log.Debug("pgbench says", "line", line)
		if !ok && r.lastWords == "" && !strings.HasPrefix(line, "starting vacuum") {
			r.lastWords = strings.TrimSpace(line) // the shell's, if there is no such program
		}
		return
	}
	switch {
	case strings.HasPrefix(text, "client ") && strings.Contains(text, " aborted"):
		// The transaction under way failed; it stands neither in the log nor in the totals.
		kind := abortKind(text)
		r.serverDown.Store(kind == metrics.Connection)
		r.load.Offered(1)
		r.load.Failed(kind, 0)
		if r.abort == nil {
			r.abort = time.AfterFunc(abortGrace, r.stop)
		}
	case strings.HasPrefix(text, "connection to ") || strings.HasPrefix(text, "could not connect to"):
		r.serverDown.Store(true)
		r.load.Error(metrics.Connection)
	case strings.HasPrefix(text, "could not create connection"):
		return // follows the line above
	default:
		r.load.Error(metrics.Other)
	}
	r.lastWords = text
	r.log.Warn("pgbench reports an error", "line", text)
}

// abortKind tells a lost connection from a statement that failed.
func abortKind(text string) metrics.ErrorKind {
	if strings.Contains(text, "ERROR:") {
		return metrics.Other
	}
	return metrics.Connection
}

// Total is the sum of what the pgbench processes said at their ends.
func (t *Tool) Total() Summary {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.finished
}

// PID is the process ID of the pgbench under way, 0 if there is none.
func (t *Tool) PID() int { return int(t.pid.Load()) }
