// Package events writes the rules' verdicts as Kubernetes Events, on the claims and the databases' pods that they are
// about: one when a verdict begins, one in each hour that it lasts, and one when it has ended.
//
// It keeps nothing. Each round reads the verdicts of the last hour from Prometheus, and an event's name follows from
// what it reports and when that began: a second writer, or one that was started again, makes the same names, and the
// API server refuses what is there. An API server or a Prometheus that does not answer delays events, and loses those
// alone that are older than an hour then.
package events

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/prometheus/common/model"

	"github.com/plumbline/plumbline/rules/layers"
	"github.com/plumbline/plumbline/rules/why"
)

const (
	// lookback is how far back a round reads, step how exactly it knows when a verdict began and ended.
	lookback = time.Hour
	step     = 30 * time.Second
	// quiet is how long a verdict must be gone to have ended: one that comes and goes is one.
	quiet = 3 * time.Minute
	// settled is how long a verdict must last before it is reported, but for a stall.
	settled = time.Minute
	// mostAtOnce is how many events are written in a round, the surest verdicts' first; the others' turn comes in the
	// next.
	mostAtOnce = 100
	// mostWorded is how many of these have the sentence of `kubectl plumbline why`, which takes many queries; the
	// others name layer, replica and place.
	mostWorded = 20
)

// kind is what a verdict is reported as: the reasons of the events of its beginning and its end.
type kind struct {
	begun, ended string
	hold         time.Duration
	// storage is reported on the claim as well as on the pod.
	storage bool
}

var (
	stalled    = kind{"StorageStalled", "StorageResumed", 0, true}
	replica    = kind{"ReplicaSlow", "ReplicaRecovered", settled, true}
	slow       = kind{"StorageSlow", "StorageRecovered", settled, true}
	statements = kind{"StatementsSlow", "StatementsRecovered", settled, false}
	locked     = kind{"LockWait", "LockWaitEnded", settled, false}
	short      = kind{"CPUWait", "CPUWaitEnded", settled, false}
)

// kindOf returns what a verdict is reported as; ok is false for one that reports no trouble. A reason that is not known
// is reported as what its layer is, and a neighbour on a replica's disk with the replica.
func kindOf(reason why.Reason, layer, ofReplica string) (k kind, ok bool) {
	if reason == why.Neighbour && ofReplica != "" {
		reason = why.SlowReplica
	}
	switch reason {
	case why.Largest, why.Few, why.Rebuild: // a rebuild takes time from others, who have verdicts of their own then
		return kind{}, false
	case why.Stalled:
		return stalled, true
	case why.SlowReplica:
		return replica, true
	case why.Lock:
		return locked, true
	case why.CPU:
		return short, true
	}
	if layer != "" && layers.OfVolume(layers.Of(layer)) {
		return slow, true
	}
	return statements, true
}

// Object is what an event is about: a claim or a pod.
type Object struct{ Kind, Namespace, Name, UID string }

// The kinds of objects.
const (
	claimKind = "PersistentVolumeClaim"
	podKind   = "Pod"
)

// Event is one to be written.
type Event struct {
	Object
	// Reason is in CamelCase, as StorageStalled. Warning is false of an end.
	Reason  string
	Warning bool
	// At is when what it reports began or ended.
	At      time.Time
	Message string

	// slot distinguishes events of one reason on one object.
	slot       string
	kind       kind
	confidence float64
	verdict    why.Reason
	span       span
	culprits   []culprit
}

// span is a time without a longer gap than quiet. open: it continues; before: it was there when the lookback began.
type span struct {
	first, last  time.Time
	open, before bool
}

func (s span) lasted() time.Duration { return s.last.Sub(s.first) }

type culprit struct{ layer, replica, device, node, kind, user string }

// group are a kind's verdicts on one object.
type group struct {
	object Object
	kind   kind
	times  []time.Time
	// confidence and reason are the surest verdict's; culprits are by their first times.
	confidence float64
	reason     why.Reason
	culprits   map[culprit]time.Time
}

// Source is Prometheus, which may be narrowed to one cluster.
type Source struct {
	API why.API
	Log *slog.Logger
}

