// Package driver is loadgen's own load: an open loop. Transactions start on schedule,
// not when the last one has ended, and their response time counts from there; so a stall of the
// server shows in every transaction that fell due in it, as it would in every user's.
package driver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/plumbline/plumbline/loadgen/adapter"
	"github.com/plumbline/plumbline/loadgen/metrics"
)

const (
	// drainGrace is how long, at the end, those already sent may take; then they have failed.
	drainGrace = 5 * time.Second
	// firstRefusal and lastRefusal bound how long a connection that could not be made is not
	// retried; what falls due meanwhile fails at once.
	firstRefusal = 50 * time.Millisecond
	lastRefusal  = 2 * time.Second
	// waitRefusal is lastRefusal where transactions wait for it: an outage is measured that much too long.
	waitRefusal = 250 * time.Millisecond
)

// Config configures a load.
type Config struct {
	// Engine is postgres or mysql; DSN is in its driver's form.
	Engine, DSN string
	// Others are further servers that the database may be at, tried one after the other. With any,
	// only a server that can be written to is taken.
	Others []string
	// Wait: what is due while no server takes a connection waits for one; else it fails at once.
	Wait bool
	// Profile is one of Profiles.
	Profile string
	// Scale is the size of the tables, in units of 100,000 accounts.
	Scale int
	// Rate is transactions per second; Arrivals spreads them.
	Rate     float64
	Arrivals Arrivals
	// Connections is how many transactions may be under way at once.
	Connections int
	// First is the number of the first connection, where other generators have those before: some profiles give each a
	// row of its own.
	First int
	// Timeout ends a transaction, which has then failed.
	Timeout time.Duration
	// LatencyLimit: a transaction that is later than this when its turn comes is skipped; 0: none is.
	LatencyLimit time.Duration
	// Queue is how many may wait for a connection; more are skipped.
	Queue int
	// Warmup is how long the load counts as warming up.
	Warmup time.Duration
	// Seed makes runs repeat the same arrivals and keys; 0 takes a new one each time.
	Seed uint64
}

// Label is the value of the label profile: on MySQL the profile's name with -mysql, because the same
// profile on another engine is another load, which no baseline of the first may judge.
func (c Config) Label() string {
	if c.Engine == "mysql" {
		return c.Profile + "-mysql"
	}
	return c.Profile
}

// Driver makes one load.
type Driver struct {
	config  Config
	profile Profile
	servers *servers
	load    *metrics.Load
	own     *ownMetrics
	log     *slog.Logger
	queue   chan operation
	ended   atomic.Bool // nothing more is sent: what still waits is skipped
	seed    uint64
}

// New checks config. own is this process's OwnMetrics.
func New(config Config, load *metrics.Load, own *OwnMetrics, log *slog.Logger) (*Driver, error) {
	profile, ok := Profiles[config.Profile]
	if !ok {
		return nil, fmt.Errorf("unknown profile %q; there are %s", config.Profile, ProfileNames())
	}
	if !(config.Rate > 0) || math.IsInf(config.Rate, 0) || config.Connections < 1 || config.Scale < 1 || config.Scale > maxScale || config.Queue < 1 || config.Timeout <= 0 {
		return nil, fmt.Errorf("rate, connections, scale, queue and timeout must be above 0, scale at most %d", maxScale)
	}
	servers, err := newServers(config.Engine, append([]string{config.DSN}, config.Others...))
	if err != nil {
		return nil, err
	}
	d := &Driver{config: config, profile: profile, servers: servers, load: load, log: log,
		own: own.load(load.Labels()), queue: make(chan operation, config.Queue), seed: config.Seed}
	if d.seed == 0 {
		d.seed = rand.Uint64()
	}
	return d, nil
}

// Init makes the tables of the profiles unless they are there and complete, or the profile
// needs none.
func (d *Driver) Init(ctx context.Context) error {
	return d.withTables(ctx, func(c conn) error {
		return makeTables(ctx, c, d.config.Scale, d.config.Timeout, d.own.filled, d.log)
	})
}

// Ready reports whether the tables are there that another generator makes, or the profile needs none.
func (d *Driver) Ready(ctx context.Context) (ready bool, err error) {
	ready = true
	err = d.withTables(ctx, func(c conn) error {
		ready, err = tablesReady(ctx, c, d.config.Scale, d.config.Timeout)
		return err
	})
	return ready, err
}

