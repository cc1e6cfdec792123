package collector

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/plumbline/plumbline/exporters/exporterkit"
	"github.com/plumbline/plumbline/exporters/exporterkit/kube"
)

// The collector cstor reads the objects cstorvolumes, cstorvolumereplicas and cstorpoolinstances (cstor.openebs.io/v1).
// Counters and latencies are its own exporter's (openebs_*). The manager in the target's own pod writes a volume's
// state. The manager of a replica's pool, in another pod, writes the replica's state, and calls it offline as soon as
// no target is connected to it. The pools' states count only where the volume's manager writes none.
var cstorStatusTime = prometheus.NewDesc("plumbline_openebs_volume_status_timestamp_seconds",
	"When the volume's own manager last wrote its state, in seconds since 1970. Where that is over 90 seconds ago, the target's pod is dead or cut off: the state is left out, and healthy replicas are those whose pools report that a target is connected to them.",
	[]string{"volume", "backend"}, nil)

// cstorStale is how long a volume's or replica's status holds: its manager writes it at each resync, whether it changed
// or not, and the operator starts it with one of 30 s (cstor-operators, RESYNC_INTERVAL in
// pkg/controllers/cstorvolumeconfig/deployment.go, and the default of the pool's). It is three of them.
const cstorStale = 90 * time.Second

var (
	cstorVolumeStates  = []string{"Init", "Healthy", "Degraded", "Offline", "Error", "Invalid"}
	cstorReplicaStates = []string{"Healthy", "Offline", "Degraded", "NewReplicaDegraded", "Rebuilding", "ReconstructingNewReplica",
		"Error", "DeletionFailed", "Invalid", "Init", "Recreate"}
	cstorPoolStates = []string{"ONLINE", "OFFLINE", "DEGRADED", "FAULTED", "REMOVED", "UNAVAIL", "Error", "Pending", "Init"}
	// cstorUnborn are the states of a replica that no target was ever connected to.
	cstorUnborn = []string{"", "Init", "Recreate"}
)

// cstorStatus is what is the same in the status of a volume and of a replica.
type cstorStatus struct {
	Phase   string `json:"phase"`
	Updated string `json:"lastUpdateTime"`
}

// unknownStatus names the field of a status that cannot be read.
func unknownStatus(s cstorStatus, phases []string) string {
	if _, err := s.updated(); err != nil {
		return "status.lastUpdateTime: " + s.Updated
	}
	return unknownValue("status.phase", s.Phase, phases)
}

// updated returns when the status was written; zero if that is not known.
func (s cstorStatus) updated() (time.Time, error) {
	if s.Updated == "" {
		return time.Time{}, nil
	}
	return time.Parse(time.RFC3339, s.Updated)
}

// cstorAges are how old the status of volumes and of replicas is.
type cstorAges struct {
	now time.Time
	// since is when each status was first seen with the time that it has, by this machine's clock: that of the machine
	// that wrote it may be ahead.
	since map[cstorSeen]time.Time
}

// cstorSeen is a status of an object, with its time.
type cstorSeen struct{ kind, name, updated string }

// next returns the ages at a later time. What is not among these objects any more is forgotten.
func (a cstorAges) next(now time.Time, volumes map[string]*cstorVolume, replicas map[string]*cstorReplica) cstorAges {
	b := cstorAges{now, map[cstorSeen]time.Time{}}
	keep := func(seen cstorSeen) {
		since, known := a.since[seen]
		if !known {
			since = now
		}
		b.since[seen] = since
	}
	for name, v := range volumes {
		keep(v.seen(name))
	}
	for name, r := range replicas {
		keep(r.seen(name))
	}
	return b
}

func (o *cstorVolume) seen(name string) cstorSeen {
	return cstorSeen{"volume", name, o.Status.Updated}
}

func (o *cstorReplica) seen(name string) cstorSeen {
	return cstorSeen{"replica", name, o.Status.Updated}
}

// of returns how old a status is, and whether that is known. A time that cannot be parsed is reported when the object
// arrives, see unknownStatus.
func (a cstorAges) of(seen cstorSeen) (time.Duration, bool) {
	updated, err := cstorStatus{Updated: seen.updated}.updated()
	age := a.now.Sub(updated)
	if since, ok := a.since[seen]; ok {
		age = max(age, a.now.Sub(since))
	}
	return age, err == nil && !updated.IsZero()
}

