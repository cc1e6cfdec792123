package why

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/common/model"
)

// Link is a part of the chain from a statement to its claim.
type Link struct {
	// Name is a word for it. Found is what was found, empty if the link is missing.
	Name, Found string
	// Missing is what its absence means, and Next what to do then, one step each.
	Missing string
	Next    []string
}

// Joined is a database server whose statements, phases, volume and claim are known and belong together.
type Joined struct{ Node, Server, Volume, Namespace, Claim, Class string }

// Chain is how far the chain goes: the links in their order, up to the first that is missing.
type Chain struct {
	Links []Link
	// Joined are the servers for which it is whole; Left are the others, and which link each lacks.
	Joined []Joined
	Left   []string
	// Unidentified is what agents could not identify, wherever the chain ends.
	Unidentified []Unidentified
}

// Broken is the link that is missing; nil if the chain is whole for at least one server.
func (c *Chain) Broken() *Link {
	if last := &c.Links[len(c.Links)-1]; last.Found == "" {
		return last
	}
	return nil
}

// serverKey is a server among all clusters and nodes.
type serverKey struct{ cluster, node, server model.LabelValue }

func keyOf(m model.Metric) serverKey { return serverKey{m["cluster"], m["node"], m["server"]} }

func (t Target) key() serverKey {
	return serverKey{model.LabelValue(t.Cluster), model.LabelValue(t.Node), model.LabelValue(t.Server)}
}

// chain follows the servers from link to link.
type chain struct {
	*querier
	Chain
	servers map[serverKey]bool
}

// released gives monitors and rules the label by which kube-prometheus-stack selects.
const released = "helm upgrade … --reset-then-reuse-values --set prometheus.release=RELEASE."

// Pods is the command that lists Plumbline's pods, in whatever namespaces they are.
const Pods = "kubectl get pods --all-namespaces --selector app.kubernetes.io/part-of=plumbline --output wide"

// FollowChain queries a Prometheus: are a statement's time, its phases, its volume and that volume's claim there, and
// do they belong together? A Prometheus that does not answer is a missing link, too.
func FollowChain(ctx context.Context, api API, at time.Time, window time.Duration) *Chain {
	c := &chain{querier: newQuerier(ctx, api, at, window)}
	for _, link := range []func() Link{c.among, c.agents, c.features, c.known, c.statements, c.phases, c.volumes, c.claims, c.join} {
		l := link()
		if *c.err == nil && l.Name == "" {
			continue
		}
		if *c.err != nil {
			l = Link{Name: "Prometheus", Missing: Line(*c.err), Next: []string{
				"Is the address right? In the chart it is the value prometheus.url. Services that may be it: kubectl get services --all-namespaces | grep -i prometheus",
				"Through the API server: may you? kubectl auth can-i get services --subresource=proxy --namespace NAMESPACE",
				"Does a network policy in Prometheus' namespace refuse these queries?",
			}}
		}
		c.Links = append(c.Links, l)
		if l.Found == "" {
			break
		}
	}
	c.Unidentified = c.unidentified()
	return &c.Chain
}

// one is the value of a question that has one answer; 0 if it has none.
func (c *chain) one(name string) float64 {
	if v := c.vector(name); len(v) > 0 {
		return float64(v[0].Value)
	}
	return 0
}

// keep leaves out the servers that lack a link, and returns the names of the others.
func (c *chain) keep(name string, has map[serverKey]bool) string {
	for _, key := range slices.SortedFunc(maps.Keys(c.servers), compareServers) {
		if !has[key] {
			c.Left = append(c.Left, fmt.Sprintf("%s: no %s", key.server, name))
			delete(c.servers, key)
		}
	}
	return c.names()
}

func compareServers(x, y serverKey) int {
	return strings.Compare(string(x.cluster+"/"+x.node+"/"+x.server), string(y.cluster+"/"+y.node+"/"+y.server))
}

// names are those of the servers that have all links so far, the first few of many.
func (c *chain) names() string {
	var names []string
	for key := range c.servers {
		names = append(names, string(key.server))
	}
	slices.Sort(names)
	const most = 5
	if len(names) > most {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
	}
	return strings.Join(names, ", ")
}

// of are the servers that a question names.
func (c *chain) of(name string) map[serverKey]bool {
	return c.where(name, func(model.Metric) bool { return true })
}

// where are those that it names in a series like that.
func (c *chain) where(name string, like func(model.Metric) bool) map[serverKey]bool {
	has := map[serverKey]bool{}
	for _, s := range c.vector(name) {
		if like(s.Metric) {
			has[keyOf(s.Metric)] = true
		}
	}
	return has
}

func (c *chain) agents() Link {
	l := Link{Name: "agent", Missing: "Prometheus has no series of the agent: no agent runs, or Prometheus does not scrape it.", Next: []string{
		"Does it run on each node? " + Pods,
		"Does Prometheus take it? kube-prometheus-stack's takes only monitors with its own release's label: " + released + " Without the operator Prometheus must scrape pods with the annotation prometheus.io/scrape.",
		"Is it a target that fails? Prometheus' page /targets shows why; the network policies let in prometheus.namespace alone.",
	}}
	if n := c.one("agents"); n > 0 {
		l.Found = fmt.Sprintf("%.0f scraped", n)
	}
	return l
}

