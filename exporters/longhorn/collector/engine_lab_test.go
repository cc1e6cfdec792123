package collector

import (
	"fmt"
	"math"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/plumbline/plumbline/tests/rig"
	"github.com/plumbline/plumbline/tests/testkit"
)

// quick polls often. A call may take as long as a busy machine pauses.
var quick = Poll{EngineInterval: 100 * time.Millisecond, StateInterval: 200 * time.Millisecond, Timeout: 5 * time.Second}

// The sampled counters agree with fio's own report, at the default poll interval.
func TestCountersAgreeWithFio(t *testing.T) {
	l := newLab(t, 3)
	file := l.Bridge()
	w := exporterFor(t, Poll{EngineInterval: 800 * time.Millisecond, StateInterval: 1 * time.Second, Timeout: 5 * time.Second}, l.target())
	testkit.Eventually(t, testkit.DefaultTimeout, func() error {
		s, _ := w.scrape()
		return s.want(map[string]float64{fmt.Sprintf("plumbline_longhorn_engine_up{volume=%q}", l.Name): 1})
	})
	// A window that a busy machine comes too late for is missing in the counters: then all is measured again.
	testkit.Eventually(t, testkit.DefaultTimeout, func() error { return w.countLoad(l, file) })
}

// countLoad has fio use the volume, and returns an error if the counters of that differ from fio's.
func (w *watched) countLoad(l *lab, file string) error {
	series := func(name string) string {
		return fmt.Sprintf("plumbline_longhorn_engine_sampled_%s_total{volume=%q}", name, l.Name)
	}
	gap := fmt.Sprintf("plumbline_longhorn_engine_sampling_gap_seconds_total{volume=%q}", l.Name)
	before, _ := w.scrape()
	report := fio(w.t, file, "--rw=randrw", "--rwmixread=40", "--bs=8k", "--ioengine=libaio", "--iodepth=4",
		"--time_based", "--runtime=20")
	read, write := report.Jobs[0].Read, report.Jobs[0].Write
	var after samples
	const publishedWithin = 20 * time.Second // the engine does so with the last second's
	err := testkit.Await(publishedWithin, func() error {
		after, _ = w.scrape()
		for what, want := range map[string]float64{
			"reads": read.Ops, "writes": write.Ops, "read_bytes": read.Bytes, "written_bytes": write.Bytes,
		} {
			got := after[series(what)] - before[series(what)]
			if off := math.Abs(got-want) / want; off > 0.02 {
				return fmt.Errorf("%s: %.0f, fio has %.0f: %.1f %% off; %.2f s of gaps", what, got, want, 100*off, after[gap]-before[gap])
			}
		}
		return nil
	})
	if err != nil {
		w.t.Log(err)
		return err
	}
	for side, f := range map[string]fioSide{"read": read, "write": write} {
		mean := (after[series(side+"_seconds")] - before[series(side+"_seconds")]) /
			(after[series(side+"s")] - before[series(side+"s")]) * 1e9
		w.t.Logf("%s: %.0f of fio's %.0f requests, engine's mean %.0f us of fio's %.0f us, gaps %.2f s", side,
			after[series(side+"s")]-before[series(side+"s")], f.Ops, mean/1e3, f.Latency.Mean/1e3, after[gap]-before[gap])
		if mean <= 0 || mean > f.Latency.Mean {
			return fmt.Errorf("%s: the engine's mean latency is %.0f ns, fio above it saw %.0f ns", side, mean, f.Latency.Mean)
		}
	}
	return nil
}

