package collector

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/plumbline/plumbline/exporters/exporterkit"
)

// Metrics of the collector volume, from the objects volumes.longhorn.io and replicas.longhorn.io (v1beta2, Longhorn 1.8
// to 1.12). longhorn-manager exports state and robustness too, but as a number up to 1.10 and as 0 or 1 per state since
// 1.11; here it is the same for all versions.
var (
	volumeInfo = prometheus.NewDesc("plumbline_longhorn_volume_info",
		"A Longhorn volume: its backend, the node it is attached to (empty if none), its frontend, and the claim it serves. Always 1.",
		[]string{"volume", "backend", "node", "frontend", "namespace", "persistentvolumeclaim"}, nil)
	volumeState = prometheus.NewDesc("plumbline_longhorn_volume_state",
		"The volume's state: 1 for the one it is in, else 0; all 0 if it is in one that is not known here.", []string{"volume", "state"}, nil)
	volumeRobustness = prometheus.NewDesc("plumbline_longhorn_volume_robustness",
		"The volume's robustness: 1 for the one it has, else 0; all 0 if it is one that is not known here. A detached volume's is unknown.", []string{"volume", "robustness"}, nil)
	volumeCondition = prometheus.NewDesc("plumbline_longhorn_volume_condition",
		"A condition of the volume, as Longhorn names it: 1 true, 0 false; absent while Longhorn does not know.", []string{"volume", "condition"}, nil)
	volumeDegraded = prometheus.NewDesc("plumbline_longhorn_volume_degraded_since_timestamp_seconds",
		"When the volume became degraded, in seconds since 1970; only while it is.", []string{"volume"}, nil)
	volumeReplicas = prometheus.NewDesc("plumbline_longhorn_volume_replicas",
		"The volume's replicas by their state in Longhorn's objects, attached or not: healthy, failed, new (scheduled, not yet rebuilt), unscheduled, or unreachable (on a node that is gone or not ready, whatever was last written of it).", []string{"volume", "state"}, nil)
)

var replicaStates = []string{"healthy", "failed", "new", "unscheduled", "unreachable"}

type volumes struct{ o Options }

// NewVolumes makes the collector of the volumes' objects.
func NewVolumes(o Options) Collector { return &volumes{o} }

func (c *volumes) Update(ch chan<- prometheus.Metric) error {
	gauge := func(d *prometheus.Desc, value float64, labels ...string) {
		exporterkit.Gauge(ch, d, value, labels...)
	}
	counts := map[string]map[string]float64{}
	away := c.o.Cluster.away()
	for _, r := range all[*replicaObject](c.o.Cluster, "replicas") {
		if !r.active() {
			continue
		}
		if counts[r.Spec.VolumeName] == nil {
			counts[r.Spec.VolumeName] = map[string]float64{}
		}
		state := r.health()
		if (state == "healthy" || state == "new") && away(r.Spec.NodeID) {
			state = "unreachable"
		}
		counts[r.Spec.VolumeName][state]++
	}
	objects := all[*volumeObject](c.o.Cluster, "volumes")
	for name, v := range objects {
		backend, claim := backendOf(v.Spec.engine()), v.Status.KubernetesStatus
		gauge(volumeInfo, 1, name, backend, v.Status.CurrentNodeID, v.Spec.Frontend, claim.Namespace, claim.PVCName)
		gauge(exporterkit.DesiredReplicas, float64(v.Spec.NumberOfReplicas), name, backend)
		for _, s := range volumeStates {
			gauge(volumeState, truth(v.Status.State == s), name, s)
		}
		for _, s := range robustnesses {
			gauge(volumeRobustness, truth(v.Status.Robustness == s), name, s)
		}
		for _, s := range replicaStates {
			gauge(volumeReplicas, counts[name][s], name, s)
		}
		reported := map[string]bool{}
		for _, s := range v.Status.Conditions {
			if (s.Status == "True" || s.Status == "False") && !reported[s.Type] {
				reported[s.Type] = true
				gauge(volumeCondition, truth(s.Status == "True"), name, s.Type)
			}
		}
		// A time that cannot be parsed is reported when the object arrives, see UnknownValue.
		if since, err := v.degradedSince(); err == nil && v.Status.Robustness == "degraded" && !since.IsZero() {
			gauge(volumeDegraded, float64(since.Unix()), name)
		}
	}
	return c.o.Cluster.outcome(len(objects), []string{"volumes", "replicas", "nodes"})
}

// health is how Longhorn's own scheduler reads a replica (longhorn-manager datastore).
func (o *replicaObject) health() string {
	switch {
	case o.Spec.FailedAt != "":
		return "failed"
	case o.Spec.NodeID == "":
		return "unscheduled"
	case o.Spec.HealthyAt != "":
		return "healthy"
	}
	return "new"
}

func (c *volumes) Check(context.Context) []exporterkit.CheckResult { return nil }
