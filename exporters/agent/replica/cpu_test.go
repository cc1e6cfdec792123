package replica

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sys/unix"

	bpf "github.com/plumbline/plumbline/exporters/agent/bpf/replica"
	"github.com/plumbline/plumbline/exporters/agent/collector"
	"github.com/plumbline/plumbline/exporters/agent/collector/collectortest"
	"github.com/plumbline/plumbline/tests/testkit"
)

// Threads add up from the first sample on; one that comes later counts in full, one that ends keeps what it did.
func TestProcessCPU(t *testing.T) {
	var p processCPU
	p.add(map[string]threadCPU{"1": {100, 10}, "2": {50, 5}})
	if p.ran != 0 || p.waited != 0 {
		t.Errorf("at the first sample: %v", p.threadCPU)
	}
	p.add(map[string]threadCPU{"1": {130, 11}, "3": {7, 1}})
	p.add(map[string]threadCPU{"1": {130, 11}, "3": {2, 0}}) // another thread 3
	if want := (threadCPU{30 + 7 + 2, 1 + 1}); p.threadCPU != want {
		t.Errorf("%v, want %v", p.threadCPU, want)
	}
}

// What the processes of one volume used does not fall when an engine ends that another one has taken over from.
func TestProcessCPUTakenOver(t *testing.T) {
	engine := func(ran uint64) *followedProcess {
		n := &followedProcess{volume: "v"}
		n.Role = bpf.Engine
		n.cpu.add(map[string]threadCPU{"1": {}})
		n.cpu.add(map[string]threadCPU{"1": {ran * 1e9, ran * 1e9}})
		return n
	}
	f := &replicaFollower{byPID: map[int]*followedProcess{}, cpu: map[processSeries]threadCPU{}}
	used := func() (seconds []float64) {
		for _, family := range collectortest.Gather(t, stalls{f: f}) {
			if strings.HasSuffix(family.GetName(), "_cpu_seconds_total") || strings.HasSuffix(family.GetName(), "_runqueue_seconds_total") {
				for _, m := range family.Metric {
					seconds = append(seconds, m.Counter.GetValue())
				}
			}
		}
		return seconds
	}
	old, next := engine(100), engine(1)
	for step, c := range []struct {
		byPID map[int]*followedProcess
		want  []float64
	}{
		{map[int]*followedProcess{1: old}, []float64{100, 100}},
		{map[int]*followedProcess{1: old, 2: next}, []float64{101, 101}},
		{map[int]*followedProcess{2: next}, []float64{101, 101}},
		{nil, nil},
		{map[int]*followedProcess{3: engine(2)}, []float64{2, 2}},
	} {
		f.byPID = c.byPID
		if got := used(); !slices.Equal(got, c.want) {
			t.Errorf("step %d: %v s, want %v", step, got, c.want)
		}
	}
}

// stalls is a collector of what sendStalls sends.
type stalls struct {
	collector.Collector
	f *replicaFollower
}

func (s stalls) Update(ch chan<- prometheus.Metric) error {
	s.f.sendStalls(func(m prometheus.Metric) { ch <- m }, &replicaGauges{})
	return nil
}

// The kernel's accounts of this process have at least the CPU time that it uses meanwhile; bad ones are errors.
func TestReadThreadsCPU(t *testing.T) {
	var p processCPU
	sample := func() {
		t.Helper()
		now, err := readThreadsCPU("/proc/self/task")
		if err != nil {
			t.Fatal(err)
		}
		p.add(now)
	}
	sample()
	used := func() time.Duration {
		var ts unix.Timespec
		if err := unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &ts); err != nil {
			t.Fatal(err)
		}
		return time.Duration(ts.Nano())
	}
	begin := used()
	testkit.Eventually(t, time.Minute, func() error {
		for used() < begin+100*time.Millisecond {
		}
		return nil
	})
	want := used() - begin
	sample()
	// A tick may be under way, and a thread of the runtime may have ended.
	if got := time.Duration(p.ran); got < want/2 {
		t.Errorf("the accounts have %v, the process used %v", got, want)
	}
	for text, problem := range map[string]string{"0 0 0\n": "CONFIG_SCHED_INFO", "1 many 3\n": "schedstat"} {
		dir := t.TempDir()
		if err := os.Mkdir(filepath.Join(dir, "1"), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "1", "schedstat"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := readThreadsCPU(dir); err == nil || !strings.Contains(err.Error(), problem) {
			t.Errorf("%q: %v, want %q", text, err, problem)
		}
	}
}
