package why

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/common/model"

	"github.com/plumbline/plumbline/rules/layers"
)

// ErrUnknown means that Prometheus has no series of a subject.
var ErrUnknown = errors.New("nothing is known of it")

// Find describes a subject's slowest target, at a time, by means over a window.
func Find(ctx context.Context, api API, s Subject, at time.Time, window time.Duration) (*Finding, error) {
	a := newQuerier(ctx, api, at, window)
	targets, err := a.known(s)
	if err != nil {
		return nil, err
	}
	return a.find(s, a.bySlowness(targets)[0], len(targets))
}

// FindEach describes the targets of a subject, the slowest first and at most so many.
func FindEach(ctx context.Context, api API, s Subject, at time.Time, window time.Duration, most int) (all []*Finding, err error) {
	a := newQuerier(ctx, api, at, window)
	targets, err := a.known(s)
	if err != nil {
		return nil, err
	}
	for _, t := range a.bySlowness(targets)[:min(most, len(targets))] {
		one := s
		if len(targets) > 1 && t.Server != "" {
			one = Subject{Server: t.Server, AllStatements: s.AllStatements}
		}
		f, err := a.find(one, t, 1)
		if err != nil {
			return nil, err
		}
		all = append(all, f)
	}
	return all, nil
}

// find describes a target of a subject that has so many.
func (a *querier) find(s Subject, t Target, targets int) (*Finding, error) {
	f := &Finding{At: a.at, Window: a.window, Subject: s, Target: t, Servers: targets}
	a.failed = &f.failed
	a.about(f.Target).statements(f)
	a.about(f.Target).complete(f)
	if *a.err != nil {
		return nil, *a.err
	}
	if err := f.judge(a.ctx); err != nil {
		return nil, err
	}
	f.split() // again: the verdict distinguishes a replica's backlog from the network's delay
	a.about(f.Target).queries(f)
	if *a.err != nil {
		return nil, *a.err
	}
	return f, nil
}

// Targets lists a subject's servers, or its volumes where no server is known, by name.
func Targets(ctx context.Context, api API, s Subject, at time.Time) ([]Target, error) {
	return newQuerier(ctx, api, at, 0).known(s)
}

// known are the targets of a subject that Prometheus knows: one at least.
func (a *querier) known(s Subject) ([]Target, error) {
	targets := a.targets(s)
	if *a.err != nil {
		return nil, *a.err
	}
	if len(targets) == 0 {
		return nil, fmt.Errorf("%s: %w; %s", s, ErrUnknown, a.whatThereIs())
	}
	return targets, nil
}

// bySlowness sorts targets by the mean of their commits, or of their statements if none commits, the largest first.
func (a *querier) bySlowness(targets []Target) []Target {
	if len(targets) == 1 {
		return targets
	}
	for _, what := range []string{"all commit means", "all statement means"} {
		means := map[serverKey]float64{}
		for _, v := range a.vector(what) {
			means[keyOf(v.Metric)] = figure(v.Value)
		}
		mean := func(t Target) float64 {
			if mean, ok := means[t.key()]; ok {
				return mean
			}
			return math.NaN() // the last
		}
		if slices.ContainsFunc(targets, func(t Target) bool { return Known(mean(t)) }) {
			slices.SortStableFunc(targets, func(x, y Target) int { return cmp.Compare(mean(y), mean(x)) })
			break
		}
	}
	return targets
}

// Classes lists the storage classes that have a database server, by name.
func Classes(ctx context.Context, api API, at time.Time) ([]string, error) {
	a := newQuerier(ctx, api, at, 0)
	var classes []string
	for _, s := range a.vector("servers") {
		classes = append(classes, string(s.Metric["storageclass"]))
	}
	slices.Sort(classes)
	return slices.Compact(classes), *a.err
}

// Nodes lists the nodes of which the agent is heard, by name.
func Nodes(ctx context.Context, api API, at time.Time) ([]string, error) {
	a := newQuerier(ctx, api, at, 0)
	var nodes []string
	for _, s := range a.vector("nodes") {
		nodes = append(nodes, string(s.Metric["node"]))
	}
	slices.Sort(nodes)
	return nodes, *a.err
}

// Claims lists the claims of a namespace whose volumes are of a class, by name, whatever uses them.
func Claims(ctx context.Context, api API, namespace, class string, at time.Time) ([]string, error) {
	a := newQuerier(ctx, api, at, 0)
	var claims []string
	for _, v := range a.vector("volumes") {
		if claim := string(v.Metric["persistentvolumeclaim"]); claim != "" && string(v.Metric["namespace"]) == namespace && string(v.Metric["storageclass"]) == class {
			claims = append(claims, claim)
		}
	}
	slices.Sort(claims)
	return slices.Compact(claims), *a.err
}

