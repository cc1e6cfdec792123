package metrics

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"

	"github.com/plumbline/plumbline/loadgen/internal/golden"
)

// compare compares the exposition of registry with a file.
func compare(t *testing.T, registry *prometheus.Registry, file string) {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	for _, f := range families {
		if _, err := expfmt.MetricFamilyToText(&text, f); err != nil {
			t.Fatal(err)
		}
	}
	golden.Compare(t, file, text.String())
}

func newLoad() (*prometheus.Registry, *Load) {
	registry := prometheus.NewRegistry()
	return registry, NewSet(registry).Load(Labels{"pgbench", "tpcb-like", "shop", "longhorn-r3"},
		Options{Target: 50, Penalty: 10 * time.Second})
}

// Every series is there at zero before anything happened.
func TestPreCreated(t *testing.T) {
	registry, _ := newLoad()
	compare(t, registry, "testdata/fresh.prom")
}

func TestEvents(t *testing.T) {
	registry, l := newLoad()
	l.SetPhase(Steady)
	l.Offered(7)
	l.Completed(12*time.Millisecond, 3*time.Millisecond)
	l.Completed(2*time.Second, 4*time.Millisecond)
	l.Failed(Deadlock, 20*time.Second)
	l.Failed(Timeout, time.Millisecond)
	l.Skipped(Late, 0)
	l.Skipped(Down, 0)
	l.Skipped(End, 20*time.Millisecond)
	l.Error(Connection)
	l.Restarted(Killed)
	l.ParseError()
	l.Lost(3)
	l.Reported(49.5)
	compare(t, registry, "testdata/events.prom")

	// However fast it failed, a failed or skipped transaction is slow, but for what the load's end cut short.
	got := l.Tally()
	if slow := got.Response.Above(9 * time.Second); slow != 4 {
		t.Errorf("%d responses above 9 s, want the 4 that failed or were skipped", slow)
	}
	if got.Service.Count() != 2 || got.Completed != 2 || got.Offered != 7 {
		t.Errorf("tally %+v", got)
	}
	// A copy does not follow.
	l.Completed(time.Second, time.Second)
	if got.Response.Count() != 7 || got.Completed != 2 {
		t.Error("a tally changed after it was taken")
	}
}

// A tool without intended starts has no response times, not those of its failures alone.
func TestNoResponse(t *testing.T) {
	l := NewSet(prometheus.NewRegistry()).Load(Labels{}, Options{NoResponse: true, Penalty: time.Second})
	l.Offered(4)
	l.Served(2*time.Millisecond, 2)
	l.Failed(Other, 0)
	l.Skipped(Late, 0)
	if got := l.Tally(); got.Response.Count() != 0 || got.Service.Count() != 2 || got.Completed != 2 || got.Errors[Other] != 1 || got.Skipped[Late] != 1 {
		t.Errorf("%+v", got)
	}
}

// The histograms are native ones of at least eight buckets an octave.
func TestNativeSchema(t *testing.T) {
	registry, l := newLoad()
	for d := time.Microsecond; d < time.Hour; d = d * 21 / 20 {
		l.Completed(d, d)
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	checked := 0
	for _, f := range families {
		if f.GetType() != dto.MetricType_HISTOGRAM {
			continue
		}
		checked++
		if schema := f.GetMetric()[0].GetHistogram().GetSchema(); schema < 3 {
			t.Errorf("%s has schema %d, too coarse", f.GetName(), schema)
		}
	}
	if checked != 2 {
		t.Errorf("%d histograms, want response and service", checked)
	}
	if problems, err := testutil.GatherAndLint(registry); err != nil || len(problems) > 0 {
		t.Errorf("lint: %v %v", problems, err)
	}
}

func TestPhaseIsOne(t *testing.T) {
	_, l := newLoad()
	for _, p := range phases {
		l.SetPhase(p)
		for _, q := range phases {
			want := 0.0
			if p == q {
				want = 1
			}
			if got := testutil.ToFloat64(l.set.phase.WithLabelValues(l.labels.values(string(q))...)); got != want {
				t.Errorf("in phase %s, phase %s is %v", p, q, got)
			}
		}
	}
}
