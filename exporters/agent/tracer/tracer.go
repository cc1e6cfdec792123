// Package tracer is the collector "trace": it follows statements through all layers, one by one.
package tracer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/bits"
	"os"
	"sync"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/ringbuf"
	"github.com/prometheus/client_golang/prometheus"

	bpf "github.com/plumbline/plumbline/exporters/agent/bpf/trace"
	"github.com/plumbline/plumbline/exporters/agent/bpfstats"
	"github.com/plumbline/plumbline/exporters/agent/collector"
	"github.com/plumbline/plumbline/exporters/agent/platform"
	"github.com/plumbline/plumbline/exporters/agent/server"
	"github.com/plumbline/plumbline/exporters/agent/trace"
	"github.com/plumbline/plumbline/exporters/agent/trace/otlp"
	"github.com/plumbline/plumbline/exporters/exporterkit"
)

// Options are the trace collector's own options.
type Options struct {
	// Sample is how many statements that waited there are to one that is followed; 0 is defaultSample.
	Sample int
	// Slowest is how many of the slowest statements are kept for the page, and of the slowest requests to replicas of
	// this node; 0 is defaultSlowest.
	Slowest int
	// RingBytes is the room for events that are not read yet, rounded up to a power of two; 0 is defaultRing.
	RingBytes uint64
	// OTLP is where traces are sent, such as http://tempo:4318/v1/traces; nowhere if empty.
	OTLP string
	// Sink is given each chain of the sample, unless it is nil.
	Sink func(*trace.Chain)
}

const (
	defaultSample  = 10
	defaultSlowest = 20
	defaultRing    = 8 << 20
	// MaxSlowest bounds Options.Slowest.
	MaxSlowest = 1000
	maxRing    = 1 << 30
	// keep is how long a slow statement stays on the page.
	keep = 10 * time.Minute
	// interval is how often events are read.
	interval = 50 * time.Millisecond
	// batch is how many events are read at most before losses are read: a second's at 100,000 a second.
	batch = 100000
)

// Collector follows statements through the layers, one by one.
type Collector struct {
	log        *slog.Logger
	options    collector.Options
	own        Options
	collection *ebpf.Collection
	links      []io.Closer
	reader     *ringbuf.Reader
	stats      bpfstats.Stats
	results    []exporterkit.CheckResult
	metrics    *traceMetrics
	exporter   *otlp.Exporter // nil if traces are sent nowhere
	stop       context.CancelFunc
	wait       sync.WaitGroup

	mu      sync.Mutex
	counts  trace.Counts
	slowest []*trace.Chain
	// slowestServed are the slowest requests of engines elsewhere to replicas of this node.
	slowestServed []*trace.Chain
	joined        uint64 // all events up to then
	err           error
}

// New returns the collector of single statements' chains.
func New(o collector.Options, own Options) (collector.Collector, error) {
	t := &own
	if t.Sample < 0 || t.Slowest < 0 || t.Slowest > MaxSlowest || t.RingBytes > maxRing {
		return nil, fmt.Errorf("one in %d statements, the %d slowest (at most %d) and a ring of %d bytes (at most %d) cannot be", t.Sample, t.Slowest, MaxSlowest, t.RingBytes, maxRing)
	}
	if o.Tracing == nil {
		return nil, errors.New("nothing reports events: Options.Tracing is not set")
	}
	if t.Sample == 0 {
		t.Sample = defaultSample
	}
	if t.Slowest == 0 {
		t.Slowest = defaultSlowest
	}
	if t.RingBytes == 0 {
		t.RingBytes = defaultRing
	}
	// A power of two of at least a page, as the kernel wants it.
	t.RingBytes = 1 << bits.Len64(max(t.RingBytes, uint64(os.Getpagesize()))-1)
	c := &Collector{log: o.Log.With("collector", "trace"), options: o, own: own, metrics: newMetrics()}
	if t.OTLP != "" {
		exporter, err := otlp.New(t.OTLP, o.Node, c.log)
		if err != nil {
			return nil, err
		}
		c.exporter = exporter
	}
	return c, nil
}

