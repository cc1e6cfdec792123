// Package input queries a Prometheus that has Plumbline's series for the input of a prediction: a server's statements,
// and the requests of the block devices of its class and of another.
package input

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/common/model"

	"github.com/plumbline/plumbline/loadgen/predict"
	"github.com/plumbline/plumbline/rules/why"
)

// Question selects a prediction: what would a server's response times be elsewhere?
type Question struct {
	// Subject names the server.
	Subject why.Subject
	// Class is the storage class to predict for; or Replicas is the number of copies, of the same storage backend.
	Class    string
	Replicas int
	// Clients, Cores, Think, its mean ThinkTime and SameCache are the workload's.
	Clients   int
	Cores     float64
	Think     predict.Think
	ThinkTime time.Duration
	SameCache bool
	// Windows of this length are read, the last one up to At.
	At      time.Time
	Window  time.Duration
	Windows int
}

const mostWindows = 288

// Check returns what is wrong with a question.
func (q Question) Check() error {
	switch {
	case (q.Class == "") == (q.Replicas == 0):
		return errors.New("name a target: either a storage class or a number of replicas")
	case q.Replicas < 0 || q.Clients < 0 || q.ThinkTime < 0:
		return errors.New("replicas, clients and think time must not be below 0")
	case q.Windows < 1 || q.Windows > mostWindows || q.Window < 10*time.Second:
		return fmt.Errorf("%d windows of %v; want 1 to %d of 10 s or more", q.Windows, q.Window, mostWindows)
	}
	return nil
}

// Input runs the queries. What Prometheus does not have is missing in the input, and the prediction reports it.
func (q Question) Input(ctx context.Context, api why.API) (*predict.Input, error) {
	if err := q.Check(); err != nil {
		return nil, err
	}
	targets, err := why.Targets(ctx, api, q.Subject, q.At)
	if err != nil {
		return nil, err
	}
	if len(targets) > 1 {
		var names []string
		for _, t := range targets {
			names = append(names, t.Server)
		}
		return nil, fmt.Errorf("%s has %d servers (%s): name one, server/SERVER", q.Subject, len(targets), strings.Join(names, ", "))
	}
	t := targets[0]
	if t.Server == "" {
		return nil, fmt.Errorf("no database server is known to use %s: see kubectl plumbline verify", q.Subject)
	}
	if t.Volume == "" {
		return nil, fmt.Errorf("%s is on no volume that is known: see kubectl plumbline verify", q.Subject)
	}
	a := &querier{ctx: ctx, api: api, q: q, cluster: t.Cluster, cached: map[int64]places{}}
	in := &predict.Input{Version: predict.Version, From: predict.Class{Name: t.Class}, To: predict.Class{Name: q.Class, Replicas: q.Replicas},
		Workload: predict.Workload{Name: t.Server, Engine: t.Engine, Clients: q.Clients, Think: q.Think, ThinkSeconds: q.ThinkTime.Seconds(), SameCache: q.SameCache}}
	if q.Class == "" {
		in.To.Name = fmt.Sprintf("%d replicas (%s)", q.Replicas, t.Backend)
	}
	in.Workload.Sessions = int(a.number("sessions", t))
	in.Workload.Cores = q.Cores
	spans := a.spans(t)
	in.From.Shared = alone(spans, func(s *span) *[]spot { return &s.source })
	in.To.Shared = alone(spans, func(s *span) *[]spot { return &s.others })
	in.To.Volumes = a.few(spans)
	if q.Class == "" {
		in.To.Pooled = classes(spans)
	}
	known := slices.ContainsFunc(spans, func(s span) bool { return len(s.source) > 0 })
	for _, s := range spans {
		// The statements of a window without the device may have been on another class.
		if !known || len(s.source) > 0 {
			if w := a.statements(t, s.at); len(w.Statements) > 0 {
				in.Workload.Windows = append(in.Workload.Windows, w)
			}
		}
		found := a.requests(s)
		for _, one := range []struct {
			of   []spot
			into *[]predict.Load
		}{{s.source, &in.From.Windows}, {s.others, &in.To.Windows}} {
			for _, at := range one.of {
				if l, ok := found[at.key]; ok {
					l.Volume = at.volume.name
					*one.into = append(*one.into, l)
				}
			}
		}
	}
	return in, a.err
}

// key is a block device among all clusters and nodes.
type key struct{ cluster, node, device string }

// querier runs the queries. It keeps the first error and queries nothing after it.
type querier struct {
	ctx context.Context
	api why.API
	q   Question
	// cluster is the server's.
	cluster string
	// cached are the places that were queried, by time.
	cached map[int64]places
	err    error
}

// vector runs a query at a time.
func (a *querier) vector(text string, at time.Time) model.Vector {
	if a.err != nil {
		return nil
	}
	answer, _, err := a.api.Query(a.ctx, text, at)
	if err != nil {
		a.err = fmt.Errorf("querying Prometheus for %s: %w", text, err)
		return nil
	}
	v, ok := answer.(model.Vector)
	if !ok {
		a.err = fmt.Errorf("querying Prometheus for %s: the answer is a %s, want a vector", text, answer.Type())
	}
	return v
}