func (a cstorAges) stale(seen cstorSeen) bool {
	age, known := a.of(seen)
	return known && age > cstorStale
}

type cstorVolume struct {
	kube.Meta `json:"metadata"`
	Spec      struct {
		Replicas int64 `json:"replicationFactor"`
	} `json:"spec"`
	Status struct {
		cstorStatus
		Replicas []struct {
			Mode string `json:"mode"`
		} `json:"replicaStatuses"`
	} `json:"status"`
}

func (o *cstorVolume) UnknownValue() string {
	return unknownStatus(o.Status.cstorStatus, cstorVolumeStates)
}

func (o *cstorVolume) Check() error { return checkReplicas(o.Spec.Replicas, len(o.Status.Replicas)) }

type cstorReplica struct {
	cstorReplicaMeta `json:"metadata"`
	Status           struct{ cstorStatus } `json:"status"`
}

type cstorReplicaMeta struct {
	kube.Meta
	// Labels tie it to its volume and its pool (openebs/api pkg/apis/types).
	Labels struct {
		Volume string `json:"openebs.io/persistent-volume"`
		Pool   string `json:"cstorpoolinstance.openebs.io/name"`
	} `json:"labels"`
}

// Shared implements kube's sharing of texts.
func (o *cstorReplica) Shared() []*string {
	return []*string{&o.Labels.Pool, &o.Status.Phase, &o.Status.Updated}
}

func (o *cstorReplica) UnknownValue() string {
	return unknownStatus(o.Status.cstorStatus, cstorReplicaStates)
}

type cstorPool struct {
	kube.Meta `json:"metadata"`
	Spec      struct {
		Host string `json:"hostName"`
	} `json:"spec"`
	Status struct {
		Phase string `json:"phase"`
	} `json:"status"`
}

func (o *cstorPool) UnknownValue() string {
	return unknownValue("status.phase", o.Status.Phase, cstorPoolStates)
}

type cstor struct {
	o    Options
	ages cstorAges // of the Update before
}

// NewCStor makes the collector of cStor's objects.
func NewCStor(o Options) Collector {
	kind := func(name string) kube.Kind {
		return kube.Kind{Group: "cstor.openebs.io", Versions: []string{"v1"}, Resource: name}
	}
	followNodes(o.Objects)
	kube.Follow[cstorVolume](o.Objects, kind("cstorvolumes"), nil)
	kube.Follow[cstorReplica](o.Objects, kind("cstorvolumereplicas"), nil)
	kube.Follow[cstorPool](o.Objects, kind("cstorpoolinstances"), nil)
	return &cstor{o: o}
}

func (c *cstor) Start(context.Context) error { return nil }

func (c *cstor) Update(ch chan<- prometheus.Metric) error {
	pools := kube.All[*cstorPool](c.o.Objects, "cstorpoolinstances")
	replicas := kube.All[*cstorReplica](c.o.Objects, "cstorvolumereplicas")
	volumes := kube.All[*cstorVolume](c.o.Objects, "cstorvolumes")
	// If everything is old, no single target is dead: the last known states stay, and the collector fails.
	c.ages = c.ages.next(time.Now(), volumes, replicas)
	silent := c.ages.silent(volumes, replicas)
	dead := c.ages.dead(pools, replicas, away(c.o.Objects))
	for name, p := range pools {
		phase := p.Status.Phase
		if dead[name] && silent == nil {
			phase = ""
		}
		states(ch, poolState, phase, cstorPoolStates, p.Spec.Host, name, BackendCStor)
	}
	for name, r := range replicas {
		volume, node, phase := r.Labels.Volume, "", r.Status.Phase
		if p := pools[r.Labels.Pool]; p != nil {
			node = p.Spec.Host
		}
		if (c.ages.stale(r.seen(name)) || dead[r.Labels.Pool]) && silent == nil {
			phase = ""
		}
		gauge(ch, exporterkit.ReplicaInfo, 1, volume, name, node, "", "", BackendCStor)
		states(ch, replicaState, phase, cstorReplicaStates, volume, name, BackendCStor)
	}
	connected := c.ages.connected(replicas, silent != nil)
	for name, v := range volumes {
		gauge(ch, exporterkit.DesiredReplicas, float64(v.Spec.Replicas), name, BackendCStor)
		if updated, err := v.Status.updated(); err == nil && !updated.IsZero() {
			gauge(ch, cstorStatusTime, float64(updated.Unix()), name, BackendCStor)
		}
		stale := c.ages.stale(v.seen(name)) && silent == nil
		if !stale {
			states(ch, volumeState, v.Status.Phase, cstorVolumeStates, name, BackendCStor)
		}
		have, polled := connected[name]
		if n, known := v.healthy(stale, have, polled); known {
			gauge(ch, exporterkit.HealthyReplicas, float64(n), name, BackendCStor)
		}
	}
	return exporterkit.Outcome(len(volumes)+len(pools),
		errors.Join(silent, c.o.Objects.Err("cstorvolumes", "cstorvolumereplicas", "cstorpoolinstances")))
}