// Servers lists the database servers that are known, whatever they are on, by name.
func Servers(ctx context.Context, api API, at time.Time) ([]Subject, error) {
	a := newQuerier(ctx, api, at, 0)
	var all []Subject
	for _, v := range a.vector("known servers") {
		all = append(all, Subject{Server: string(v.Metric["server"])})
	}
	slices.SortFunc(all, func(x, y Subject) int { return strings.Compare(x.Server, y.Server) })
	return slices.Compact(all), *a.err
}

// Addresses lists where a server is known to answer, HOST:PORT, alone.
func Addresses(ctx context.Context, api API, t Target, at time.Time) ([]string, error) {
	a := newQuerier(ctx, api, at, 0)
	all := a.addresses()[t.key()]
	slices.Sort(all)
	return all, *a.err
}

// String names a subject as its user did.
func (s Subject) String() string {
	switch {
	case s.Pod != "":
		return "pod " + s.Namespace + "/" + s.Pod
	case s.Claim != "":
		return "claim " + s.Namespace + "/" + s.Claim
	case s.Server != "":
		return "server " + s.Server
	case s.Address != "":
		return "server at " + s.Address
	case s.Volume != "":
		return "volume " + s.Volume
	}
	return "storage class " + s.Class
}

// targets are the servers of a subject, or its volumes where no server is known.
func (a *querier) targets(s Subject) []Target {
	volumes := map[[2]model.LabelValue]model.Metric{} // by cluster and volume; of several nodes the last
	wanted := map[[2]model.LabelValue]bool{}
	matches := func(m model.Metric, label model.LabelName, want string) bool {
		return want == "" || string(m[label]) == want
	}
	for _, v := range a.vector("volumes") {
		key := [2]model.LabelValue{v.Metric["cluster"], v.Metric["volume"]}
		volumes[key] = v.Metric
		if matches(v.Metric, "namespace", s.Namespace) && matches(v.Metric, "persistentvolumeclaim", s.Claim) &&
			matches(v.Metric, "pod", s.Pod) && matches(v.Metric, "storageclass", s.Class) && matches(v.Metric, "volume", s.Volume) {
			wanted[key] = true
		}
	}
	fill := func(t *Target, key [2]model.LabelValue) {
		m := volumes[key]
		t.Volume, t.Device, t.Namespace, t.Claim = string(key[1]), string(m["device"]), string(m["namespace"]), string(m["persistentvolumeclaim"])
		t.Class, t.Backend = string(m["storageclass"]), string(m["backend"])
		t.Cluster = string(key[0])
		t.Node = cmp.Or(t.Node, string(m["node"]))
	}
	log := map[serverKey]model.LabelValue{}
	for _, v := range a.vector("wal") {
		log[keyOf(v.Metric)] = v.Metric["volume"]
	}
	isMeant := func(m model.Metric) bool { return matches(m, "server", s.Server) }
	if s.Address != "" {
		addresses := a.addresses()
		isMeant = func(m model.Metric) bool {
			return matches(m, "server", s.Server) && slices.Contains(addresses[keyOf(m)], s.Address)
		}
	}
	var targets []Target
	for _, v := range a.vector("servers") {
		data := [2]model.LabelValue{v.Metric["cluster"], v.Metric["volume"]}
		at := data
		if l := log[keyOf(v.Metric)]; l != "" {
			at[1] = l
		}
		if !wanted[data] && !wanted[at] || !isMeant(v.Metric) {
			continue
		}
		t := Target{Node: string(v.Metric["node"]), Server: string(v.Metric["server"]), Engine: string(v.Metric["db_system"]),
			data: string(data[1]), class: string(v.Metric["storageclass"])}
		fill(&t, at)
		// A log on a volume that has no name here: the data's class is the server's.
		t.Class = cmp.Or(t.Class, t.class)
		if !slices.Contains(targets, t) {
			targets = append(targets, t)
		}
	}
	switch {
	case len(targets) > 0:
	case s.Server+s.Address != "" && s == Subject{Server: s.Server, Address: s.Address, AllStatements: s.AllStatements}:
		// It is on no volume that is known, such as a machine's own disk; its statements are.
		for _, v := range a.vector("known servers") {
			if isMeant(v.Metric) {
				targets = append(targets, Target{Cluster: string(v.Metric["cluster"]), Node: string(v.Metric["node"]), Server: string(v.Metric["server"]), Engine: string(v.Metric["db_system"])})
			}
		}
	case s.Server == "" && s.Address == "":
		for key := range wanted {
			var t Target
			fill(&t, key)
			targets = append(targets, t)
		}
	}
	slices.SortFunc(targets, func(x, y Target) int {
		return cmp.Or(strings.Compare(x.Cluster, y.Cluster), strings.Compare(x.Node, y.Node), strings.Compare(x.Server, y.Server), strings.Compare(x.Volume, y.Volume))
	})
	return targets
}