// Due returns the events of the last hour, the surest verdicts' first.
func (s Source) Due(ctx context.Context, now time.Time) ([]Event, error) {
	now = now.Truncate(step)
	if err := why.OneCluster(ctx, s.API, now); err != nil {
		return nil, err
	}
	groups, err := s.groups(ctx, now)
	if err != nil {
		return nil, err
	}
	var due []Event
	for _, g := range groups {
		for _, span := range spans(g.times, now) {
			due = append(due, g.events(span, now)...)
		}
	}
	slices.SortFunc(due, func(a, b Event) int {
		return cmp.Or(cmp.Compare(b.confidence, a.confidence), a.At.Compare(b.At), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Reason, b.Reason))
	})
	return due, nil
}

// spans cuts times at gaps that are longer than quiet.
func spans(times []time.Time, now time.Time) (all []span) {
	slices.SortFunc(times, time.Time.Compare)
	for i, t := range times {
		if i == 0 || t.Sub(times[i-1]) > quiet {
			all = append(all, span{first: t, before: t.Sub(now.Add(-lookback)) <= quiet})
		}
		last := &all[len(all)-1]
		last.last = t
		last.open = now.Sub(t) <= quiet
	}
	return all
}

// events are those of a span.
func (g *group) events(s span, now time.Time) (due []Event) {
	if s.lasted() < g.kind.hold {
		return nil
	}
	one := Event{Object: g.object, Reason: g.kind.begun, Warning: true, kind: g.kind, confidence: g.confidence, verdict: g.reason, span: s, culprits: g.during(s)}
	switch {
	case !s.before:
		one.At, one.slot = s.first, fmt.Sprint(s.first.Unix())
		due = append(due, one)
	case s.open:
		one.At, one.slot = now, fmt.Sprintf("%dh", now.Unix()/3600)
		due = append(due, one)
	}
	if !s.open {
		one.Reason, one.Warning, one.At, one.slot = g.kind.ended, false, s.last, fmt.Sprint(s.last.Unix())
		due = append(due, one)
	}
	return due
}

// during lists the culprits of a span, by their times.
func (g *group) during(s span) (all []culprit) {
	for c, first := range g.culprits {
		if !first.After(s.last) {
			all = append(all, c)
		}
	}
	slices.SortFunc(all, func(a, b culprit) int {
		return cmp.Or(g.culprits[a].Compare(g.culprits[b]), layers.Compare(a.layer, b.layer), cmp.Compare(a.replica, b.replica), cmp.Compare(a.node, b.node), cmp.Compare(a.device, b.device), cmp.Compare(a.user, b.user))
	})
	return all
}

// groups reads the verdicts of the last hour, and whose they are.
func (s Source) groups(ctx context.Context, now time.Time) ([]*group, error) {
	var verdicts model.Matrix
	for _, name := range []string{"volume:verdict:confidence", "server:verdict:confidence"} {
		matrix, err := query[model.Matrix](ctx, s, name, `%s{reason!~"largest|rebuild",%s}[%s:%s]`, now, name, s.cluster(), model.Duration(lookback), model.Duration(step))
		if err != nil {
			return nil, err
		}
		verdicts = append(verdicts, matrix...)
	}
	if len(verdicts) == 0 {
		return nil, s.judged(ctx, now)
	}
	known, err := s.objects(ctx, now)
	if err != nil {
		return nil, err
	}
	all := map[string]*group{}
	var order []*group
	for _, v := range verdicts {
		reason := why.Reason(v.Metric["reason"])
		k, ok := kindOf(reason, string(v.Metric["layer"]), string(v.Metric["replica"]))
		if !ok {
			continue
		}
		for _, o := range known.of(v.Metric, k.storage) {
			key := fmt.Sprintf("%q %q %q %q", o.Kind, o.Namespace, o.Name, k.begun)
			g := all[key]
			if g == nil {
				g = &group{object: o, kind: k, culprits: map[culprit]time.Time{}}
				all[key], order = g, append(order, g)
			}
			g.add(v, reason)
		}
	}
	return order, nil
}

