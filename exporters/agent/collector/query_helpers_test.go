package collector

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/plumbline/plumbline/exporters/agent/platform"
	"github.com/plumbline/plumbline/tests/testkit"
)

// testBoundary is how tests of exact counts watch sockets: as fits the kernel, or as requested.
func testBoundary() platform.Boundary { return platform.Boundary(os.Getenv("PLUMBLINE_BOUNDARY")) }

// testPlatform is the kernel, watched like that.
func testPlatform(t testing.TB) *platform.Kernel {
	t.Helper()
	k, err := platform.Find(testBoundary())
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// startQuery starts a query collector on this machine's kernel.
func startQuery(t testing.TB) *query {
	t.Helper()
	return startQueryWith(t, QueryOptions{})
}

func startQueryWith(t testing.TB, o QueryOptions) *query {
	t.Helper()
	testkit.NeedBPF(t)
	c, err := NewQuery(Options{Log: slog.New(slog.DiscardHandler), Node: "here", ProcFS: "/proc", SysFS: "/sys", Boundary: testBoundary(), Query: o})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(context.Background()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c.(*query)
}

// seen is what a collector reports of one server.
type seen struct {
	counts map[string]uint64  // by command
	sums   map[string]float64 // seconds by command
	phases map[string]map[string]float64
	reads  map[string]float64 // by cache
	lost   map[string]float64 // by reason
	// pipelined are statements that came before others were through, and behind the seconds they waited for those.
	pipelined, behind float64
	// unknown are executions of prepared statements whose command is not known.
	unknown float64
}

func (s seen) total() uint64 { return sumOf(s.counts) }

func sumOf(counts map[string]uint64) (n uint64) {
	for _, c := range counts {
		n += c
	}
	return n
}

// minus returns what was added since before.
func (s seen) minus(before seen) seen {
	d := seen{counts: map[string]uint64{}, sums: map[string]float64{}, phases: map[string]map[string]float64{},
		reads: map[string]float64{}, lost: map[string]float64{},
		pipelined: s.pipelined - before.pipelined, behind: s.behind - before.behind, unknown: s.unknown - before.unknown}
	for command, n := range s.counts {
		if n == before.counts[command] {
			continue
		}
		d.counts[command] = n - before.counts[command]
		d.sums[command] = s.sums[command] - before.sums[command]
		d.phases[command] = map[string]float64{}
		for phase, v := range s.phases[command] {
			d.phases[command][phase] = v - before.phases[command][phase]
		}
	}
	for k, v := range s.reads {
		d.reads[k] = v - before.reads[k]
	}
	for k, v := range s.lost {
		if v != before.lost[k] {
			d.lost[k] = v - before.lost[k]
		}
	}
	return d
}

// updater makes a collector of this package fit for a registry.
type updater struct {
	t testing.TB
	c Collector
}

func (u updater) Describe(chan<- *prometheus.Desc) {}

func (u updater) Collect(ch chan<- prometheus.Metric) {
	if err := u.c.Update(ch); err != nil {
		u.t.Error(err)
	}
}

// gather returns a collector's metric families.
func gather(t testing.TB, c Collector) []*dto.MetricFamily {
	t.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(updater{t, c})
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	return families
}

func labels(m *dto.Metric) map[string]string {
	l := map[string]string{}
	for _, p := range m.Label {
		l[p.GetName()] = p.GetValue()
	}
	return l
}

// look returns what c reports of the server with this label.
func look(t testing.TB, c Collector, server string) seen {
	t.Helper()
	s := seen{counts: map[string]uint64{}, sums: map[string]float64{}, phases: map[string]map[string]float64{},
		reads: map[string]float64{}, lost: map[string]float64{}}
	for _, f := range gather(t, c) {
		for _, m := range f.Metric {
			l := labels(m)
			if l["server"] != server {
				continue
			}
			switch f.GetName() {
			case "plumbline_query_duration_seconds":
				s.counts[l["command"]] = m.Histogram.GetSampleCount()
				s.sums[l["command"]] = m.Histogram.GetSampleSum()
			case "plumbline_query_phase_seconds_total":
				if s.phases[l["command"]] == nil {
					s.phases[l["command"]] = map[string]float64{}
				}
				s.phases[l["command"]][l["phase"]] = m.Counter.GetValue()
			case "plumbline_query_lost_total":
				s.lost[l["reason"]] = m.Counter.GetValue()
			case "plumbline_query_file_reads_total":
				s.reads[l["cache"]] = m.Counter.GetValue()
			case "plumbline_query_commands_unknown_total":
				s.unknown = m.Counter.GetValue()
			case "plumbline_query_pipelined_total":
				s.pipelined = m.Counter.GetValue()
			case "plumbline_query_pipelined_wait_seconds_total":
				s.behind = m.Counter.GetValue()
			}
		}
	}
	return s
}

// during returns what c reports of a server for the time that f takes. It waits for as many
// statements as f makes: a client may have its answer before the server's task gets to the
// point where a statement is counted.
func during(t testing.TB, c Collector, server string, statements uint64, f func()) seen {
	t.Helper()
	before := look(t, c, server)
	f()
	return since(t, c, server, before, statements)
}

// since is the second half of during.
func since(t testing.TB, c Collector, server string, before seen, statements uint64) seen {
	t.Helper()
	var got seen
	testkit.Eventually(t, testkit.Patience, func() error {
		got = look(t, c, server).minus(before)
		if n := got.total(); n < statements {
			return fmt.Errorf("%d statements of %d: %v, lost %v", n, statements, got.counts, got.lost)
		}
		return nil
	})
	return got
}

// wantCounts fails unless exactly these statements were seen and nothing was lost.
func wantCounts(t testing.TB, got seen, want map[string]uint64) {
	t.Helper()
	if !maps.Equal(got.counts, want) {
		t.Errorf("statements %v, want %v", got.counts, want)
	}
	if len(got.lost) != 0 || got.unknown != 0 {
		t.Errorf("lost %v, %v of unknown command", got.lost, got.unknown)
	}
}

// wantSum fails unless every command's phases add up to its duration.
func wantSum(t testing.TB, got seen) {
	t.Helper()
	for command, duration := range got.sums {
		sum := 0.0
		for _, v := range got.phases[command] {
			sum += v
		}
		if sum < duration*0.999 || sum > duration*1.001 {
			t.Errorf("%s took %.6f s, but its phases add up to %.6f s: %v", command, duration, sum, got.phases[command])
		}
	}
}

// waitForServer waits until the collector reports a server with this label, and returns its metrics.
func waitForServer(t testing.TB, c Collector, server string) (info map[string]string) {
	t.Helper()
	testkit.Eventually(t, testkit.Patience, func() error {
		for _, f := range gather(t, c) {
			for _, m := range f.Metric {
				if info = labels(m); f.GetName() == "plumbline_server_info" && info["server"] == server {
					return nil
				}
			}
		}
		return fmt.Errorf("no server %s", server)
	})
	return info
}

// defaultName waits until the server of a process is followed, and returns its label.
func defaultName(t testing.TB, q *query, pid int) string {
	t.Helper()
	name := ""
	testkit.Eventually(t, testkit.Patience, func() error {
		q.mu.Lock()
		defer q.mu.Unlock()
		for _, f := range q.fleet.followers {
			if f.PID == pid && f.label != "" {
				name = f.label
				return nil
			}
		}
		return fmt.Errorf("the server of process %d has no name yet", pid)
	})
	return name
}
