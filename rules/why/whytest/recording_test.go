package whytest

import (
	"math"
	"testing"

	"github.com/prometheus/common/model"
)

// The engine's rate and mean of what is recorded are what was put in.
func TestRecording(t *testing.T) {
	r := NewRecording()
	r.Times(`x_seconds{a="b"}`, 40, 0.003)
	for query, want := range map[string]float64{
		`histogram_avg(sum(rate(x_seconds{a="b"}[20s])))`:   0.003,
		`histogram_count(sum(rate(x_seconds{a="b"}[20s])))`: 40,
	} {
		_, _, _ = r.Query(t.Context(), query, End) // a second query returns the same
		v, _, err := r.Query(t.Context(), query, End)
		if err != nil || len(v.(model.Vector)) != 1 || math.Abs(float64(v.(model.Vector)[0].Value)/want-1) > 1e-6 {
			t.Errorf("%s: %v, %v; want %v", query, v, err, want)
		}
	}
}
