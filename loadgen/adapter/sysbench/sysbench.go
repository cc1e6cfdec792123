// Package sysbench runs sysbench's database tests at a fixed rate, on PostgreSQL or MySQL, and
// reads every event as it ends from a script that goes with it.
package sysbench

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/plumbline/plumbline/loadgen/adapter"
	"github.com/plumbline/plumbline/loadgen/metrics"
)

//go:embed loadgen.lua
var script []byte

// stopGrace is how long sysbench may take to end its events and print its totals.
const stopGrace = 8 * time.Second

// Config configures a run of sysbench.
type Config struct {
	// Path is the program, Script one of its tests, such as oltp_read_write.
	Path, Script string
	// Target is where the database is.
	Target Target
	// Rate is events per second over all threads; 0: as many as possible, a
	// closed loop, in which there are no intended starts and so no response times.
	Rate float64
	// Threads, Tables and TableSize are sysbench's own.
	Threads, Tables, TableSize int
	// WorkDir is where a small folder is made, the system's own for temporary files if empty.
	WorkDir string
}

// Tool is a sysbench load.
type Tool struct {
	config   Config
	load     *metrics.Load
	log      *slog.Logger
	up       func()
	pid      atomic.Int64
	noted    bool // on the tables that the test changes them
	mu       sync.Mutex
	finished Summary // of all runs so far
}

// scriptName keeps a script's name from being a path or Lua.
var scriptName = regexp.MustCompile(`^[a-z_]+$`)

// New checks config. up is called with each event seen.
func New(config Config, load *metrics.Load, log *slog.Logger, up func()) (*Tool, error) {
	if !scriptName.MatchString(config.Script) {
		return nil, fmt.Errorf("%q is not the name of a sysbench test", config.Script)
	}
	if _, _, _, err := config.Target.options(); err != nil {
		return nil, err
	}
	return &Tool{config: config, load: load, log: log, up: up}, nil
}

// folder makes the files of one sysbench process: the script, and the options, which hold a
// password that must not stand among the arguments.
func (t *Tool) folder() (string, error) {
	folder, err := os.MkdirTemp(t.config.WorkDir, "loadgen-sysbench-")
	if err != nil {
		return "", err
	}
	options, _, _, err := t.config.Target.options()
	if err == nil {
		options = append(options, fmt.Sprintf("threads=%d", t.config.Threads), "time=0", "events=0")
		err = os.WriteFile(filepath.Join(folder, "options"), []byte(strings.Join(options, "\n")+"\n"), 0o600)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(folder, "loadgen.lua"), script, 0o600)
	}
	if err != nil {
		os.RemoveAll(folder)
		return "", err
	}
	return folder, nil
}

// command returns sysbench's command line. The options of a test are only read there: sysbench silently ignores those
// in a file that it does not know before it has loaded the test.
func (t *Tool) command(folder, test, what string) []string {
	_, more, _, _ := t.config.Target.options() // checked by New
	command := append([]string{t.config.Path, "--config-file=" + filepath.Join(folder, "options")}, more...)
	return append(command, fmt.Sprintf("--tables=%d", t.config.Tables), fmt.Sprintf("--table-size=%d", t.config.TableSize), test, what)
}

// env is what sysbench's environment has for the target.
func (t *Tool) env(more ...string) []string {
	_, _, env, _ := t.config.Target.options()
	return append(env, more...)
}

// Once runs sysbench until it ends or ctx does.
func (t *Tool) Once(ctx context.Context) adapter.Ended {
	folder, err := t.folder()
	if err != nil {
		return adapter.Ended{Reason: metrics.StartFailed, Err: err}
	}
	defer os.RemoveAll(folder)
	t.noteChange(ctx)
	events, write, err := os.Pipe()
	if err != nil {
		return adapter.Ended{Reason: metrics.StartFailed, Err: err}
	}
	defer events.Close()
	stop := filepath.Join(folder, "stop")
	r := &run{Tool: t}
	var reading sync.WaitGroup
	reading.Go(func() { adapter.Lines(events, r.event) })
	p := adapter.Process{
		Command: t.command(folder, filepath.Join(folder, "loadgen.lua"), "run"),
		Env: t.env("LC_ALL=C", "LOADGEN_SCRIPT="+t.config.Script, "LOADGEN_STOP="+stop,
			"LOADGEN_RATE="+strconv.FormatFloat(t.config.Rate, 'f', -1, 64)),
		Files: []*os.File{write}, Grace: stopGrace,
		StopBy: func() error { return os.WriteFile(stop, nil, 0o600) },
		Stdout: r.stdout, Stderr: r.complaint, Started: func(pid int) { t.pid.Store(int64(pid)) },
	}
	err = p.Run(ctx)
	t.pid.Store(0)
	write.Close()
	reading.Wait()
	return r.ended(err)
}