// addresses are where each server is known to answer, HOST:PORT, alone.
func (a *querier) addresses() map[serverKey][]string {
	all := map[serverKey][]string{}
	for _, v := range a.vector("addresses") {
		key := keyOf(v.Metric)
		all[key] = append(all[key], net.JoinHostPort(string(v.Metric["address"]), string(v.Metric["port"])))
	}
	return all
}

// whatThereIs names the subjects that are known.
func (a *querier) whatThereIs() string {
	var names []string
	for _, v := range a.vector("volumes") {
		m := v.Metric
		names = append(names, fmt.Sprintf("%s/%s (class %s)", m["namespace"], m["persistentvolumeclaim"], m["storageclass"]))
	}
	slices.Sort(names)
	names = slices.Compact(names)
	const most = 10
	switch {
	case len(names) == 0:
		return "no volume is known at all: does the agent run, is it scraped, and does its collector volume succeed?"
	case len(names) > most:
		return fmt.Sprintf("known are %d claims, such as %s", len(names), strings.Join(names[:most], ", "))
	}
	return "known are " + strings.Join(names, ", ")
}

// statements queries a server's statements and its commits.
func (a *querier) statements(f *Finding) {
	f.Commits, f.Statements = Statement{Count: math.NaN(), Mean: math.NaN(), P99: math.NaN()}, a.statement("statement")
	if !f.Subject.AllStatements {
		f.Commits = a.statement("commit")
	}
}

func (a *querier) statement(what string) Statement {
	s := Statement{Count: a.number(what + "s"), Mean: a.number(what + " mean"), P99: a.number(what + " p99")}
	spent := a.by(what+" phases", "phase")
	for _, phase := range slices.SortedFunc(maps.Keys(spent), layers.Compare) {
		if s.Count > 0 {
			s.Phases = append(s.Phases, Layer{phase, spent[phase] / s.Count})
		}
	}
	return s
}

// leastShare is how much of the time in a layer a query must have to be named, and mostQueries how many are.
const (
	leastShare  = 0.05
	mostQueries = 3
)

// queries finds the queries that wait most for the layer to blame. Of digests only the waits for locks are known.
func (a *querier) queries(f *Finding) {
	phases := phasesOf(f.Verdict.Layer)
	if f.Target.Server == "" || len(phases) == 0 || f.Verdict.Layer == layers.Wait && f.Verdict.Reason != Lock && slices.Contains(digested, f.Target.Engine) {
		return
	}
	times, all := a.queryTimes(), 0.0
	for _, q := range times {
		all += q.in(phases...)
	}
	for _, q := range times {
		if wait := q.in(phases...); q.ID != otherQuery && q.Count > 0 && wait >= leastShare*all && wait > 0 {
			f.Queries = append(f.Queries, Query{ID: q.ID, Count: q.Count, Mean: q.Mean(), Wait: wait / q.Count, Share: wait / all, Before: q.Before, Grown: q.Grown()})
		}
	}
	slices.SortFunc(f.Queries, func(x, y Query) int { return cmp.Or(cmp.Compare(y.Share, x.Share), strings.Compare(x.ID, y.ID)) })
	f.Queries = f.Queries[:min(len(f.Queries), mostQueries)]
}

// otherQuery is the label queryid of the queries without series of their own.
const otherQuery = "other"

// phasesOf are the phases of a statement in which it waits for a layer.
func phasesOf(name string) []string {
	switch l := layers.Of(name); {
	case name == "":
		return nil
	case l.Phase:
		return []string{name}
	}
	return []string{layers.Read, layers.Write, layers.Sync}
}

