// Package query is the collector "query": how long database statements take and where their time goes.
package query

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/cilium/ebpf/ringbuf"
	"github.com/prometheus/client_golang/prometheus"

	bpf "github.com/plumbline/plumbline/exporters/agent/bpf/query"
	"github.com/plumbline/plumbline/exporters/agent/bpfstats"
	"github.com/plumbline/plumbline/exporters/agent/collector"
	"github.com/plumbline/plumbline/exporters/agent/platform"
	"github.com/plumbline/plumbline/exporters/agent/server"
	"github.com/plumbline/plumbline/exporters/agent/untrusted"
	"github.com/plumbline/plumbline/exporters/exporterkit"
)

// Options are the query collector's own options.
type Options struct {
	// MaxServers bounds the servers with series of their own; further ones share
	// server="other". Each takes 18 KB of kernel memory per CPU; 0 is defaultServers.
	MaxServers int
	// ScanInterval is how often processes are scanned, apart from the times the kernel reports that a server began or
	// ended; 0 is defaultScanInterval.
	ScanInterval time.Duration
	// ServerNames are further names of servers' programs, see server.NewPrograms.
	ServerNames []string
	// Deny is a regular expression of servers' labels, anchored at both ends: those servers are not followed; empty is none.
	Deny string
	// TLS is whose encrypted connections are read: TLSTrusted (also if empty) or TLSOff.
	TLS string
	// Top is how many queries of each server have series of their own, where the server's identifiers are known; 0: none.
	Top int
}

// Values of Options.TLS.
const (
	// TLSTrusted are servers whose program and TLS library only root may write.
	TLSTrusted = "trusted"
	// TLSOff is nobody's.
	TLSOff = "off"
)

const (
	// defaultServers are enough for a node and, on 64 CPUs, take 45 MB.
	defaultServers = 32

	defaultScanInterval = 10 * time.Second
)

// query measures every statement of the node's database servers: how long it took and where
// its time went. See docs/install/agent.md for what it needs of the kernel.
type query struct {
	log      *slog.Logger
	options  collector.Options
	own      Options
	programs *queryPrograms
	stats    bpfstats.Stats
	ring     *ringbuf.Reader
	kernel   kernelSide
	calls    *untrusted.Calls
	scanner  *server.Scanner
	events   *processEvents
	unknown  *unknownListeners
	stop     context.CancelFunc
	wait     sync.WaitGroup

	// mu is never held over anything that may hang: only over calls on BPF maps and programs.
	mu    sync.Mutex
	fleet *fleet
	deny  *regexp.Regexp
	// scans are the processes whose scan is under way, tried those that were scanned and are not followed, and
	// problems what could not be read of servers that are there.
	scans    map[server.ID]bool
	tried    map[server.ID]trial
	problems map[server.ID]error
	scanning error
	// probing are the libraries that are being probed, or given up.
	probing background
}

// New returns the query collector.
func New(o collector.Options, own Options) (collector.Collector, error) {
	if own.MaxServers < 0 || own.MaxServers > collector.MaxServers {
		return nil, fmt.Errorf("at most %d servers can have series of their own, not %d", collector.MaxServers, own.MaxServers)
	}
	if own.MaxServers == 0 {
		own.MaxServers = defaultServers
	}
	if own.ScanInterval <= 0 {
		own.ScanInterval = defaultScanInterval
	}
	switch own.TLS {
	case "":
		own.TLS = TLSTrusted
	case TLSTrusted, TLSOff:
	default:
		return nil, fmt.Errorf("encrypted connections are read of %s servers or %s, not %q", TLSTrusted, TLSOff, own.TLS)
	}
	if own.Top < 0 || own.Top > MaxTop {
		return nil, fmt.Errorf("at most %d queries of a server can have series of their own, not %d", MaxTop, own.Top)
	}
	names, err := server.NewPrograms(own.ServerNames...)
	if err != nil {
		return nil, fmt.Errorf("--query.server-name: %w", err)
	}
	var deny *regexp.Regexp
	if own.Deny != "" {
		if deny, err = regexp.Compile("^(?:" + own.Deny + ")$"); err != nil {
			return nil, fmt.Errorf("--query.server-deny: %w", err)
		}
	}
	calls := o.SharedCalls()
	scanner := server.NewScanner(o.ProcFS, calls)
	scanner.Programs = names
	return &query{
		// Any user that can start processes can cause lines in this log.
		log: slog.New(collector.NewBoundedHandler(o.Log.With("collector", "query").Handler())), options: o, own: own, calls: calls,
		deny: deny, scanner: scanner, events: newProcessEvents(), unknown: newUnknownListeners(scanner),
		scans: map[server.ID]bool{}, tried: map[server.ID]trial{}, problems: map[server.ID]error{},
	}, nil
}

