package answer

import (
	"github.com/plumbline/plumbline/rules/usual"
	"github.com/plumbline/plumbline/rules/why"
)

// Why is where the time of databases' commits goes: a finding for each target. Unknown are the targets of which
// Prometheus knows nothing.
type Why struct {
	Head
	Items   []Finding `json:"items"`
	Unknown []string  `json:"unknown,omitempty"`
}

// Finding is a why.Finding, whose comments describe the figures.
type Finding struct {
	Name              string     `json:"name"`
	Target            Target     `json:"target"`
	Servers           int        `json:"servers"`
	Statement         *Statement `json:"statement,omitempty"`
	Write             *Write     `json:"write,omitempty"`
	Flush             *Flush     `json:"flush,omitempty"`
	Replicas          []Replica  `json:"replicas,omitempty"`
	HealthyReplicas   *float64   `json:"healthyReplicas,omitempty"`
	DesiredReplicas   *float64   `json:"desiredReplicas,omitempty"`
	Rebuilding        bool       `json:"rebuilding,omitempty"`
	IsControl         bool       `json:"isControl,omitempty"`
	Control           *Control   `json:"control,omitempty"`
	Stall             *Stall     `json:"stall,omitempty"`
	BlockedStatements *float64   `json:"blockedStatements,omitempty"`
	BlockedSeconds    *float64   `json:"blockedSeconds,omitempty"`
	StorageWait       *Layer     `json:"storageWait,omitempty"`
	CPUWaitingShare   *float64   `json:"cpuWaitingShare,omitempty"`
	Verdict           Verdict    `json:"verdict"`
	Queries           []Query    `json:"queries,omitempty"`
	Usual             []Usual    `json:"usual,omitempty"`
	Alerts            []Alert    `json:"alerts,omitempty"`
	Missing           []string   `json:"missing,omitempty"`
	Words             string     `json:"words"`
}

// Target is a why.Target.
type Target struct {
	Cluster               string `json:"cluster,omitempty"`
	Node                  string `json:"node,omitempty"`
	Server                string `json:"server,omitempty"`
	DBSystem              string `json:"dbSystem,omitempty"`
	Volume                string `json:"volume,omitempty"`
	Device                string `json:"device,omitempty"`
	Namespace             string `json:"namespace,omitempty"`
	PersistentVolumeClaim string `json:"persistentVolumeClaim,omitempty"`
	StorageClass          string `json:"storageClass,omitempty"`
	Backend               string `json:"backend,omitempty"`
}

// Layer is a part of a mean.
type Layer struct {
	Layer   string  `json:"layer"`
	Seconds float64 `json:"seconds"`
}

// Statement is a why.Statement; Kind is commit or statement.
type Statement struct {
	Kind        string   `json:"kind"`
	Count       *float64 `json:"count,omitempty"`
	MeanSeconds *float64 `json:"meanSeconds,omitempty"`
	P99Seconds  *float64 `json:"p99Seconds,omitempty"`
	UnderWay    bool     `json:"underWay,omitempty"`
	Phases      []Layer  `json:"phases,omitempty"`
	Layers      []Layer  `json:"layers,omitempty"`
}

// Write is a why.Write.
type Write struct {
	Count         *float64 `json:"count,omitempty"`
	MeanSeconds   *float64 `json:"meanSeconds,omitempty"`
	QueueSeconds  *float64 `json:"queueSeconds,omitempty"`
	DeviceSeconds *float64 `json:"deviceSeconds,omitempty"`
	PathSeconds   *float64 `json:"pathSeconds,omitempty"`
	EngineSeconds *float64 `json:"engineSeconds,omitempty"`
	Layers        []Layer  `json:"layers,omitempty"`
}

// Flush is the part of a why.Write that is of flushes.
type Flush struct {
	Count         *float64 `json:"count,omitempty"`
	MeanSeconds   *float64 `json:"meanSeconds,omitempty"`
	QueueSeconds  *float64 `json:"queueSeconds,omitempty"`
	DeviceSeconds *float64 `json:"deviceSeconds,omitempty"`
}

