package dashboards

import (
	"fmt"
	"testing"

	"github.com/prometheus/prometheus/model/labels"
)

// What a selector's pattern costs Prometheus before it reads a series: to compile it and to hold each volume's name
// against it, of a list of names as Grafana fills it in, and of the pattern for everything.
func BenchmarkPattern(b *testing.B) {
	var names []string
	for i := range 10_000 {
		names = append(names, fmt.Sprintf("pvc-%08x-6f1d-4c1e-9d0e-%012x", uint32(i)*2654435761, i))
	}
	for _, one := range []struct{ name, pattern string }{
		{"list of 10000", pattern(names)}, {"list of 1000", pattern(names[:1000])}, {"list of 100", pattern(names[:100])}, {"everything", ".+"},
	} {
		b.Run(one.name, func(b *testing.B) {
			for range b.N {
				m, err := labels.NewMatcher(labels.MatchRegexp, "volume", one.pattern)
				if err != nil {
					b.Fatal(err)
				}
				for _, name := range names {
					m.Matches(name)
				}
			}
		})
	}
}
