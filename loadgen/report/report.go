// Package report makes one page of a soak: how each storage class did, when that changed, and
// what was going on then.
package report

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/plumbline/plumbline/loadgen/internal/words"
	"github.com/plumbline/plumbline/loadgen/result"
	"github.com/plumbline/plumbline/loadgen/soak"
	"github.com/plumbline/plumbline/loadgen/stats"
)

// Report is the content of the page.
type Report struct {
	Title       string
	Began, Last time.Time
	Done        float64 // share of the plan's duration
	Classes     []Class
	Marks       []Mark
	Layers      []Series // of latency, from Prometheus
	Notes       []string
	failed      []string // sentences on phases and faults that could not be done or mended
	Compared    string   // name of the other run, if there is one
	// local is the control's storage class; empty without one.
	local string
	// Sections are what was found, in words and bars, which stand first.
	Sections []Section
	// coarse is by how much the samples' interval is longer than the plan's.
	coarse time.Duration
}

// Class is one load on one storage class.
type Class struct {
	StorageClass, Load string
	Offered, Completed uint64
	Failed, Skipped    uint64
	Response, Service  result.Latency
	ToLocal            float64 // p95 response as a multiple of the local class's; NaN without
	Other              *Comparison
	Times              []time.Time
	P50, P99           []float64 // response, seconds
	ServiceP50         []float64
	Changes            []Change
	Outages            Outages
	Saturated          bool // the generator, at some time
	// unfit are the transactions that failed or were skipped without a fault or a phase, nor in an outage of one, calm
	// those that were due then.
	unfit, calm uint64
	all         stats.Distribution
}

// Outages sums up the times in which transactions were due and none was committed.
type Outages struct {
	Count          int
	Total, Longest float64 // seconds
}

func (o *Outages) add(one result.Outage) {
	o.Count++
	o.Total += one.Seconds
	o.Longest = max(o.Longest, one.Seconds)
}

// String is a cell of a table.
func (o Outages) String() string {
	switch o.Count {
	case 0:
		return "0"
	case 1:
		return fmt.Sprintf("%.1f s", o.Total)
	}
	return fmt.Sprintf("%.1f s, %d times, longest %.1f s", o.Total, o.Count, o.Longest)
}

// canary is the name of the load that is always there.
const canary = "canary"

// outageName is the name of an outage's mark.
func outageName(load, class string) string { return load + " on " + class }

const (
	outageMark = "outage"
	alertMark  = "alert"
	// markedOutage is the least length of an outage that is marked on the time axis, in seconds.
	markedOutage = 1
)

// Change is a point from which on a class's latency has another level.
type Change struct {
	Time          time.Time
	Before, After float64 // median response, seconds
	When          string  // during or just after which mark; "" for none
}

// Levels prints the medians before and after a change, with as many digits as distinguish them.
func (c Change) Levels() string {
	before, after := result.Milliseconds(c.Before), result.Milliseconds(c.After)
	for decimals := 1; before == after && decimals < 10; decimals++ {
		before, after = fmt.Sprintf("%.*f ms", decimals, c.Before*1000), fmt.Sprintf("%.*f ms", decimals, c.After*1000)
	}
	return "from " + before + " to " + after
}

// Comparison is a class beside the same class of another run.
type Comparison struct {
	P95, Low, High float64 // of the other run, seconds
	Ratio          float64
	Differs        bool // the 95 % confidence intervals do not overlap
	// Slower is the share of this run's transactions beyond the other's p95 (5 % if nothing
	// changed), SlowerLow its Wilson lower bound at 99 %.
	Slower, SlowerLow float64
}

// RatioText prints the ratio; one that differs is seen to.
func (c Comparison) RatioText() string {
	if c.Differs {
		return words.Apart(c.Ratio, 2, 1)
	}
	return number(c.Ratio)
}

// Mark is something that went on for a time.
type Mark struct {
	Kind, Name string
	From, To   time.Time
	Detail     string
}

// Series is a line of a plot, in seconds.
type Series struct {
	Name, StorageClass string
	Times              []time.Time
	Values             []float64
}

// markSlack is how long after a mark a change still may be its doing.
const markSlack = time.Minute

