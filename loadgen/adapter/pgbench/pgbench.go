// Package pgbench runs PostgreSQL's pgbench at a fixed rate and reads every transaction from
// its log as it happens. pgbench plans its transactions ahead (--rate) and counts latency from
// the planned start, so its load is an open loop for as long as it has clients to spare.
package pgbench

import (
	"log/slog"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/plumbline/plumbline/loadgen/adapter"
	"github.com/plumbline/plumbline/loadgen/metrics"
)

const (
	// forever is pgbench's --time: it needs one, so that it ends in good order on SIGALRM, the
	// signal of its own timer, and prints its totals. Ten years, in seconds.
	forever = 315360000
	// stopGrace is how long pgbench may take for that when the server does not answer.
	stopGrace = 8 * time.Second
	// abortGrace is how long pgbench may go on after it lost a client. Without that client it
	// would go on at a lower rate and never report it again.
	abortGrace = time.Second
)

// Config configures a run of pgbench.
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
	// pgbench's library reads the string itself; loadgen makes the tables, and must take the same.
	if _, err := adapter.PostgresConfig(config.DSN); err != nil {
		return nil, err
	}
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

// Total is the sum of what the pgbench processes reported at their ends.
func (t *Tool) Total() Summary {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.finished
}

// PID is the process ID of the pgbench under way, 0 if there is none.
func (t *Tool) PID() int { return int(t.pid.Load()) }
