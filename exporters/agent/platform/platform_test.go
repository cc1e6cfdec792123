package platform

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
	dto "github.com/prometheus/client_model/go"
	"golang.org/x/sys/unix"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/plumbline/plumbline/exporters/agent/platform/platformtest"
	"github.com/plumbline/plumbline/tests/testkit"
)

// The way chosen on each kernel, and whether ExclusiveRuns is lacking.
func TestChoose(t *testing.T) {
	for _, c := range []struct {
		name        string
		tracepoints []string
		wanted      AttachMode
		held        bool
		preempted   bool
		want        AttachMode
		preemptible bool
		backups     int
		misses      bool
	}{
		{"6.18", SocketTracepoints, Auto, true, false, Tracepoints, false, 0, false},
		{"6.18 with preempt=full", SocketTracepoints, Auto, true, true, Tracepoints, false, 0, false},
		{"6.18, backup programs requested", SocketTracepoints, WithBackups, true, false, Tracepoints, true, maxBackups, false},
		{"7.3", SocketTracepoints, Auto, false, true, Tracepoints, true, maxBackups, false},
		{"7.3, none requested", SocketTracepoints, Tracepoints, false, true, Tracepoints, true, 0, true},
		{"6.1", []string{"sched_switch"}, Auto, true, false, Functions, false, 0, false},
		{"6.1 with preempt=full", []string{"sched_switch"}, Auto, true, true, Functions, true, 0, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			k := &Kernel{Types: platformtest.Types(t, c.tracepoints, nil), Features: NewFeatures()}
			k.choose(c.wanted, c.held, c.preempted)
			if k.AttachMode != c.want || k.Preemptible != c.preemptible || k.Backups != c.backups {
				t.Errorf("%s, preemptible %v, %d backup programs; want %s, %v, %d", k.AttachMode, k.Preemptible, k.Backups, c.want, c.preemptible, c.backups)
			}
			if reason := k.Features.Unavailable(ExclusiveRuns); (reason != nil) != c.misses {
				t.Errorf("reported of exclusive runs: %v", reason)
			}
		})
	}
}

// The way that this machine's kernel is watched misses nothing; what was probed is what it does.
func TestThis(t *testing.T) {
	testkit.NeedBPF(t)
	k, err := This()
	if err != nil {
		t.Fatal(err)
	}
	held, err := tracepointsHoldPreemption(k.Types)
	t.Logf("%s, preemptible %v, start under lock %v; the probe: held %v, error %v", k.AttachMode, k.Preemptible, k.StartUnderLock, held, err)
	if err == nil && len(k.Missing(SocketTracepoints...)) == 0 && held == since(7, 0) {
		t.Errorf("the probe reports that tracepoints hold preemption: %v; the version implies otherwise", held)
	}
	for _, r := range k.Features.Check() {
		t.Log(r.Part, r.Err, r.Note)
	}
}

// The probe reports the kernel's count where its programs run, here with made-up counts.
func TestPreemptCounts(t *testing.T) {
	testkit.NeedBPF(t)
	count := func(n int32) asm.Instructions { return asm.Instructions{asm.Mov.Imm(asm.R6, n)} }
	// The uppermost bit is not of the count, and a hard interrupt is.
	seen, err := preemptCounts(map[string]asm.Instructions{
		"sock_send_length": count(-1 << 31), "sched_switch": count(1 << 16),
	})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]runs{"sock_send_length": {preemptible: true}, "sched_switch": {held: true}}
	if !maps.Equal(seen, want) {
		t.Errorf("seen %+v, want %+v", seen, want)
	}
}

