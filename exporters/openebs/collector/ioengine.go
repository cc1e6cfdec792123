package collector

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/plumbline/plumbline/exporters/exporterkit"
	"github.com/plumbline/plumbline/exporters/exporterkit/label"
	"github.com/plumbline/plumbline/exporters/exporterkit/rpc"
)

// Metrics of the collector ioengine: what the gRPC API of each node's io-engine adds to the
// REST API. A node that does not answer has only ioengine_up.
var (
	ioUp = prometheus.NewDesc("plumbline_openebs_ioengine_up",
		"Whether the node's io-engine answered the last poll: 1 yes, 0 no.", []string{"node"}, nil)
	ioErrors = prometheus.NewDesc("plumbline_openebs_ioengine_errors_total",
		"Calls to the node's io-engine that failed: answer (it cannot be true), status (the call was refused), timeout, unavailable.", []string{"node", "reason"}, nil)
	ioReason = prometheus.NewDesc("plumbline_openebs_child_state_reason",
		"Why a replica is not in use, as its volume's target reports: 1 for the reason that holds; absent if there is none.", []string{"volume", "replica", "reason"}, nil)
	ioTotal = prometheus.NewDesc("plumbline_openebs_rebuild_bytes",
		"Size of what the rebuild under way has to scan, in bytes.", []string{"volume", "replica"}, nil)
	ioRecovered = prometheus.NewDesc("plumbline_openebs_rebuild_recovered_bytes",
		"How much of it the rebuild has dealt with, copied or not, in bytes.", []string{"volume", "replica"}, nil)
	ioTransferred = prometheus.NewDesc("plumbline_openebs_rebuild_transferred_bytes",
		"How much the rebuild has copied, in bytes.", []string{"volume", "replica"}, nil)
	ioPartial = prometheus.NewDesc("plumbline_openebs_rebuild_partial",
		"Whether the rebuild under way copies only what changed: 1 yes, 0 no, everything.", []string{"volume", "replica"}, nil)
)

// childReasons are the numbers of ChildStateReason; number 0 is none.
var childReasons = []string{"", "init", "closed", "cannot_open", "config_invalid", "rebuild_failed", "io_failure",
	"by_client", "out_of_sync", "no_space", "timed_out", "admin_failed"}

const (
	// maxMessage bounds an io-engine's answer, in bytes.
	maxMessage = 4 << 20
	// maxNexuses bounds the nexuses of a node, maxReplicas the children of each.
	maxNexuses = 5000
	// maxReason is the largest number of a reason that becomes a label.
	maxReason = 99
)

type ioEngine struct {
	o      Options
	client *restClient
	polled chan struct{}

	mu      sync.Mutex
	listErr error
	nodes   map[string]*ioNode
}

// ioNode is one node's io-engine.
type ioNode struct {
	name, endpoint string
	cancel         context.CancelFunc

	mu      sync.Mutex
	known   bool
	up      bool
	lastErr error
	errors  map[string]uint64
	nexuses []nexus
	stats   map[string]rebuildStats // by child's URI
}

// NewIOEngine makes the collector of the nodes' io-engines.
func NewIOEngine(o Options) Collector {
	return &ioEngine{o: o, client: newRESTClient(o.Mayastor), polled: make(chan struct{}), nodes: map[string]*ioNode{}}
}

func (e *ioEngine) Start(ctx context.Context) error {
	go func() {
		first := sync.OnceFunc(func() { close(e.polled) })
		ticker := time.NewTicker(e.o.Interval)
		defer ticker.Stop()
		for {
			e.list(ctx)
			first()
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
			}
		}
	}()
	return nil
}

// list learns the nodes from the REST API; each new one gets a poller of its own.
func (e *ioEngine) list(parent context.Context) {
	ctx, cancel := context.WithTimeout(parent, e.o.Timeout)
	defer cancel()
	var nodes []restNode
	err := exporterkit.Recovered(func() error { return list(ctx, e.client, "/nodes", nil, maxNodes, &nodes) })
	e.mu.Lock()
	defer e.mu.Unlock()
	e.listErr = err
	if err != nil {
		return // keep the nodes as they are; they answer for themselves
	}
	wanted := map[string]string{}
	for _, n := range nodes {
		if n.State != nil && n.State.Endpoint != "" {
			wanted[n.ID] = n.State.Endpoint
		}
	}
	for name, n := range e.nodes {
		if wanted[name] != n.endpoint {
			n.cancel()
			delete(e.nodes, name)
		}
	}
	for name, endpoint := range wanted {
		if e.nodes[name] == nil {
			ctx, cancel := context.WithCancel(parent)
			n := &ioNode{name: name, endpoint: endpoint, cancel: cancel, errors: map[string]uint64{}}
			e.nodes[name] = n
			go n.run(ctx, e.o)
		}
	}
}