// complete queries the rest.
func (a *querier) complete(f *Finding) {
	t := f.Target
	f.Write = Write{
		Count: a.number("writes"), Total: a.number("write total"), Queue: a.number("write queue"), Device: a.number("write device"),
		FlushCount: a.number("flushes"), Flush: a.number("flush total"), FlushQueue: a.number("flush queue"), FlushDevice: a.number("flush device"),
		Path:   a.number("path write"),
		Engine: a.number("engine write"),
	}
	f.Reads, f.Read = a.number("reads"), a.number("read total")
	f.solid = Known(a.number("solid"))
	f.Healthy, f.Desired = a.number("healthy replicas"), a.number("desired replicas")
	f.Rebuilding = a.number("rebuilding") == 1
	f.Replicas = a.replicas(t)
	f.split()
	f.Stall = a.stall(t)
	f.Blocked, f.BlockedFor = math.NaN(), math.NaN()
	if t.Server != "" {
		f.Blocked, f.BlockedFor = a.number("blocked"), a.number("blocked for")
		for phase, age := range a.by("storage wait", "phase") {
			if age > f.InStorage.Seconds {
				f.InStorage = Layer{phase, age}
			}
		}
		a.compare(f)
	}
	f.CPUWaiting = a.number("node CPU pressure")
	for _, v := range a.vector("grown layer") {
		f.grown = append(f.grown, string(v.Metric["layer"]))
	}
	f.neighbours, f.limits = a.neighbours(), a.limits()
	if t.data != "" && t.data != t.Volume {
		data := a.about(Target{Cluster: t.Cluster, Volume: t.data})
		f.neighbours, f.limits = append(f.neighbours, data.neighbours()...), append(f.limits, data.limits()...)
	}
	f.loadExplains = Known(a.number("load explains"))
	f.hostExplains = t.Server != "" && Known(a.number("host explains"))
	f.Alerts = a.alerts(f)
}

// neighbours are who keeps disks below the target's volume busy.
func (a *querier) neighbours() (all []neighbour) {
	work := map[[2]model.LabelValue]float64{}
	for _, v := range a.vector("disk work") {
		work[[2]model.LabelValue{v.Metric["node"], v.Metric["device"]}] = float64(v.Value)
	}
	for _, v := range a.vector("neighbours") {
		m := v.Metric
		n := neighbour{a.target.Volume, string(m["node"]), string(m["device"]), string(m["kind"]), string(m["user"]), float64(v.Value), math.NaN()}
		if times, known := work[[2]model.LabelValue{m["node"], m["device"]}]; known {
			n.work = times
		}
		all = append(all, n)
	}
	return all
}

// limits are the disks below the target's volume that do no more than a limit.
func (a *querier) limits() (all []diskLimit) {
	for _, v := range a.vector("disk limits") {
		all = append(all, diskLimit{a.target.Volume, string(v.Metric["node"]), string(v.Metric["device"]), string(v.Metric["limit"]), float64(v.Value)})
	}
	return all
}

// split splits a write and the statements by layer.
func (f *Finding) split() {
	f.Write.Layers = writeLayers(f.Write, f.Replicas)
	f.Commits.Layers = statementLayers(f.Commits, f.Write)
	f.Statements.Layers = statementLayers(f.Statements, f.Write)
}

// compare sets the control class beside it.
func (a *querier) compare(f *Finding) {
	classes := map[string]bool{}
	for _, v := range a.vector("control") {
		if string(v.Metric["node"]) == f.Target.Node && string(v.Metric["cluster"]) == f.Target.Cluster {
			classes[string(v.Metric["storageclass"])] = true
		}
	}
	if classes[f.Target.ofServer()] {
		f.IsControl = true
		return
	}
	for _, v := range a.vector("servers") {
		m := v.Metric
		if !classes[string(m["storageclass"])] || string(m["node"]) != f.Target.Node || string(m["db_system"]) != f.Target.Engine || string(m["cluster"]) != f.Target.Cluster {
			continue
		}
		c := &Control{Class: string(m["storageclass"]), Server: string(m["server"])}
		b := a.about(Target{Cluster: f.Target.Cluster, Node: string(m["node"]), Server: c.Server})
		c.Statement = b.statement(f.what())
		if !(c.Statement.Count >= leastSamples()) {
			continue
		}
		c.Ratio = f.main().Mean / c.Statement.Mean
		if f.Control == nil || f.Control.Statement.Mean < c.Statement.Mean {
			f.Control = c
		}
	}
}

