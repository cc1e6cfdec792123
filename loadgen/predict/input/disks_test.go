package input

import (
	"fmt"
	"testing"

	"github.com/plumbline/plumbline/loadgen/predict"
	"github.com/plumbline/plumbline/rules/why/whytest"
)

// The requests of a disk that serves others as well are not this server's alone: no number is made of them, unless
// there are enough windows in which it serves no others.
func TestSharedDisks(t *testing.T) {
	volume := func(r *whytest.Recording, name, pod, class, device string) {
		r.Gauge(fmt.Sprintf(`plumbline_volume_info{node="n",volume=%q,namespace="lab",pod=%q,persistentvolumeclaim="c",storageclass=%q,backend="b",device=%q}`, name, pod, class, device), 1)
	}
	replica := func(r *whytest.Recording, device string) {
		r.Gauge(fmt.Sprintf(`plumbline_replica_info{node="n",volume="v-r3",address="10.0.0.1:10000",device=%q}`, device), 1)
	}
	// The last of the four windows is that of the samples 50 to 59, the one before of 40 to 49.
	until := func(r *whytest.Recording, name, class, device string, sample int) {
		attached(r, class, name, device, func(i int) bool { return i < sample })
	}
	for name, c := range map[string]struct {
		more     func(*whytest.Recording)
		from, to int
	}{
		"of its own":                       {func(*whytest.Recording) {}, 0, 0},
		"the server's log beside it":       {func(r *whytest.Recording) { volume(r, "v-log", "r1-pg", "r1", "dev-r1") }, 0, 0},
		"another pod's volume":             {func(r *whytest.Recording) { volume(r, "v-9", "mail", "r1", "dev-r1") }, 1, 0},
		"replicas":                         {func(r *whytest.Recording) { replica(r, "dev-r1") }, 1, 0},
		"a volume that no pod is known of": {func(r *whytest.Recording) { volume(r, "v-9", "", "r1", "dev-r1") }, 1, 0},
		"there":                            {func(r *whytest.Recording) { volume(r, "v-9", "mail", "r9", "dev-r3"); replica(r, "dev-r3") }, 0, 2},
		"there, and another alone": {func(r *whytest.Recording) {
			volume(r, "v-9", "mail", "r9", "dev-r3")
			volume(r, "v-10", "chat", "r3", "dev-r2")
		}, 0, 0},
		"there, and another alone at the end": {func(r *whytest.Recording) {
			volume(r, "v-9", "mail", "r9", "dev-r3")
			attached(r, "r3", "v-10", "dev-r2", func(i int) bool { return i >= 45 })
		}, 0, 1},
		"another pod's volume, but not at the end":      {func(r *whytest.Recording) { until(r, "v-9", "r1", "dev-r1", 45) }, 1, 0},
		"another pod's volume at the beginning":         {func(r *whytest.Recording) { until(r, "v-9", "r1", "dev-r1", 25) }, 0, 0},
		"there, another pod's volume, not at the end":   {func(r *whytest.Recording) { until(r, "v-9", "r9", "dev-r3", 45) }, 0, 1},
		"there, another pod's volume, at the beginning": {func(r *whytest.Recording) { until(r, "v-9", "r9", "dev-r3", 25) }, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			r := lab(false)
			c.more(r)
			in, err := testQuestion().Input(t.Context(), r)
			if err != nil {
				t.Fatal(err)
			}
			if in.From.Shared != c.from || in.To.Shared != c.to {
				t.Errorf("shared by %d and %d, want %d and %d", in.From.Shared, in.To.Shared, c.from, c.to)
			}
			p, err := predict.Predict(in)
			if err != nil {
				t.Fatal(err)
			}
			if got := p.Refusal != nil && p.Refusal.Reason == predict.Shared; got != (c.from+c.to > 0) {
				t.Errorf("%+v", p.Refusal)
			}
		})
	}
}
