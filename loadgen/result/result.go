// Package result is the outcome of one load: what was requested, what happened, how long it took.
package result

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/plumbline/plumbline/loadgen/metrics"
	"github.com/plumbline/plumbline/loadgen/stats"
)

// Result is the outcome of one load. Times are in seconds.
type Result struct {
	Tool         string  `json:"tool"`
	Profile      string  `json:"profile"`
	Database     string  `json:"database,omitempty"`
	StorageClass string  `json:"storageclass,omitempty"`
	TargetRate   float64 `json:"target_rate"` // per second; 0: as many as possible
	Seconds      float64 `json:"seconds"`
	WarmedUp     float64 `json:"warmed_up_seconds,omitempty"` // until the rate was steady

	Offered     uint64            `json:"offered"`
	Completed   uint64            `json:"completed"`
	Rate        float64           `json:"rate"` // completed per second
	Errors      map[string]uint64 `json:"errors,omitempty"`
	Skipped     map[string]uint64 `json:"skipped,omitempty"`
	Restarts    uint64            `json:"restarts"`
	ParseErrors uint64            `json:"parse_errors"`
	Lost        uint64            `json:"lost"`
	// ToolEnds are why the load tool ended by itself, and how often each: nothing of that is an answer of the server,
	// but for server_down.
	ToolEnds []ToolEnd `json:"tool_ends,omitempty"`

	// Outages are the times without a commit, of the canary only; AfterOutages is the response time
	// of what was due in the minute after one of a second or more.
	Outages      []Outage `json:"outages,omitempty"`
	AfterOutages *Latency `json:"after_outages,omitempty"`

	// CPUPer1000 is the CPU time loadgen itself (not its tool) used per 1,000 completed; 0 is not known.
	CPUPer1000 float64 `json:"cpu_seconds_per_1000,omitempty"`
	// Notes are what makes the result doubtful.
	Notes []string `json:"notes,omitempty"`

	Response Latency `json:"response"` // from the intended start; failed and skipped ones count as slow, unless the end, or the tool's own failure, cut them short
	Service  Latency `json:"service"`  // from sending; completed ones only

	parts Parts // what it was summed up from
}

// ToolEnd is why a load tool ended, in its words.
type ToolEnd struct {
	Reason string `json:"reason"` // as of loadgen_restarts_total
	Cause  string `json:"cause"`
	Times  uint64 `json:"times"`
}

// Outage is a time in which transactions were due and none was committed.
type Outage struct {
	Began   time.Time         `json:"began"`
	Seconds float64           `json:"seconds"`
	Over    bool              `json:"over"` // not: it had not ended when the load did
	Errors  map[string]uint64 `json:"errors"`
}

// Failures lists the errors.
func (o Outage) Failures() string { return list(o.Errors) }

// list is counts in words.
func list(counts map[string]uint64) string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		all = append(all, fmt.Sprintf("%d %s", counts[name], name))
	}
	return strings.Join(all, ", ")
}

// Latency sums up a distribution, in seconds. Of none nothing is known but that.
type Latency struct {
	Count     uint64     `json:"count"`
	Mean      float64    `json:"mean"`
	Max       float64    `json:"max"`
	Quantiles []Quantile `json:"quantiles"`
}

// Quantile is one quantile with its 95 % confidence interval, in seconds.
type Quantile struct {
	Q     float64 `json:"q"`
	Value float64 `json:"value"`
	Low   float64 `json:"low"`
	High  float64 `json:"high"`
}

// Quantiles are those a result gives.
var Quantiles = []float64{0.5, 0.9, 0.95, 0.99, 0.999}

// New makes a result of what a load counted over took.
func New(labels metrics.Labels, target float64, took time.Duration, t metrics.Tally) Result {
	r := Result{
		Tool: labels.Tool, Profile: labels.Profile, Database: labels.Database, StorageClass: labels.StorageClass,
		TargetRate: target, Seconds: took.Seconds(), Offered: t.Offered, Completed: t.Completed,
		ParseErrors: t.ParseErrors, Lost: t.Lost, Response: Sum(&t.Response), Service: Sum(&t.Service),
		Errors: named(t.Errors), Skipped: named(t.Skipped),
	}
	if took > 0 {
		r.Rate = float64(t.Completed) / took.Seconds()
	}
	for _, n := range t.Restarts {
		r.Restarts += n
	}
	for cause, n := range t.Causes {
		r.ToolEnds = append(r.ToolEnds, ToolEnd{string(cause.Reason), cause.Words, n})
	}
	slices.SortFunc(r.ToolEnds, func(a, b ToolEnd) int {
		return cmp.Or(cmp.Compare(b.Times, a.Times), cmp.Compare(a.Reason, b.Reason), cmp.Compare(a.Cause, b.Cause))
	})
	for _, e := range r.ToolEnds {
		r.Notes = append(r.Notes, e.String())
	}
	if n := r.Skipped[string(metrics.Tool)]; n > 0 {
		r.Notes = append(r.Notes, fmt.Sprintf("%d of %d that were due were not sent because the load tool was down: that is no answer of the server, and in no response time", n, r.Offered))
	}
	return r
}

// String is a note.
func (e ToolEnd) String() string {
	what := "by itself"
	if e.Reason == string(metrics.ServerDown) {
		what = "as the server was down"
	}
	return fmt.Sprintf("the load tool ended %s, %d times (%s): %s", what, e.Times, e.Reason, e.Cause)
}

