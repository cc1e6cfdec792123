package trace

import (
	"strconv"
	"time"
)

// Statement is a chain as people and programs read it: without the statement's text, which is never collected. If the
// chain is a replica's request, Server is the replica and Command what is requested.
type Statement struct {
	Request bool   `json:"replica_request,omitempty"`
	TraceID string `json:"trace_id"`
	Server  string `json:"server"`
	Command string `json:"command"`
	// QueryID is PostgreSQL's identifier of the statement's query, as pg_stat_statements has it; empty if it is not known.
	QueryID string    `json:"queryid,omitempty"`
	Start   time.Time `json:"start"`
	Seconds float64   `json:"seconds"`
	// WakeupSeconds is from when its bytes woke the server's task until Start; 0 if that is not known.
	WakeupSeconds float64  `json:"wakeup_seconds,omitempty"`
	Verdict       Verdict  `json:"verdict"`
	Reasons       []Reason `json:"reasons,omitempty"`
	// Layers are how long each was waited for, in seconds; they add up to Seconds.
	Layers map[string]float64 `json:"layers"`
	Steps  []Step             `json:"steps"`
}

// Step is one span of a chain, the statement itself first, each followed by what is below it.
type Step struct {
	Depth int    `json:"depth"`
	Layer string `json:"layer"`
	What  string `json:"what"`
	// Offset and Seconds are from the statement's start, and the step's length.
	Offset  float64 `json:"offset"`
	Seconds float64 `json:"seconds"`
	// ReplicaTraceID is the number of the trace of the same request on the replica's node, if that is another one.
	ReplicaTraceID string `json:"replica_trace_id,omitempty"`
}

// Report makes a Statement of a chain. boot is when the events' clock was zero.
func (c *Chain) Report(boot time.Time) Statement {
	s := Statement{
		Request: c.Request != "", TraceID: c.ID(), Server: c.ServerName, Command: c.CommandName, Start: boot.Add(time.Duration(c.Root.Start)), Seconds: seconds(c.Duration()),
		WakeupSeconds: seconds(c.Root.Start - c.Woken), Verdict: c.Verdict(), Reasons: c.Reasons, Layers: map[string]float64{},
	}
	if c.QueryID != 0 {
		s.QueryID = strconv.FormatInt(c.QueryID, 10)
	}
	for layer, ns := range c.Root.Shares() {
		s.Layers[layer] = seconds(ns)
	}
	s.add(c.Root, 0, c.Root.Start)
	return s
}

func (s *Statement) add(span *Span, depth int, start uint64) {
	s.Steps = append(s.Steps, Step{depth, span.Layer, span.What, seconds(span.Start - start), seconds(span.End - span.Start), span.Elsewhere})
	for _, below := range span.Below {
		s.add(below, depth+1, start)
	}
}

func seconds(ns uint64) float64 { return float64(ns) / 1e9 }
