package predict

import (
	"fmt"
	"math"
	"slices"

	"github.com/plumbline/plumbline/rules/layers"
)

const (
	// leastOthers of a statement's time is waiting for the flushes of others, if the model's figure of it is set right
	// by what was measured: one that is too long is shortened, to leastOfModel at the least; what one that is too short
	// lacks is taken for a time that does not depend on storage, such as waking up.
	leastOthers, leastOfModel = 0.05, 0.5
	// usualPart of statements wait for a CPU, and unusual is the distance that another part costs.
	usualPart, unusual = 0.1, 0.002
	// nearlyAll of a kind's statements flush: all do.
	nearlyAll = 0.7
	// turns is how many statements a fit simulates, tries how often it checks how many flushes that takes.
	turns, tries = 8_000, 4
	// ownError is how wrong the phases' time of a statement that no storage has may be, storageError a simulated time
	// in storage that is taken from a measured duration: the two ways to know the same are weighed by them.
	ownError, storageError = 0.25, 0.04
)

// parts are the possible parts of statements that wait for a CPU: all of that time may be few statements', or
// everybody's.
var parts = []float64{0.02, 0.05, 0.1, 0.2, 0.4, 1}

// fitted is a workload as a flow, and what was found on the way.
type fitted struct {
	flow
	totals  []total // of the kinds of the flow
	counted float64 // statements of these in all windows
	rare    []total // kinds that are left out of it
	seconds float64
	// per is how many flushes there are to a commit.
	per float64
	// operations of a flush by name, and how many of them; scale is what their times are multiplied with.
	flush map[string]int
	scale float64
	// needed is how many syncs of the class's own make up the measured time of a flush.
	needed float64
	// waits are the seconds of a statement, by kind, that it waits for something else than flushes.
	waits []float64
	// stored is the mean time in storage, by kind, before what the phases leave over was added.
	stored []float64
	// again is the simulation of the class that the workload is on.
	again run
	// doubts are why there is no number of a kind, held the kinds whose reads and unsynced writes are taken to keep
	// their time.
	doubts []*Refusal
	held   []bool
}

// fit finds a flow that gives what was measured, on the class that it was measured on.
func fit(w Workload, from Class, seed uint64) (*fitted, *Refusal) {
	f := &fitted{per: 1}
	var all []total
	all, f.seconds = totals(w.Windows)
	for _, t := range all {
		if t.count >= leastCount && t.response.Mean() > 0 && t.mean("read", "write", "sync") >= leastShare*t.response.Mean() {
			f.totals = append(f.totals, t)
			f.counted += t.count
		}
	}
	if refused := f.leaveOut(); refused != nil {
		return nil, refused
	}
	ops, _ := operations(f.ownLoad(from.Windows))
	if refused := f.storable(w, ops, len(from.Windows)); refused != nil {
		return nil, refused
	}
	f.mix(w, ops)
	f.doubtReads()
	f.doubtEndless(ops, from.Name)
	if refused := f.ofMost(); refused != nil {
		return nil, refused
	}
	for i := range tries {
		if refused := f.store(ops); refused != nil && i == tries-1 {
			return nil, refused
		}
		f.own(usualPart, false)
		f.again = f.simulate(turns, seed)
		if f.again.commits > 0 && f.again.flushes > 0 { // of few, the flush may have begun before the first that is counted
			f.per = f.again.flushes / f.again.commits
		}
	}
	f.settle()
	f.own(f.bestPart(seed), true)
	f.again = f.simulate(turns, seed)
	return f, nil
}

// mix sets up how often the kinds come, which of them flush, and how much they read.
func (f *fitted) mix(w Workload, ops map[string]Operation) {
	longest, response := 0.0, 0.0
	for _, t := range f.totals {
		longest = max(longest, t.mean("sync"))
		response += t.response.Mean() * t.count / f.counted
	}
	for i, t := range f.totals {
		k := kind{name: t.kind, share: t.count / f.counted}
		// A kind that syncs for less time than another does it not every time.
		if sync := t.mean("sync"); sync >= leastSync*t.response.Mean() {
			if k.flushes = sync / longest; k.flushes > nearlyAll {
				k.flushes = 1
			}
		}
		if o, ok := ops["read"]; ok && !f.held[i] {
			k.reads = t.mean("read") / o.Times.Mean()
		}
		f.kinds = append(f.kinds, k)
	}
	f.waits = make([]float64, len(f.totals))
	f.clients, f.constant, f.rate = w.Clients, w.Think == Constant, f.counted/f.seconds
	if f.think = w.ThinkSeconds; f.clients > 0 && f.think == 0 {
		f.think = max(float64(f.clients)/f.rate-response, 0)
	}
}

