package answer

import (
	"time"

	"github.com/plumbline/plumbline/loadgen/predict"
	"github.com/plumbline/plumbline/rules/why"
)

// Alert is one that fires. A finding's has a name, a severity and a place alone.
type Alert struct {
	Name         string     `json:"name"`
	Severity     string     `json:"severity,omitempty"`
	Summary      string     `json:"summary,omitempty"`
	RunbookURL   string     `json:"runbookURL,omitempty"`
	Since        *time.Time `json:"since,omitempty"`
	Cluster      string     `json:"cluster,omitempty"`
	Node         string     `json:"node,omitempty"`
	Server       string     `json:"server,omitempty"`
	Volume       string     `json:"volume,omitempty"`
	StorageClass string     `json:"storageClass,omitempty"`
	Replica      string     `json:"replica,omitempty"`
	Device       string     `json:"device,omitempty"`
}

// Alerts are Plumbline's alerts that fire, or why they are not known.
type Alerts struct {
	// Firing is nil if it is not known.
	Firing  []Alert `json:"firing,omitzero"`
	Unknown string  `json:"unknown,omitempty"`
}

// AlertList is the alerts as a document.
type AlertList struct {
	Head
	Alerts Alerts `json:"alerts"`
}

// Status is what measures, what fires, and each storage class.
type Status struct {
	Head
	Agents  Agents  `json:"agents"`
	Alerts  Alerts  `json:"alerts"`
	Classes []Class `json:"classes"`
}

// Agents are the nodes by name on which the agent is reporting, and those on which it is not.
type Agents struct {
	Heard []string `json:"heard"`
	// Silent and LinuxNodes, how many there are of both, are nil if Unknown has the reason.
	Silent     []string `json:"silent,omitzero"`
	LinuxNodes *int     `json:"linuxNodes,omitempty"`
	Unknown    string   `json:"unknown,omitempty"`
}

// Class is a storage class: the finding of its slowest server, or why there is none.
type Class struct {
	StorageClass string   `json:"storageClass"`
	Finding      *Finding `json:"finding,omitempty"`
	Unknown      string   `json:"unknown,omitempty"`
}

// Verification is how far the chain from a statement to its claim goes.
type Verification struct {
	Head
	Whole        bool           `json:"whole"`
	Links        []Link         `json:"links"`
	Joined       []Joined       `json:"joined,omitempty"`
	Left         []string       `json:"left,omitempty"`
	Unidentified []Unidentified `json:"unidentified,omitempty"`
	Next         []string       `json:"next,omitempty"`
}

// Link is a why.Link: either found or missing.
type Link struct {
	Name    string `json:"name"`
	Found   string `json:"found,omitempty"`
	Missing string `json:"missing,omitempty"`
}

// Joined is a why.Joined.
type Joined struct {
	Node      string `json:"node"`
	Server    string `json:"server"`
	Volume    string `json:"volume"`
	Namespace string `json:"namespace"`
	Claim     string `json:"persistentVolumeClaim"`
	Class     string `json:"storageClass,omitempty"`
}

// Unidentified is a why.Unidentified.
type Unidentified struct {
	Kind    string   `json:"kind"`
	Reason  string   `json:"reason"`
	Count   int      `json:"count"`
	Nodes   []string `json:"nodes"`
	Meaning string   `json:"meaning"`
	Next    string   `json:"next"`
}

// NewVerification returns a chain's form.
func NewVerification(h Head, c *why.Chain) *Verification {
	broken := c.Broken()
	v := &Verification{Head: h, Whole: broken == nil, Left: c.Left}
	if broken != nil {
		v.Next = broken.Next
	}
	for _, l := range c.Links {
		one := Link{Name: l.Name, Found: l.Found}
		if l.Found == "" {
			one.Missing = l.Missing
		}
		v.Links = append(v.Links, one)
	}
	for _, j := range c.Joined {
		v.Joined = append(v.Joined, Joined(j))
	}
	for _, u := range c.Unidentified {
		v.Unidentified = append(v.Unidentified, Unidentified{u.Kind, u.Reason, u.Count, u.Nodes, u.What, u.Next})
	}
	return v
}

// Prediction is what a server's response times would be on other storage, or why that is not known.
type Prediction struct {
	Head
	Windows    int         `json:"windows"`
	Server     string      `json:"server"`
	From       string      `json:"from"`
	To         string      `json:"to"`
	Statements []Predicted `json:"statements,omitempty"`
	Refusal    *Refusal    `json:"refusal,omitempty"`
	Notes      []string    `json:"notes,omitempty"`
}

// Predicted is a predict.Predicted.
type Predicted struct {
	Command string   `json:"command"`
	Median  *Times   `json:"median,omitempty"`
	P99     *Times   `json:"p99,omitempty"`
	Refusal *Refusal `json:"refusal,omitempty"`
}

// Times is a predict.Value.
type Times struct {
	Now      float64 `json:"nowSeconds"`
	Expected float64 `json:"expectedSeconds"`
	Low      float64 `json:"lowSeconds"`
	High     float64 `json:"highSeconds"`
}

// Refusal is a predict.Refusal.
type Refusal struct {
	Reason predict.Reason `json:"reason"`
	Text   string         `json:"text"`
	Next   string         `json:"next"`
}

// NewPrediction returns a prediction's form.
func NewPrediction(h Head, windows int, p *predict.Prediction) *Prediction {
	d := &Prediction{Head: h, Windows: windows, Server: p.Workload, From: p.From, To: p.To, Refusal: (*Refusal)(p.Refusal), Notes: p.Notes}
	for _, s := range p.Statements {
		d.Statements = append(d.Statements, Predicted{s.Kind, (*Times)(s.Median), (*Times)(s.P99), (*Refusal)(s.Refusal)})
	}
	return d
}

// Top is where the time of servers' queries went, the largest first by the order that was requested.
type Top struct {
	Head
	Items []QueryTimes `json:"items"`
	// Queries is how many there are.
	Queries int `json:"queries"`
	// Notes are what is not in the list, and why.
	Notes []string `json:"notes,omitempty"`
}

// QueryTimes is a why.QueryTimes.
type QueryTimes struct {
	Target      Target   `json:"target"`
	QueryID     string   `json:"queryId"`
	Query       string   `json:"query,omitempty"`
	Count       *float64 `json:"count,omitempty"`
	MeanSeconds *float64 `json:"meanSeconds,omitempty"`
	Share       *float64 `json:"share,omitempty"`
	FileMisses  *float64 `json:"fileMisses,omitempty"`
	// MeanSecondsBefore is of the hour before the last one.
	MeanSecondsBefore *float64 `json:"meanSecondsBefore,omitempty"`
	// Phases are the seconds of all its statements.
	Phases []Layer `json:"phases"`
}

// NewTop is the document of queries, at most so many.
func NewTop(head Head, t *why.Top, most int) *Top {
	d := &Top{Head: head, Items: []QueryTimes{}, Queries: len(t.Queries), Notes: t.Notes()}
	for _, q := range t.Queries[:most] {
		d.Items = append(d.Items, QueryTimes{newTarget(q.Target), q.ID, q.Text, figure(q.Count), figure(q.Mean()), figure(q.Share), figure(q.Misses), figure(q.Before), newLayers(q.Phases)})
	}
	return d
}