func (c *chain) features() Link {
	l := Link{Name: "kernel", Missing: "No node can measure statements: its kernel lacks something, or refuses it.", Next: []string{
		"What is it? kubectl --namespace NAMESPACE exec daemonset/plumbline-agent -- /plumbline-agent --check",
	}}
	if n := c.one("agents that measure"); n > 0 {
		l.Found = fmt.Sprintf("statements can be measured on %.0f of %.0f nodes", n, c.one("agents"))
	}
	return l
}

func (c *chain) known() Link {
	c.servers = c.of("known servers")
	return Link{Name: "server", Found: c.names(), Missing: "No database server is known: none runs on a node that is measured, or it runs under another name.", Next: []string{
		"Start a PostgreSQL, MySQL or MariaDB with a volume, and test again; the agent scans all processes of the node.",
		"Is the agent on the database's node? " + Pods,
	}}
}

func (c *chain) statements() Link {
	l := Link{Name: "statements"}
	was := c.names()
	l.Found = c.keep("statement", c.of("all statements"))
	if l.Found != "" && c.one("native durations") == 0 && c.one("recorded durations") == 0 {
		l.Found, l.Missing = "", "Prometheus stores no native histograms, which durations of statements are; their classic parts are there, but the rules do not read these."
		l.Next = []string{"With the operator: version 0.90 or later passes scrapeNativeHistograms on. Without: scrape_native_histograms: true in the scrape's configuration. It needs Prometheus 3.",
			"Where native histograms cannot be stored: the chart's value prometheus.histograms, or the folder rules/classic of a release's rules, has rules for classic ones."}
		return l
	}
	l.Missing = fmt.Sprintf("No statement of %s ended in the last %s.", was, model.Duration(c.window))
	l.Next = []string{"Run some statements over a connection to the database, and test again; or give it a canary (canaries in values.yaml).",
		"If statements do run: what does the agent report as not measured? kubectl --namespace NAMESPACE logs daemonset/plumbline-agent"}
	return l
}

func (c *chain) phases() Link {
	l := Link{Name: "phases", Missing: "Statements are counted, but not where their time went: of " + c.names() + " there is no phase.", Next: []string{
		"What is not available? kubectl --namespace NAMESPACE exec daemonset/plumbline-agent -- /plumbline-agent --check",
		"Are series dropped on the way? Look for plumbline_query_phase_seconds_total in metricRelabelings and in limits of samples.",
	}}
	l.Found = c.keep("phase", c.of("all phases"))
	return l
}

func (c *chain) volumes() Link {
	l := Link{Name: "volume", Missing: "The data of " + c.names() + " is on no volume that is known, but on the node's own disk or in memory; or the agent cannot see where.", Next: []string{
		"Does the database's pod mount a PersistentVolumeClaim at its data directory? kubectl describe pod POD",
		"May the agent read them? It needs the capabilities SYS_PTRACE and DAC_READ_SEARCH: /plumbline-agent --check in its pod reports it.",
	}}
	l.Found = c.keep("known volume", c.where("data volumes", func(m model.Metric) bool { return m["volume"] != "" }))
	return l
}

func (c *chain) claims() Link {
	l := Link{Name: "claim", Missing: "The volume of " + c.names() + " has no claim that is known.", Next: []string{
		"May the agent list volumes? kubectl auth can-i list persistentvolumes --as=system:serviceaccount:NAMESPACE:plumbline-agent",
		"Is it a volume of Kubernetes? kubectl get persistentvolumes",
	}}
	if c.one("renamed claims") > 0 {
		l.Missing = "Prometheus renamed the agent's labels to exported_…: claims have the agent's namespace for their own."
		l.Next = []string{"Scrape the agent with honor_labels: true (honorLabels in a monitor)."}
		return l
	}
	volume := func(m model.Metric) [3]model.LabelValue {
		return [3]model.LabelValue{m["cluster"], m["node"], m["volume"]}
	}
	claimed := map[[3]model.LabelValue]bool{}
	for _, s := range c.vector("claims") {
		claimed[volume(s.Metric)] = true
	}
	l.Found = c.keep("claim", c.where("data volumes", func(m model.Metric) bool { return claimed[volume(m)] }))
	return l
}

// join is what all dashboards go by: the rules' own series.
func (c *chain) join() Link {
	l := Link{Name: "join", Missing: "All is measured, but the rules that join it are not there: server:volume:info of " + c.names() + " is missing.", Next: []string{
		"Are the rules loaded? Prometheus' page /rules must have the group plumbline-query. kube-prometheus-stack's takes only rules with its own release's label: " + released + " Without the operator the files of the ConfigMap plumbline-rules must be in rule_files.",
		"Does a rule fail? The same page shows why.",
	}}
	has := map[serverKey]bool{}
	for _, s := range c.vector("servers") {
		if m := s.Metric; m["persistentvolumeclaim"] != "" && c.servers[keyOf(m)] {
			has[keyOf(m)] = true
			c.Joined = append(c.Joined, Joined{string(m["node"]), string(m["server"]), string(m["volume"]), string(m["namespace"]), string(m["persistentvolumeclaim"]), string(m["storageclass"])})
		}
	}
	slices.SortFunc(c.Joined, func(x, y Joined) int { return strings.Compare(x.Server+"/"+x.Node, y.Server+"/"+y.Node) })
	l.Found = c.keep("rule's join", has)
	return l
}