// bestPart is the part of statements that wait for a CPU with which the simulation is nearest to what was measured.
func (f *fitted) bestPart(seed uint64) float64 {
	best, part := math.Inf(1), usualPart
	for _, p := range parts {
		tried := *f
		tried.kinds = slices.Clone(f.kinds)
		tried.own(p, true)
		tried.again = tried.simulate(turns, seed)
		// Where storage takes most of the time, none of them is much worse: then it is the usual one.
		if e := tried.distance() + unusual*math.Pow(math.Log(p/usualPart), 2); e < best {
			best, part = e, p
		}
	}
	return part
}

// ownLoad picks the windows of the class that the workload is on in which it had like load; all, if these are too few:
// of a class that is measured as the workload runs there is nothing else.
func (f *fitted) ownLoad(windows []Load) []Load {
	var like []Load
	commits := 0.0
	for _, t := range f.totals {
		if t.mean("sync") >= leastSync*t.response.Mean() {
			commits += t.count
		}
	}
	for _, w := range windows {
		// A flush may be for several commits.
		if r := w.rate("sync") * f.seconds; r >= commits/likeLoad/2 && r <= commits*likeLoad {
			like = append(like, w)
		}
	}
	if len(like) < LeastWindows {
		return windows
	}
	return like
}

// store sets a flush up of the class's operations, so that all flushes take the time that was measured.
func (f *fitted) store(ops map[string]Operation) *Refusal {
	var spent, sync, commits float64
	for i, t := range f.totals {
		if k := f.kinds[i]; k.flushes > 0 {
			sync += t.phases["sync"]
			spent += t.phases["sync"] + t.phases["write"]
			commits += t.count * k.flushes
		}
	}
	if o, ok := ops["read"]; ok {
		f.storage.read = newSampler(o.Times)
	}
	if commits == 0 {
		return nil
	}
	flush := spent / commits / f.per // seconds of one
	f.flush, f.scale = map[string]int{}, 1
	if _, ok := ops["sync"]; ok {
		f.ofCalls(ops, sync/commits/f.per)
	} else {
		f.ofRequests(ops, flush)
	}
	f.storage.flush = visits(f.flush, f.scale, ops)
	if !(f.needed >= leastNeeded && f.needed <= mostNeeded) {
		compared := fmt.Sprintf("which is %.2g times what the class's own measurements give", f.needed)
		if !finite(f.needed) {
			compared = "and the class's own measurements give next to nothing"
		}
		return &Refusal{Unexplained, fmt.Sprintf("a flush takes %s there, %s", ms(flush), compared),
			"measure class and workload at the same time and at the same load"}
	}
	return nil
}

// ofCalls makes a flush of calls on files: the log's writer writes, then syncs; sync is the measured time of that.
func (f *fitted) ofCalls(ops map[string]Operation, sync float64) {
	f.needed = sync / ops["sync"].Times.Mean()
	n := int(min(max(math.Round(f.needed), 1), mostRequests))
	f.flush["sync"] = n
	if _, ok := ops["write"]; ok {
		f.flush["write"] = n
	}
	f.needed /= float64(n)
}

const (
	// mostRequests of a kind are taken for one flush's.
	mostRequests = 4
	// mostReadsEach are the most operations of reading that a statement is taken to make.
	mostReadsEach = 1000
)

// ofRequests makes a flush of requests of a block device, of which others' are among them: their proportion is known,
// and the measured time of a flush.
func (f *fitted) ofRequests(ops map[string]Operation, flush float64) {
	flushes, mean := ops["flush"].Times.Count(), 0.0
	for _, name := range []string{"write", "flush"} {
		o, ok := ops[name]
		if !ok {
			continue
		}
		n := 1
		if flushes > 0 {
			n = int(min(max(math.Round(o.Times.Count()/flushes), 1), mostRequests))
		}
		f.flush[name] = n
		mean += float64(n) * o.Times.Mean()
	}
	f.scale = flush / mean
	f.needed = f.scale
}

