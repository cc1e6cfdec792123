package collector

import (
	"context"
	"errors"
	"fmt"

	"github.com/longhorn/types/pkg/generated/enginerpc"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/plumbline/plumbline/exporters/exporterkit"
)

// Metrics of the collector engine, for Longhorn 1.8 to 1.12. Everything comes from the engine's gRPC server
// (longhorn/types protobuf/ptypes/controller.proto), queried directly or through the instance manager's proxy, or for
// V2 from its SPDK service; a value the engine did not give in the last poll is left out, never repeated.
//
// The sampled counters add up the engine's windows of one second, which begin where the last one ended and carry no
// number. They hold every window that was seen, once; sampling_gap_seconds is the time for which none was. Write
// latency ends when the slowest replica has answered; UNMAP is in none of them.
var (
	engineUp = prometheus.NewDesc("plumbline_longhorn_engine_up",
		"Whether the volume's engine answered the last poll: 1 yes, 0 no; absent before the first.", []string{"volume"}, nil)
	engineReplicaMode = prometheus.NewDesc("plumbline_longhorn_engine_replica_mode",
		"The mode in which the engine uses a replica: 1 for the one it is in (RW read-write, WO write-only while rebuilt, ERR failed), else 0.",
		[]string{"volume", "replica", "mode"}, nil)
	sampledReads = prometheus.NewDesc("plumbline_longhorn_engine_sampled_reads_total",
		"Reads in the engine's one-second windows seen so far.", []string{"volume"}, nil)
	sampledWrites = prometheus.NewDesc("plumbline_longhorn_engine_sampled_writes_total",
		"Writes in the engine's one-second windows seen so far.", []string{"volume"}, nil)
	sampledReadBytes = prometheus.NewDesc("plumbline_longhorn_engine_sampled_read_bytes_total",
		"Bytes read in the engine's one-second windows seen so far.", []string{"volume"}, nil)
	sampledWrittenBytes = prometheus.NewDesc("plumbline_longhorn_engine_sampled_written_bytes_total",
		"Bytes written in the engine's one-second windows seen so far.", []string{"volume"}, nil)
	sampledReadSeconds = prometheus.NewDesc("plumbline_longhorn_engine_sampled_read_seconds_total",
		"Time spent on reads, summed over them, in the engine's one-second windows seen so far, in seconds.", []string{"volume"}, nil)
	sampledWriteSeconds = prometheus.NewDesc("plumbline_longhorn_engine_sampled_write_seconds_total",
		"Time spent on writes until the slowest replica answered, summed over them, in the engine's one-second windows seen so far, in seconds.", []string{"volume"}, nil)
	samplingGap = prometheus.NewDesc("plumbline_longhorn_engine_sampling_gap_seconds_total",
		"Time that no window of the engine's seen so far covers, in seconds; the sampled counters lack it.", []string{"volume"}, nil)
	engineSize = prometheus.NewDesc("plumbline_longhorn_engine_size_bytes",
		"Size of the volume as the engine serves it, in bytes; during an expansion still the old one.", []string{"volume"}, nil)
	engineExpanding = prometheus.NewDesc("plumbline_longhorn_engine_expanding",
		"Whether the engine is expanding the volume: 1 yes, 0 no.", []string{"volume"}, nil)
	engineExpansionFailed = prometheus.NewDesc("plumbline_longhorn_engine_expansion_failed",
		"Whether the engine's last expansion failed: 1 yes, 0 no or none was tried.", []string{"volume"}, nil)
	engineRebuilds = prometheus.NewDesc("plumbline_longhorn_engine_rebuilds_total",
		"Replicas that were seen to become write-only, which is how a rebuild begins.", []string{"volume"}, nil)
	pollErrors = prometheus.NewDesc("plumbline_longhorn_poll_errors_total",
		"Calls to the volume's engine and replicas that failed: timeout, unavailable, tls, identity (another volume's process answered), answer (it cannot be true), other.",
		[]string{"volume", "reason"}, nil)
	targetErrors = prometheus.NewDesc("plumbline_longhorn_target_errors_total",
		"Readings of the list of volumes that failed, as a whole or in one entry.", nil, nil)
)

type engine struct{ o Options }

// NewEngine makes the collector of what the volumes' engines report.
func NewEngine(o Options) Collector { return &engine{o} }

func (e *engine) Update(ch chan<- prometheus.Metric) error {
	volumes := e.o.Fleet.list()
	exporterkit.Counter(ch, targetErrors, float64(e.o.Fleet.targetErrors()))
	for _, v := range volumes {
		v.collectEngine(ch)
	}
	return e.o.Cluster.outcome(len(volumes), []string{"engines", "instancemanagers"})
}

func (v *volume) collectEngine(ch chan<- prometheus.Metric) {
	v.mu.Lock()
	defer v.mu.Unlock()
	name, backend := v.target.Volume, v.target.Backend
	counter := func(d *prometheus.Desc, value float64) {
		exporterkit.Counter(ch, d, value, name)
	}
	gauge := func(d *prometheus.Desc, value float64, labels ...string) {
		exporterkit.Gauge(ch, d, value, append([]string{name}, labels...)...)
	}
	if v.measured && v.heard { // before its first poll it is not known to be down
		gauge(engineUp, truth(v.metricOK && v.listOK))
	}
	counter(sampledReads, v.sampled.reads)
	counter(sampledWrites, v.sampled.writes)
	counter(sampledReadBytes, v.sampled.readBytes)
	counter(sampledWrittenBytes, v.sampled.writtenBytes)
	counter(sampledReadSeconds, v.sampled.readSeconds)
	counter(sampledWriteSeconds, v.sampled.writtenSeconds)
	counter(samplingGap, v.sampled.gap.Seconds())
	counter(engineRebuilds, float64(v.rebuilds))
	for _, r := range reasons {
		exporterkit.Counter(ch, pollErrors, float64(v.errors[r]), name, r)
	}
	if v.target.desired > 0 {
		gauge(exporterkit.DesiredReplicas, float64(v.target.desired), backend)
	}
	if v.listOK {
		healthy := 0
		for _, r := range v.listed {
			for _, mode := range []enginerpc.ReplicaMode{enginerpc.ReplicaMode_RW, enginerpc.ReplicaMode_WO, enginerpc.ReplicaMode_ERR} {
				gauge(engineReplicaMode, truth(r.Mode == mode), v.replicaName(r), mode.String())
			}
			if r.Mode == enginerpc.ReplicaMode_RW {
				healthy++
			}
		}
		gauge(exporterkit.HealthyReplicas, float64(healthy), backend)
	}
	if v.state != nil {
		gauge(engineSize, float64(v.state.Size))
		gauge(engineExpanding, truth(v.state.IsExpanding))
		gauge(engineExpansionFailed, truth(v.state.LastExpansionFailedAt != ""))
	}
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

func (e *engine) Check(ctx context.Context) []exporterkit.CheckResult {
	var results []exporterkit.CheckResult
	for _, v := range e.o.Fleet.list() {
		result := exporterkit.CheckResult{Part: "engine of " + v.target.Volume + " at " + v.target.Engine}
		select {
		case <-v.polled:
			v.mu.Lock()
			if v.metricOK && v.listOK {
				result.Note = fmt.Sprintf("%d replicas", len(v.listed))
			} else {
				result.Err = v.lastErr
			}
			v.mu.Unlock()
		case <-ctx.Done():
			result.Err = ctx.Err()
		}
		results = append(results, result)
	}
	if len(results) == 0 {
		results = append(results, exporterkit.CheckResult{Part: "engines", Err: errors.New("no volume to poll; is one listed, or attached?")})
	}
	return results
}