// Kill, remove, rebuild, hang of a replica and hang of the engine: each is seen, and none makes a scrape wait.
func TestFaultsAreSeen(t *testing.T) {
	l := newLab(t, 3)
	file := l.Bridge()
	fio(t, file, "--rw=write", "--bs=1M", "--ioengine=psync")
	w := exporterFor(t, quick, l.target())
	absent := math.NaN()
	mode := func(n int, mode string) string {
		return fmt.Sprintf("plumbline_longhorn_engine_replica_mode{mode=%q,replica=%q,volume=%q}", mode, l.Replicas[n].Name, l.Name)
	}
	up := func(n int) string {
		return fmt.Sprintf("plumbline_longhorn_replica_up{replica=%q,volume=%q}", l.Replicas[n].Name, l.Name)
	}
	volume := func(name string) string { return fmt.Sprintf("%s{volume=%q}", name, l.Name) }
	healthy := fmt.Sprintf("plumbline_volume_healthy_replicas{backend=%q,volume=%q}", BackendV1, l.Name)
	seen := func(what string, values map[string]float64) {
		t.Helper()
		start := time.Now()
		testkit.Eventually(t, testkit.DefaultTimeout, func() error { s, _ := w.scrape(); return s.want(values) })
		t.Logf("%s: seen after %s", what, time.Since(start).Round(10*time.Millisecond))
	}
	seen("start", map[string]float64{healthy: 3, mode(0, "RW"): 1, mode(2, "RW"): 1, up(2): 1, volume("plumbline_longhorn_engine_up"): 1})
	var s samples
	testkit.Eventually(t, testkit.DefaultTimeout, func() error {
		s, _ = w.scrape()
		head := s[fmt.Sprintf("plumbline_longhorn_replica_head_bytes{replica=%q,volume=%q}", l.Replicas[0].Name, l.Name)]
		if head < rig.VolumeSize {
			return fmt.Errorf("the head takes %v bytes after %d were written", head, rig.VolumeSize)
		}
		return nil
	})

	l.Replicas[2].Process.Kill()
	seen("kill", map[string]float64{healthy: 2, mode(2, "ERR"): 1, mode(2, "RW"): 0, up(2): 0})

	l.Control("rm-replica", "tcp://"+l.Replicas[2].Address)
	seen("remove", map[string]float64{healthy: 2, mode(2, "ERR"): absent, mode(2, "RW"): absent})

	fresh := l.AddReplica()
	w.fleet.Set(t.Context(), []Target{l.target()})
	l.Control("add-replica", "--size", fmt.Sprint(rig.VolumeSize), "--current-size", fmt.Sprint(rig.VolumeSize), "tcp://"+fresh.Address)
	seen("rebuild", map[string]float64{healthy: 3, mode(3, "RW"): 1, volume("plumbline_longhorn_engine_rebuilds_total"): 1})
	testkit.Eventually(t, testkit.DefaultTimeout, func() error {
		s, _ = w.scrape()
		progress := 0.0
		for _, source := range l.Replicas[:2] {
			progress += s[fmt.Sprintf("plumbline_longhorn_replica_rebuild_progress_ratio{replica=%q,source=%q,volume=%q}", fresh.Name, source.Name, l.Name)]
		}
		if progress != 1 {
			return fmt.Errorf("the rebuild's progress is %v at its end", progress)
		}
		return nil
	})
	if n := s[fmt.Sprintf("plumbline_longhorn_replica_snapshots{replica=%q,volume=%q}", fresh.Name, l.Name)]; n != 1 {
		t.Errorf("the rebuilt replica has %v snapshots; a rebuild makes one", n)
	}

	pause(t, l.Replicas[1].Process.PID())
	seen("hung replica", map[string]float64{up(1): 0, up(0): 1, volume("plumbline_longhorn_engine_up"): 1})
	w.unhurried("hung replica", quick.Timeout)
	resume(t, l.Replicas[1].Process.PID())
	seen("replica again", map[string]float64{up(1): 1})

	pause(t, l.Process.PID())
	seen("hung engine", map[string]float64{volume("plumbline_longhorn_engine_up"): 0, healthy: absent, mode(0, "RW"): absent, up(0): 1})
	w.unhurried("hung engine", quick.Timeout)
	resume(t, l.Process.PID())
	seen("engine again", map[string]float64{volume("plumbline_longhorn_engine_up"): 1, mode(0, "RW"): 1})

	l.Process.Kill()
	seen("killed engine", map[string]float64{volume("plumbline_longhorn_engine_up"): 0, healthy: absent})
	w.fleet.Set(t.Context(), nil)
	s, _ = w.scrape()
	for series := range s {
		if slices.Contains([]string{volume("plumbline_longhorn_engine_up"), up(0)}, series) {
			t.Errorf("%s is still there though its volume is gone", series)
		}
	}
}

// An engine of another volume at the address is refused, not believed.
func TestEngineOfAnotherVolume(t *testing.T) {
	l := newLab(t, 1)
	target := l.target()
	target.Volume, target.EngineName = "another", ""
	w := exporterFor(t, quick, target)
	identity := `plumbline_longhorn_poll_errors_total{reason="identity",volume="another"}`
	testkit.Eventually(t, testkit.DefaultTimeout, func() error {
		s, _ := w.scrape()
		if s[identity] == 0 {
			return fmt.Errorf("no %s", identity)
		}
		return s.want(map[string]float64{
			`plumbline_longhorn_engine_up{volume="another"}`:                                       0,
			`plumbline_volume_healthy_replicas{backend="longhorn-v1",volume="another"}`:            math.NaN(),
			`plumbline_longhorn_engine_size_bytes{volume="another"}`:                               math.NaN(),
			`plumbline_longhorn_replica_up{replica="` + l.Replicas[0].Name + `",volume="another"}`: 0,
		})
	})
}

// unhurried scrapes during a hang and fails if a scrape took as long as a call may.
func (w *watched) unhurried(what string, limit time.Duration) {
	w.t.Helper()
	var took []time.Duration
	for range 100 {
		_, d := w.scrape()
		took = append(took, d)
	}
	slices.Sort(took)
	w.t.Logf("%s: scrape p50 %s p99 %s", what, took[49], took[98])
	if took[98] >= limit {
		w.t.Errorf("%s: the scrape waits: p99 %s", what, took[98])
	}
}

func pause(t *testing.T, pid int) { signal(t, pid, syscall.SIGSTOP) }

func resume(t *testing.T, pid int) { signal(t, pid, syscall.SIGCONT) }

func signal(t *testing.T, pid int, s syscall.Signal) {
	t.Helper()
	// The replica's sync agent is a process of its own in the same group.
	if err := syscall.Kill(-pid, s); err != nil {
		t.Fatal(err)
	}
}