func (n *ioNode) run(ctx context.Context, o Options) {
	conn, err := grpc.NewClient("passthrough:///"+n.endpoint, append(rpc.Options(),
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithMaxHeaderListSize(maxHeader),
		grpc.WithDefaultCallOptions(grpc.ForceCodec(rawCodec{}), grpc.MaxCallRecvMsgSize(maxMessage)))...)
	if err != nil {
		n.store(o, nil, nil, err)
		return
	}
	defer conn.Close()
	ticker := time.NewTicker(o.Interval)
	defer ticker.Stop()
	for {
		call, cancel := context.WithTimeout(ctx, o.Timeout)
		var nexuses []nexus
		var stats map[string]rebuildStats
		err := exporterkit.Recovered(func() (err error) { nexuses, stats, err = listNexuses(call, conn); return err })
		cancel()
		if ctx.Err() != nil {
			return
		}
		n.store(o, nexuses, stats, err)
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// listNexuses returns the node's nexuses and the statistics of the rebuilds under way.
func listNexuses(ctx context.Context, conn *grpc.ClientConn) ([]nexus, map[string]rebuildStats, error) {
	invoke := func(method string, request []byte) ([]byte, error) {
		var reply []byte
		err := conn.Invoke(ctx, "/mayastor.v1.NexusRpc/"+method, &request, &reply)
		return reply, err
	}
	reply, err := invoke("ListNexus", nil)
	if err != nil {
		return nil, nil, err
	}
	nexuses, err := parseNexusList(reply)
	if err != nil {
		return nil, nil, err
	}
	stats := map[string]rebuildStats{}
	for _, n := range nexuses {
		for _, c := range n.children {
			if childReason(c) != "out_of_sync" {
				continue
			}
			reply, err := invoke("GetRebuildStats", rebuildStatsRequest(n.uuid, c.uri))
			if status.Code(err) == codes.NotFound {
				continue // ended since the list, or not begun
			}
			if err != nil {
				return nexuses, stats, err
			}
			if stats[c.uri], err = parseRebuildStats(reply); err != nil {
				delete(stats, c.uri)
				return nexuses, stats, fmt.Errorf("rebuild of %s: %w", c.uri, err)
			}
		}
	}
	return nexuses, stats, nil
}

func (n *ioNode) store(o Options, nexuses []nexus, stats map[string]rebuildStats, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if err != nil {
		n.errors[grpcReason(err)]++
		if n.lastErr == nil {
			o.Log.Warn("io-engine does not answer as it should", "node", label.Value(n.name), "endpoint", label.Value(n.endpoint), "err", label.Text(err.Error(), maxLogged))
		}
	}
	n.known, n.lastErr = true, err
	n.up, n.nexuses, n.stats = nexuses != nil || err == nil, nexuses, stats
}

func grpcReason(err error) string {
	switch code := status.Code(err); {
	case errors.As(err, new(answerError)):
		return "answer"
	case code == codes.ResourceExhausted:
		return "answer" // larger than maxMessage
	case code == codes.DeadlineExceeded:
		return "timeout"
	case code == codes.Unavailable:
		return "unavailable"
	}
	return "status"
}

// childReason is the label value of a child's reason; a number from the future keeps it.
func childReason(c child) string {
	if c.stateReason < uint64(len(childReasons)) {
		return childReasons[c.stateReason]
	}
	if c.stateReason > maxReason {
		return "unknown" // no number of a list, and nothing to make ever new series of
	}
	return fmt.Sprintf("unknown_%d", c.stateReason)
}

// replicaOf is the replica's UUID in a child's URI, as in nvmf://host/nqn:…?uuid=….
func replicaOf(uri string) string {
	u, err := url.Parse(uri)
	if err != nil {
		return uri
	}
	if uuid := u.Query().Get("uuid"); uuid != "" {
		return uuid
	}
	return strings.TrimPrefix(u.Path, "/")
}

func (e *ioEngine) Update(ch chan<- prometheus.Metric) error {
	e.mu.Lock()
	nodes := slices.SortedFunc(maps.Values(e.nodes), func(a, b *ioNode) int { return strings.Compare(a.name, b.name) })
	err := e.listErr
	e.mu.Unlock()
	name := volumeNames(e.o.Objects)
	sent := map[string]bool{} // volumes
	for _, n := range nodes {
		n.collect(ch, name, sent)
	}
	return err
}

// collect sends a node's series, of each volume those of one nexus: after a failover the one before may still be there.
// It is mostly shut down; of two that serve it is the one on the first node by name.
func (n *ioNode) collect(ch chan<- prometheus.Metric, name func(string) string, sent map[string]bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.known {
		return
	}
	gauge(ch, ioUp, truth(n.up), n.name)
	for _, r := range reasons {
		exporterkit.Counter(ch, ioErrors, float64(n.errors[r]), n.name, r)
	}
	for _, x := range n.nexuses {
		if !x.serves() || sent[x.name] {
			continue
		}
		sent[x.name] = true
		volume := name(x.name)
		for _, c := range x.children {
			replica := replicaOf(c.uri)
			if reason := childReason(c); reason != "" {
				gauge(ch, ioReason, 1, volume, replica, reason)
			}
			if s, ok := n.stats[c.uri]; ok {
				gauge(ch, ioTotal, float64(s.total)*float64(s.blockSize), volume, replica)
				gauge(ch, ioRecovered, float64(s.recovered)*float64(s.blockSize), volume, replica)
				gauge(ch, ioTransferred, float64(s.transferred)*float64(s.blockSize), volume, replica)
				gauge(ch, ioPartial, truth(s.partial), volume, replica)
			}
		}
	}
}

func (e *ioEngine) Check(ctx context.Context) []exporterkit.CheckResult {
	select {
	case <-e.polled:
	case <-ctx.Done():
		return []exporterkit.CheckResult{{Part: "list of io-engines", Err: ctx.Err()}}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.listErr != nil {
		return []exporterkit.CheckResult{{Part: "list of io-engines", Err: e.listErr}}
	}
	var results []exporterkit.CheckResult
	for _, n := range e.nodes {
		r := exporterkit.CheckResult{Part: "io-engine of " + n.name + " at " + n.endpoint}
		for r.Err == nil && r.Note == "" {
			n.mu.Lock()
			if n.known {
				r.Err, r.Note = n.lastErr, fmt.Sprintf("%d nexuses", len(n.nexuses))
			}
			n.mu.Unlock()
			select {
			case <-ctx.Done():
				r.Err = ctx.Err()
			case <-time.After(10 * time.Millisecond):
			}
		}
		results = append(results, r)
	}
	return results
}
