package collector

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/plumbline/plumbline/exporters/exporterkit"
	"github.com/plumbline/plumbline/exporters/exporterkit/kube"
)

// The collector cstor reads the objects cstorvolumes, cstorvolumereplicas and
// cstorpoolinstances (cstor.openebs.io/v1). Counters and latencies are its own exporter's
// (openebs_*).

var (
	cstorVolumeStates  = []string{"Init", "Healthy", "Degraded", "Offline", "Error", "Invalid"}
	cstorReplicaStates = []string{"Healthy", "Offline", "Degraded", "NewReplicaDegraded", "Rebuilding", "ReconstructingNewReplica",
		"Error", "DeletionFailed", "Invalid", "Init", "Recreate"}
	cstorPoolStates = []string{"ONLINE", "OFFLINE", "DEGRADED", "FAULTED", "REMOVED", "UNAVAIL", "Error", "Pending", "Init"}
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
	} `json:"status"`
}

func (o *cstorVolume) Odd() string { return odd("status.phase", o.Status.Phase, cstorVolumeStates) }

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
		states(ch, volumeState, v.Status.Phase, cstorVolumeStates, name, BackendCStor)
		gauge(ch, desiredReplicas, float64(v.Spec.Replicas), name, BackendCStor)
		if v.Status.Phase == "" || v.Status.Phase == "Init" {
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