// attachments are the programs that this kernel needs, in the order in which they are attached: of a request whose
// beginning is seen, the end is, too.
func attachments(k *platform.Kernel) []string {
	ends := []string{bpf.TraceProgTraceRequestDone}
	if len(k.Missing("block_io_done")) > 0 {
		ends = []string{bpf.TraceProgTraceRequestUpdated, bpf.TraceProgTraceBatchDone}
	}
	return append(ends, bpf.TraceProgTraceRequestEnds, bpf.TraceProgTraceRequestIssued, bpf.TraceProgTraceRequestMade)
}

// Start loads the programs on block requests and makes the ring that those of other collectors, which start later,
// write to.
func (t *Collector) Start(ctx context.Context) error {
	this, err := platform.Find(t.options.AttachMode)
	if err != nil {
		return err
	}
	spec, err := bpf.LoadTrace()
	if err != nil {
		return fmt.Errorf("reading BPF programs: %w", err)
	}
	wanted := attachments(this)
	maps.DeleteFunc(spec.Programs, func(name string, _ *ebpf.ProgramSpec) bool {
		for _, w := range wanted {
			if w == name {
				return false
			}
		}
		return true
	})
	spec.Maps["trace_events"].MaxEntries = uint32(t.own.RingBytes)
	if t.collection, err = ebpf.NewCollection(spec); err != nil {
		return fmt.Errorf("loading BPF programs: %w", platform.Explain(err))
	}
	t.stats = bpfstats.Stats{Collector: "trace", Programs: map[string]bpfstats.Program{}}
	groups := platform.ProgramGroups(spec, t.collection)
	for _, name := range wanted {
		program := t.collection.Programs[name]
		l, err := collector.AttachTrace(spec.Programs[name], program)
		t.results = append(t.results, exporterkit.CheckResult{Part: "trace: program " + name, Err: err})
		if err != nil {
			return errors.Join(fmt.Errorf("attaching BPF program %s: %w", name, platform.Explain(err)), t.Close())
		}
		t.links = append(t.links, l)
		t.stats.Programs[name] = groups[name]
	}
	if t.reader, err = ringbuf.NewReader(t.collection.Maps["trace_events"]); err != nil {
		return errors.Join(fmt.Errorf("ring of events: %w", err), t.Close())
	}
	if t.exporter != nil {
		if err := t.exporter.Start(ctx); err != nil {
			return errors.Join(err, t.Close())
		}
	}
	t.options.Tracing.Share(t.collection.Maps)
	ctx, t.stop = context.WithCancel(ctx)
	t.wait.Go(func() { t.follow(ctx) })
	return nil
}

// follow joins events until ctx ends.
func (t *Collector) follow(ctx context.Context) {
	joiner := trace.NewJoiner(trace.Options{Every: t.own.Sample, Slowest: t.own.Slowest, Keep: uint64(keep),
		Replica: t.options.Tracing.ReplicaName, Followed: t.options.Tracing.Followed})
	ticks := time.NewTicker(interval)
	defer ticks.Stop()
	var seen traceProgress
	for {
		err := t.step(joiner, &seen)
		t.mu.Lock()
		t.counts, t.slowest, t.slowestServed, t.joined, t.err = joiner.Counts(), joiner.Slowest(), joiner.SlowestServed(), seen.joined, err
		t.mu.Unlock()
		select {
		case <-ctx.Done():
			return
		case <-ticks.C:
		}
	}
}

// traceProgress is up to where losses were read and events joined.
type traceProgress struct{ lost, unseen, at, joined uint64 }

// step reads the events that there are and hands on the chains that are complete with them.
func (t *Collector) step(joiner *trace.Joiner, seen *traceProgress) error {
	begun := collector.Monotonic()
	drained, err := t.read(joiner)
	lost, lostErr := t.lost()
	if lostErr == nil {
		joiner.Lost(lost-seen.lost, seen.at, collector.Monotonic())
		seen.lost = lost
	}
	unseen, unseenErr := t.options.Tracing.Unseen()
	if unseenErr == nil {
		if unseen > seen.unseen {
			joiner.Missed(seen.at, collector.Monotonic())
		}
		seen.unseen = unseen
	}
	if lostErr == nil && unseenErr == nil {
		seen.at = begun
	}
	unanswered, overflowed := t.options.Tracing.TakeUnanswered()
	for _, q := range unanswered {
		joiner.Unanswered(q)
	}
	if overflowed > 0 {
		joiner.Missed(overflowed, collector.Monotonic())
	}
	if drained {
		// Otherwise there are older events to come.
		for _, c := range joiner.Advance(begun) {
			t.take(c)
		}
		seen.joined = begun
	}
	return errors.Join(err, lostErr, unseenErr)
}

