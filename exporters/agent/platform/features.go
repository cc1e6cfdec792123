package platform

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/features"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/plumbline/plumbline/exporters/exporterkit"
)

// Feature is an ability of the agent that this machine may not support.
type Feature string

// All features, by the value of the label feature.
const (
	KernelTypes         Feature = "kernel_types"
	Statements          Feature = "statements"
	ExclusiveRuns       Feature = "exclusive_runs"
	PhaseRunqueue       Feature = "phase_runqueue"
	FileReads           Feature = "file_reads"
	TLS                 Feature = "tls"
	ServerProcessEvents Feature = "server_process_events"
	Replicas            Feature = "replicas"
	LocalReplicas       Feature = "local_replicas"
	DeviceFlushes       Feature = "device_flushes"
	DiskUsers           Feature = "disk_users"
)

// without describes what is lost without each feature.
var without = map[Feature]string{
	KernelTypes:         "no program can be loaded: no statements, no replicas",
	Statements:          "no statement is counted",
	ExclusiveRuns:       "a task that is preempted within a program hides events of other tasks on its CPU; plumbline_bpf_missed_runs_total counts them",
	PhaseRunqueue:       "the wait for a CPU after a wake-up counts to what the statement waited for",
	FileReads:           "plumbline_query_file_reads_total stays 0",
	TLS:                 "statements on encrypted connections are not counted",
	ServerProcessEvents: "new servers are found only at the scan interval",
	Replicas:            "replicas of volumes are not measured",
	LocalReplicas:       "on a unix socket between engine and replica, an answer that comes before the send returns is counted as unmatched",
	DeviceFlushes:       "a device that hangs in a flush alone shows by the statements that wait, not by the device",
	DiskUsers:           "who uses a disk is not counted",
}

// Features records which features are available on this machine. A feature counts as available unless SetUnavailable
// was called for it.
type Features struct {
	mu          sync.Mutex
	unavailable map[Feature]error
}

// NewFeatures returns a set in which every feature is available.
func NewFeatures() *Features { return &Features{unavailable: map[Feature]error{}} }

// SetUnavailable records why a feature is unavailable. The first reason stays. A nil error changes nothing.
func (f *Features) SetUnavailable(feature Feature, why error) {
	if why == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.unavailable[feature] == nil {
		f.unavailable[feature] = why
	}
}

// Unavailable returns why a feature is unavailable, or nil.
func (f *Features) Unavailable(feature Feature) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.unavailable[feature]
}

// Check returns a line for each feature, for --check.
func (f *Features) Check() []exporterkit.CheckResult {
	var results []exporterkit.CheckResult
	for _, feature := range slices.Sorted(maps.Keys(without)) {
		r := exporterkit.CheckResult{Part: "feature " + string(feature), Err: f.Unavailable(feature), Optional: true}
		if r.Err != nil {
			r.Err, r.Note = errors.New(firstLine(r.Err)), without[feature]
		}
		results = append(results, r)
	}
	return results
}

// Log logs the unavailable features and what is lost without them.
func (f *Features) Log(log *slog.Logger) {
	for _, feature := range slices.Sorted(maps.Keys(without)) {
		if why := f.Unavailable(feature); why != nil {
			log.Warn("this machine lacks what a feature needs", "feature", string(feature), "why", firstLine(why), "without", without[feature])
		}
	}
}

func firstLine(err error) string {
	line, _, _ := strings.Cut(err.Error(), "\n")
	return line
}

// available shows which features the running kernel has.
var available = prometheus.NewDesc("plumbline_feature_available",
	"1 if this machine has what the agent's feature needs, else 0; --check and the agent's first log lines report why and what is lost. "+
		"Features: device_flushes, disk_users, exclusive_runs, file_reads, kernel_types, local_replicas, phase_runqueue, replicas, server_process_events, statements, tls.",
	[]string{"feature"}, nil)

// Describe implements prometheus.Collector.
func (f *Features) Describe(ch chan<- *prometheus.Desc) { ch <- available }

// Collect implements prometheus.Collector.
func (f *Features) Collect(ch chan<- prometheus.Metric) {
	for feature := range without {
		value := 1.
		if f.Unavailable(feature) != nil {
			value = 0
		}
		ch <- prometheus.MustNewConstMetric(available, prometheus.GaugeValue, value, string(feature))
	}
}

// findFeatures records which features are unavailable by the kernel's types.
func (k *Kernel) findFeatures() {
	f := k.Features
	f.SetUnavailable(FileReads, k.member("task_io_accounting", "syscr", "CONFIG_TASK_XACCT"))
	f.SetUnavailable(PhaseRunqueue, k.member("sched_info", "run_delay", "CONFIG_SCHED_INFO"))
	f.SetUnavailable(DiskUsers, k.member("bio", "bi_blkg", "CONFIG_BLK_CGROUP"))
	if k.AttachMode != Functions && !k.has("sk_data_ready") {
		f.SetUnavailable(LocalReplicas, errors.New("the kernel has no tracepoint sk_data_ready (Linux 6.3)"))
	}
	if features.HaveBPFLinkUprobeMulti() != nil && len(missingCapabilities("CAP_SYS_ADMIN")) > 0 {
		f.SetUnavailable(TLS, errors.New("probes on libraries need CAP_SYS_ADMIN before Linux 6.6"))
	}
	f.SetUnavailable(DeviceFlushes, flushes())
}

// member returns an error if a kernel's struct has not a member, which the option gives it.
func (k *Kernel) member(name, member, option string) error {
	var s *btf.Struct
	if err := k.Types.TypeByName(name, &s); err == nil {
		for _, m := range s.Members {
			if m.Name == member {
				return nil
			}
		}
	}
	return fmt.Errorf("the kernel is built without %s", option)
}

// RunDelay returns why the wait for a CPU is not known, by what procfs has for this process; nil if it is known.
func RunDelay(procfs string) error {
	text, err := os.ReadFile(filepath.Join(procfs, "self", "schedstat"))
	if err != nil {
		return err
	}
	if fields := strings.Fields(string(text)); len(fields) != 3 || fields[2] == "0" {
		return errors.New("the kernel keeps no scheduling statistics (CONFIG_SCHED_INFO)")
	}
	return nil
}

// Found returns the features of this machine. The collectors may find further ones to be unavailable.
func Found(wanted AttachMode) *Features {
	k, err := Find(wanted)
	if err != nil {
		return none(err)
	}
	return k.Features
}

// none returns the features of a machine on which no program can be loaded.
func none(why error) *Features {
	f := NewFeatures()
	for _, feature := range []Feature{Statements, ExclusiveRuns, PhaseRunqueue, FileReads, TLS, ServerProcessEvents, Replicas, LocalReplicas, DiskUsers} {
		f.SetUnavailable(feature, why)
	}
	var noTypes *noTypesError
	if errors.As(why, &noTypes) {
		f.SetUnavailable(KernelTypes, why)
	}
	f.SetUnavailable(DeviceFlushes, flushes())
	return f
}

// flushes returns why a flush is not counted in flight: by version, because no type or file shows it.
func flushes() error {
	if since(6, 16) {
		return nil
	}
	return errors.New("before Linux 6.16 the kernel does not count a flush as in flight")
}