// Start attaches the programs, finds the servers that run already, and follows them.
func (q *query) Start(ctx context.Context) error {
	this, err := platform.Find(q.options.AttachMode)
	if err != nil {
		return err
	}
	programs, err := loadQueryPrograms(this, q.scanner.Programs, q.own.MaxServers, q.own.Top, q.options.Tracing, q.options.SharedDispatcher())
	if err != nil {
		this.Features.SetUnavailable(platform.Statements, err)
		return err
	}
	q.log.Info("watching calls on sockets", "attach_mode", this.AttachMode, "backups", this.Backups)
	this.Features.SetUnavailable(platform.PhaseRunqueue, platform.RunDelay(q.options.ProcFS))
	namespace, err := collector.PIDNamespace(q.options.ProcFS)
	if err != nil {
		return errors.Join(err, programs.Close())
	}
	events, err := ringbuf.NewReader(programs.objects.ProcessEvents)
	if err != nil {
		return errors.Join(fmt.Errorf("process events: %w", err), programs.Close())
	}
	q.programs, q.ring = programs, events
	q.stats = bpfstats.Stats{
		Collector: "query",
		Programs:  collector.ProgramsOf(programs.groups),
	}
	q.kernel = kernelSide{programs: programs, namespace: namespace, procfs: q.options.ProcFS, names: q.scanner.Programs}
	q.fleet = newFleet(q.log, q.kernel, q.own.MaxServers)
	q.fleet.onCluster = q.options.Pods != nil
	q.fleet.deny = q.deny
	q.fleet.top = q.own.Top
	q.options.Tracing.Named(q.label, q.running)
	q.options.Servers.Add(q.servers)
	if q.options.Volumes != nil {
		q.options.Volumes.Start(ctx, q.calls)
	}
	q.walk(untrusted.DefaultTimeout * 3)
	q.probing.await(probesAtStart)
	q.unknown.scan(q.log, namespacesAtStart)
	ctx, q.stop = context.WithCancel(ctx)
	q.wait.Go(func() { q.events.listen(events, namespace == initialPIDNamespace) })
	q.wait.Go(func() {
		<-ctx.Done()
		events.Close()
	})
	q.wait.Go(func() { q.follow(ctx) })
	q.wait.Go(func() {
		collector.Every(ctx, q.log, q.own.ScanInterval, nil, func() { q.unknown.scan(q.log, namespacesAtOnce) })
	})
	if q.own.Top > 0 {
		q.wait.Go(func() { collector.Every(ctx, q.log, drainInterval, nil, q.drain) })
	}
	return nil
}

// Update implements exporterkit.Collector.
func (q *query) Update(ch chan<- prometheus.Metric) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	// In this order: see addUnfinished.
	sums, rest, readErr := q.fleet.read()
	snap, err := q.kernel.snapshot()
	if err == nil {
		q.fleet.counted(&snap, time.Now())
	}
	keys := q.fleet.keys()
	for i := range snap.activities {
		if t := sums[keys[snap.activities[i].Server]]; t != nil {
			t.addUnfinished(&snap.activities[i])
		}
	}
	q.stats.Fill = q.fill(snap.tasks)
	q.fleet.sendFollowed(ch, snap.tasks)
	q.fleet.sendUncounted(ch)
	q.fleet.sendActivities(ch, snap, keys)
	q.unknown.send(ch, q.options.Node)
	collector.SendUnidentified(ch, q.options.Node, collector.KindLine, map[string]int{collector.ReasonStat: q.scanner.StatErrors()})
	return errors.Join(
		readErr,
		err,
		q.fleet.send(ch, q.options, sums, rest),
		q.stats.Update(ch),
	)
}

// label is the server label, and the engine, of the server with a number; empty if it has none yet, or ended.
func (q *query) label(number uint32) (label, dbSystem string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	key := q.fleet.keys()[number]
	return key.label, key.dbSystem
}

// servers are those that are followed now with series of their own.
func (q *query) servers() (all []collector.RunningServer) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, srv := range q.fleet.tracked {
		if srv.label != "" && srv.number != otherNumber {
			all = append(all, collector.RunningServer{Pid: srv.PID, Label: srv.label})
		}
	}
	return all
}

// running are the labels of the servers that are followed now.
func (q *query) running() map[string]bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	labels := map[string]bool{}
	for _, key := range q.fleet.keys() {
		labels[key.label] = true
	}
	return labels
}

// fill returns how full the maps are that grow with what is observed.
func (q *query) fill(followed [collector.MaxServers + 1]uint64) map[string]bpfstats.Fill {
	var tasks uint64
	for _, n := range followed {
		tasks += n
	}
	servers := q.own.MaxServers - len(q.fleet.free)
	commands := int(bpf.QueryCommandCOMMANDS)
	return map[string]bpfstats.Fill{
		// Bounded by the machine's tasks; the kernel frees an entry with its task.
		"followed_tasks": {Entries: int(tasks)},
		"servers":        {Entries: servers, Max: q.own.MaxServers},
		"statements":     {Entries: servers * commands, Max: q.own.MaxServers * commands},
		// Nothing with --query.top=0.
		"queries": {Entries: q.fleet.occupied(), Max: q.own.MaxServers * int(q.programs.entries)},
		// In bytes.
		"process_events": {Entries: q.ring.AvailableBytes(), Max: q.ring.BufferSize()},
	}
}

// Check implements Collector.
func (q *query) Check() []exporterkit.CheckResult {
	q.mu.Lock()
	defer q.mu.Unlock()
	results := q.programs.check()
	results = append(results, q.fleet.check()...)
	results = append(results, q.unknown.check())
	if q.scanning != nil {
		results = append(results, exporterkit.CheckResult{Part: "query: discovery", Err: inShort(q.scanning), Optional: true,
			Note: "volume, version or port of a server are unknown"})
	}
	return results
}

// inShort makes one line of what could not be read of servers.
func inShort(err error) error {
	first, rest, more := strings.Cut(err.Error(), "\n")
	if more {
		first += fmt.Sprintf(" (and %d more)", strings.Count(rest, "\n")+1)
	}
	if errors.Is(err, fs.ErrPermission) {
		first = "needs CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH: " + first
	}
	return errors.New(first)
}

// Close implements Collector.
func (q *query) Close() error {
	if q.stop == nil {
		return nil
	}
	q.stop()
	q.wait.Wait()
	// A library on a file system that hangs cannot be waited for.
	q.probing.await(probesAtStart)
	return q.programs.Close()
}