// run is what is known of one sysbench process.
type run struct {
	*Tool
	completed  atomic.Uint64
	mu         sync.Mutex // what follows comes from both output streams
	summary    Summary
	serverDown bool
	lastWords  string
}

func (r *run) event(line string) {
	e, err := ParseEvent(line)
	if err != nil {
		r.load.ParseError()
		r.log.Error("line left out", "err", err)
		return
	}
	defer r.up() // what it is seen by is over, and began before
	switch e.Kind {
	case 'c':
		r.load.Offered(1)
		r.completed.Add(1)
		if r.config.Rate > 0 {
			r.load.Completed(e.Response, e.Service)
		} else {
			r.load.Served(e.Service, 1)
		}
	case 'f':
		r.load.Offered(1)
		r.failed(e)
	case 'r':
		r.load.Error(e.Error)
	}
}

// failed takes the event that sysbench ends with.
func (r *run) failed(e Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	// sysbench's error is the same for a lost connection and a failed statement; the driver has reported the cause
	// before it.
	kind := e.Error
	if kind == metrics.Other && r.lastWords != "" {
		kind = adapter.KindOf(r.lastWords)
	}
	if adapter.Unserved(kind) {
		r.serverDown = true
	}
	if r.lastWords == "" {
		r.lastWords = e.Words
	}
	r.load.Failed(kind, e.Response)
}

func (r *run) stdout(line string) {
	r.mu.Lock()
	r.summary.Line(line)
	r.mu.Unlock()
	r.complaint(line)
}

// lostServer fits what sysbench's drivers report when the server is gone or not there.
var lostServer = regexp.MustCompile(`(?i)connect|gone away|terminating|shutting down|starting up|recovery mode|closed`)