// Each obstacle to loading the programs has its sentence.
func TestExplain(t *testing.T) {
	refused := fmt.Errorf("load: %w", unix.EPERM)
	plain := errors.New("plain")
	for _, c := range []struct {
		name string
		err  error
		c    circumstances
		want string
	}{
		{"nothing known", plain, circumstances{}, "plain"},
		{"no BTF", plain, circumstances{noTypes: errors.New("not found")}, "no BTF, its type information (CONFIG_DEBUG_INFO_BTF)"},
		{"no bpf(2)", plain, circumstances{noBPF: true}, "CONFIG_BPF_SYSCALL"},
		{"no capability", refused, circumstances{capabilities: []string{"CAP_BPF", "CAP_PERFMON"}}, "the process lacks CAP_BPF and CAP_PERFMON"},
		{"no capability, seen as a feature that is missing", fmt.Errorf("map create: %w", ebpf.ErrNotSupported), circumstances{capabilities: []string{"CAP_BPF"}}, "the process lacks CAP_BPF"},
		{"unprivileged BPF is disabled", refused, circumstances{capabilities: []string{"CAP_BPF"}, unprivileged: "2"}, "kernel.unprivileged_bpf_disabled=2"},
		{"lockdown", plain, circumstances{noKernelRead: true}, "lockdown"},
		{"an old kernel", plain, circumstances{helpers: []string{"bpf_loop (Linux 5.17)"}}, "no bpf_loop (Linux 5.17)"},
		{"no attach mode", plain, circumstances{functions: []string{"inet_recvmsg"}}, "nor the functions inet_recvmsg"},
		{"no attach mode: an old kernel of arm64", fmt.Errorf("attach: %w", ebpf.ErrNotSupported), circumstances{onlyEnds: true}, "on arm64 from Linux 6.4 on"},
		{"refused in spite of all", refused, circumstances{}, "refused although"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := explain(c.err, c.c)
			if !strings.Contains(got.Error(), c.want) {
				t.Errorf("%q lacks %q", got, c.want)
			}
			if !errors.Is(got, c.err) {
				t.Errorf("%v hides %v", got, c.err)
			}
		})
	}
	if Explain(nil) != nil {
		t.Error("an explanation of no error")
	}
}

// Each feature has one series, on any machine, and the reason that came first stays.
func TestFeatures(t *testing.T) {
	first := errors.New("first")
	none := none(&noTypesError{errors.New("no types")})
	f := NewFeatures()
	f.SetUnavailable(TLS, nil)
	f.SetUnavailable(TLS, first)
	f.SetUnavailable(TLS, errors.New("second"))
	if got := f.Unavailable(TLS); got != first {
		t.Errorf("the reason is %v, want the first", got)
	}
	for name, c := range map[string]struct {
		features *Features
		missing  []string
	}{
		"all but one": {f, []string{"tls"}},
		"no types": {none, []string{"disk_users", "exclusive_runs", "file_reads", "kernel_types", "local_replicas", "phase_runqueue", "replicas",
			"server_process_events", "statements", "tls"}},
	} {
		t.Run(name, func(t *testing.T) {
			ch := make(chan prometheus.Metric, 100)
			c.features.Collect(ch)
			close(ch)
			values := map[string]float64{}
			for m := range ch {
				var d dto.Metric
				if err := m.Write(&d); err != nil {
					t.Fatal(err)
				}
				values[d.Label[0].GetValue()] = d.Gauge.GetValue()
			}
			if len(values) != len(without) {
				t.Errorf("%d series, want one for each of %d features", len(values), len(without))
			}
			delete(values, string(DeviceFlushes)) // by the version of this machine
			for feature, value := range values {
				if there := !slices.Contains(c.missing, feature); there != (value == 1) {
					t.Errorf("%s is %g", feature, value)
				}
			}
			for feature := range maps.Keys(without) {
				if !strings.Contains(available.String(), string(feature)) {
					t.Errorf("the metric's help does not name %s", feature)
				}
			}
		})
	}
}

func TestOffset(t *testing.T) {
	number := &btf.Int{Name: "int", Size: 4}
	inner := &btf.Struct{Size: 8, Members: []btf.Member{{Name: "a", Type: number}, {Name: "b", Type: number, Offset: 32}}}
	outer := &btf.Struct{Name: "outer", Size: 24, Members: []btf.Member{
		{Name: "x", Type: inner, Offset: 64}, {Type: inner, Offset: 128},
	}}
	for path, want := range map[string]int16{"x.a": 8, "x.b": 12, "a": 16, "b": 20} {
		if got, err := offset(outer, path); err != nil || got != want {
			t.Errorf("%s at %d, %v; want %d", path, got, err, want)
		}
	}
	if _, err := offset(outer, "c"); err == nil {
		t.Error("a member that is not there was found")
	}
}
