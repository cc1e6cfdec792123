package collector

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/plumbline/plumbline/exporters/exporterkit"
	"github.com/plumbline/plumbline/exporters/exporterkit/label"
)

// Metrics of the collector mayastor, from the REST API v0 (read at Mayastor 2.7). What the engine's own exporter
// has (volume_*, replica_*, diskpool_*) is not repeated. If the API does not answer, these
// series are left out until it does.
var (
	mayastorUp = prometheus.NewDesc("plumbline_openebs_mayastor_up",
		"Whether Mayastor's REST API answered the last poll completely: 1 yes, 0 no.", nil, nil)
	mayastorErrors = prometheus.NewDesc("plumbline_openebs_mayastor_errors_total",
		"Calls to Mayastor's REST API that failed, and parts of its answers that could not be used: answer, status (not 200), timeout, unavailable.", []string{"reason"}, nil)
	mayastorUnknown = prometheus.NewDesc("plumbline_openebs_mayastor_unknown_values_total",
		"Times Mayastor's REST API gave a state that this version does not know.", nil, nil)
	mayastorTarget = prometheus.NewDesc("plumbline_openebs_volume_target_info",
		"The node on which a published volume's target (nexus) is. Always 1.", []string{"volume", "backend", "node"}, nil)
	mayastorRebuilds = prometheus.NewDesc("plumbline_openebs_volume_rebuilds",
		"Rebuilds under way on a published volume.", []string{"volume", "backend"}, nil)
	mayastorChild = prometheus.NewDesc("plumbline_openebs_child_state",
		"A replica's state as the volume's target sees it: 1 for the one it is in, else 0.", []string{"volume", "replica", "state"}, nil)
	mayastorProgress = prometheus.NewDesc("plumbline_openebs_replica_rebuild_progress_ratio",
		"How much of a replica's rebuild is done, from 0 to 1; absent if it is not being rebuilt.", []string{"volume", "replica"}, nil)
	mayastorAllocated = prometheus.NewDesc("plumbline_openebs_replica_allocated_bytes",
		"Space the replica takes in its pool, in bytes, without its snapshots.", []string{"volume", "replica"}, nil)
	mayastorPool = prometheus.NewDesc("plumbline_openebs_pool_info",
		"A pool: its node, the disk as it was given, and the kernel's name for it (empty if unknown). Always 1.", []string{"node", "pool", "backend", "disk", "device"}, nil)
	mayastorNode = prometheus.NewDesc("plumbline_openebs_node_state",
		"The state of a node's io-engine: 1 for the one it is in, else 0.", []string{"node", "state"}, nil)
)

var (
	mayastorVolumeStates = []string{"Unknown", "Online", "Degraded", "Faulted", "Shutdown"}
	mayastorStates       = []string{"Unknown", "Online", "Degraded", "Faulted"}
	mayastorNodeStates   = []string{"Unknown", "Online", "Offline"}
)

type mayastor struct {
	o       Options
	client  *restClient
	devices *devices
	polled  chan struct{} // closed after the first poll

	mu      sync.Mutex
	up      bool
	lastErr error
	errors  map[string]uint64
	unknown uint64
	warned  map[string]bool // unknown values that were logged
	volumes []restVolume
	pools   []restPool
	nodes   []restNode
	// Where things are outlives a failed poll, unlike their state.
	address map[string]string // of replicas, by uuid
	disks   map[string]string // paths of the pools' disks, by node/pool
}

// errNotPolled is the state before the first poll has ended: it must not read as if there were no volumes.
var errNotPolled = errors.New("no poll has ended yet")

// NewMayastor makes the collector of Mayastor's control plane.
func NewMayastor(o Options) Collector {
	m := &mayastor{o: o, polled: make(chan struct{}), errors: map[string]uint64{}, warned: map[string]bool{}, lastErr: errNotPolled}
	if o.Objects != nil {
		followVolumes(o.Objects) // for the names of volumes
	}
	m.client = newRESTClient(o.Mayastor)
	m.devices = newDevices(o, m.client, m.count)
	return m
}

