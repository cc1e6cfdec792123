package collector

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
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/ringbuf"
	"github.com/prometheus/client_golang/prometheus"

	bpf "github.com/plumbline/plumbline/exporters/agent/bpf/trace"
	"github.com/plumbline/plumbline/exporters/agent/bpfstats"
	"github.com/plumbline/plumbline/exporters/agent/platform"
	"github.com/plumbline/plumbline/exporters/agent/server"
	"github.com/plumbline/plumbline/exporters/agent/trace"
	"github.com/plumbline/plumbline/exporters/agent/trace/otlp"
	"github.com/plumbline/plumbline/exporters/exporterkit"
)

// TraceOptions are the trace collector's own options.
type TraceOptions struct {
	// Sample is how many statements that waited there are to one that is followed; 0 is defaultTraceSample.
	Sample int
	// Slowest is how many of the slowest statements are kept for the page, and of the slowest requests to replicas of
	// this node; 0 is defaultTraceSlowest.
	Slowest int
	// RingBytes is the room for events that are not read yet, rounded up to a power of two; 0 is defaultTraceRing.
	RingBytes uint64
	// OTLP is where traces are sent, such as http://tempo:4318/v1/traces; nowhere if empty.
	OTLP string
}

const (
	defaultTraceSample  = 10
	defaultTraceSlowest = 20
	defaultTraceRing    = 8 << 20
	maxTraceSlowest     = 1000
	maxTraceRing        = 1 << 30
	// traceKeep is how long a slow statement stays on the page.
	traceKeep = 10 * time.Minute
	// traceInterval is how often events are read.
	traceInterval = 50 * time.Millisecond
	// traceBatch is how many events are read at most before losses are looked at: a second's at 100,000 a second.
	traceBatch = 100000
)

// tracer follows statements through the layers, one by one.
type tracer struct {
	log        *slog.Logger
	options    Options
	collection *ebpf.Collection
	links      []io.Closer
	reader     *ringbuf.Reader
	stats      bpfstats.Stats
	results    []exporterkit.CheckResult
	metrics    *traceMetrics
	exporter   *otlp.Exporter // nil if traces are sent nowhere
	stop       context.CancelFunc
	wait       sync.WaitGroup
	// sink takes the chains of the sample, in tests.
	sink func(*trace.Chain)

	mu      sync.Mutex
	counts  trace.Counts
	slowest []*trace.Chain
	// slowestServed are the slowest requests of engines elsewhere to replicas of this node.
	slowestServed []*trace.Chain
	joined        uint64 // all events up to then
	err           error
}

// NewTrace returns the collector of single statements' chains.
func NewTrace(o Options) (Collector, error) {
	t := &o.Trace
	if t.Sample < 0 || t.Slowest < 0 || t.Slowest > maxTraceSlowest || t.RingBytes > maxTraceRing {
		return nil, fmt.Errorf("one in %d statements, the %d slowest (at most %d) and a ring of %d bytes (at most %d) cannot be", t.Sample, t.Slowest, maxTraceSlowest, t.RingBytes, maxTraceRing)
	}
	if o.Tracing == nil {
		return nil, errors.New("nothing reports events: Options.Tracing is not set")
	}
	if t.Sample == 0 {
		t.Sample = defaultTraceSample
	}
	if t.Slowest == 0 {
		t.Slowest = defaultTraceSlowest
	}
	if t.RingBytes == 0 {
		t.RingBytes = defaultTraceRing
	}
	// A power of two of at least a page, as the kernel wants it.
	t.RingBytes = 1 << bits.Len64(max(t.RingBytes, uint64(os.Getpagesize()))-1)
	c := &tracer{log: o.Log.With("collector", "trace"), options: o, metrics: newTraceMetrics()}
	if t.OTLP != "" {
		exporter, err := otlp.New(t.OTLP, o.Node, c.log)
		if err != nil {
			return nil, err
		}
		c.exporter = exporter
	}
	return c, nil
}

// traceAttachments are the programs that this kernel needs, in the order in which they are attached: of a request whose
// beginning is seen, the end is, too.
func traceAttachments(k *platform.Kernel) []string {
	ends := []string{bpf.TraceProgTraceRequestDone}
	if len(k.Missing("block_io_done")) > 0 {
		ends = []string{bpf.TraceProgTraceRequestUpdated, bpf.TraceProgTraceBatchDone}
	}
	return append(ends, bpf.TraceProgTraceRequestEnds, bpf.TraceProgTraceRequestIssued, bpf.TraceProgTraceRequestMade)
}

