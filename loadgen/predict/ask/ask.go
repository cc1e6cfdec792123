// Package ask asks a Prometheus that has Plumbline's series for what a prediction goes by: a server's statements, and the
// requests of the block devices of its class and of another.
package ask

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

// Question is what is asked: what would a server's response times be elsewhere?
type Question struct {
	// Subject names the server.
	Subject why.Subject
	// Class is the storage class asked about; or Replicas is the number of copies, of the same storage engine.
	Class    string
	Replicas int
	// Clients, Cores, Think, its mean ThinkTime and SameCache are the workload's.
	Clients   int
	Cores     float64
	Think     predict.Think
	ThinkTime time.Duration
	SameCache bool
	// Windows of this length are looked at, the last one up to At.
	At      time.Time
	Window  time.Duration
	Windows int
}

const (
	// mostVolumes of the class asked about are looked at.
	mostVolumes = 20
	mostWindows = 288
)

// Check tells what of a question cannot be asked.
func (q Question) Check() error {
	switch {
	case (q.Class == "") == (q.Replicas == 0):
		return errors.New("say where to: either a storage class or a number of replicas")
	case q.Replicas < 0 || q.Clients < 0 || q.ThinkTime < 0:
		return errors.New("replicas, clients and think time must not be below 0")
	case q.Windows < 1 || q.Windows > mostWindows || q.Window < 10*time.Second:
		return fmt.Errorf("%d windows of %v; want 1 to %d of 10 s or more", q.Windows, q.Window, mostWindows)
	}
	return nil
}

// Input asks. What Prometheus does not have is missing in the input, and the prediction says so.
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
		return nil, fmt.Errorf("%s has %d servers (%s): ask about one, server/SERVER", q.Subject, len(targets), strings.Join(names, ", "))
	}
	t := targets[0]
	if t.Server == "" {
		return nil, fmt.Errorf("no database server is known to use %s: see kubectl plumbline verify", q.Subject)
	}
	a := &asker{ctx: ctx, api: api, q: q}
	disks := a.volumes(t)
	in := &predict.Input{Version: predict.Version, From: predict.Class{Name: t.Class}, To: predict.Class{Name: q.Class, Replicas: q.Replicas},
		Workload: predict.Workload{Name: t.Server, Engine: t.Engine, Clients: q.Clients, Think: q.Think, ThinkSeconds: q.ThinkTime.Seconds(), SameCache: q.SameCache}}
	if q.Class == "" {
		in.To.Name = fmt.Sprintf("%d replicas (%s)", q.Replicas, t.Backend)
	}
	in.From.Shared = disks.others(a.source, a.pod)
	in.To.Shared = a.shared
	in.Workload.Sessions = int(a.number("sessions", t))
	in.Workload.Cores = q.Cores
	for i := range q.Windows {
		at := q.At.Add(-time.Duration(i) * q.Window)
		if w := a.statements(t, at); len(w.Statements) > 0 {
			in.Workload.Windows = append(in.Workload.Windows, w)
		}
		found := a.requests(at)
		if l, ok := found[a.source]; ok {
			in.From.Windows = append(in.From.Windows, l)
		}
		for _, device := range a.others {
			if l, ok := found[device]; ok {
				in.To.Windows = append(in.To.Windows, l)
			}
		}
	}
	return in, a.err
}

// key is a block device among all clusters and nodes.
type key struct{ cluster, node, device string }

// asker asks. The first error is kept, and nothing is asked after it.
type asker struct {
	ctx context.Context
	api why.API
	q   Question
	// source is the server's device, others those of the class asked about.
	source key
	others []key
	// pod is the server's own; shared is how many volumes and replicas of others are on each of the others' devices at least.
	pod    podKey
	shared int
	err    error
}

// vector asks a question at a time.
func (a *asker) vector(text string, at time.Time) model.Vector {
	if a.err != nil {
		return nil
	}
	answer, _, err := a.api.Query(a.ctx, text, at)
	if err != nil {
		a.err = fmt.Errorf("asking Prometheus for %s: %w", text, err)
		return nil
	}
	v, ok := answer.(model.Vector)
	if !ok {
		a.err = fmt.Errorf("asking Prometheus for %s: the answer is a %s, want a vector", text, answer.Type())
	}
	return v
}