// complaint takes an error line, of either stream: sysbench prints them on both.
func (r *run) complaint(line string) {
	text, ok := strings.CutPrefix(line, "FATAL: ")
	if !ok {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if strings.HasPrefix(text, "`") || strings.HasPrefix(text, "Threads init") {
		return // the place in the script, after the cause
	}
	kind := adapter.KindOf(text)
	if kind == metrics.Other && lostServer.MatchString(text) {
		kind = metrics.Connection
	}
	if adapter.Unserved(kind) && !r.serverDown {
		r.serverDown = true
		r.load.Error(kind)
	}
	if r.lastWords == "" {
		r.lastWords = text
	}
	r.log.Debug("sysbench reports an error", "line", text)
}

func (r *run) ended(err error) adapter.Ended {
	if r.summary.Seen {
		r.Tool.mu.Lock()
		r.finished.Seen = true
		r.finished.Events += r.summary.Events
		r.Tool.mu.Unlock()
		if got := r.completed.Load(); got < r.summary.Events {
			r.load.Lost(r.summary.Events - got)
			r.log.Error("sysbench did events it did not report", "events", r.summary.Events-got)
		}
	}
	refused := r.completed.Load() == 0 && adapter.ExitCode(err) > 0 && own(r.lastWords)
	return adapter.End("sysbench", err, r.lastWords, r.serverDown, refused)
}

// serverWords are in what sysbench reports of a server's answer, as by PostgreSQL's library, MySQL's, and its own
// words.
var serverWords = regexp.MustCompile(`ERROR:|FATAL:|PQ[a-z]|mysql_|SQL error|drv_|errno`)

// own reports whether sysbench has reported something that is not of the server: what it does not take, it never will.
func own(words string) bool {
	return words != "" && !serverWords.MatchString(words) && !lostServer.MatchString(words) && adapter.KindOf(words) == metrics.Other
}

// Init makes sysbench's tables unless they are there, complete and of the requested size. Half-made ones of an
// interrupted call of Init are made afresh, and so are loadgen's own of another size. Others are refused, whole or not,
// and not touched. While another loadgen makes tables in the database, it waits, unless there is nothing to be made.
func (t *Tool) Init(ctx context.Context) error {
	if t.ready(ctx) {
		return nil
	}
	return adapter.Alone{Tool: "sysbench", Log: t.log, Open: t.config.Target.lock}.Do(ctx, t.makeTables)
}

// ready checks, without the lock, whether the tables are as requested and nobody makes any. What it cannot decide is
// checked again under the lock.
func (t *Tool) ready(ctx context.Context) (fit bool) {
	err := t.withDatabase(ctx, func(ctx context.Context, db database) error {
		now, err := t.config.Target.making(ctx, db)
		if err != nil || now.tables > 0 {
			return err
		}
		there, err := t.config.Target.list(ctx, db)
		if err != nil {
			return err
		}
		if err := t.config.Target.measure(ctx, db, there, t.config.Tables); err != nil {
			return err
		}
		fit, _, err = t.config.plan(there, now)
		return err
	})
	return fit && err == nil
}

// makeTables does what Init documents, under the lock.
func (t *Tool) makeTables(ctx context.Context) error {
	there, interrupted, err := t.makeRoom(ctx)
	switch {
	case err != nil:
		return err
	case there != nil:
		t.finish(ctx, there, interrupted)
		return nil
	}
	if err := t.prepare(ctx); err != nil {
		if adapter.NotStarted(err) {
			err = errors.Join(err, t.withDatabase(ctx, t.config.Target.done))
		}
		return err
	}
	now := t.config.making()
	made := map[int]table{}
	for n := 1; n <= now.tables; n++ {
		made[n] = table{whole: true, rows: now.rows}
	}
	t.finish(ctx, made, now)
	return nil
}

// makeRoom returns the tables if they are as requested. If they are not, it drops those that are in the way, and notes
// that loadgen makes them.
func (t *Tool) makeRoom(ctx context.Context) (there map[int]table, interrupted making, err error) {
	err = t.withDatabase(ctx, func(ctx context.Context, db database) error {
		if interrupted, err = t.config.Target.making(ctx, db); err != nil {
			return fmt.Errorf("looking for %s: %w", makingTable, err)
		}
		if there, err = t.config.Target.list(ctx, db); err != nil {
			return fmt.Errorf("looking for sysbench's tables: %w", err)
		}
		if err := t.config.Target.measure(ctx, db, there, max(t.config.Tables, interrupted.tables)); err != nil {
			return err
		}
		fit, drop, err := t.config.plan(there, interrupted)
		if err != nil {
			return adapter.Final(err)
		}
		if fit {
			return nil
		}
		there = nil
		if len(drop) > 0 {
			t.log.Warn("sysbench's tables are of another size, or half made, and are made afresh", "dropped", len(drop))
			if err := t.config.Target.drop(ctx, db, drop); err != nil {
				return err
			}
		}
		return t.config.Target.begin(ctx, db, t.config.making())
	})
	return there, interrupted, err
}

// withDatabase does something on a connection of its own: one would be idle for as long as sysbench works, and may be
// cut.
func (t *Tool) withDatabase(ctx context.Context, do func(context.Context, database) error) error {
	db, err := t.config.Target.open(ctx)
	if err != nil {
		return err
	}
	defer db.close()
	return do(ctx, db)
}

// finish marks the whole tables of a call as loadgen's, be it this one or one that was interrupted when it had made
// them. While half-made ones of the call are left, the note of it stays. Tables that cannot be marked are as good for a
// run.
func (t *Tool) finish(ctx context.Context, there map[int]table, of making) {
	if of.tables == 0 {
		return
	}
	var whole []int
	half := false
	for n, one := range there {
		switch {
		case !of.covers(n, one):
		case one.whole:
			whole = append(whole, n)
		default:
			half = true
		}
	}
	err := t.withDatabase(ctx, func(ctx context.Context, db database) error {
		err := t.config.Target.sign(ctx, db, whole, of.rows)
		if half {
			return err
		}
		return errors.Join(err, t.config.Target.done(ctx, db))
	})
	if err != nil {
		t.log.Warn("sysbench's tables are made, but not all of them are marked as loadgen's: it will refuse to make them afresh", "err", err)
	}
}

// prepare has sysbench make the tables.
func (t *Tool) prepare(ctx context.Context) error {
	t.log.Info("making sysbench's tables", "tables", t.config.Tables, "rows", t.config.TableSize)
	folder, err := t.folder()
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	var last string
	note := func(line string) {
		if strings.HasPrefix(line, "FATAL: ") && last == "" {
			last = line
		}
	}
	p := adapter.Process{
		Command: t.command(folder, t.config.Script, "prepare"), Env: t.env("LC_ALL=C"),
		Grace: stopGrace, Stdout: note, Stderr: note,
	}
	err = p.Run(ctx)
	if adapter.NotStarted(err) {
		return adapter.Final(err)
	}
	if err != nil {
		failed := adapter.ToolError(adapter.Describe("sysbench prepare", err, last), last)
		if adapter.KilledBy(err) == 0 && own(strings.TrimPrefix(last, "FATAL: ")) {
			return adapter.Final(failed)
		}
		return failed
	}
	return nil
}

// Total is the sum of what the sysbench processes reported at their ends.
func (t *Tool) Total() Summary {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.finished
}

// PID is the process ID of the sysbench under way, 0 if there is none.
func (t *Tool) PID() int { return int(t.pid.Load()) }

// Scripts are the tests loadgen offers.
var Scripts = slices.Sorted(slices.Values([]string{"oltp_read_write", "oltp_read_only", "oltp_write_only", "oltp_point_select",
	"oltp_insert", "oltp_delete", "oltp_update_index", "oltp_update_non_index"}))
