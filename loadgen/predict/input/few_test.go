package input

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/plumbline/plumbline/loadgen/predict"
	"github.com/plumbline/plumbline/rules/why/whytest"
)

// crowd records so many volumes of a class on a node, each with so many writes a second.
func crowd(r *whytest.Recording, node, class string, volumes int, perSecond float64) {
	for i := range volumes {
		r.Gauge(fmt.Sprintf(`plumbline_volume_info{node=%q,volume="%s-%02d",namespace="lab",pod="p-%02d",persistentvolumeclaim="c",storageclass=%q,backend="b",device="sd%02d"}`, node, node, i, i, class, i), 1)
		r.Gauge(fmt.Sprintf(`plumbline_volume_desired_replicas{volume="%s-%02d"}`, node, i), 3)
		r.Times(fmt.Sprintf(`ebpf_exporter_blkio_total_seconds{node=%q,device="sd%02d",op="write"}`, node, i), perSecond, 0.0044)
	}
}

// Of many volumes those are read whose load is nearest to the server's, which makes 60 writes a second, wherever
// they are; a note reports it.
func TestNearestInLoad(t *testing.T) {
	for name, classic := range map[string]bool{"native": false, "classic": true} {
		t.Run(name, func(t *testing.T) {
			r := lab(classic)
			crowd(r, "a", "r3", 30, 3000)
			crowd(r, "b", "r3", 30, 0.5)
			crowd(r, "z", "r3", 19, 70)
			in, err := testQuestion().Input(t.Context(), r)
			if err != nil {
				t.Fatal(err)
			}
			seen := map[string]bool{}
			for _, w := range in.To.Windows {
				seen[w.Volume] = true
				if !strings.HasPrefix(w.Volume, "z-") && w.Volume != "v-r3" {
					t.Errorf("%s was read", w.Volume)
				}
			}
			if len(seen) != 20 || in.To.Volumes != 80 {
				t.Errorf("%d of %d volumes, want 20 of 80", len(seen), in.To.Volumes)
			}
			p, err := predict.Predict(in)
			if err != nil || p.Refusal != nil {
				t.Fatal(err, p.Refusal)
			}
			if notes := strings.Join(p.Notes, "; "); !strings.Contains(notes, "20 of 80 volumes") {
				t.Error(notes)
			}
		})
	}
}

// A prediction for a number of replicas names the classes whose volumes were taken together.
func TestPooledClasses(t *testing.T) {
	r := lab(false)
	crowd(r, "z", "gold", 2, 60)
	q := testQuestion()
	q.Class, q.Replicas = "", 3
	in, err := q.Input(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(in.To.Pooled, []string{"gold", "r3"}) {
		t.Errorf("%q", in.To.Pooled)
	}
	p, err := predict.Predict(in)
	if err != nil || p.Refusal != nil {
		t.Fatal(err, p.Refusal)
	}
	if notes := strings.Join(p.Notes, "; "); !strings.Contains(notes, "storage classes gold, r3") {
		t.Error(notes)
	}
}