func (m *mayastor) Start(ctx context.Context) error {
	if _, err := url.ParseRequestURI(m.o.Mayastor); err != nil {
		return fmt.Errorf("address of Mayastor's REST API: %w", err)
	}
	go func() {
		first := sync.OnceFunc(func() { close(m.polled) })
		ticker := time.NewTicker(m.o.Interval)
		defer ticker.Stop()
		for {
			if err := exporterkit.Recovered(func() error { m.poll(ctx); return nil }); err != nil {
				m.lost(err)
			}
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

// lost is a poll that panicked: nothing is known.
func (m *mayastor) lost(err error) {
	m.o.Log.Error("poll of Mayastor's REST API failed", "err", err)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.errors["answer"]++
	m.up, m.lastErr = false, err
	m.volumes, m.pools, m.nodes = nil, nil, nil
}

// poll sends all queries concurrently; what fails is left out until the next poll.
func (m *mayastor) poll(parent context.Context) {
	ctx, cancel := context.WithTimeout(parent, m.o.Timeout)
	defer cancel()
	var volumes []restVolume
	var pools []restPool
	var nodes []restNode
	var uris []restReplicaURI
	var bad []error
	var errs [4]error
	var calls sync.WaitGroup
	calls.Go(func() { volumes, bad, errs[0] = m.client.volumes(ctx) })
	calls.Go(func() { errs[1] = list(ctx, m.client, "/pools", nil, maxListed, &pools) })
	calls.Go(func() { errs[2] = list(ctx, m.client, "/nodes", nil, maxNodes, &nodes) })
	calls.Go(func() { errs[3] = list(ctx, m.client, "/replicas", nil, maxVolumes*maxReplicas, &uris) })
	calls.Wait()
	if parent.Err() != nil {
		return
	}
	for i, p := range pools {
		pools[i].State = p.reported()
	}
	addresses := map[string]string{}
	for _, r := range uris {
		if u, err := url.Parse(r.URI); err == nil {
			addresses[r.UUID] = u.Host
		}
	}
	if errs[2] == nil {
		m.devices.refresh(parent, nodes)
	}

	m.mu.Lock()
	defer m.mu.Unlock()
	err := errors.Join(errs[:]...)
	if err != nil && (m.lastErr == nil || errors.Is(m.lastErr, errNotPolled)) {
		m.o.Log.Warn("Mayastor's REST API fails", "err", label.Text(err.Error(), maxLogged))
	} else if err == nil && m.lastErr != nil && !errors.Is(m.lastErr, errNotPolled) {
		m.o.Log.Info("Mayastor's REST API answers again")
	}
	m.lastErr = err
	for _, err := range errs {
		if err != nil {
			m.errors[reasonOf(err)]++
		}
	}
	for _, err := range bad {
		m.errors["answer"]++
		text := label.Text(err.Error(), maxLogged)
		if key := "bad " + text; !m.warned[key] && len(m.warned) < 10000 {
			m.warned[key] = true
			m.o.Log.Error("Mayastor lists something that cannot be used", "err", text)
		}
	}
	m.up = m.lastErr == nil
	m.volumes, m.pools, m.nodes = volumes, pools, nodes
	if errs[0] == nil && errs[3] == nil {
		// The API lists no replica of a node that is not online; its volume still has it.
		for _, v := range volumes {
			for replica := range v.State.Topology {
				if addresses[replica] == "" {
					addresses[replica] = m.address[replica]
				}
			}
		}
		m.address = addresses
	}
	if errs[1] == nil {
		m.disks = map[string]string{}
		for _, p := range pools {
			if p.State != nil && len(p.State.Disks) > 0 {
				m.disks[p.State.Node+"/"+p.ID] = diskPath(p.State.Disks[0])
			}
		}
	}
	m.countUnknown()
}

// count counts a call that failed beside the polls.
func (m *mayastor) count(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.errors[reasonOf(err)]++
}

// countUnknown counts states that are not known, and logs each once.
func (m *mayastor) countUnknown() {
	check := func(what, name, state string, known []string) {
		if state == "" || slices.Contains(known, state) {
			return
		}
		m.unknown++
		name, state = label.Value(name), label.Value(state)
		if key := what + name + state; !m.warned[key] && len(m.warned) < 10000 {
			m.warned[key] = true
			m.o.Log.Warn("Mayastor gives a state that is not known", "kind", what, "name", name, "state", state)
		}
	}
	for _, v := range m.volumes {
		check("volume", v.Spec.UUID, v.State.Status, mayastorVolumeStates)
		for name, r := range v.State.Topology {
			check("replica", name, r.State, mayastorStates)
			check("child", name, r.ChildStatus, mayastorStates)
			if p := r.RebuildProgress; p != nil && (*p < 0 || *p > 100) {
				m.errors["answer"]++
				m.o.Log.Error("Mayastor gives a rebuild progress that cannot be", "replica", label.Value(name), "percent", *p)
			}
		}
	}
	for _, p := range m.pools {
		if p.State != nil {
			check("pool", p.ID, p.State.Status, mayastorStates)
		}
	}
	for _, n := range m.nodes {
		if n.State != nil {
			check("node", n.ID, n.State.Status, mayastorNodeStates)
		}
	}
}

func (m *mayastor) Update(ch chan<- prometheus.Metric) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	gauge(ch, mayastorUp, truth(m.up))
	for _, r := range reasons {
		exporterkit.Counter(ch, mayastorErrors, float64(m.errors[r]), r)
	}
	exporterkit.Counter(ch, mayastorUnknown, float64(m.unknown))
	for _, p := range m.pools {
		if p.State == nil {
			continue
		}
		disk := ""
		if len(p.State.Disks) > 0 {
			disk = p.State.Disks[0]
		}
		if device, pending := m.device(p.State.Node, p.ID); !pending {
			gauge(ch, mayastorPool, 1, p.State.Node, p.ID, BackendMayastor, disk, device)
		}
		states(ch, poolState, p.State.Status, mayastorStates, p.State.Node, p.ID, BackendMayastor)
	}
	for _, n := range m.nodes {
		if n.State != nil {
			states(ch, mayastorNode, n.State.Status, mayastorNodeStates, n.ID)
		}
	}
	name := volumeNames(m.o.Objects)
	for _, v := range m.volumes {
		m.collectVolume(ch, v, name(v.Spec.UUID))
	}
	if m.lastErr != nil {
		// Its text only: a poll that panicked was none of this scrape's.
		return fmt.Errorf("the last poll of Mayastor's REST API: %s", label.Text(m.lastErr.Error(), maxLogged))
	}
	return nil
}

func (m *mayastor) collectVolume(ch chan<- prometheus.Metric, v restVolume, name string) {
	gauge(ch, exporterkit.DesiredReplicas, float64(*v.Spec.NumReplicas), name, BackendMayastor)
	states(ch, volumeState, v.State.Status, mayastorVolumeStates, name, BackendMayastor)
	healthy := 0
	for replica, r := range v.State.Topology {
		if device, pending := m.device(r.Node, r.Pool); !pending {
			gauge(ch, exporterkit.ReplicaInfo, 1, name, replica, r.Node, device, m.address[replica], BackendMayastor)
		}
		states(ch, replicaState, r.State, mayastorStates, name, replica, BackendMayastor)
		if r.Usage != nil {
			gauge(ch, mayastorAllocated, float64(r.Usage.Allocated), name, replica)
		}
		if r.ChildStatus != "" {
			states(ch, mayastorChild, r.ChildStatus, mayastorStates, name, replica)
		}
		if r.ChildStatus == "Online" {
			healthy++
		}
		if p := r.RebuildProgress; p != nil && *p >= 0 && *p <= 100 {
			gauge(ch, mayastorProgress, float64(*p)/100, name, replica)
		}
	}
	if t := v.State.Target; t != nil {
		if t.State == "ShuttingDown" || t.State == "Shutdown" {
			healthy = 0 // its children are as they were, but it serves nothing
		}
		gauge(ch, exporterkit.HealthyReplicas, float64(healthy), name, BackendMayastor)
		gauge(ch, mayastorTarget, 1, name, BackendMayastor, t.Node)
		gauge(ch, mayastorRebuilds, float64(t.Rebuilds), name, BackendMayastor)
	} else if t := v.Spec.Target; t != nil {
		// It is published, and there is no nexus: its io-engine is dead, or the control plane does not reach it.
		gauge(ch, exporterkit.HealthyReplicas, 0, name, BackendMayastor)
		gauge(ch, mayastorTarget, 1, name, BackendMayastor, t.Node)
	}
}

// device is the kernel's name of a pool's disk; while it is pending the pool and its replicas have no series that names
// it.
func (m *mayastor) device(node, pool string) (name string, pending bool) {
	return m.devices.name(node, m.disks[node+"/"+pool])
}

// diskPath is the path in a disk's URI, as in aio:///dev/sdb?blk_size=512.
func diskPath(disk string) string {
	if u, err := url.Parse(disk); err == nil && u.Scheme != "" {
		return u.Path
	}
	return strings.TrimSpace(disk)
}

func (m *mayastor) Check(ctx context.Context) []exporterkit.CheckResult {
	result := exporterkit.CheckResult{Part: "Mayastor's REST API at " + m.o.Mayastor}
	select {
	case <-m.polled:
		m.mu.Lock()
		defer m.mu.Unlock()
		result.Err = m.lastErr
		result.Note = fmt.Sprintf("%d volumes, %d pools, %d nodes", len(m.volumes), len(m.pools), len(m.nodes))
	case <-ctx.Done():
		result.Err = ctx.Err()
	}
	return []exporterkit.CheckResult{result}
}