// Replica is a why.Replica.
type Replica struct {
	Name             string   `json:"name"`
	Node             string   `json:"node,omitempty"`
	Device           string   `json:"device,omitempty"`
	Address          string   `json:"address,omitempty"`
	Count            *float64 `json:"count,omitempty"`
	RoundTripSeconds *float64 `json:"roundTripSeconds,omitempty"`
	ServiceSeconds   *float64 `json:"serviceSeconds,omitempty"`
	DiskSeconds      *float64 `json:"diskSeconds,omitempty"`
	LastAckShare     *float64 `json:"lastAckShare,omitempty"`
	UnreadBytes      *float64 `json:"unreadBytes,omitempty"`
	StoppedSeconds   *float64 `json:"stoppedSeconds,omitempty"`
}

// Query is a why.Query.
type Query struct {
	QueryID     string   `json:"queryId"`
	Count       *float64 `json:"count,omitempty"`
	MeanSeconds *float64 `json:"meanSeconds,omitempty"`
	WaitSeconds *float64 `json:"waitSeconds,omitempty"`
	Share       *float64 `json:"share,omitempty"`
	// MeanSecondsBefore is of the hour before the last one.
	MeanSecondsBefore *float64 `json:"meanSecondsBefore,omitempty"`
}

// Control is a why.Control.
type Control struct {
	StorageClass string    `json:"storageClass"`
	Server       string    `json:"server"`
	Statement    Statement `json:"statement"`
	Ratio        *float64  `json:"ratio,omitempty"`
}

// Stall is a why.Stall.
type Stall struct {
	Layer   string   `json:"layer"`
	Replica string   `json:"replica,omitempty"`
	Node    string   `json:"node,omitempty"`
	Device  string   `json:"device,omitempty"`
	Seconds *float64 `json:"seconds,omitempty"`
}

// Verdict is a why.Verdict.
type Verdict struct {
	Reason   why.Reason `json:"reason"`
	Text     string     `json:"text,omitempty"`
	Culprits []Culprit  `json:"culprits,omitempty"`
}

// Culprit is a why.Culprit.
type Culprit struct {
	Reason     why.Reason `json:"reason"`
	Layer      string     `json:"layer,omitempty"`
	Replica    string     `json:"replica,omitempty"`
	Device     string     `json:"device,omitempty"`
	Node       string     `json:"node,omitempty"`
	Kind       string     `json:"kind,omitempty"`
	User       string     `json:"user,omitempty"`
	Confidence float64    `json:"confidence"`
}

// Usual is a usual.Comparison.
type Usual struct {
	Operation  usual.Operation `json:"operation"`
	Seconds    float64         `json:"seconds"`
	Verdict    usual.Verdict   `json:"verdict"`
	Candidates []UsualOf       `json:"candidates,omitempty"`
}

// UsualOf is a usual.Candidate.
type UsualOf struct {
	Disk        string        `json:"disk"`
	Network     string        `json:"network,omitempty"`
	Replicas    int           `json:"replicas,omitempty"`
	LowSeconds  float64       `json:"lowSeconds"`
	HighSeconds float64       `json:"highSeconds"`
	Verdict     usual.Verdict `json:"verdict"`
	Sources     []UsualSource `json:"sources"`
}

// UsualSource is a usual.Source.
type UsualSource struct {
	Title string `json:"title"`
	Date  string `json:"date"`
	URL   string `json:"url"`
}