// replicas queries each replica's part, by name.
func (a *querier) replicas(t Target) []Replica {
	type place struct{ name, node, device string }
	places := map[string]place{} // by address
	byName := map[string]place{}
	for _, v := range a.vector("replica places") {
		p := place{string(v.Metric["replica"]), string(v.Metric["node"]), string(v.Metric["device"])}
		if address := string(v.Metric["address"]); address != "" {
			places[address] = p
		}
		byName[p.name] = p
	}
	// A replica that was started again has another address. It is one replica, and its times are those of now.
	now, named := map[string]bool{}, map[string]bool{}
	for _, v := range a.vector("replica places now") {
		now[string(v.Metric["address"])], named[string(v.Metric["replica"])] = true, true
	}
	disks := map[string]place{}
	for _, v := range a.vector("replica disks") {
		name := string(v.Metric["replica"])
		disks[name] = place{name, string(v.Metric["node"]), string(v.Metric["device"])}
	}
	count, trip, service := a.by("replica writes", "address"), a.by("replica round trip", "address"), a.by("replica service", "address")
	last, unread, stopped := a.by("replica last", "address"), a.by("replica unread", "address"), a.by("replica stopped", "address")
	tripByName, serviceByName := a.by("replica time by engine", "replica"), a.by("replica service by engine", "replica")
	all := map[string]bool{}
	for _, m := range []map[string]float64{trip, service} {
		for address := range m {
			all[address] = true
		}
	}
	var replicas []Replica
	seen := map[string]bool{}
	// For minutes both of its addresses may be of now, or neither: the one that more writes went to is taken.
	addresses := slices.SortedFunc(maps.Keys(all), func(x, y string) int {
		return cmp.Or(cmp.Compare(get(count, y), get(count, x)), strings.Compare(x, y))
	})
	for _, address := range addresses {
		p := places[address]
		if !now[address] && named[p.name] {
			continue
		}
		p.name = cmp.Or(p.name, address)
		if seen[p.name] {
			continue
		}
		seen[p.name] = true
		replicas = append(replicas, Replica{Name: p.name, Node: p.node, Device: p.device, Address: address, Count: get(count, address),
			RoundTrip: get(trip, address), Service: get(service, address), LastShare: get(last, address), Unread: get(unread, address), Stopped: get(stopped, address)})
	}
	for name, p := range byName {
		if seen[name] {
			continue
		}
		r := Replica{Name: name, Node: p.node, Device: p.device, Count: math.NaN(), RoundTrip: get(tripByName, name), Service: get(serviceByName, name),
			LastShare: math.NaN(), Unread: math.NaN(), Stopped: math.NaN()}
		if len(all) == 0 || Known(r.Time()) {
			replicas = append(replicas, r)
		}
	}
	for i := range replicas {
		r := &replicas[i]
		r.Disk = math.NaN()
		if r.Device == "" {
			r.Node, r.Device = cmp.Or(r.Node, disks[r.Name].node), disks[r.Name].device
		}
		if r.Device != "" {
			r.Disk = a.about(Target{Cluster: t.Cluster, Node: r.Node, Device: r.Device}).number("write total")
		}
	}
	slices.SortFunc(replicas, func(x, y Replica) int { return strings.Compare(x.Name, y.Name) })
	return replicas
}

func get(m map[string]float64, key string) float64 {
	if v, ok := m[key]; ok {
		return v
	}
	return math.NaN()
}

// stall queries what is stalled.
func (a *querier) stall(t Target) *Stall {
	if t.Volume != "" {
		for _, v := range a.vector("volume stalled") {
			m := v.Metric
			return &Stall{string(m["layer"]), string(m["replica"]), string(m["node"]), string(m["device"]), float64(v.Value), false}
		}
	}
	if t.Server != "" {
		if v := a.number("server stuck"); Known(v) {
			return &Stall{Layer: layers.FileSystem, Node: t.Node, Seconds: v, ofServer: true}
		}
	}
	return nil
}

// alerts are those that fire for the target: by its server, volume or device, its class or, as
// with the host's, its node alone.
func (a *querier) alerts(f *Finding) []Alert {
	var alerts []Alert
	for _, v := range a.vector("alerts") {
		m := v.Metric
		is := func(label model.LabelName, want string) bool { return want != "" && string(m[label]) == want }
		no := func(label model.LabelName) bool { return m[label] == "" }
		if c := string(m["cluster"]); c != "" && f.Target.Cluster != "" && c != f.Target.Cluster {
			continue
		}
		onNode := no("node") || is("node", f.Target.Node)
		switch {
		case is("volume", f.Target.Volume):
		case is("server", f.Target.Server) && onNode:
		case no("volume") && no("server") && is("storageclass", f.Target.ofServer()) && onNode:
		case no("volume") && no("server") && no("storageclass") && is("node", f.Target.Node) && (no("device") || is("device", f.Target.Device)):
		default:
			continue
		}
		alert := Alert{string(m["alertname"]), string(m["severity"]), string(m["replica"]), string(m["device"])}
		if !slices.Contains(alerts, alert) {
			alerts = append(alerts, alert)
		}
	}
	slices.SortFunc(alerts, func(x, y Alert) int {
		return cmp.Or(strings.Compare(x.Name, y.Name), strings.Compare(x.Replica, y.Replica))
	})
	return alerts
}
