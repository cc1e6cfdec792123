package pgbench

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/plumbline/plumbline/loadgen/adapter"
	"github.com/plumbline/plumbline/loadgen/metrics"
)

// run is what is known of one pgbench process.
type run struct {
	*Tool
	stop       context.CancelFunc
	completed  atomic.Uint64
	serverDown atomic.Bool
	summary    Summary
	lastWords  string
	answered   bool // by the server, with an error
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
	var terminals []*terminal
	var paths []string
	for range t.config.Jobs {
		terminal, err := newTerminal()
		if err != nil {
			return adapter.Ended{Reason: metrics.StartFailed, Err: err}
		}
		defer terminal.Close()
		terminals = append(terminals, terminal)
		paths = append(paths, terminal.path)
	}
	pgbench := append([]string{t.config.Path}, t.arguments(prefix)...)
	if t.dsn != "" {
		pgbench = append(pgbench, t.dsn)
	}

	ctx, stop := context.WithCancel(ctx)
	defer stop()
	r := &run{Tool: t, stop: stop}
	var reading sync.WaitGroup
	for _, terminal := range terminals {
		reading.Go(func() { adapter.Lines(terminal.master, r.transaction) })
	}
	p := adapter.Process{
		Command: command(prefix, paths, pgbench), Env: t.env, Stop: syscall.SIGALRM, Grace: stopGrace,
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
	if strings.Contains(r.lastWords, `relation "pgbench_`) && strings.Contains(r.lastWords, "does not exist") {
		r.lastWords += " (--init makes pgbench's tables)"
	}
	// pgbench exits with 1 for what it cannot do, and for connections that it could not make; 127 is a missing program.
	code := adapter.ExitCode(err)
	refused := r.completed.Load() == 0 && (code == 127 || code == 1 && !r.answered && !transient.MatchString(r.lastWords) || r.answered && strings.Contains(r.lastWords, "syntax error"))
	return adapter.End("pgbench", err, r.lastWords, r.serverDown.Load(), refused)
}

// transient fits pgbench's complaints of the machine that it runs on.
var transient = regexp.MustCompile(`(?i)too many open files|need at least \d+ open files|could not create thread|out of memory|resource temporarily`)

// transaction takes one line of the log.
func (r *run) transaction(line string) {
	t, err := ParseTransaction(line, r.config.Rate > 0)
	if err != nil {
		r.load.ParseError()
		r.log.Error("line of pgbench's log left out", "err", err)
		return
	}
	defer r.up() // what it is seen by is over, and began before
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
		r.log.Debug("line of pgbench", "line", line)
		if !ok && r.lastWords == "" && !strings.HasPrefix(line, "starting vacuum") {
			r.lastWords = strings.TrimSpace(line) // of become, if there is no such program
		}
		return
	}
	switch {
	case strings.HasPrefix(text, "client ") && strings.Contains(text, " aborted"):
		// The transaction under way failed; it stands neither in the log nor in the totals.
		kind := abortKind(text)
		r.answered = r.answered || strings.Contains(text, "ERROR:")
		r.serverDown.Store(adapter.Unserved(kind))
		r.load.Offered(1)
		r.load.Failed(kind, 0)
		if r.abort == nil {
			r.abort = time.AfterFunc(abortGrace, r.stop)
		}
	case strings.HasPrefix(text, "connection to ") || strings.HasPrefix(text, "could not connect to"):
		r.serverDown.Store(true)
		kind := adapter.KindOf(text)
		if kind == metrics.Other {
			kind = metrics.Connection
		}
		r.load.Error(kind)
	case strings.HasPrefix(text, "could not create connection"):
		return // follows the line above
	default:
		kind := adapter.KindOf(text)
		r.answered = r.answered || strings.Contains(text, "ERROR:")
		if adapter.Unserved(kind) {
			r.serverDown.Store(true)
		}
		r.load.Error(kind)
	}
	r.lastWords = text
	r.log.Warn("pgbench reports an error", "line", text)
}

// abortKind distinguishes a lost connection, or a server that takes no writes, from a statement that failed.
func abortKind(text string) metrics.ErrorKind {
	kind := adapter.KindOf(text)
	if kind == metrics.Other && !strings.Contains(text, "ERROR:") {
		return metrics.Connection
	}
	return kind
}