// Unsound is an error if the result is not one of the server: the load tool failed, most of what was due failed or was
// not sent, or nothing was done. What came too late is the load's own outcome.
func (r Result) Unsound() error {
	var errs []error
	for _, e := range r.ToolEnds {
		if e.Reason != string(metrics.ServerDown) {
			errs = append(errs, errors.New(e.String()))
		}
	}
	bad := total(r.Errors) + r.Skipped[string(metrics.Down)] + r.Skipped[string(metrics.Tool)]
	switch {
	case bad > 0 && 2*bad >= r.Offered:
		errs = append(errs, fmt.Errorf("of %d that were due %d failed (%s), and %d were not sent as the server or the tool was down",
			r.Offered, total(r.Errors), list(r.Errors), r.Skipped[string(metrics.Down)]+r.Skipped[string(metrics.Tool)]))
	case r.Completed == 0:
		errs = append(errs, fmt.Errorf("nothing was completed in %.1f s", r.Seconds))
	}
	return errors.Join(errs...)
}

// Began is when the measured time began. A result that was read does not know.
func (r Result) Began() time.Time { return r.parts.Began }

func named[K ~string](m map[K]uint64) map[string]uint64 {
	out := map[string]uint64{}
	for k, n := range m {
		if n > 0 {
			out[string(k)] = n
		}
	}
	return out
}

// Sum sums up a distribution.
func Sum(d *stats.Distribution) Latency {
	if d.Count() == 0 {
		return Latency{}
	}
	l := Latency{Count: d.Count(), Mean: d.Mean(), Max: d.Max().Seconds()}
	for _, q := range Quantiles {
		low, high := d.Interval(q)
		l.Quantiles = append(l.Quantiles, Quantile{q, d.Quantile(q).Seconds(), low.Seconds(), high.Seconds()})
	}
	return l
}

// MarshalJSON has null for what is not known.
func (l Latency) MarshalJSON() ([]byte, error) {
	type plain Latency
	if l.Count > 0 || len(l.Quantiles) > 0 {
		return json.Marshal(plain(l))
	}
	return []byte(`{"count": 0, "mean": null, "max": null, "quantiles": null}`), nil
}

// Quantile returns quantile q of the summary, NaN if it is not in it.
func (l Latency) Quantile(q float64) float64 {
	for _, x := range l.Quantiles {
		if x.Q == q {
			return x.Value
		}
	}
	return math.NaN()
}

// WriteJSON writes the result as one indented JSON object.
func (r Result) WriteJSON(w io.Writer) error { return writeJSON(w, r) }

func writeJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

func (r Result) afterOutages() Latency {
	if r.AfterOutages == nil {
		return Latency{}
	}
	return *r.AfterOutages
}

// WriteText writes the result for people.
func (r Result) WriteText(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "%s %s\tdatabase %s, storage class %s\n", r.Tool, r.Profile, dash(r.Database), dash(r.StorageClass))
	if r.TargetRate > 0 {
		fmt.Fprintf(t, "rate\t%.2f/s completed of %.2f/s requested, over %.1f s\n", r.Rate, r.TargetRate, r.Seconds)
	} else {
		fmt.Fprintf(t, "rate\t%.2f/s completed, as many as possible, over %.1f s\n", r.Rate, r.Seconds)
	}
	fmt.Fprintf(t, "events\t%d offered, %d completed, %d failed, %d skipped, %d lost\n",
		r.Offered, r.Completed, total(r.Errors), total(r.Skipped), r.Lost)
	for _, name := range slices.Sorted(maps.Keys(r.Errors)) {
		fmt.Fprintf(t, "errors\t%d %s\n", r.Errors[name], name)
	}
	for _, name := range slices.Sorted(maps.Keys(r.Skipped)) {
		fmt.Fprintf(t, "skipped\t%d %s\n", r.Skipped[name], name)
	}
	for _, o := range r.Outages {
		over := ""
		if !o.Over {
			over = ", not over"
		}
		fmt.Fprintf(t, "outage\t%.2f s without a commit from %s%s; errors: %s\n", o.Seconds, o.Began.UTC().Format("2006-01-02 15:04:05.00 UTC"), over, o.Failures())
	}
	if r.Restarts > 0 {
		fmt.Fprintf(t, "restarts\t%d\n", r.Restarts)
	}
	if r.ParseErrors > 0 {
		fmt.Fprintf(t, "lines not understood\t%d\n", r.ParseErrors)
	}
	if r.CPUPer1000 > 0 {
		fmt.Fprintf(t, "own CPU\t%.3f s per 1,000\n", r.CPUPer1000)
	}
	for _, note := range r.Notes {
		fmt.Fprintf(t, "note\t%s\n", note)
	}
	for _, row := range []struct {
		name string
		l    Latency
	}{{"response", r.Response}, {"service", r.Service}, {"after outages", r.afterOutages()}} {
		if row.l.Count == 0 {
			continue
		}
		fmt.Fprintf(t, "%s\tmean %s", row.name, Milliseconds(row.l.Mean))
		for _, q := range row.l.Quantiles {
			fmt.Fprintf(t, "  p%g %s", q.Q*100, Milliseconds(q.Value))
		}
		fmt.Fprintf(t, "  max %s\n", Milliseconds(row.l.Max))
	}
	return t.Flush()
}

// Milliseconds prints seconds as milliseconds with three digits that matter.
func Milliseconds(seconds float64) string {
	ms := seconds * 1000
	switch {
	case math.IsNaN(ms):
		return "-"
	case ms >= 100:
		return fmt.Sprintf("%.0f ms", ms)
	case ms >= 10:
		return fmt.Sprintf("%.1f ms", ms)
	case ms > 0 && ms < 0.1: // a few microseconds are not nothing
		return fmt.Sprintf("%.3g ms", ms)
	}
	return fmt.Sprintf("%.2f ms", ms)
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func total(m map[string]uint64) uint64 {
	var n uint64
	for _, v := range m {
		n += v
	}
	return n
}