// withTables does something on a connection of its own, if the profile needs tables.
func (d *Driver) withTables(ctx context.Context, do func(conn) error) error {
	if slices.Contains(d.profile.without, d.config.Engine) {
		return nil
	}
	return d.connected(ctx, do)
}

// Reach makes a connection and ends it, whatever the profile needs, and returns why if it cannot.
func (d *Driver) Reach(ctx context.Context) error {
	return d.connected(ctx, func(conn) error { return nil })
}

// connected does something on a connection of its own. A server that takes connections and does not answer is left
// after the timeout, and the next one is tried first then.
func (d *Driver) connected(ctx context.Context, do func(conn) error) error {
	dialing, cancel := context.WithTimeout(ctx, d.config.Timeout)
	c, server, err := d.servers.dial(dialing)
	cancel()
	if err != nil {
		return &adapter.ConnectionError{Err: err}
	}
	defer c.Close()
	// A stopped caller has no reason to leave.
	if err = do(c); err != nil && ctx.Err() == nil && leaves(adapter.Kind(ctx, err)) {
		d.servers.lost(server)
	}
	return err
}

// Run makes the load until ctx ends. A server that is down is errors, not an end. What is due then and waits for a
// connection is skipped; what was sent may end.
func (d *Driver) Run(ctx context.Context) {
	p := phases{load: d.load, outages: &d.own.outages}
	if p.set(metrics.Warmup); d.config.Warmup <= 0 {
		p.set(metrics.Steady)
	} else {
		warm := time.AfterFunc(d.config.Warmup, func() { p.set(metrics.Steady) })
		defer warm.Stop()
	}
	// Transactions under way may end in good order after ctx has.
	working, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	var workers, watch sync.WaitGroup
	for i := range d.config.Connections {
		workers.Go(func() { d.work(working, i) })
	}
	watching, stopWatching := context.WithCancel(ctx)
	watch.Go(func() { d.own.watch(watching, d.log, func() int { return len(d.queue) }, p.check) })

	end := func() { d.ended.Store(true) }
	context.AfterFunc(ctx, end) // at once: dispatch may be asleep
	dispatched := make(chan struct{})
	go func() { // on a thread of its own
		d.dispatch(ctx)
		close(dispatched)
	}()
	<-dispatched
	end()
	close(d.queue)
	abandon := time.AfterFunc(drainGrace, cancel)
	workers.Wait()
	abandon.Stop()
	stopWatching()
	watch.Wait()
	d.own.unanswered.clear()
	d.own.outages.stop(time.Now())
	d.own.ended.Store(true)
	d.load.Reached("", "")
	p.set(metrics.Stopped)
}

// dispatch hands out each transaction when it is due.
func (d *Driver) dispatch(ctx context.Context) {
	runtime.LockOSThread() // never unlocked: the thread's timer slack ends with it
	sharpen()
	s := newSchedule(d.config.Arrivals, d.config.Rate, rand.New(rand.NewPCG(d.seed, 0)))
	start := time.Now()
	for {
		due := start.Add(s.next())
		if !sleepUntil(ctx, due) {
			return
		}
		d.own.dispatched(time.Since(due))
		d.load.Offered(1)
		o := d.own.unanswered.add(due)
		select {
		case d.queue <- o:
		default:
			d.own.unanswered.drop(o)
			d.own.held.Add(1)
			d.load.Skipped(metrics.Late, 0)
		}
	}
}

// work is one connection: it does what is due, one at a time.
func (d *Driver) work(ctx context.Context, number int) {
	w := &worker{Driver: d, random: rand.New(rand.NewPCG(d.seed, uint64(d.config.First+number)+1)), number: d.config.First + number}
	defer w.disconnect()
	for o := range d.queue {
		w.one(ctx, o)
	}
}

type worker struct {
	*Driver
	random  *rand.Rand
	number  int
	conn    conn
	server  int // that conn is to
	refusal time.Duration
	refused time.Time // until then no new connection is tried
	cause   error     // why not
}