// New makes the report of a soak.
func New(title string, d *soak.Data) *Report {
	r := &Report{Title: title, Began: d.Began, coarse: max(0, d.Every-d.Plan.Interval)}
	classes := map[[2]string]*Class{}
	for _, s := range d.Samples {
		key := [2]string{s.Load, s.StorageClass}
		c := classes[key]
		if c == nil {
			c = &Class{Load: s.Load, StorageClass: s.StorageClass, ToLocal: math.NaN()}
			classes[key] = c
		}
		c.Offered, c.Completed, c.Failed, c.Skipped = c.Offered+s.Offered, c.Completed+s.Completed, c.Failed+s.Failed, c.Skipped+s.Skipped
		c.all.Merge(&s.Response)
		for _, o := range s.Outages {
			c.Outages.add(o)
		}
		if s.Response.Count() > 0 {
			c.Times = append(c.Times, s.Time)
			c.P50 = append(c.P50, s.Response.Quantile(0.5).Seconds())
			c.P99 = append(c.P99, s.Response.Quantile(0.99).Seconds())
			c.ServiceP50 = append(c.ServiceP50, s.Service.Quantile(0.5).Seconds())
		}
		if s.Time.After(r.Last) {
			r.Last = s.Time
		}
		if s.Saturated {
			c.Saturated = true
			r.note("the generator was saturated on %s (%s): its response times include its own delay", s.StorageClass, s.Load)
		}
	}
	// A class that was never reached has no samples, and is not left out for that.
	for _, t := range d.Plan.Targets {
		if key := [2]string{canary, t.StorageClass}; classes[key] == nil {
			classes[key] = &Class{Load: canary, StorageClass: t.StorageClass, ToLocal: math.NaN()}
		}
	}
	services := map[[2]string]*stats.Distribution{}
	for key := range classes {
		services[key] = &stats.Distribution{}
	}
	for _, s := range d.Samples {
		key := [2]string{s.Load, s.StorageClass}
		services[key].Merge(&s.Service)
	}
	r.marks(d)
	r.calmness(d, classes)
	for _, t := range d.Plan.Targets {
		if t.Local {
			r.local = t.StorageClass
		}
	}
	for key, c := range classes {
		c.Response, c.Service = result.Sum(&c.all), result.Sum(services[key])
		if l := classes[[2]string{c.Load, r.local}]; l != nil && l.all.Count() > 0 && c.all.Count() > 0 {
			c.ToLocal = c.all.Quantile(0.95).Seconds() / l.all.Quantile(0.95).Seconds()
		}
		for _, change := range stats.Changes(c.P50) {
			at := c.Times[change.At]
			// Within an outage there are no responses to change.
			when := cmp.Or(r.when(at), r.outageIn(outageName(c.Load, c.StorageClass), c.Times[max(change.At-1, 0)], at))
			c.Changes = append(c.Changes, Change{at, change.Before, change.After, when})
		}
		r.Classes = append(r.Classes, *c)
	}
	slices.SortFunc(r.Classes, func(a, b Class) int {
		return cmp.Or(cmp.Compare(order(a), order(b)), cmp.Compare(a.Load, b.Load), cmp.Compare(a.StorageClass, b.StorageClass))
	})
	if !r.Last.IsZero() && d.Plan.Duration > 0 {
		r.Done = min(r.Last.Sub(d.Began).Seconds()/d.Plan.Duration.Seconds(), 1)
	}
	for _, err := range d.Damaged {
		r.note("a file of the soak's folder is damaged, and what is missing of it is in nothing here: %s", err)
	}
	if d.Torn > 0 {
		r.note("%s", d.Unread())
	}
	return r
}

// order puts the canary first.
func order(c Class) int {
	if c.Load == canary {
		return 0
	}
	return 1
}

func (r *Report) note(format string, a ...any) {
	if text := fmt.Sprintf(format, a...); !slices.Contains(r.Notes, text) {
		r.Notes = append(r.Notes, text)
	}
}

// fail keeps a sentence of what could not be done, once.
func (r *Report) fail(format string, a ...any) {
	if text := fmt.Sprintf(format, a...); !slices.Contains(r.failed, text) {
		r.failed = append(r.failed, text)
	}
}