// Start loads the programs on block requests and makes the ring that those of other collectors, which start later,
// write to.
func (t *tracer) Start(ctx context.Context) error {
	this, err := platform.Find(t.options.Boundary)
	if err != nil {
		return err
	}
	spec, err := bpf.LoadTrace()
	if err != nil {
		return fmt.Errorf("reading BPF programs: %w", err)
	}
	wanted := traceAttachments(this)
	maps.DeleteFunc(spec.Programs, func(name string, _ *ebpf.ProgramSpec) bool {
		for _, w := range wanted {
			if w == name {
				return false
			}
		}
		return true
	})
	spec.Maps["trace_events"].MaxEntries = uint32(t.options.Trace.RingBytes)
	if t.collection, err = ebpf.NewCollection(spec); err != nil {
		return fmt.Errorf("loading BPF programs: %w", platform.Explain(err))
	}
	t.stats = bpfstats.Stats{Collector: "trace", Programs: map[string]bpfstats.Program{}}
	crews := platform.Crews(spec, t.collection)
	for _, name := range wanted {
		program := t.collection.Programs[name]
		l, err := attachTrace(spec.Programs[name], program)
		t.results = append(t.results, exporterkit.CheckResult{Part: "trace: program " + name, Err: err})
		if err != nil {
			return errors.Join(fmt.Errorf("attaching BPF program %s: %w", name, platform.Explain(err)), t.Close())
		}
		t.links = append(t.links, l)
		t.stats.Programs[name] = crews[name]
	}
	if t.reader, err = ringbuf.NewReader(t.collection.Maps["trace_events"]); err != nil {
		return errors.Join(fmt.Errorf("ring of events: %w", err), t.Close())
	}
	if t.exporter != nil {
		if err := t.exporter.Start(ctx); err != nil {
			return errors.Join(err, t.Close())
		}
	}
	t.options.Tracing.share(t.collection.Maps)
	ctx, t.stop = context.WithCancel(ctx)
	t.wait.Go(func() { t.follow(ctx) })
	return nil
}

func attachTrace(spec *ebpf.ProgramSpec, program *ebpf.Program) (link.Link, error) {
	if spec.Type == ebpf.RawTracepoint {
		return link.AttachRawTracepoint(link.RawTracepointOptions{Name: spec.AttachTo, Program: program})
	}
	return link.AttachTracing(link.TracingOptions{Program: program})
}

// follow joins events until ctx ends.
func (t *tracer) follow(ctx context.Context) {
	joiner := trace.NewJoiner(trace.Options{Every: t.options.Trace.Sample, Slowest: t.options.Trace.Slowest, Keep: uint64(traceKeep),
		Replica: t.options.Tracing.replicaName, Followed: t.options.Tracing.followed})
	ticks := time.NewTicker(traceInterval)
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

// traceProgress is up to where losses were looked at and events joined.
type traceProgress struct{ lost, untold, at, joined uint64 }

// step reads the events that there are and hands on the chains that are complete with them.
func (t *tracer) step(joiner *trace.Joiner, seen *traceProgress) error {
	begun := monotonic()
	drained, err := t.read(joiner)
	lost, lostErr := t.lost()
	if lostErr == nil {
		joiner.Lost(lost-seen.lost, seen.at, monotonic())
		seen.lost = lost
	}
	untold, untoldErr := t.options.Tracing.unseen()
	if untoldErr == nil {
		if untold > seen.untold {
			joiner.Missed(seen.at, monotonic())
		}
		seen.untold = untold
	}
	if lostErr == nil && untoldErr == nil {
		seen.at = begun
	}
	unanswered, crowded := t.options.Tracing.takeUnanswered()
	for _, q := range unanswered {
		joiner.Unanswered(q)
	}
	if crowded > 0 {
		joiner.Missed(crowded, monotonic())
	}
	if drained {
		// Otherwise there are older events to come.
		for _, c := range joiner.Advance(begun) {
			t.take(c)
		}
		seen.joined = begun
	}
	return errors.Join(err, lostErr, untoldErr)
}

// read adds what is in the ring; it reports whether that was all.
func (t *tracer) read(joiner *trace.Joiner) (drained bool, err error) {
	t.reader.SetDeadline(time.Now())
	var record ringbuf.Record
	for range traceBatch {
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
func (t *tracer) lost() (uint64, error) {
	n, err := onAllCPUs(t.collection.Maps["trace_lost"], 0)
	if err != nil {
		return 0, fmt.Errorf("map trace_lost: %w", err)
	}
	return n, nil
}

// take names a chain, sends it, and counts it if it is of the sample.
func (t *tracer) take(c *trace.Chain) {
	t.name(c)
	if t.exporter != nil {
		t.exporter.Export(c.Report(bootTime()))
	}
	if !c.Sampled {
		return
	}
	t.metrics.observe(c, time.Now())
	if t.sink != nil {
		t.sink(c)
	}
}

// name gives a chain the names of its server and command. A server that has no name yet, or has ended already, is
// "other".
func (t *tracer) name(c *trace.Chain) {
	if c.Request != "" {
		return // a replica's, which has its name
	}
	label, engine := t.options.Tracing.server(c.Server)
	c.ServerName = cmp.Or(label, otherServer)
	if commands := server.Engine(engine).Commands(); int(c.Command) < len(commands) {
		c.CommandName = commands[c.Command]
	}
}

// Update implements exporterkit.Collector.
func (t *tracer) Update(ch chan<- prometheus.Metric) error {
	t.mu.Lock()
	counts, err := t.counts, t.err
	t.mu.Unlock()
	t.metrics.forget(t.options.Tracing.servers(), time.Now())
	t.metrics.send(ch, counts)
	if t.exporter != nil {
		sent, failed, crowded := t.exporter.Counts()
		ch <- counter(traceExported, float64(sent))
		ch <- counter(traceUnsent, float64(failed), "failed")
		ch <- counter(traceUnsent, float64(crowded), "crowded")
	}
	t.stats.Fill = map[string]bpfstats.Fill{"trace_events": {Entries: t.reader.AvailableBytes(), Max: t.reader.BufferSize()}}
	return errors.Join(err, t.stats.Update(ch))
}

// Check implements Collector.
func (t *tracer) Check() []exporterkit.CheckResult { return t.results }

// Close implements Collector. Programs of other collectors keep the ring as long as they are loaded.
func (t *tracer) Close() error {
	t.options.Tracing.share(nil)
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
