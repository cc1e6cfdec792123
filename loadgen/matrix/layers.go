package matrix

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/plumbline/plumbline/rules/why"
)

// Layers is where a run's time went, as the project's series in Prometheus have it.
type Layers struct {
	Of      string   `json:"of"` // what they are the layers of: a commit, a statement or a write
	Mean    float64  `json:"mean_seconds"`
	Parts   []Part   `json:"parts"`
	Words   string   `json:"words"`
	Missing []string `json:"missing,omitempty"` // what is not measured there
}

// Part is one layer.
type Part struct {
	Name    string  `json:"name"`
	Seconds float64 `json:"seconds"`
}

// leastWindow is how long a run must be for its layers to be asked for: two scrapes and some.
const leastWindow = 15 * time.Second

// askLayers adds to each run its layers, and what its limit was. It asks when all runs are over, so that
// the last scrapes are in.
func (r *Runner) askLayers(ctx context.Context, report *Report) {
	for i := range report.Rows {
		row := &report.Rows[i]
		if row.Result == nil {
			continue
		}
		missing := ""
		row.Layers, missing = r.layers(ctx, row, report.target(row.StorageClass))
		limit := row.limit(missing)
		row.Limit = &limit
	}
}

// layers asks for a run's layers, or says why there are none.
func (r *Runner) layers(ctx context.Context, row *Row, target Target) (*Layers, string) {
	window := row.Ended.Sub(row.Began).Truncate(time.Second)
	switch {
	case r.Prometheus == nil:
		return nil, "no layers were recorded, which takes --prometheus"
	case row.step.reads() && row.step.Scan == nil:
		return nil, "the layers of reads are not measured"
	case window < leastWindow:
		return nil, fmt.Sprintf("the run was too short for its layers, which takes %v", leastWindow)
	}
	f, err := r.find(ctx, row, target, window)
	if err != nil {
		return nil, "no layers: " + err.Error()
	}
	of, mean, layers := f.Main()
	// What fio does is no statement, and what a database does meanwhile is not fio's.
	if row.step.FIO != nil {
		of, mean, layers = "write", f.Write.Total, f.Write.Layers
	}
	found := &Layers{Of: of, Mean: mean, Words: f.Words(), Missing: f.Missing()}
	for _, l := range layers {
		if why.Known(l.Seconds) {
			found.Parts = append(found.Parts, Part{l.Name, l.Seconds})
		}
	}
	if len(found.Parts) == 0 || !why.Known(mean) || row.step.FIO == nil && f.Verdict.Kind == why.Few {
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

// Limits are all that can be said, besides "unknown" and "several": no layer has most of the time.
const (
	limitUnknown   = "unknown"
	limitSeveral   = "several"
	limitGenerator = "CPU of the generator"
	limitCPU       = "CPU of the generator's machine" // whose processes use it is not recorded
	limitDatabase  = "CPU of the database"
	limitNode      = "CPU of the database's node" // its processes wait for one
	limitDevice    = "device"
	limitWay       = "way to the engine" // from the block device to the storage engine
	limitEngine    = "engine"
	limitNetwork   = "network"
	limitSessions  = "other sessions" // locks, and each other's commits
	limitClient    = "client"         // the server waits for the generator, or the network to it
)

// Limits are the values of Limit.What.
var Limits = []string{limitUnknown, limitSeveral, limitGenerator, limitCPU, limitDatabase, limitNode, limitDevice, limitWay, limitEngine,
	limitNetwork, limitSessions, limitClient}

// limitOf are the limits of which layers are a sign. Those that are not here, such as a sync that is not
// split, leave it unknown.
var limitOf = map[string]string{
	"cpu": limitDatabase, "runqueue": limitNode, "client": limitClient, "wait": limitSessions, "queue": limitDevice, "device": limitDevice,
	"engine": limitEngine, "replica": limitEngine, "path": limitNetwork, "network": limitNetwork, "disk": limitDevice, "flush": limitDevice,
}

const (
	busyIdle    = 0.1 // share of CPU time left, below which the machine has none left
	busyThreads = 0.9 // CPUs a thread of the generator uses when it waits for nothing
	mainShare   = 0.4 // of the time makes a limit
)

// limit says what a run's was; missing says why it has no layers.
func (row *Row) limit(missing string) Limit {
	threads := row.step.threads()
	if threads > 0 && row.Generator >= busyThreads*float64(threads) {
		return Limit{limitGenerator, row.Generator / float64(threads), fmt.Sprintf("its threads, %d, kept %.1f CPUs busy", threads, row.Generator)}
	}
	if row.CPUIdle < busyIdle {
		return Limit{limitCPU, float64(1 - row.CPUIdle), fmt.Sprintf("its CPUs were %.0f %% busy; the generator kept %.1f of them so", 100*(1-row.CPUIdle), row.Generator)}
	}
	if row.Layers == nil {
		return Limit{What: limitUnknown, Because: missing}
	}
	total, shares := 0.0, map[string]float64{}
	below := slices.ContainsFunc(row.Layers.Parts, func(p Part) bool { return slices.Contains([]string{"engine", "network", "replica"}, p.Name) })
	for _, p := range row.Layers.Parts {
		what, ok := limitOf[p.Name]
		switch {
		case !ok:
			what = limitUnknown
		case p.Name == "device" && below:
			what = limitWay
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
	say := func(what string) string { return fmt.Sprintf("%s %.0f %%", what, 100*shares[what]/total) }
	because := "of a " + row.Layers.Of + "'s time: " + say(most)
	if shares[next] > 0 {
		because += ", " + say(next)
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
