package why

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/prometheus/prometheus/promql"

	"github.com/plumbline/plumbline/rules/layers"
)

// known are the series that the verdict's rules read, made of a finding's figures over its window: the rules' own have
// the same names and are of five minutes.
func (f *Finding) known() *series {
	s := &series{at: f.At}
	s.add(leastOperations, leastSamples()/f.Window.Seconds())
	f.knownOfVolume(s)
	if f.Target.Server != "" {
		f.knownOfServer(s)
	}
	return s
}

func (f *Finding) knownOfVolume(s *series) {
	t := f.Target
	of := func(more ...string) []string {
		return append([]string{"cluster", t.Cluster, "volume", t.Volume}, more...)
	}
	if f.Stall != nil && !f.Stall.ofServer {
		s.add("volume:stalled_seconds:max", f.Stall.Seconds, of("layer", f.Stall.Layer, "replica", f.Stall.Replica, "node", f.Stall.Node, "device", f.Stall.Device)...)
	}
	if f.Rebuilding {
		s.add("volume:being_rebuilt:info", 1, of()...)
	}
	s.add("volume:block_writes:rate5m", f.Write.Count/f.Window.Seconds(), of()...)
	for _, l := range f.Write.Layers {
		s.add("volume:write_layer_seconds:inferred5m", l.Seconds, of("layer", l.Name)...)
	}
	for _, l := range syncShares(f.Write) {
		s.add("volume:sync_layer:share5m", l.Seconds, of("layer", l.Name)...)
	}
	for _, n := range f.neighbours {
		s.add("volume:neighbour:share5m", n.share, "cluster", t.Cluster, "volume", n.volume, "node", n.node, "device", n.device, "kind", n.kind, "user", n.user)
	}
	for _, l := range f.limits {
		s.add("volume:disk_limit:rate5m", l.rate, "cluster", t.Cluster, "volume", l.volume, "node", l.node, "device", l.device, "limit", l.of)
	}
	for _, r := range f.Replicas {
		is := of("replica", r.Name)
		s.add("replica:write_seconds:mean5m", r.RoundTrip, is...)
		s.add("replica:write_service_seconds:mean5m", r.Service, is...)
		s.add("replica:write_time_seconds:mean5m", r.Time(), is...)
		s.add("replica:disk_write_seconds:mean5m", r.Disk, is...)
		s.add("replica:stopped_seconds:p80_5m", r.Stopped, is...)
		s.add("replica:unread_bytes:p80_5m", r.Unread, is...)
		if r.Device != "" {
			s.add("replica:disk:info", 1, append(is, "node", r.Node, "device", r.Device)...)
		}
	}
}

func (f *Finding) knownOfServer(s *series) {
	t := f.Target
	of := func(more ...string) []string {
		return append([]string{"cluster", t.Cluster, "node", t.Node, "server", t.Server}, more...)
	}
	s.add("server:volume:info", 1, of("db_system", t.Engine, "volume", cmp.Or(t.data, t.Volume), "storageclass", t.ofServer())...)
	if t.Volume != "" {
		s.add("server:sync_volume:info", 1, of("volume", t.Volume)...)
	}
	if f.Stall != nil && f.Stall.ofServer {
		s.add("server:stuck_seconds:max", f.Stall.Seconds, of()...)
	}
	s.add("server:storage_wait_seconds:max", f.InStorage.Seconds, of()...)
	if f.Blocked > 0 {
		s.add("server:blocked_statements:avg5m", f.Blocked, of()...)
	}
	s.add("server:blocked_seconds:max", f.BlockedFor, of()...)
	s.add("server:queries:rate5m", f.Statements.Count/f.Window.Seconds(), of()...)
	for _, p := range f.Statements.Phases {
		s.add("server:query_phase_seconds:mean5m", p.Seconds, of("phase", p.Name)...)
	}
	command := ""
	if f.what() == "commit" {
		command = "commit"
	}
	f.main().add(s, f, of("db_system", t.Engine, "command", command)...)
	if f.IsControl {
		s.add("storageclass:control:info", 1, "cluster", t.Cluster, "node", t.Node, "storageclass", t.ofServer())
	}
	if c := f.Control; c != nil {
		is := []string{"cluster", t.Cluster, "node", t.Node, "server", c.Server, "db_system", t.Engine}
		s.add("server:volume:info", 1, append(is, "storageclass", c.Class)...)
		s.add("storageclass:control:info", 1, "cluster", t.Cluster, "node", t.Node, "storageclass", c.Class)
		c.Statement.add(s, f, append(is, "command", command)...)
	}
	place := []string{"cluster", t.Cluster, "node", t.Node, "storageclass", t.ofServer()}
	for _, layer := range f.grown {
		s.add("storageclass:grown_layer:info", 1, append(place, "layer", layer)...)
	}
	if f.loadExplains {
		s.add("storageclass:load_explains:info", 1, place...)
	}
	if f.hostExplains {
		s.add("loadgen:host_explains:info", 1, of()...)
	}
}

// add adds what a server's verdict is of.
func (s Statement) add(to *series, f *Finding, is ...string) {
	is = slices.Clip(is)
	to.add("server:main_statements:rate5m", s.Count/f.Window.Seconds(), is...)
	to.add("server:main_seconds:mean5m", s.Mean, is...)
	for _, p := range s.Phases {
		to.add("server:main_phase_seconds:mean5m", p.Seconds, append(is, "phase", p.Name)...)
	}
}

// judge has the rules judge what is known, and words their verdict.
func (f *Finding) judge(ctx context.Context) error {
	s := f.known()
	failed, err := s.evaluate(ctx)
	if err != nil {
		return err
	}
	f.failed = append(f.failed, failed...)
	name := "volume:verdict:confidence"
	if f.Target.Server != "" {
		name = "server:verdict:confidence"
	}
	for _, one := range s.of(name) {
		if f.Target.Server == "" || one.Metric.Get("server") == f.Target.Server && one.Metric.Get("node") == f.Target.Node {
			f.Verdict.Culprits = append(f.Verdict.Culprits, culprit(one))
		}
	}
	slices.SortFunc(f.Verdict.Culprits, func(a, b Culprit) int {
		return cmp.Or(cmp.Compare(b.Confidence, a.Confidence), layers.Compare(a.Layer, b.Layer), strings.Compare(a.Replica, b.Replica))
	})
	f.cpuShort = len(s.of("server:short_of_cpu:info")) > 0
	for _, one := range s.of("replica:slow_layer:info") {
		if one.Metric.Get("layer") != layers.Replica {
			continue
		}
		for i := range f.Replicas {
			f.Replicas[i].backlogged = f.Replicas[i].backlogged || f.Replicas[i].Name == one.Metric.Get("replica") && f.Replicas[i].RoundTrip > 2*f.Replicas[i].Service
		}
	}
	for _, one := range s.of("volume:slow_neighbour:share5m") {
		i := slices.IndexFunc(f.neighbours, func(n neighbour) bool {
			return n.volume == one.Metric.Get("volume") && n.node == one.Metric.Get("node") && n.device == one.Metric.Get("device")
		})
		f.slowNeighbours = append(f.slowNeighbours, f.neighbours[i]) // the rules have it from there
	}
	f.word()
	return nil
}

func culprit(s promql.Sample) Culprit {
	m := s.Metric
	return Culprit{Reason: Reason(m.Get("reason")), Layer: m.Get("layer"), Replica: m.Get("replica"), Device: m.Get("device"),
		Node: m.Get("culprit_node"), Kind: m.Get("kind"), User: m.Get("user"), Confidence: s.F}
}
