package collector

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/cilium/ebpf/ringbuf"
	"github.com/prometheus/client_golang/prometheus"

	bpf "github.com/plumbline/plumbline/exporters/agent/bpf/query"
	"github.com/plumbline/plumbline/exporters/agent/bpfstats"
	"github.com/plumbline/plumbline/exporters/agent/server"
	"github.com/plumbline/plumbline/exporters/exporterkit"
)

// QueryOptions are the query collector's own options.
type QueryOptions struct {
	// MaxServers bounds the servers with series of their own; further ones share
	// server="other". Each takes 20 KB of kernel memory per CPU; 0 is defaultServers.
	MaxServers int
	// ScanInterval is how often processes are looked through, apart from the times the kernel
	// tells that a server began or ended; 0 is defaultScanInterval.
	ScanInterval time.Duration
}

const (
	// defaultServers are enough for a node and, on 64 CPUs, take 45 MB.
	defaultServers      = 32
	maxServers          = 255
	defaultScanInterval = 10 * time.Second
	// firstScanDelay is the pause before the second look at a server that began just now; it
	// doubles until the server listens.
	firstScanDelay = 50 * time.Millisecond
)

// query measures every statement of the node's database servers: how long it took and where
// its time went. See README.md for what it needs of the kernel.
type query struct {
	log      *slog.Logger
	options  Options
	programs *queryPrograms
	stats    bpfstats.Stats
	news     *ringbuf.Reader
	stop     context.CancelFunc
	wait     sync.WaitGroup

	mu       sync.Mutex
	fleet    *fleet
	scanning error
}

// NewQuery returns the query collector.
func NewQuery(o Options) (Collector, error) {
	if o.Query.MaxServers < 0 || o.Query.MaxServers > maxServers {
		return nil, fmt.Errorf("at most %d servers can have series of their own, not %d", maxServers, o.Query.MaxServers)
	}
	if o.Query.MaxServers == 0 {
		o.Query.MaxServers = defaultServers
	}
	if o.Query.ScanInterval <= 0 {
		o.Query.ScanInterval = defaultScanInterval
	}
	return &query{log: o.Log.With("collector", "query"), options: o}, nil
}

// Start attaches the programs, finds the servers that run already, and follows them.
func (q *query) Start(ctx context.Context) error {
	programs, err := loadQueryPrograms(q.options.Query.MaxServers)
	if err != nil {
		return err
	}
	namespace, err := pidNamespace(q.options.ProcFS)
	if err != nil {
		return errors.Join(err, programs.Close())
	}
	news, err := ringbuf.NewReader(programs.objects.News)
	if err != nil {
		return errors.Join(fmt.Errorf("news of processes: %w", err), programs.Close())
	}
	q.programs, q.news = programs, news
	q.stats = bpfstats.Stats{
		Collector: "query",
		Programs:  programs.byName(),
	}
	q.fleet = newFleet(q.log, kernelSide{programs: programs, namespace: namespace, procfs: q.options.ProcFS}, q.options.Query.MaxServers)
	q.scan()
	ctx, q.stop = context.WithCancel(ctx)
	changed := make(chan struct{}, 1)
	q.wait.Go(func() { listen(news, changed) })
	q.wait.Go(func() {
		<-ctx.Done()
		news.Close()
	})
	q.wait.Go(func() { q.follow(ctx, changed) })
	return nil
}

// listen turns the kernel's news into a signal; several of them may become one.
func listen(news *ringbuf.Reader, changed chan<- struct{}) {
	for {
		if _, err := news.Read(); err != nil {
			return
		}
		select {
		case changed <- struct{}{}:
		default:
		}
	}
}

// follow looks for servers when the kernel tells of one, again and again while one is on its
// way up, and else at the interval.
func (q *query) follow(ctx context.Context, changed <-chan struct{}) {
	interval := q.options.Query.ScanInterval
	delay := interval
	for {
		timer := time.NewTimer(delay)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-changed:
			delay = firstScanDelay
		case <-timer.C:
			delay = min(2*delay, interval)
		}
		timer.Stop()
		if q.scan() {
			delay = interval
		}
	}
}

// scan brings the fleet up to date; it reports whether all servers are known completely.
func (q *query) scan() bool {
	now := time.Now()
	q.mu.Lock()
	known := q.fleet.known(now)
	q.mu.Unlock()
	found, err := server.Scan(q.options.ProcFS, known)
	q.mu.Lock()
	defer q.mu.Unlock()
	if err != nil && (q.scanning == nil || q.scanning.Error() != err.Error()) {
		q.log.Warn("a database server cannot be looked at in full", "err", err)
	}
	q.scanning = err
	return q.fleet.update(found, now)
}

// Update implements exporterkit.Collector.
func (q *query) Update(ch chan<- prometheus.Metric) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	followed, err := kernelSide{programs: q.programs}.census()
	q.stats.Fill = q.fill(followed)
	q.fleet.sendBackends(ch, followed)
	return errors.Join(
		err,
		q.fleet.send(ch, q.options),
		q.stats.Update(ch),
	)
}

// fill returns how full the maps are that grow with what is observed.
func (q *query) fill(followed [maxServers + 1]uint64) map[string]bpfstats.Fill {
	var backends uint64
	for _, n := range followed {
		backends += n
	}
	servers := q.options.Query.MaxServers - len(q.fleet.free)
	commands := int(bpf.QueryCommandCOMMANDS)
	return map[string]bpfstats.Fill{
		// Bounded by the machine's tasks; the kernel frees an entry with its task.
		"backends":   {Entries: int(backends)},
		"servers":    {Entries: servers, Max: q.options.Query.MaxServers},
		"statements": {Entries: servers * commands, Max: q.options.Query.MaxServers * commands},
		// In bytes.
		"news": {Entries: q.news.AvailableBytes(), Max: q.news.BufferSize()},
	}
}

// Check implements Collector.
func (q *query) Check() []exporterkit.CheckResult {
	q.mu.Lock()
	defer q.mu.Unlock()
	results := q.programs.check()
	results = append(results, checkRunDelay(q.options.ProcFS))
	results = append(results, q.fleet.check()...)
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
	return q.programs.Close()
}