// dead are the pools whose manager writes nothing any more, by what it writes all the time: its replicas' status.
// Of a pool none of whose replicas has a time it is dead if its node is away.
func (a cstorAges) dead(pools map[string]*cstorPool, replicas map[string]*cstorReplica, away func(node string) bool) map[string]bool {
	dead, fresh := map[string]bool{}, map[string]bool{}
	for name, r := range replicas {
		if _, known := a.of(r.seen(name)); known {
			dead[r.Labels.Pool] = true
			fresh[r.Labels.Pool] = fresh[r.Labels.Pool] || !a.stale(r.seen(name))
		}
	}
	for name, p := range pools {
		dead[name] = !fresh[name] && (dead[name] || away(p.Spec.Host))
	}
	return dead
}

// connected returns, by volume, how many replicas hold all data and have a target, as their pools report. A volume
// has an entry of 0 if one of its replicas had a target once. Stale states count only if all are stale.
func (a cstorAges) connected(replicas map[string]*cstorReplica, silent bool) map[string]int {
	connected := map[string]int{}
	for name, r := range replicas {
		volume := r.Labels.Volume
		if volume == "" || slices.Contains(cstorUnborn, r.Status.Phase) {
			continue
		}
		if r.Status.Phase == "Healthy" && (silent || !a.stale(r.seen(name))) {
			connected[volume]++
		} else {
			connected[volume] += 0
		}
	}
	return connected
}

// silent returns an error if nothing was written recently: the API server does not answer, or the machine's clock
// is wrong.
func (a cstorAges) silent(volumes map[string]*cstorVolume, replicas map[string]*cstorReplica) error {
	last := time.Duration(-1)
	consider := func(seen cstorSeen) {
		if age, known := a.of(seen); known && (last < 0 || age < last) {
			last = max(age, 0)
		}
	}
	for name, v := range volumes {
		consider(v.seen(name))
	}
	for name, r := range replicas {
		consider(r.seen(name))
	}
	if last <= cstorStale {
		return nil
	}
	return fmt.Errorf("no cStor volume or replica was written for %s: the API server does not report them, their managers are all dead, or this machine's clock is wrong; states are as of then",
		last.Round(time.Second))
}

// healthy counts the replicas that take part in reads and writes, if that is known. connected are those with a target,
// as their pools report.
func (o *cstorVolume) healthy(stale bool, connected int, polled bool) (n int, known bool) {
	switch phase := o.Status.Phase; {
	case phase == "" || phase == "Invalid" && !stale:
		return 0, false
	case stale || phase == "Error" || phase == "Init":
		// The target's pod is dead; or its manager lives, and the target does not answer it, or has no replica. The
		// list is of before.
		return connected, polled
	case phase == "Offline":
		// The target serves nothing as long as it has too few replicas, even with all data.
		return 0, true
	}
	for _, r := range o.Status.Replicas {
		if r.Mode == "Healthy" {
			n++
		}
	}
	return n, true
}

func (c *cstor) Check(context.Context) []exporterkit.CheckResult { return nil }
