package input

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"

	"github.com/plumbline/plumbline/loadgen/predict"
	"github.com/plumbline/plumbline/rules/why"
	"github.com/plumbline/plumbline/rules/why/whytest"
)

// lab is a recorded lab in which the commits of r1 take 3.8 ms, 3.5 of which are a sync, a write and a half of its
// device.
func lab(classic bool) *whytest.Recording {
	l := whytest.Healthy()
	l.Classic = classic
	l.Commit["r1"] = map[string]float64{"cpu": 0.2, "runqueue": 0.1, "sync": 3.5}
	l.Statement["r1"] = map[string]float64{"cpu": 0.2, "runqueue": 0.05}
	l.More = func(r *whytest.Recording) {
		r.Gauge(`plumbline_query_processes{server="r1",node="n",db_system="postgresql"}`, 12)
		for _, d := range []string{"dev-r1", "dev-r3"} {
			r.Counter(fmt.Sprintf(`node_disk_written_bytes_total{node="n",device=%q}`, d), 60*8192)
			r.Counter(fmt.Sprintf(`node_disk_writes_completed_total{node="n",device=%q}`, d), 60)
		}
		r.Gauge(`plumbline_volume_desired_replicas{volume="v-r1"}`, 1)
	}
	return l.Record()
}

func testQuestion() Question {
	return Question{Subject: why.Subject{Class: "r1"}, Class: "r3", Clients: 1, At: whytest.End, Window: 20 * time.Second, Windows: 4}
}

// What Prometheus has becomes an input, of native histograms and of classic ones, and that a prediction: the device of
// r3 takes 4.4 ms for a write where that of r1 takes 2.4, so that a commit takes 3.5 × 4.4 / 2.4 ms and 0.3.
func TestInput(t *testing.T) {
	for name, classic := range map[string]bool{"native": false, "classic": true} {
		t.Run(name, func(t *testing.T) {
			in, err := testQuestion().Input(t.Context(), lab(classic))
			if err != nil {
				t.Fatal(err)
			}
			if len(in.Workload.Windows) != 4 || len(in.From.Windows) != 4 || len(in.To.Windows) != 4 || in.From.Name != "r1" || in.Workload.Sessions != 12 || in.Workload.Engine != "postgresql" {
				t.Errorf("%+v", in)
			}
			if in.From.Windows[0].Volume != "v-r1" || in.To.Windows[3].Volume != "v-r3" {
				t.Errorf("volumes %q and %q", in.From.Windows[0].Volume, in.To.Windows[3].Volume)
			}
			w := in.From.Windows[0].Operations["write"]
			if rate := w.Times.Count() / in.From.Windows[0].Seconds; math.Abs(rate/60-1) > 0.15 || w.Bytes != 8192 {
				t.Errorf("%v writes a second of %v bytes", rate, w.Bytes)
			}
			p, err := predict.Predict(in)
			if err != nil || p.Refusal != nil {
				t.Fatal(err, p.Refusal)
			}
			i := slices.IndexFunc(p.Statements, func(s predict.Predicted) bool { return s.Kind == "commit" })
			want, bound := 0.0067, 0.1
			if classic {
				bound = 0.35 // a bucket is twice as wide as high
			}
			if i < 0 || len(p.Statements) != 1 || math.Abs(p.Statements[i].Median.Expected/want-1) > bound {
				t.Errorf("%+v, want a median of %v", p, want)
			}
			if !strings.Contains(strings.Join(p.Notes, "; "), "not of them") {
				t.Error(p.Notes)
			}
		})
	}
}

// A wrong question is an error that has what to do; what is not measured is a refusal.
func TestRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Question)
		want   string
	}{
		"no target":      {func(q *Question) { q.Class = "" }, "name a target"},
		"two targets":    {func(q *Question) { q.Replicas = 3 }, "name a target"},
		"no such server": {func(q *Question) { q.Subject = why.Subject{Server: "x"} }, "nothing is known of it"},
		"windows":        {func(q *Question) { q.Windows = 0 }, "windows"},
	} {
		t.Run(name, func(t *testing.T) {
			q := testQuestion()
			c.change(&q)
			if _, err := q.Input(t.Context(), lab(false)); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %s", err, c.want)
			}
		})
	}
	for name, c := range map[string]struct {
		change func(*Question)
		want   predict.Reason
	}{
		"no such class":    {func(q *Question) { q.Class = "gold" }, predict.Unmeasured},
		"no such replicas": {func(q *Question) { q.Class, q.Replicas = "", 5 }, predict.Unmeasured},
		"by replicas":      {func(q *Question) { q.Class, q.Replicas = "", 3 }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			q := testQuestion()
			c.change(&q)
			in, err := q.Input(t.Context(), lab(false))
			if err != nil {
				t.Fatal(err)
			}
			p, err := predict.Predict(in)
			if err != nil || (p.Refusal == nil) != (c.want == "") || p.Refusal != nil && p.Refusal.Reason != c.want {
				t.Errorf("%v, %+v; want %q", err, p.Refusal, c.want)
			}
		})
	}
}

// Two servers of one class are not one workload.
func TestOneServer(t *testing.T) {
	r := lab(false)
	identity := `node="n",volume="v-2",namespace="lab",persistentvolumeclaim="data-2",storageclass="r1",backend="b"`
	r.Gauge(`server:volume:info{server="second",db_system="postgresql",`+identity+`}`, 1)
	r.Gauge(`plumbline_volume_info{`+identity+`,device="dev-2",pod="p"}`, 1)
	if _, err := testQuestion().Input(t.Context(), r); err == nil || !strings.Contains(err.Error(), "name one") {
		t.Error(err)
	}
}

// Buckets as Prometheus writes them: only those that have something, with bounds of their own or infinite.
func TestNative(t *testing.T) {
	h := native(&model.SampleHistogram{Buckets: model.HistogramBuckets{
		{Lower: -0.001, Upper: 0.001, Count: 2}, {Lower: 0.002, Upper: 0.004, Count: 5}, {Lower: 0.004, Upper: 0.008, Count: 1},
		{Lower: 0.008, Upper: model.FloatString(math.Inf(1)), Count: 3}}})
	if want := []float64{0.001, 0.002, 0.004, 0.008}; !slices.Equal(h.Bounds, want) || !slices.Equal(h.Counts, []float64{2, 0, 5, 1, 3}) {
		t.Errorf("%+v, want bounds %v", h, want)
	}
}
