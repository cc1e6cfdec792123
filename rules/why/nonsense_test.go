package why

import (
	"context"
	"math"
	"strings"
	"testing"
	"time"

	promv1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"

	"github.com/plumbline/plumbline/rules/why/whytest"
)

// nonsense gives each figure of a phase or a layer a value that no time can have.
type nonsense struct {
	API
	value float64
}

func (n nonsense) Query(ctx context.Context, query string, at time.Time, options ...promv1.Option) (model.Value, promv1.Warnings, error) {
	v, warnings, err := n.API.Query(ctx, query, at, options...)
	vector, ok := v.(model.Vector)
	for i, s := range vector {
		if ok && i > 0 && s.Metric["phase"] != "" || strings.Contains(query, "blkio_queue") {
			s.Value = model.SampleValue(n.value)
		}
	}
	return v, warnings, err
}

// A figure that no time and no count can be is as one that is not there: nothing is drawn by it, and nothing panics.
func TestNonsense(t *testing.T) {
	for _, value := range []float64{math.Inf(1), math.Inf(-1), -1e-3, -36.3, -1e300} {
		f, err := Find(t.Context(), nonsense{whytest.Healthy().Record(), value}, Subject{Class: "r3"}, whytest.End, 20*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		var b strings.Builder
		func() {
			defer func() {
				if r := recover(); r != nil {
					t.Errorf("%v: %v", value, r)
				}
			}()
			PlainPrinter(&b).Why(f)
			PlainPrinter(&b).Stacks([]*Finding{f})
		}()
		for _, l := range append(f.Commits.Phases, f.Write.Layers...) {
			if !(l.Seconds >= 0) || math.IsInf(l.Seconds, 0) {
				t.Errorf("%v: layer %s has %v s", value, l.Name, l.Seconds)
			}
		}
	}
}
