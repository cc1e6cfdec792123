package predict

import "fmt"

// doubt keeps the first reason why there is no number of a kind.
func (f *fitted) doubt(i int, why *Refusal) {
	if f.doubts[i] == nil {
		f.doubts[i] = why
	}
}

// hold doubts a kind whose reads or writes cannot be predicted elsewhere. It stays in the flow, for the load that it
// makes beside the others: these keep their time.
func (f *fitted) hold(i int, why *Refusal) {
	f.doubt(i, why)
	f.held[i] = true
}

// kept is the time of a statement in storage that is held.
func (f *fitted) kept(i int) float64 {
	if f.kinds[i].flushes > 0 {
		return f.totals[i].mean("read") // its writes are those of the flush
	}
	return f.totals[i].mean("read", "write")
}

// ofMost is, where every kind is doubted, the doubt of the one that there are most of.
func (f *fitted) ofMost() *Refusal {
	most := 0
	for i, t := range f.totals {
		if f.doubts[i] == nil {
			return nil
		}
		if t.count > f.totals[most].count {
			most = i
		}
	}
	return f.doubts[most]
}

// doubtReads doubts kinds that would make more reads than anybody does.
func (f *fitted) doubtReads() {
	for i := range f.kinds {
		if k := &f.kinds[i]; !(k.reads <= mostReadsEach) {
			f.hold(i, &Refusal{Unexplained, fmt.Sprintf("%s would make more than %d reads to read for as long as it does (%s)", k.name, mostReadsEach, ms(f.totals[i].mean("read"))),
				"measure class and workload at the same time and at the same load"})
			k.reads = 0
		}
	}
}

// doubtEndless doubts kinds of which too many took longer than the last bound, or waited for operations of a class of
// which too many did.
func (f *fitted) doubtEndless(ops map[string]Operation, class string) {
	const next = "measure with a higher bound, or in windows without these"
	for i, t := range f.totals {
		if t.response.endless() {
			f.doubt(i, &Refusal{Unmeasured, fmt.Sprintf("more than one in %.0f of %s took longer than the last bound: how long is not known", 1/mostAbove, t.kind), next})
		}
		for _, name := range []string{"read", "write", "flush", "sync"} {
			if waits := f.kinds[i].flushes > 0; ops[name].Times.endless() && (name == "read" && f.waitsToRead(i) || name != "read" && waits) {
				f.doubt(i, &Refusal{Unmeasured, fmt.Sprintf("more than one in %.0f operations of kind %s of class %s took longer than the last bound: how long is not known", 1/mostAbove, name, class), next})
			}
		}
	}
}

// doubtThere doubts kinds of which the measurements of the target class show too little.
func (f *fitted) doubtThere(there flow, to []Load, class string) {
	ops, _ := operations(to)
	f.doubtEndless(ops, class)
	for i := range f.kinds {
		if f.unread(there, i) {
			f.doubt(i, noReadThere())
		}
	}
}

// waitsToRead is whether a kind waits for reads that are simulated.
func (f *fitted) waitsToRead(i int) bool {
	return f.kinds[i].reads > 0 && f.totals[i].mean("read") > leastShare*f.totals[i].response.Mean()
}

// unread is whether a kind waits for reads of which none was measured elsewhere.
func (f *fitted) unread(there flow, i int) bool { return f.waitsToRead(i) && there.kinds[i].reads == 0 }

func noReadThere() *Refusal {
	return &Refusal{Unmeasured, "no read was measured of the class to predict for", "measure it, such as with loadgen probe --readers=4"}
}
