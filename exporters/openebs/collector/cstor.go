package collector

import (
	"context"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/plumbline/plumbline/exporters/exporterkit"
	"github.com/plumbline/plumbline/exporters/exporterkit/kube"
)

// The collector cstor reads the objects cstorvolumes, cstorvolumereplicas and
// cstorpoolinstances (cstor.openebs.io/v1). Counters and latencies are its own exporter's
// (openebs_*). What a volume is like is written by the manager in its target's own pod: if it does not write any more, its last words are not repeated.
var cstorStatusTime = prometheus.NewDesc("plumbline_openebs_volume_status_timestamp_seconds",
	"When the volume's own manager last wrote its state, in seconds since 1970. State and healthy replicas are left out where that is over 90 seconds ago: the target's pod is dead or cut off.",
	[]string{"volume", "backend"}, nil)

// cstorStale is how long a volume's status holds: the manager writes it at each resync, whether it changed or not, and the operator starts
// it with one of 30 s (cstor-operators, RESYNC_INTERVAL in pkg/controllers/cstorvolumeconfig/deployment.go). It is three of them.
const cstorStale = 90 * time.Second

var (
	cstorVolumeStates  = []string{"Init", "Healthy", "Degraded", "Offline", "Error", "Invalid"}
	cstorReplicaStates = []string{"Healthy", "Offline", "Degraded", "NewReplicaDegraded", "Rebuilding", "ReconstructingNewReplica",
		"Error", "DeletionFailed", "Invalid", "Init", "Recreate"}
	cstorPoolStates = []string{"ONLINE", "OFFLINE", "DEGRADED", "FAULTED", "REMOVED", "UNAVAIL", "Error", "Pending", "Init"}
	// cstorUncounted are volumes' states in which the list of replicas is not there yet or from before: the manager leaves it as it is when the target does not answer it.
	cstorUncounted = []string{"", "Init", "Error", "Invalid"}
)

// Labels that tie cStor's objects together (openebs/api pkg/apis/types).
const (
	cstorVolumeLabel = "openebs.io/persistent-volume"
	cstorPoolLabel   = "cstorpoolinstance.openebs.io/name"
)

type cstorVolume struct {
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		Replicas int64 `json:"replicationFactor"`
	} `json:"spec"`
	Status struct {
		Phase    string `json:"phase"`
		Replicas []struct {
			Mode string `json:"mode"`
		} `json:"replicaStatuses"`
		Updated string `json:"lastUpdateTime"`
	} `json:"status"`
}

func (o *cstorVolume) Odd() string {
	if _, err := o.updated(); err != nil {
		return "status.lastUpdateTime: " + o.Status.Updated
	}
	return odd("status.phase", o.Status.Phase, cstorVolumeStates)
}

// updated is when the status was written; zero if nobody says.
func (o *cstorVolume) updated() (time.Time, error) {
	if o.Status.Updated == "" {
		return time.Time{}, nil
	}
	return time.Parse(time.RFC3339, o.Status.Updated)
}

func (o *cstorVolume) Check() error { return checkReplicas(o.Spec.Replicas, len(o.Status.Replicas)) }

type cstorReplica struct {
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		Target string `json:"targetIP"`
	} `json:"spec"`
	Status struct {
		Phase string `json:"phase"`
	} `json:"status"`
}

func (o *cstorReplica) Odd() string { return odd("status.phase", o.Status.Phase, cstorReplicaStates) }

type cstorPool struct {
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		Host string `json:"hostName"`
	} `json:"spec"`
	Status struct {
		Phase string `json:"phase"`
	} `json:"status"`
}

func (o *cstorPool) Odd() string { return odd("status.phase", o.Status.Phase, cstorPoolStates) }

type cstor struct{ o Options }

// NewCStor makes the collector of cStor's objects.
func NewCStor(o Options) Collector {
	resource := func(name string) schema.GroupVersionResource {
		return schema.GroupVersionResource{Group: "cstor.openebs.io", Version: "v1", Resource: name}
	}
	kube.Follow[cstorVolume](o.Objects, resource("cstorvolumes"), "")
	kube.Follow[cstorReplica](o.Objects, resource("cstorvolumereplicas"), "")
	kube.Follow[cstorPool](o.Objects, resource("cstorpoolinstances"), "")
	return &cstor{o}
}

func (c *cstor) Start(context.Context) error { return nil }

func (c *cstor) Update(ch chan<- prometheus.Metric) error {
	pools := kube.All[*cstorPool](c.o.Objects, "cstorpoolinstances")
	for name, p := range pools {
		states(ch, poolState, p.Status.Phase, cstorPoolStates, p.Spec.Host, name, BackendCStor)
	}
	for name, r := range kube.All[*cstorReplica](c.o.Objects, "cstorvolumereplicas") {
		volume, node := r.Labels[cstorVolumeLabel], ""
		if p := pools[r.Labels[cstorPoolLabel]]; p != nil {
			node = p.Spec.Host
		}
		gauge(ch, replicaInfo, 1, volume, name, node, "", "", BackendCStor)
		states(ch, replicaState, r.Status.Phase, cstorReplicaStates, volume, name, BackendCStor)
	}
	volumes := kube.All[*cstorVolume](c.o.Objects, "cstorvolumes")
	for name, v := range volumes {
		gauge(ch, desiredReplicas, float64(v.Spec.Replicas), name, BackendCStor)
		// What is no time is told of when the object comes, see Odd.
		if updated, err := v.updated(); err == nil && !updated.IsZero() {
			gauge(ch, cstorStatusTime, float64(updated.Unix()), name, BackendCStor)
			if time.Since(updated) > cstorStale {
				continue
			}
		}
		states(ch, volumeState, v.Status.Phase, cstorVolumeStates, name, BackendCStor)
		if slices.Contains(cstorUncounted, v.Status.Phase) {
			continue
		}
		healthy := 0
		for _, r := range v.Status.Replicas {
			if r.Mode == "Healthy" {
				healthy++
			}
		}
		gauge(ch, healthyReplicas, float64(healthy), name, BackendCStor)
	}
	return exporterkit.Outcome(len(volumes)+len(pools), c.o.Objects.Err("cstorvolumes", "cstorvolumereplicas", "cstorpoolinstances"))
}

func (c *cstor) Check(context.Context) []exporterkit.CheckResult { return nil }