// marks pairs the begin and end of each phase and fault. What never ended lasts to the last sample. Its detail reports
// that, as it does a soak killed in a phase, and a fault that could be neither done nor mended.
func (r *Report) marks(d *soak.Data) {
	open := map[[2]string]int{}
	for _, e := range d.Events {
		key := [2]string{e.Kind, e.Name}
		switch {
		case e.What == soak.Failed:
			r.note("%s %s: %s", e.Kind, e.Name, e.Detail)
			r.fail("%s %s could not be done", e.Kind, e.Name)
		case e.What == soak.Unmended:
			r.note("%s %s could not be mended at %s: %s", e.Kind, e.Name, clock(e.Time), e.Detail)
			r.fail("%s %s could not be mended", e.Kind, e.Name)
		case e.Kind == soak.SoakEvent && e.What == soak.Begin && !e.Time.Equal(d.Began):
			if i, ok := open[key]; ok { // it was killed: the last sample was its end
				r.Marks[i].To = r.before(d, e.Time)
			}
			open[key] = len(r.Marks)
			r.Marks = append(r.Marks, Mark{e.Kind, e.Name, e.Time, r.Last, ""})
		case e.What == soak.Begin:
			open[key] = len(r.Marks)
			r.Marks = append(r.Marks, Mark{e.Kind, e.Name, e.Time, r.Last, e.Detail})
		case e.What == soak.End:
			if i, ok := open[key]; ok {
				r.Marks[i].To = e.Time
				if delete(open, key); e.Time.Before(r.Marks[i].From) { // the clock was set back meanwhile
					r.Marks[i].From, r.Marks[i].To = e.Time, r.Marks[i].From
				}
				if e.Detail == soak.Killed || e.Kind == soak.FaultEvent && e.Detail != "" {
					r.Marks[i].addDetail(e.Detail)
					r.note("%s %s from %s on: %s", e.Kind, e.Name, clock(r.Marks[i].From), e.Detail)
				}
			}
		}
	}
	for _, i := range open {
		m := &r.Marks[i]
		if m.Kind == soak.MachineEvent { // both of its ends are written at once: it was killed between
			m.To = m.From
			continue
		}
		if m.addDetail("not over at the last sample"); m.To.Before(m.From) {
			m.To = m.From
		}
	}
	// The soak's own runs are shown by what lies between them.
	var runs, others []Mark
	for _, m := range r.Marks {
		if m.Kind == soak.SoakEvent {
			runs = append(runs, m)
		} else {
			others = append(others, m)
		}
	}
	for i := 1; i < len(runs); i++ {
		others = append(others, Mark{"soak", "not running", runs[i-1].To, runs[i].From, ""})
	}
	for _, s := range d.Samples {
		for _, o := range s.Outages {
			if o.Seconds < markedOutage {
				continue
			}
			detail := fmt.Sprintf("%.1f s without a commit; %s", o.Seconds, o.Failures())
			if !o.Over {
				detail += "; not over at the load's end"
			}
			others = append(others, Mark{outageMark, outageName(s.Load, s.StorageClass), o.Began, o.Began.Add(time.Duration(o.Seconds * float64(time.Second))), detail})
		}
	}
	slices.SortStableFunc(others, func(a, b Mark) int { return a.From.Compare(b.From) })
	r.Marks = others
}

// addDetail adds to a mark's detail.
func (m *Mark) addDetail(more string) {
	if m.Detail != "" {
		more = m.Detail + "; " + more
	}
	m.Detail = more
}

// before returns the time of the last sample before at.
func (r *Report) before(d *soak.Data, at time.Time) time.Time {
	last := d.Began
	for _, s := range d.Samples {
		if s.Time.Before(at) && s.Time.After(last) {
			last = s.Time
		}
	}
	return last
}

// when names what went on at a time, or had ended shortly before it.
func (r *Report) when(at time.Time) string {
	for _, m := range slices.Backward(r.Marks) {
		switch {
		case m.Kind == outageMark: // what happens, not why
		case at.Before(m.From) || at.After(m.To.Add(markSlack+r.coarse)):
		case at.After(m.To):
			return "after " + m.Kind + " " + m.Name
		default:
			return "during " + m.Kind + " " + m.Name
		}
	}
	return ""
}

// Compare sets each class beside the same one of another run.
func (r *Report) Compare(name string, other *Report) {
	r.Compared = name
	for i := range r.Classes {
		c := &r.Classes[i]
		for j := range other.Classes {
			o := &other.Classes[j]
			if o.Load != c.Load || o.StorageClass != c.StorageClass || o.all.Count() == 0 || c.all.Count() == 0 {
				continue
			}
			low, high := o.all.Interval(0.95)
			myLow, myHigh := c.all.Interval(0.95)
			p95 := o.all.Quantile(0.95)
			slow, n := float64(c.all.Above(p95)), float64(c.all.Count())
			c.Other = &Comparison{P95: p95.Seconds(), Low: low.Seconds(), High: high.Seconds(),
				Ratio:   c.all.Quantile(0.95).Seconds() / p95.Seconds(),
				Differs: myLow > high || myHigh < low, Slower: slow / n, SlowerLow: wilsonLower(slow/n, n)}
		}
	}
}

// wilsonLower is the lower end of Wilson's 99 % score interval of a share p of n.
func wilsonLower(p, n float64) float64 {
	const z = 2.326 // one-sided
	return (p + z*z/(2*n) - z*math.Sqrt((p*(1-p)+z*z/(4*n))/n)) / (1 + z*z/n)
}
