package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/plumbline/plumbline/loadgen/predict"
	"github.com/plumbline/plumbline/loadgen/predict/input"
	"github.com/plumbline/plumbline/rules/why"
	"github.com/plumbline/plumbline/tests/promapi"
)

// place is a server of a lab and the storage class it is on.
type place struct{ server, class string }

// places are the PostgreSQL servers that a Prometheus has.
func places(ctx context.Context, api *promapi.Server, at time.Time) ([]place, error) {
	servers, err := api.Vector(ctx, `group by (server) (plumbline_server_info{db_system="postgresql"})`)
	if err != nil {
		return nil, err
	}
	var all []place
	for _, s := range servers {
		name := string(s.Metric["server"])
		targets, err := why.Targets(ctx, api, why.Subject{Server: name}, at)
		if err != nil {
			return nil, err
		}
		for _, t := range targets {
			if t.Class != "" {
				all = append(all, place{name, t.Class})
			}
		}
	}
	slices.SortFunc(all, func(a, b place) int { return slices.Compare([]string{a.class, a.server}, []string{b.class, b.server}) })
	if len(all) < 2 {
		return nil, fmt.Errorf("%d servers on storage classes, want two: start a lab (make lab-up), and give its Prometheus' address", len(all))
	}
	return all, nil
}

// live predicts from a running lab's Prometheus, as a user does, what each server would have on each other one's class:
// by the requests of the block devices, and where both classes were probed by that, too. The truth is what that one had
// in the same windows: in a lab all have the same load.
func live(ctx context.Context, o options) (*table, error) {
	api, err := promapi.At(o.live)
	if err != nil {
		return nil, err
	}
	// What the probes do is not in the windows.
	at := time.Now()
	probed, err := probes(ctx, o)
	if err != nil {
		return nil, err
	}
	all, err := places(ctx, api, at)
	if err != nil {
		return nil, err
	}
	t := &table{queued: map[string][2]float64{}}
	for _, from := range all {
		for _, to := range all {
			if from.class == to.class {
				continue
			}
			q := input.Question{Subject: why.Subject{Server: from.server}, Class: to.class, SameCache: true, At: at, Window: o.window, Windows: o.windows}
			in, err := q.Input(ctx, api)
			if err != nil {
				return nil, fmt.Errorf("%s to %s: %w", from.class, to.class, err)
			}
			back := q
			back.Subject.Server, back.Class = to.server, from.class
			there, err := back.Input(ctx, api)
			if err != nil {
				return nil, fmt.Errorf("%s, for what was measured: %w", to.class, err)
			}
			if err := t.predictLive("lab", from, to, in, there.Workload); err != nil {
				return nil, err
			}
			var both bool
			if in.From, both = probed[from.class]; !both {
				continue
			}
			if in.To, both = probed[to.class]; !both {
				continue
			}
			if err := t.predictLive("lab, probed", from, to, in, there.Workload); err != nil {
				return nil, err
			}
		}
	}
	return t, nil
}

// probes measures the classes whose folders are given.
func probes(ctx context.Context, o options) (map[string]predict.Class, error) {
	all := map[string]predict.Class{}
	for class, directory := range o.probes {
		fmt.Fprintf(os.Stderr, "  probing %s in %s\n", class, directory)
		c, err := probe(ctx, o.loadgen, class, directory, "--windows=8", "--window=5s", "--pause="+o.pause.String())
		if err != nil {
			return nil, fmt.Errorf("probing %s in %s: %w", class, directory, err)
		}
		all[class] = c
	}
	return all, nil
}

// predictLive adds what is predicted of each kind of statement beside what the other server had.
func (t *table) predictLive(kind string, from, to place, in *predict.Input, there predict.Workload) error {
	p, err := predict.Predict(in)
	if err != nil {
		return fmt.Errorf("%s, %s to %s: %w", kind, from.class, to.class, err)
	}
	one := move{kind: kind, from: from.class, to: to.class, plain: from.class == "local" || to.class == "local"}
	if p.Refusal != nil {
		one.refusal = p.Refusal
		t.moves = append(t.moves, one)
		return nil
	}
	for _, s := range p.Statements {
		one.kind, one.refusal, one.predicted = kind+", "+s.Kind, s.Refusal, s
		truth, queued := of(there, s.Kind)
		one.measuredMedian, one.measuredP99 = truth.Quantile(0.5), truth.Quantile(0.99)
		t.moves = append(t.moves, one)
		was, ok := t.queued[one.kind]
		if !ok {
			was = queued
		}
		t.queued[one.kind] = [2]float64{min(was[0], queued[0]), max(was[1], queued[1])}
	}
	return nil
}

// of is what a workload had of a kind of statement in all windows, and the shortest and the longest mean wait for a CPU
// in one.
func of(w predict.Workload, kind string) (all predict.Histogram, queued [2]float64) {
	first := true
	for _, window := range w.Windows {
		for _, s := range window.Statements {
			if s.Kind != kind || s.Response.Count() == 0 {
				continue
			}
			all = all.Add(s.Response)
			mean := s.Phases["runqueue"] / s.Response.Count()
			if first {
				queued, first = [2]float64{mean, mean}, false
			}
			queued = [2]float64{min(queued[0], mean), max(queued[1], mean)}
		}
	}
	return all, queued
}