// histograms queries histograms, of either kind, by their labels without the bound.
func (a *querier) histograms(name string, of map[string]string, at time.Time) map[model.Fingerprint]found {
	all := map[model.Fingerprint]found{}
	for _, s := range a.vector(matchers(of).Replace(questions[name].native), at) {
		if s.Histogram != nil {
			all[s.Metric.Fingerprint()] = found{s.Metric, native(s.Histogram)}
		}
	}
	if len(all) > 0 || a.err != nil {
		return all
	}
	buckets := map[model.Fingerprint]map[string]float64{}
	metrics := map[model.Fingerprint]model.Metric{}
	for _, s := range a.vector(matchers(of).Replace(questions[name].classic), at) {
		m := s.Metric.Clone()
		delete(m, "le")
		id := m.Fingerprint()
		if buckets[id] == nil {
			buckets[id], metrics[id] = map[string]float64{}, m
		}
		buckets[id][string(s.Metric["le"])] = float64(s.Value)
	}
	for id, b := range buckets {
		all[id] = found{metrics[id], classic(b)}
	}
	return all
}

// found is a histogram and its labels.
type found struct {
	metric model.Metric
	h      predict.Histogram
}

func (a *querier) number(name string, t why.Target) float64 {
	text := matchers(a.of(t)).Replace(questions[name].native)
	for _, s := range a.vector(text, a.q.At) {
		if v := float64(s.Value); v > 0 && !math.IsInf(v, 1) {
			return v
		}
	}
	return 0
}

func (a *querier) of(t why.Target) map[string]string {
	return map[string]string{"server": a.within(t.Cluster, labels("node", t.Node, "server", t.Server)), "window": duration(a.q.Window)}
}

// within adds the matcher of the cluster to query, or of the target's if all are; "" is any then.
func (a *querier) within(cluster, matchers string) string {
	matcher := labels("cluster", cluster)
	if name, named := why.Only(a.api); named {
		matcher = fmt.Sprintf("cluster=%q", name)
	}
	if matchers == "" || matcher == "" {
		return matchers + matcher
	}
	return matchers + "," + matcher
}

// statements are those of a server in the window that ends then.
func (a *querier) statements(t why.Target, at time.Time) predict.Window {
	w := predict.Window{Seconds: a.q.Window.Seconds()}
	phases := map[string]map[string]float64{}
	for _, s := range a.vector(matchers(a.of(t)).Replace(questions["phases"].native), at) {
		command, v := string(s.Metric["command"]), float64(s.Value)
		if phases[command] == nil {
			phases[command] = map[string]float64{}
		}
		if v >= 0 && !math.IsInf(v, 1) {
			phases[command][string(s.Metric["phase"])] = v
		}
	}
	all := a.histograms("durations", a.of(t), at)
	for _, f := range all {
		if kind := string(f.metric["command"]); kind != "" && f.h.Count() > 0 && len(f.h.Bounds) > 0 {
			w.Statements = append(w.Statements, predict.Statement{Kind: why.Clean(kind), Response: f.h, Phases: phases[kind]})
		}
	}
	slices.SortFunc(w.Statements, func(x, y predict.Statement) int { return strings.Compare(x.Kind, y.Kind) })
	return w
}

// requests are those of a window's devices.
func (a *querier) requests(s span) map[key]predict.Load {
	all := map[key]predict.Load{}
	spots := slices.Concat(s.source, s.others)
	if len(spots) == 0 {
		return all
	}
	nodes, names := map[string]bool{}, map[string]bool{}
	known := map[key]bool{}
	for _, k := range spots {
		nodes[regexp.QuoteMeta(k.node)], names[regexp.QuoteMeta(k.device)], known[k.key] = true, true, true
	}
	one := func(of map[string]bool) string {
		return fmt.Sprintf("%q", strings.Join(slices.Sorted(maps.Keys(of)), "|"))
	}
	devices := a.within(a.cluster, "node=~"+one(nodes)+",device=~"+one(names))
	of := map[string]string{"devices": devices, "window": duration(a.q.Window)}
	keyOf := func(m model.Metric) key { return key{a.cluster, string(m["node"]), string(m["device"])} }
	bytes := map[key]float64{}
	for _, b := range a.vector(matchers(of).Replace(questions["bytes"].native), s.at) {
		if v := float64(b.Value); v > 0 && !math.IsInf(v, 1) {
			bytes[keyOf(b.Metric)] = v
		}
	}
	for _, f := range a.histograms("requests", of, s.at) {
		k := keyOf(f.metric)
		if !known[k] || !(f.h.Count() > 0) || len(f.h.Bounds) == 0 {
			continue
		}
		if all[k].Operations == nil {
			all[k] = predict.Load{Seconds: a.q.Window.Seconds(), Operations: map[string]predict.Operation{}}
		}
		name, o := string(f.metric["op"]), predict.Operation{Times: f.h}
		if name == "write" {
			o.Bytes = bytes[k]
		}
		all[k].Operations[name] = o
	}
	return all
}
