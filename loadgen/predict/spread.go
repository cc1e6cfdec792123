package predict

import (
	"math"
	"math/rand/v2"
	"slices"
)

// spread predicts again and again from windows drawn anew, each as many statements as were measured. Each time it is of
// one volume of the target class, in turn: the workload would be on one.
func (f *fitted) spread(in *Input, volumes []volume, quantiles []float64) []map[float64]scatter {
	all := make([]map[float64]scatter, len(f.totals))
	for i := range all {
		all[i] = map[float64]scatter{}
		for _, q := range quantiles {
			all[i][q] = make(scatter, len(volumes))
		}
	}
	r := rand.New(rand.NewPCG(seed, 2))
	count := min(max(int(f.counted), fewest), most)
	for n := range resamples {
		at := n % len(volumes)
		if len(volumes) > resamples {
			at = n * len(volumes) / resamples
		}
		g := f.resampled(in, r)
		there, refused := g.on(drawn(r, volumes[at].windows, len(volumes[at].windows)))
		if refused != nil {
			continue
		}
		out := there.simulate(count, uint64(n))
		for i := range all {
			if f.unread(there, i) {
				continue
			}
			slices.Sort(out.times[i])
			for _, q := range quantiles {
				if v := quantile(out.times[i], q); v > 0 {
					all[i][q][at] = append(all[i][q][at], math.Log(v))
				}
			}
		}
	}
	return all
}

// drawn are as many windows, drawn with replacement.
func drawn[T any](r *rand.Rand, from []T, n int) []T {
	all := make([]T, n)
	for i := range all {
		all[i] = from[r.IntN(len(from))]
	}
	return all
}

// resampled is the fit with the workload's windows drawn anew.
func (f *fitted) resampled(in *Input, r *rand.Rand) *fitted {
	g := *f
	windows := drawn(r, in.Workload.Windows, len(in.Workload.Windows))
	all, _ := totals(windows)
	g.totals, g.kinds, g.waits = slices.Clone(f.totals), slices.Clone(f.kinds), slices.Clone(f.waits)
	for i, t := range f.totals {
		if at := slices.IndexFunc(all, func(o total) bool { return o.kind == t.kind }); at >= 0 && all[at].count >= 1 {
			g.totals[i] = all[at]
		}
	}
	if o, _ := operations(drawn(r, in.From.Windows, len(in.From.Windows))); hasFlush(o) || len(f.flush) == 0 {
		kept := g.flush
		if g.store(o) != nil {
			g.storage, g.scale = f.storage, f.scale
		}
		g.flush = kept
	}
	g.own(f.kinds[0].own.part, true)
	return &g
}
