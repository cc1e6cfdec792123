package collector

import (
	"context"
	"fmt"
	"maps"
	"net/url"
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/plumbline/plumbline/exporters/exporterkit"
	"github.com/plumbline/plumbline/exporters/exporterkit/kube"
)

// The collector jiva reads the objects jivavolumes.openebs.io (v1). Counters and latencies are its own exporter's
// (openebs_*). A replica has no name there, so its address is one. The operator makes the phase of what the volume's
// controller answers: Ready if it takes reads and writes, Syncing if reads alone, Unknown if it does not answer
// (jiva-operator, getAndUpdateVolumeStatus).

var (
	jivaVolumeStates  = []string{"Pending", "Syncing", "Failed", "Unknown", "Ready", "Deleting"}
	jivaReplicaStates = []string{"RW", "WO", "ERR"}
)

type jivaVolume struct {
	kube.Meta `json:"metadata"`
	Spec      struct {
		PV     string `json:"pv"`
		Policy struct {
			Target struct {
				Replicas int64 `json:"replicationFactor"`
			} `json:"target"`
		} `json:"policy"`
	} `json:"spec"`
	Status struct {
		Phase    string `json:"phase"`
		Replicas []struct {
			Address string `json:"address"`
			Mode    string `json:"mode"`
		} `json:"replicaStatus"`
	} `json:"status"`
}

func (o *jivaVolume) UnknownValue() string {
	for _, r := range o.Status.Replicas {
		if field := unknownValue("status.replicaStatus.mode", r.Mode, jivaReplicaStates); field != "" {
			return field
		}
	}
	return unknownValue("status.phase", o.Status.Phase, jivaVolumeStates)
}

// Check implements kube's check of an object's bounds.
func (o *jivaVolume) Check() error {
	return checkReplicas(o.Spec.Policy.Target.Replicas, len(o.Status.Replicas))
}

// checkReplicas returns an error if a volume's numbers of replicas are impossible.
func checkReplicas(wanted int64, has int) error {
	if wanted < 0 || wanted > maxReplicas || has > maxReplicas {
		return fmt.Errorf("%d replicas wanted, %d there; at most %d can be", wanted, has, maxReplicas)
	}
	return nil
}

type jiva struct{ o Options }

// NewJiva makes the collector of Jiva's objects.
func NewJiva(o Options) Collector {
	kube.Follow[jivaVolume](o.Objects, kube.Kind{Group: "openebs.io", Versions: []string{"v1"}, Resource: "jivavolumes"}, nil)
	return &jiva{o}
}

func (c *jiva) Start(context.Context) error { return nil }

func (c *jiva) Update(ch chan<- prometheus.Metric) error {
	volumes := kube.All[*jivaVolume](c.o.Objects, "jivavolumes")
	reported := map[string]bool{}
	// In order, so that of two volumes with the same name always the first is exposed, without the other's replicas.
	for _, name := range slices.Sorted(maps.Keys(volumes)) {
		v := volumes[name]
		if v.Spec.PV != "" {
			name = v.Spec.PV
		}
		if reported[name] {
			continue
		}
		reported[name] = true
		states(ch, volumeState, v.Status.Phase, jivaVolumeStates, name, BackendJiva)
		if v.Spec.Policy.Target.Replicas > 0 {
			gauge(ch, exporterkit.DesiredReplicas, float64(v.Spec.Policy.Target.Replicas), name, BackendJiva)
		}
		healthy := 0
		for _, r := range v.Status.Replicas {
			address := r.Address
			if u, err := url.Parse(address); err == nil && u.Host != "" {
				address = u.Host
			}
			mode := r.Mode
			if v.Status.Phase == "Unknown" {
				mode = "" // the list is of before: the controller, which knows its replicas, does not answer
			}
			gauge(ch, exporterkit.ReplicaInfo, 1, name, address, "", "", address, BackendJiva)
			states(ch, replicaState, mode, jivaReplicaStates, name, address, BackendJiva)
			if r.Mode == "RW" {
				healthy++
			}
		}
		switch v.Status.Phase {
		case "Ready":
			gauge(ch, exporterkit.HealthyReplicas, float64(healthy), name, BackendJiva)
		case "Syncing", "Unknown":
			// The controller takes no writes, as too few replicas hold all data; or it does not answer the operator.
			gauge(ch, exporterkit.HealthyReplicas, 0, name, BackendJiva)
		}
	}
	return exporterkit.Outcome(len(volumes), c.o.Objects.Err("jivavolumes"))
}

func (c *jiva) Check(context.Context) []exporterkit.CheckResult { return nil }
