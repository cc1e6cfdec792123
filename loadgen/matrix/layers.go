package matrix

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/plumbline/plumbline/rules/layers"
	"github.com/plumbline/plumbline/rules/why"
)

// Layers is where a run's time went, as the project's series in Prometheus have it.
type Layers struct {
	Of      string   `json:"of"` // what they are the layers of: a commit, a statement or a write
	Mean    float64  `json:"mean_seconds"`
	Parts   []Part   `json:"parts"`
	Words   string   `json:"words"`
	Culprit string   `json:"culprit,omitempty"` // the layer that the rules' verdict names, if one stands out
	Missing []string `json:"missing,omitempty"` // what is not measured there
}

// Part is one layer.
type Part struct {
	Name    string  `json:"name"`
	Seconds float64 `json:"seconds"`
}

// NoLayersOfReads is why a run that only reads has no layers.
const NoLayersOfReads = "the layers of reads are not measured"

// leastWindow is how long a run must be for a query of its layers: two scrapes and some.
const leastWindow = 15 * time.Second

// queryLayers adds to each run its layers, and what its limit was. It queries when all runs are over, so that the last
// scrapes are in.
func (r *Runner) queryLayers(ctx context.Context, report *Report) {
	for i := range report.Rows {
		row := &report.Rows[i]
		if row.Result == nil {
			continue
		}
		row.Layers, row.NoLayers = r.split(ctx, row, report.target(row.StorageClass))
		limit := row.limit()
		row.Limit = &limit
	}
}

// split queries a run's layers, or returns why there are none.
func (r *Runner) split(ctx context.Context, row *Row, target Target) (*Layers, string) {
	window := row.Ended.Sub(row.Began).Truncate(time.Second)
	switch {
	case r.Prometheus == nil:
		return nil, "no layers were recorded, which takes --prometheus"
	case row.step.reads() && row.step.Scan == nil:
		return nil, NoLayersOfReads
	case window < leastWindow:
		return nil, fmt.Sprintf("the run was too short for its layers, which takes %v", leastWindow)
	}
	f, err := r.find(ctx, row, target, window)
	if err != nil {
		return nil, "no layers: " + err.Error()
	}
	of, mean, parts := f.Main()
	// What fio does is no statement, and what a database does meanwhile is not fio's.
	if row.step.FIO != nil {
		of, mean, parts = "write", f.Write.Total, f.Write.Layers
	}
	found := &Layers{Of: of, Mean: mean, Words: f.Words(), Missing: f.Missing()}
	if v := f.Verdict; v.Reason != why.Largest && (row.step.FIO == nil || f.Target.Server == "") {
		found.Culprit = v.Layer
	}
	for _, l := range parts {
		if why.Known(l.Seconds) {
			found.Parts = append(found.Parts, Part{l.Name, l.Seconds})
		}
	}
	if len(found.Parts) == 0 || !why.Known(mean) || row.step.FIO == nil && f.Verdict.Reason == why.Few {
		return nil, "no layers: not measured are " + strings.Join(append(f.Missing(), f.Verdict.Text), "; ")
	}
	return found, ""
}

// Limit is what kept a run from being faster, as far as it was recorded.
type Limit struct {
	What    string  `json:"what"`            // one of Limits
	Share   float64 `json:"share,omitempty"` // of the time, or of the CPUs
	Because string  `json:"because"`
}

// The values of a limit. For "several" no layer has most of the time.
const (
	limitUnknown   = "unknown"
	limitSeveral   = "several"
	limitGenerator = "CPU of the generator"
	limitCPU       = "CPU of the generator's machine" // whose processes use it is not recorded
	limitDatabase  = "CPU of the database"
	limitNode      = "CPU of the database's node" // its processes wait for one
	limitDevice    = "device"
	limitWay       = "way to the engine" // from the block device to the storage backend
	limitEngine    = "engine"
	limitNetwork   = "network"
	limitSessions  = "other sessions" // locks, and each other's commits
	limitClient    = "client"         // the server waits for the generator, or the network to it
)

// Limits are the values of Limit.What.
var Limits = []string{limitUnknown, limitSeveral, limitGenerator, limitCPU, limitDatabase, limitNode, limitDevice, limitWay, limitEngine,
	limitNetwork, limitSessions, limitClient}

const (
	busyIdle    = 0.1 // share of CPU time left, below which the machine has none left
	busyThreads = 0.9 // CPUs a thread of the generator uses when it waits for nothing
	mainShare   = 0.4 // of the time makes a limit
)

// limit returns what a run's was.
func (row *Row) limit() Limit {
	threads := row.step.threads()
	if threads > 0 && row.Generator >= busyThreads*float64(threads) {
		return Limit{limitGenerator, row.Generator / float64(threads), fmt.Sprintf("its threads, %d, kept %.1f CPUs busy", threads, row.Generator)}
	}
	if row.CPUIdle < busyIdle {
		return Limit{limitCPU, float64(1 - row.CPUIdle), fmt.Sprintf("its CPUs were %.0f %% busy; the generator kept %.1f of them so", 100*(1-row.CPUIdle), row.Generator)}
	}
	if row.Layers == nil {
		return Limit{What: limitUnknown, Because: row.NoLayers}
	}
	total, shares := 0.0, map[string]float64{}
	var unknown []string // layers that are a sign of no limit, such as a sync that is not split
	below := slices.ContainsFunc(row.Layers.Parts, func(p Part) bool { return layers.Of(p.Name).Place > layers.InVolume })
	limitOf := func(layer string) string {
		if layer == layers.Device && below {
			return limitWay
		}
		return layers.Of(layer).Limit
	}
	for _, p := range row.Layers.Parts {
		what := limitOf(p.Name)
		if what == "" {
			what, unknown = limitUnknown, append(unknown, p.Name)
		}
		total += p.Seconds
		shares[what] += p.Seconds
	}
	if total <= 0 {
		return Limit{What: limitUnknown, Because: "its layers are empty"}
	}
	order := slices.Clone(Limits)
	slices.SortStableFunc(order, func(a, b string) int {
		switch {
		case shares[a] > shares[b]:
			return -1
		case shares[a] < shares[b]:
			return 1
		}
		return 0
	})
	most, next := order[0], order[1]
	percentage := func(what string) string {
		text := fmt.Sprintf("%s %.0f %%", what, 100*shares[what]/total)
		if what == limitUnknown {
			text += " (" + strings.Join(unknown, ", ") + ")"
		}
		return text
	}
	because := "of a " + row.Layers.Of + "'s time: " + percentage(most)
	if shares[next] > 0 {
		because += ", " + percentage(next)
	}
	if what := limitOf(row.Layers.Culprit); row.Layers.Culprit != "" && what != "" {
		return Limit{what, shares[what] / total, because + "; what stands out is " + layers.Of(row.Layers.Culprit).Words}
	}
	if shares[most] < mainShare*total {
		return Limit{limitSeveral, shares[most] / total, because}
	}
	return Limit{most, shares[most] / total, because}
}

// threads is how many of the generator work at once; 0: unknown.
func (s Step) threads() int {
	switch {
	case s.FIO != nil:
		return s.FIO.Jobs
	case s.Pgbench != nil:
		return min(s.Pgbench.Clients, 2)
	case s.Sysbench != nil:
		return s.Sysbench.Threads
	case s.Scan != nil:
		return 1
	}
	return 0
}