func (w *worker) one(ctx context.Context, o operation) {
	due := o.due
	if w.config.Wait && !w.reach(ctx, due) {
		w.own.unanswered.drop(o)
		w.load.Skipped(metrics.Down, time.Since(due))
		return
	}
	sent := time.Now()
	if !w.config.Wait || !w.own.outages.waitedIn(due) {
		w.own.waited(sent.Sub(due))
	}
	switch late := sent.Sub(due); {
	case w.config.LatencyLimit > 0 && late > w.config.LatencyLimit:
		w.own.unanswered.drop(o)
		w.load.Skipped(metrics.Late, late)
		return
	// What has only just been handed out when the load ends has not waited for a connection: it is sent.
	case w.ended.Load() && late > slack:
		w.own.unanswered.drop(o)
		w.load.Skipped(metrics.End, late)
		return
	}
	ctx, cancel := context.WithTimeout(ctx, w.config.Timeout)
	defer cancel()
	err := w.connect(ctx, sent)
	if err == nil {
		err = w.profile.run(ctx, w.conn, task{random: w.random, scale: w.config.Scale, worker: w.number})
	}
	end := time.Now()
	gaveUp := err != nil && ctx.Err() != nil && !adapter.FromServer(err)
	switch {
	case errors.Is(err, errRefused): // not even sent
		w.own.unanswered.drop(o)
	case gaveUp:
		w.own.unanswered.giveUp(o)
	default:
		w.own.unanswered.settle(o)
	}
	if err == nil {
		w.own.outages.committed(end)
		w.own.outages.answered(due, end.Sub(due))
		w.load.Completed(end.Sub(due), end.Sub(sent))
		return
	}
	kind := adapter.Kind(ctx, err)
	w.own.outages.failed(kind, gaveUp, due, end)
	w.own.outages.answered(due, w.load.Failed(kind, end.Sub(due)))
	w.own.complain(w.log, kind, err)
	// After anything but an answer of the server the connection's state is not known. Another connection may reach a
	// server that takes what this one refuses.
	if leaves(kind) || w.own.outages.refusing(end) || w.conn != nil && w.conn.Rollback(ctx) != nil {
		w.lose()
	}
}

// leaves reports whether an error of a kind is a reason to leave a server.
func leaves(kind metrics.ErrorKind) bool {
	return kind != metrics.Storage && adapter.Unserved(kind)
}

// reach connects, however long that takes, so that what is due waits for it in its turn. It returns false when the run
// is over.
func (w *worker) reach(ctx context.Context, due time.Time) bool {
	for w.conn == nil {
		if w.ended.Load() || !adapter.Sleep(ctx, time.Until(w.refused)) {
			return false
		}
		trying, cancel := context.WithTimeout(ctx, w.config.Timeout)
		err := w.connect(trying, time.Now())
		cancel()
		if err == nil || ctx.Err() != nil {
			continue
		}
		w.lose()
		kind := adapter.Kind(ctx, err)
		w.load.Error(kind)
		w.own.outages.failed(kind, false, due, time.Now())
		w.own.complain(w.log, kind, err)
	}
	return true
}

// errRefused is the error of what is not even sent, as the connection that it needs has just failed.
var errRefused = errors.New("not connected, and not yet time to try again")

// refusedError is why it failed: that is the cause, and what is logged.
type refusedError struct{ cause error }

func (e refusedError) Error() string   { return e.cause.Error() }
func (e refusedError) Unwrap() []error { return []error{errRefused, e.cause} }

func (w *worker) connect(ctx context.Context, now time.Time) error {
	if w.conn != nil {
		return nil
	}
	if now.Before(w.refused) {
		return &adapter.ConnectionError{Err: refusedError{w.cause}}
	}
	c, server, err := w.servers.dial(ctx)
	if err != nil {
		longest := lastRefusal
		if w.config.Wait {
			longest = waitRefusal
		}
		w.refusal = min(max(2*w.refusal, firstRefusal), longest)
		w.refused, w.cause = time.Now().Add(w.refusal), err
		return &adapter.ConnectionError{Err: err}
	}
	w.conn, w.server, w.refusal = c, server, 0
	at, err := c.Address(ctx)
	if err != nil && !adapter.FromServer(err) {
		return err // and the connection is gone
	}
	// A server that does not report it is unknown; the server before may be another one.
	w.load.Reached(at.host, at.port)
	return nil
}

// lose ends a connection that is of no use any more.
func (w *worker) lose() {
	if w.conn != nil {
		w.servers.lost(w.server)
		w.disconnect()
	}
}

func (w *worker) disconnect() {
	if w.conn != nil {
		w.conn.Close()
		w.conn = nil
	}
}