// NewFinding returns a finding's form.
func NewFinding(f *why.Finding) Finding {
	d := Finding{Name: f.Name(), Target: newTarget(f.Target), Servers: f.Servers, Write: newWrite(f.Write), Flush: newFlush(f.Write),
		HealthyReplicas: figure(f.Healthy), DesiredReplicas: figure(f.Desired), Rebuilding: f.Rebuilding, IsControl: f.IsControl,
		CPUWaitingShare: figure(f.CPUWaiting), Verdict: newVerdict(f.Verdict), Missing: f.Missing(), Words: f.Words()}
	if f.Target.Server != "" {
		d.BlockedStatements, d.BlockedSeconds = figure(f.Blocked), figure(f.BlockedFor)
		if waits := newLayers([]why.Layer{f.InStorage}); f.InStorage.Name != "" && len(waits) > 0 {
			d.StorageWait = &waits[0]
		}
		what, _, _ := f.Main()
		s := f.Statements
		if what == "commit" {
			s = f.Commits
		}
		d.Statement = newStatement(what, s)
		if c := f.Control; c != nil {
			d.Control = &Control{StorageClass: c.Class, Server: c.Server, Statement: *newStatement(what, c.Statement), Ratio: figure(c.Ratio)}
		}
	}
	for _, r := range f.Replicas {
		d.Replicas = append(d.Replicas, Replica{r.Name, r.Node, r.Device, r.Address, figure(r.Count), figure(r.RoundTrip), figure(r.Service), figure(r.Disk),
			figure(r.LastShare), figure(r.Unread), figure(r.Stopped)})
	}
	for _, q := range f.Queries {
		d.Queries = append(d.Queries, Query{q.ID, figure(q.Count), figure(q.Mean), figure(q.Wait), figure(q.Share), figure(q.Before)})
	}
	if s := f.Stall; s != nil {
		d.Stall = &Stall{s.Layer, s.Replica, s.Node, s.Device, figure(s.Seconds)}
	}
	for _, c := range f.Usual() {
		d.Usual = append(d.Usual, newUsual(c))
	}
	for _, a := range f.Alerts {
		d.Alerts = append(d.Alerts, Alert{Name: a.Name, Severity: a.Severity, Replica: a.Replica, Device: a.Device})
	}
	return d
}

func newTarget(t why.Target) Target {
	return Target{Cluster: t.Cluster, Node: t.Node, Server: t.Server, DBSystem: t.Engine, Volume: t.Volume, Device: t.Device, Namespace: t.Namespace,
		PersistentVolumeClaim: t.Claim, StorageClass: t.Class, Backend: t.Backend}
}

func newLayers(all []why.Layer) (parts []Layer) {
	for _, l := range all {
		if s := figure(l.Seconds); s != nil {
			parts = append(parts, Layer{l.Name, *s})
		}
	}
	return parts
}

func newStatement(what string, s why.Statement) *Statement {
	return &Statement{Kind: what, Count: figure(s.Count), MeanSeconds: figure(s.Mean), P99Seconds: figure(s.P99), UnderWay: s.UnderWay(),
		Phases: newLayers(s.Phases), Layers: newLayers(s.Layers)}
}

// newWrite returns nil if nothing was measured.
func newWrite(w why.Write) *Write {
	d := Write{figure(w.Count), figure(w.Total), figure(w.Queue), figure(w.Device), figure(w.Path), figure(w.Engine), newLayers(w.Layers)}
	if d.Count == nil && d.MeanSeconds == nil && d.EngineSeconds == nil {
		return nil
	}
	return &d
}

// newFlush returns nil if nothing was measured.
func newFlush(w why.Write) *Flush {
	if !why.Known(w.FlushCount) {
		return nil
	}
	return &Flush{figure(w.FlushCount), figure(w.Flush), figure(w.FlushQueue), figure(w.FlushDevice)}
}

func newUsual(c usual.Comparison) Usual {
	d := Usual{Operation: c.Operation, Seconds: c.Seconds, Verdict: c.Verdict}
	for _, one := range c.Candidates {
		of := UsualOf{Disk: one.Disk, Network: one.Network, Replicas: one.Replicas, LowSeconds: one.Low, HighSeconds: one.High, Verdict: one.Verdict}
		for _, s := range one.Sources {
			of.Sources = append(of.Sources, UsualSource(s))
		}
		d.Candidates = append(d.Candidates, of)
	}
	return d
}

func newVerdict(v why.Verdict) Verdict {
	d := Verdict{Reason: v.Reason, Text: v.Text}
	for _, c := range v.Culprits {
		d.Culprits = append(d.Culprits, Culprit{c.Reason, c.Layer, c.Replica, c.Device, c.Node, c.Kind, c.User, c.Confidence})
	}
	return d
}
