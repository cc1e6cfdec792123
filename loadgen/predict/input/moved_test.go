package input

import (
	"fmt"
	"math"
	"testing"

	"github.com/prometheus/prometheus/model/value"

	"github.com/plumbline/plumbline/loadgen/predict"
	"github.com/plumbline/plumbline/rules/why/whytest"
)

// gone is no sample: the series was not there.
var gone = math.Float64frombits(value.StaleNaN)

// attached records that a volume was on a device in the samples that are picked.
func attached(r *whytest.Recording, class, name, device string, when func(i int) bool) {
	r.Add(fmt.Sprintf(`plumbline_volume_info{node="n",volume=%q,namespace="lab",pod=%q,persistentvolumeclaim="c",storageclass=%q,backend="b",device=%q}`, name, name+"-pod", class, device), func(i int, s *whytest.Point) {
		if s.Value = 1; !when(i) {
			s.Value = gone
		}
	})
}

// A device's requests are those of the volume that was on it in that window, from its begin to its end: the name of now
// may have been another's.
func TestMovedVolumes(t *testing.T) {
	// The recording's 60 samples are two minutes; windows of 20 s end at samples 59, 49, 39 and 29.
	early, late := func(i int) bool { return i < 45 }, func(i int) bool { return i >= 45 }
	always := func(int) bool { return true }
	for name, c := range map[string]struct {
		more     func(*whytest.Recording)
		from, to int
	}{
		"never moved": {func(r *whytest.Recording) {
			attached(r, "r1", "v-r1", "dev-r1", always)
			attached(r, "r3", "v-r3", "dev-r3", always)
		}, 4, 4},
		"the server's device was another volume's": {func(r *whytest.Recording) {
			attached(r, "r1", "v-r1", "dev-r1", late)
			attached(r, "r9", "v-9", "dev-r1", early)
			attached(r, "r3", "v-r3", "dev-r3", always)
		}, 1, 4},
		"the server's volume was on another device": {func(r *whytest.Recording) {
			attached(r, "r1", "v-r1", "dev-r1", late)
			attached(r, "r1", "v-r1", "dev-local", early)
			attached(r, "r3", "v-r3", "dev-r3", always)
		}, 3, 4},
		"the class's device was another's": {func(r *whytest.Recording) {
			attached(r, "r1", "v-r1", "dev-r1", always)
			attached(r, "r3", "v-r3", "dev-r3", late)
			attached(r, "r9", "v-9", "dev-r3", early)
		}, 4, 1},
		"the class's volume was on another device": {func(r *whytest.Recording) {
			attached(r, "r1", "v-r1", "dev-r1", always)
			attached(r, "r3", "v-r3", "dev-r3", late)
			attached(r, "r3", "v-r3", "dev-local", early)
		}, 4, 3},
		"two volumes of a pod on one device": {func(r *whytest.Recording) {
			attached(r, "r1", "v-r1", "dev-r1", always)
			for _, v := range []string{"v-data", "v-log"} {
				r.Gauge(fmt.Sprintf(`plumbline_volume_info{node="n",volume=%q,namespace="lab",pod="one",persistentvolumeclaim="c",storageclass="r3",backend="b",device="dev-r3"}`, v), 1)
			}
		}, 4, 4},
		"the class's volume is gone by now": {func(r *whytest.Recording) {
			attached(r, "r1", "v-r1", "dev-r1", always)
			attached(r, "r3", "v-r3", "dev-r3", early)
		}, 4, 2},
	} {
		t.Run(name, func(t *testing.T) {
			r := lab(false)
			r.Without("plumbline_volume_info")
			c.more(r)
			in, err := testQuestion().Input(t.Context(), r)
			if err != nil {
				t.Fatal(err)
			}
			if len(in.From.Windows) != c.from || len(in.To.Windows) != c.to || in.From.Shared+in.To.Shared != 0 {
				t.Errorf("%d windows of the server's device and %d of the class's, shared by %d and %d; want %d and %d",
					len(in.From.Windows), len(in.To.Windows), in.From.Shared, in.To.Shared, c.from, c.to)
			}
		})
	}
}

// A server that was restored to another class in that time is predicted from its statements on this one, and not at all
// from too few windows.
func TestRestored(t *testing.T) {
	for name, c := range map[string]struct {
		since, windows int
		want           predict.Reason
	}{
		"long ago":          {15, 4, ""},
		"a window ago":      {35, 2, predict.Unmeasured},
		"a moment ago":      {57, 0, predict.Unmeasured},
		"three windows ago": {25, 3, ""},
	} {
		t.Run(name, func(t *testing.T) {
			r := lab(false)
			r.Without("plumbline_volume_info")
			attached(r, "r1", "v-r1", "dev-r1", func(i int) bool { return i >= c.since })
			attached(r, "r9", "v-old", "dev-old", func(i int) bool { return i < c.since })
			attached(r, "r3", "v-r3", "dev-r3", func(int) bool { return true })
			in, err := testQuestion().Input(t.Context(), r)
			if err != nil {
				t.Fatal(err)
			}
			statements := c.windows
			if statements == 0 { // where no window has the device, a file of loadgen probe may
				statements = 4
			}
			if len(in.From.Windows) != c.windows || len(in.Workload.Windows) != statements {
				t.Errorf("%d windows of the device and %d of statements, want %d and %d", len(in.From.Windows), len(in.Workload.Windows), c.windows, statements)
			}
			p, err := predict.Predict(in)
			if err != nil {
				t.Fatal(err)
			}
			var got predict.Reason
			if p.Refusal != nil {
				got = p.Refusal.Reason
			}
			if got != c.want {
				t.Errorf("%q, want %q: %v", got, c.want, p.Refusal)
			}
		})
	}
}

// So many replicas are those that a volume had then.
func TestReplicasOfThen(t *testing.T) {
	r := lab(false)
	r.Without("plumbline_volume_desired_replicas")
	r.Add(`plumbline_volume_desired_replicas{volume="v-r3"}`, func(i int, s *whytest.Point) {
		if s.Value = 3; i < 45 {
			s.Value = 2
		}
	})
	q := testQuestion()
	q.Class, q.Replicas = "", 3
	in, err := q.Input(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	if len(in.To.Windows) != 1 {
		t.Errorf("%d windows, want the one in which there were three replicas", len(in.To.Windows))
	}
}
