package input

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strings"
	"time"
)

const (
	// mostVolumes of the target class are read.
	mostVolumes = 20
	// idle is the distance in load, as a logarithm, of a volume of which none is known.
	idle = 20
)

// few keeps, of more than mostVolumes, those whose load is nearest to that of the server's device in the same windows.
// It returns how many there were, 0 if all are read.
func (a *querier) few(spans []span) int {
	far := map[volumeKey][]float64{}
	for _, s := range spans {
		for _, o := range s.others {
			far[o.volume] = nil
		}
	}
	if len(far) <= mostVolumes {
		return 0
	}
	for _, s := range spans {
		if len(s.source) == 0 {
			continue
		}
		loads := a.loads(s.at)
		for _, o := range s.others {
			d := math.Abs(math.Log(loads[o.key] / loads[s.source[0].key]))
			if !(d <= idle) {
				d = idle
			}
			far[o.volume] = append(far[o.volume], d)
		}
	}
	mean := func(v volumeKey) float64 {
		if len(far[v]) == 0 {
			return idle
		}
		sum := 0.0
		for _, d := range far[v] {
			sum += d
		}
		return sum / float64(len(far[v]))
	}
	nearest := slices.SortedFunc(maps.Keys(far), func(x, y volumeKey) int {
		return cmp.Or(cmp.Compare(mean(x), mean(y)), strings.Compare(x.name, y.name))
	})
	for i := range spans {
		spans[i].others = slices.DeleteFunc(spans[i].others, func(o spot) bool { return !slices.Contains(nearest[:mostVolumes], o.volume) })
	}
	return len(far)
}

// loads are how many writes and flushes a second each device had in the window that ends then.
func (a *querier) loads(at time.Time) map[key]float64 {
	all := map[key]float64{}
	everywhere := matchers(map[string]string{"cluster": a.within(a.cluster, ""), "window": duration(a.q.Window)})
	// Some nodes' histograms may be native, and others' classic.
	for _, text := range []string{questions["load"].classic, questions["load"].native} {
		for _, s := range a.vector(everywhere.Replace(text), at) {
			all[deviceOf(s.Metric)] = float64(s.Value)
		}
	}
	return all
}

// classes are those of the volumes that are read.
func classes(spans []span) []string {
	found := map[string]bool{}
	for _, s := range spans {
		for _, o := range s.others {
			found[o.class] = true
		}
	}
	return slices.Sorted(maps.Keys(found))
}