// histograms asks for histograms, of either kind, by their labels without the bound.
func (a *asker) histograms(name string, of map[string]string, at time.Time) map[model.Fingerprint]found {
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

func (a *asker) number(name string, t why.Target) float64 {
	text := matchers(a.of(t)).Replace(questions[name].native)
	for _, s := range a.vector(text, a.q.At) {
		if v := float64(s.Value); v > 0 && !math.IsInf(v, 1) {
			return v
		}
	}
	return 0
}

func (a *asker) of(t why.Target) map[string]string {
	return map[string]string{"server": a.within(t.Cluster, labels("node", t.Node, "server", t.Server)), "window": duration(a.q.Window)}
}

// within adds the matcher of the cluster that is asked about, or of the target's if all are; "" is any then.
func (a *asker) within(cluster, matchers string) string {
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
func (a *asker) statements(t why.Target, at time.Time) predict.Window {
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

// volumes finds the devices of the class asked about: its volumes', or those of the engine's volumes with so many replicas. Of a disk that
// several share it is not known whose its requests are: such ones are asked about only if there are no others.
func (a *asker) volumes(t why.Target) disks {
	a.source = key{t.Cluster, t.Node, t.Device}
	everywhere := matchers(map[string]string{"cluster": a.within(t.Cluster, "")})
	desired := map[[2]model.LabelValue]float64{}
	if a.q.Replicas > 0 {
		for _, s := range a.vector(everywhere.Replace(questions["replicas"].native), a.q.At) {
			desired[[2]model.LabelValue{s.Metric["cluster"], s.Metric["volume"]}] = float64(s.Value)
		}
	}
	of := disks{}
	for _, s := range a.vector(everywhere.Replace(questions["below"].native), a.q.At) {
		if device := string(s.Metric["device"]); device != "" {
			of.add(key{string(s.Metric["cluster"]), string(s.Metric["node"]), device}, podKey{}, int(s.Value))
		}
	}
	devices := map[key]podKey{}
	for _, s := range a.vector(everywhere.Replace(questions["volumes"].native), a.q.At) {
		m := s.Metric
		pod := podKey{string(m["namespace"]), string(m["pod"])}
		k := key{string(m["cluster"]), string(m["node"]), string(m["device"])}
		wanted := a.q.Class != "" && string(m["storageclass"]) == a.q.Class ||
			a.q.Replicas > 0 && string(m["backend"]) == t.Backend && desired[[2]model.LabelValue{m["cluster"], m["volume"]}] == float64(a.q.Replicas)
		if k.device != "" {
			of.add(k, pod, 1)
		}
		if k == a.source && string(m["volume"]) == t.Volume {
			a.pod = pod
		}
		if wanted && k != a.source && k.device != "" && k.cluster == t.Cluster {
			devices[k] = pod
		}
	}
	if alone := maps.Clone(devices); len(devices) > 0 {
		maps.DeleteFunc(alone, func(k key, pod podKey) bool { return of.others(k, pod) > 0 })
		if len(alone) > 0 {
			devices = alone
		} else {
			a.shared = math.MaxInt
			for k, pod := range devices {
				a.shared = min(a.shared, of.others(k, pod))
			}
		}
	}
	a.others = slices.SortedFunc(maps.Keys(devices), func(x, y key) int { return strings.Compare(x.node+"/"+x.device, y.node+"/"+y.device) })
	a.others = a.others[:min(len(a.others), mostVolumes)]
	return of
}

// requests are those of the server's device and of the others in the window that ends then.
func (a *asker) requests(at time.Time) map[key]predict.Load {
	all := map[key]predict.Load{}
	if a.source.device == "" {
		return all
	}
	nodes, names := map[string]bool{}, map[string]bool{}
	known := map[key]bool{}
	for _, k := range append([]key{a.source}, a.others...) {
		nodes[regexp.QuoteMeta(k.node)], names[regexp.QuoteMeta(k.device)], known[k] = true, true, true
	}
	one := func(of map[string]bool) string {
		return fmt.Sprintf("%q", strings.Join(slices.Sorted(maps.Keys(of)), "|"))
	}
	devices := a.within(a.source.cluster, "node=~"+one(nodes)+",device=~"+one(names))
	of := map[string]string{"devices": devices, "window": duration(a.q.Window)}
	deviceOf := func(m model.Metric) key { return key{a.source.cluster, string(m["node"]), string(m["device"])} }
	bytes := map[key]float64{}
	for _, s := range a.vector(matchers(of).Replace(questions["bytes"].native), at) {
		if v := float64(s.Value); v > 0 && !math.IsInf(v, 1) {
			bytes[deviceOf(s.Metric)] = v
		}
	}
	for _, f := range a.histograms("requests", of, at) {
		k := deviceOf(f.metric)
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