func visits(flush map[string]int, scale float64, ops map[string]Operation) []visit {
	var all []visit
	for _, name := range []string{"write", "flush", "sync"} {
		if n := flush[name]; n > 0 {
			all = append(all, visit{newSampler(ops[name].Times), n, scale})
		}
	}
	return all
}

// settle compares the waiting for the flushes of others with what was measured: what the model has too much is taken
// off in the same proportion everywhere, what it has too little is a time of those that waited, such as waking up. Only
// once, as a time more between flushes has the model wait less.
func (f *fitted) settle() {
	f.stored = slices.Clone(f.again.stored)
	for i, t := range f.totals {
		others := f.again.others[i]
		f.waits[i] = t.mean("wait")
		if k := &f.kinds[i]; k.flushes > 0 && others >= leastOthers*t.response.Mean() {
			k.longer = min(max(f.waits[i]/others, leastOfModel), 1)
			f.stored[i] += (k.longer - 1) * others
			f.waits[i] = max(f.waits[i]-k.longer*others, 0)
			k.waking = f.waits[i] / f.again.waited[i]
			f.stored[i] += f.waits[i]
		}
	}
}

// own sets what statements take beside storage: what the phases have, and what is left of the durations without the
// simulated time in storage; settled once the waiting for others' flushes is.
func (f *fitted) own(part float64, settled bool) {
	for i, t := range f.totals {
		o := own{t.mean(layers.CPU, layers.Client), t.mean(layers.Runqueue), part}
		if f.held[i] {
			o.cpu += f.kept(i)
		}
		if !settled {
			f.kinds[i].own = o
			continue
		}
		if f.kinds[i].waking == 0 {
			o.cpu += f.waits[i]
		}
		left := max(t.response.Mean()-f.stored[i], 0)
		if o.mean() == 0 || f.stored[i] <= 0 {
			f.kinds[i].own = own{o.cpu, max(o.waits, left-o.cpu), part} // no phases: what is left is all there is
			continue
		}
		a, b := ownError*o.mean(), storageError*f.stored[i]
		known := (o.mean()/(a*a) + left/(b*b)) / (1/(a*a) + 1/(b*b))
		f.kinds[i].own = o.scaled(max(known/o.mean(), 0.3))
	}
}

// vague is how far a quantile of a kind may be off elsewhere, as a logarithm, because it is not known here which
// statements wait for a CPU: the more of their time is storage's, the less.
func (f *fitted) vague(there flow, quantiles []float64) []map[float64]float64 {
	all := make([]map[float64]float64, len(f.totals))
	few, many := there, there
	few.kinds, many.kinds = slices.Clone(there.kinds), slices.Clone(there.kinds)
	for i := range there.kinds {
		few.kinds[i].own.part /= 3
		many.kinds[i].own.part = min(3*many.kinds[i].own.part, 1)
	}
	a, b := few.simulate(turns, seed), many.simulate(turns, seed)
	for i, t := range f.totals {
		slices.Sort(a.times[i])
		slices.Sort(b.times[i])
		all[i] = map[float64]float64{}
		for _, q := range quantiles {
			all[i][q] = math.Abs(math.Log(quantile(a.times[i], q)/quantile(b.times[i], q))) / 2 * min(f.again.stored[i]/t.response.Mean(), 1)
		}
	}
	return all
}

// distance is how far a simulation's distributions are from the measured ones.
func (f *fitted) distance() float64 {
	sum := 0.0
	for i, t := range f.totals {
		if slices.Sort(f.again.times[i]); len(f.again.times[i]) == 0 {
			continue
		}
		for _, q := range []float64{0.5, 0.9, 0.95, 0.99} {
			d := math.Log(quantile(f.again.times[i], q) / t.response.Quantile(q))
			sum += d * d * t.count / f.counted
		}
	}
	return sum
}

// quantile of sorted values.
func quantile(sorted []float64, q float64) float64 {
	if len(sorted) == 0 {
		return math.NaN()
	}
	at := q * float64(len(sorted)-1)
	i := int(at)
	if i+1 == len(sorted) {
		return sorted[i]
	}
	return sorted[i] + (at-float64(i))*(sorted[i+1]-sorted[i])
}