// judged returns an error if there is no verdict because nothing judges.
func (s Source) judged(ctx context.Context, now time.Time) error {
	const threshold = "threshold:main_part:ratio"
	if all, err := query[model.Vector](ctx, s, threshold, "%s{%s}", now, threshold, s.cluster()); err != nil || len(all) > 0 {
		return err
	}
	return errors.New("there is no series of Plumbline's rules, and so no verdict: load them (the chart's rules.enabled), and see whether Prometheus selects them")
}

func (g *group) add(v *model.SampleStream, reason why.Reason) {
	m := v.Metric
	c := culprit{string(m["layer"]), string(m["replica"]), string(m["device"]), string(m["culprit_node"]), string(m["kind"]), string(m["user"])}
	for _, p := range v.Values {
		t := p.Timestamp.Time()
		if first, ok := g.culprits[c]; !ok || t.Before(first) {
			g.culprits[c] = t
		}
		if float64(p.Value) > g.confidence {
			g.confidence, g.reason = float64(p.Value), reason
		}
		g.times = append(g.times, t)
	}
}

// query returns what an expression is at a time. An error names what it reads.
func query[T model.Value](ctx context.Context, s Source, what, expr string, at time.Time, arguments ...any) (result T, err error) {
	v, _, err := s.API.Query(ctx, fmt.Sprintf(expr, arguments...), at)
	if err != nil {
		return result, fmt.Errorf("reading %s: %w", what, err)
	}
	result, ok := v.(T)
	if !ok {
		return result, fmt.Errorf("reading %s: Prometheus returns a %s", what, v.Type())
	}
	return result, nil
}

// cluster returns a matcher of the queried cluster.
func (s Source) cluster() string {
	if name, ok := why.Only(s.API); ok {
		return fmt.Sprintf("cluster=%q", name)
	}
	return ""
}

// objects are the claims by volume, the pods by server, and the volumes of servers, as of the last hour.
type objects struct {
	claims, pods map[string][]Object
	volumes      map[string][]string
}

func (s Source) objects(ctx context.Context, now time.Time) (o objects, err error) {
	o = objects{map[string][]Object{}, map[string][]Object{}, map[string][]string{}}
	read := func(metric, by string, add func(model.Metric)) {
		if err != nil {
			return
		}
		var vector model.Vector
		vector, err = query[model.Vector](ctx, s, metric, `group by (%s) (last_over_time(%s{%s}[%s]))`, now, by, metric, s.cluster(), model.Duration(lookback))
		for _, one := range vector {
			add(one.Metric)
		}
	}
	read("plumbline_volume_info", "volume, namespace, persistentvolumeclaim, claim_uid", func(m model.Metric) {
		if name := string(m["persistentvolumeclaim"]); name != "" {
			volume := string(m["volume"])
			o.claims[volume] = append(o.claims[volume], Object{claimKind, string(m["namespace"]), name, string(m["claim_uid"])})
		}
	})
	read("plumbline_server_info", "node, server, namespace, pod, pod_uid", func(m model.Metric) {
		if name := string(m["pod"]); name != "" {
			server := serverKey(m)
			o.pods[server] = append(o.pods[server], Object{podKind, string(m["namespace"]), name, string(m["pod_uid"])})
		}
	})
	read("server:volume:info", "node, server, volume", func(m model.Metric) {
		server := serverKey(m)
		o.volumes[server] = append(o.volumes[server], string(m["volume"]))
	})
	return o, err
}

func serverKey(m model.Metric) string { return string(m["node"]) + "\x00" + string(m["server"]) }

// of returns what a verdict is about: a volume's claim; a server's pod, and its claims too if storage is the trouble. A
// volume or server outside of Kubernetes has none.
func (o objects) of(m model.Metric, storage bool) (all []Object) {
	if m["server"] == "" {
		return o.claims[string(m["volume"])]
	}
	all = slices.Clone(o.pods[serverKey(m)])
	if !storage {
		return all
	}
	volumes := o.volumes[serverKey(m)]
	if v := string(m["volume"]); v != "" {
		volumes = []string{v}
	}
	for _, v := range volumes {
		all = append(all, o.claims[v]...)
	}
	return all
}