// read adds what is in the ring; it reports whether that was all.
func (t *Collector) read(joiner *trace.Joiner) (drained bool, err error) {
	t.reader.SetDeadline(time.Now())
	var record ringbuf.Record
	for range batch {
		switch err := t.reader.ReadInto(&record); {
		case errors.Is(err, os.ErrDeadlineExceeded):
			return true, nil
		case err != nil:
			return false, fmt.Errorf("ring of events: %w", err)
		}
		e, err := trace.Parse(record.RawSample)
		if err != nil {
			return false, err
		}
		joiner.Add(e)
	}
	return false, nil
}

// lost counts the events that found no room.
func (t *Collector) lost() (uint64, error) {
	n, err := collector.OnAllCPUs(t.collection.Maps["trace_lost"], 0)
	if err != nil {
		return 0, fmt.Errorf("map trace_lost: %w", err)
	}
	return n, nil
}

// take names a chain, sends it, and counts it if it is of the sample.
func (t *Collector) take(c *trace.Chain) {
	t.name(c)
	if t.exporter != nil {
		t.exporter.Export(c.Report(collector.BootTime()))
	}
	if !c.Sampled {
		return
	}
	t.metrics.observe(c, time.Now())
	if t.own.Sink != nil {
		t.own.Sink(c)
	}
}

// name gives a chain the names of its server and command. A server that has no name yet, or has ended already, is
// "other".
func (t *Collector) name(c *trace.Chain) {
	if c.Request != "" {
		return // a replica's, which has its name
	}
	label, engine := t.options.Tracing.Server(c.Server)
	c.ServerName = cmp.Or(label, collector.OtherServer)
	if commands := server.DBSystem(engine).Commands(); int(c.Command) < len(commands) {
		c.CommandName = commands[c.Command]
	}
}

// Update implements exporterkit.Collector.
func (t *Collector) Update(ch chan<- prometheus.Metric) error {
	t.mu.Lock()
	counts, err := t.counts, t.err
	t.mu.Unlock()
	t.metrics.forget(t.options.Tracing.Servers(), time.Now())
	t.metrics.send(ch, counts)
	if t.exporter != nil {
		sent, failed, overflowed := t.exporter.Counts()
		ch <- collector.Counter(traceExported, float64(sent))
		ch <- collector.Counter(traceUnsent, float64(failed), "failed")
		ch <- collector.Counter(traceUnsent, float64(overflowed), "queue_full")
	}
	t.stats.Fill = map[string]bpfstats.Fill{"trace_events": {Entries: t.reader.AvailableBytes(), Max: t.reader.BufferSize()}}
	return errors.Join(err, t.stats.Update(ch))
}

// Joined is up to when all events are joined to chains, by the monotonic clock in nanoseconds.
func (t *Collector) Joined() uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.joined
}

// Counts are those of its joiner.
func (t *Collector) Counts() trace.Counts {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.counts
}

// Served are the slowest requests of engines elsewhere to replicas of this node.
func (t *Collector) Served() []*trace.Chain {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.slowestServed
}

// Check implements Collector.
func (t *Collector) Check() []exporterkit.CheckResult { return t.results }

// Close implements Collector. Programs of other collectors keep the ring as long as they are loaded.
func (t *Collector) Close() error {
	t.options.Tracing.Share(nil)
	if t.stop != nil {
		t.stop()
	}
	t.wait.Wait()
	var errs []error
	if t.exporter != nil {
		errs = append(errs, t.exporter.Close())
	}
	if t.reader != nil {
		errs = append(errs, t.reader.Close())
	}
	for _, l := range t.links {
		errs = append(errs, l.Close())
	}
	if t.collection != nil {
		t.collection.Close()
	}
	return errors.Join(errs...)
}
