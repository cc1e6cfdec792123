package predict

import "fmt"

// Reason is why there is no number.
type Reason string

const (
	// NotWaiting: the workload does not wait for storage.
	NotWaiting Reason = "does-not-wait"
	// Caches: reads that another cache may answer or not.
	Caches Reason = "caches"
	// Saturation: CPUs, or as many statements under way as there are sessions.
	Saturation Reason = "saturation"
	// Unmeasured: nothing, or too little, was measured of a class or of the workload.
	Unmeasured Reason = "not-measured"
	// Unlike: the class was measured, but not at like load or with operations of like size.
	Unlike Reason = "not-at-like-load"
	// Waits: statements wait for something else, such as locks, which others may hold while they wait for storage.
	Waits Reason = "other-waits"
	// Unexplained: the model does not give what was measured where the workload is now.
	Unexplained Reason = "not-explained"
	// Rare: there are too few of a kind among all for the simulation to predict.
	Rare Reason = "rare"
	// Shared: a block device serves others as well, and whose its requests are is not known.
	Shared Reason = "shared-disk"
	// Engine: the database's way to its log is not modelled.
	Engine Reason = "engine"
)

// Reasons are all of them.
var Reasons = []Reason{NotWaiting, Caches, Saturation, Unmeasured, Unlike, Waits, Unexplained, Rare, Shared, Engine}

// Refusal is why there is no number, and what to do for one.
type Refusal struct {
	Reason Reason `json:"reason"`
	Text   string `json:"text"`
	Next   string `json:"next"`
}

// Error is the refusal in a sentence.
func (r *Refusal) Error() string { return r.Text + "; " + r.Next }

// LeastWindows are needed: of the workload, of the block device that it is on, and of the target class.
const LeastWindows = 3

const (
	// leastCount is how many statements of a kind are needed for a prediction.
	leastCount = 200
	// leastShare of a statement's time is storage's, if it waits for storage; leastSync is sync's, if it flushes.
	leastShare, leastSync = 0.02, 0.005
	// mostReads of a statement's time are reads, unless it is known that they reach storage there as well.
	mostReads = 0.1
	// mostWaits of a statement's time is for something that is not explained.
	mostWaits = 0.3
	// mostQueued of a statement's time is waiting for a CPU.
	mostQueued = 0.5
	// mostCPU of the server's CPUs may be used, there as here.
	mostCPU = 0.8
	// likeLoad is how many times as many operations a second, or a tenth as large, are like.
	likeLoad, likeSize = 4, 4
	// leastNeeded and mostNeeded bound how many times the class's own figure a measured flush is.
	leastNeeded, mostNeeded = 0.1, 1.7
	// mostOff is how far the model may be off the measured median where the workload is now, as a logarithm.
	mostOff = 0.25
)

// storable returns what of a workload cannot be known on any class, by the operations of its own in so many windows.
func (f *fitted) storable(w Workload, ops map[string]Operation, windows int) *Refusal {
	const measureIt = "measure the class that the workload is on at the same time: its exporters, or loadgen probe"
	switch {
	case w.Engine != "postgresql":
		return &Refusal{Engine, fmt.Sprintf("how %s writes its log is not modelled", w.Engine), "only PostgreSQL's group commit is"}
	case len(w.Windows) < LeastWindows:
		return &Refusal{Unmeasured, fmt.Sprintf("%d windows of the workload were measured, %d are needed", len(w.Windows), LeastWindows), "measure longer"}
	}
	if len(f.totals) == 0 {
		all, _ := totals(w.Windows)
		most, count := 0.0, 0.0
		for _, t := range all {
			if response := t.response.Mean(); response > 0 && t.count >= leastCount { // of a few it may be anything
				most = max(most, t.mean("read", "write", "sync")/response)
			}
			count = max(count, t.count)
		}
		if count < leastCount {
			return &Refusal{Unmeasured, fmt.Sprintf("no kind of statement has %d in all windows", leastCount), "measure longer, or more windows"}
		}
		return &Refusal{NotWaiting, fmt.Sprintf("the workload does not wait for storage: at most %.1f %% of any statement's time is reading, writing or syncing", 100*most),
			"what it does wait for: kubectl plumbline why"}
	}
	if _, calls := ops["sync"]; !calls && windows > 0 && windows < LeastWindows {
		return &Refusal{Unmeasured, fmt.Sprintf("%d windows of the block device that the workload is on were measured, %d are needed", windows, LeastWindows),
			"measure longer: those count in which the device was the server's volume's all the time"}
	}
	f.doubts, f.held = make([]*Refusal, len(f.totals)), make([]bool, len(f.totals))
	for i, t := range f.totals {
		syncs := t.mean("sync") >= leastSync*t.response.Mean()
		reads := t.mean("read") / t.response.Mean()
		_, known := ops["read"]
		switch {
		case syncs && !hasFlush(ops):
			return &Refusal{Unmeasured, "nothing was measured of the class that the workload is on", measureIt}
		case !syncs && t.mean("write") > mostReads*t.response.Mean():
			f.hold(i, &Refusal{Caches, fmt.Sprintf("%s waits to write without a sync: when a page cache makes a writer wait is not known of another class", t.kind), "look at the memory that the server may use"})
		case reads > mostReads && !w.SameCache:
			f.hold(i, &Refusal{Caches, fmt.Sprintf("%.0f %% of the time of %s is reading: which reads the caches of another class and its node answer is not known", 100*reads, t.kind),
				"if as many reach storage there (as much memory, no cache of the storage's own), set --same-cache"})
		case reads > mostReads && !known:
			f.hold(i, &Refusal{Unmeasured, t.kind + " reads, and no read of the class that it is on was measured", measureIt + " --readers"})
		}
	}
	return f.ofMost()
}

func hasFlush(ops map[string]Operation) bool {
	return ops["sync"].Times.Count() > 0 || ops["write"].Times.Count() > 0 || ops["flush"].Times.Count() > 0
}

// sharedDisk returns which class's block device serves others as well.
func sharedDisk(in *Input) *Refusal {
	for _, c := range []Class{in.From, in.To} {
		if c.Shared > 0 {
			return &Refusal{Shared, fmt.Sprintf("the block device of class %s serves %d volumes or replicas of others as well: which of its requests are like this server's is not known", c.Name, c.Shared),
				"measure both classes with loadgen probe, and give --from-class-file and --to-class-file"}
		}
	}
	return nil
}

// believable returns why a kind's part of the fit cannot be believed.
func (f *fitted) believable(i int) *Refusal {
	t := f.totals[i]
	response := t.response.Mean()
	if queued := t.mean("runqueue") / response; queued > mostQueued {
		return &Refusal{Saturation, fmt.Sprintf("%.0f %% of the time of %s is waiting for a CPU: how long that takes elsewhere is not storage's", 100*queued, t.kind), "more CPUs, or less load"}
	}
	if waits := f.waits[i] / response; waits > mostWaits {
		return &Refusal{Waits, fmt.Sprintf("%.0f %% of the time of %s is waiting for something else than storage and the flushes of others: locks, perhaps, whose holders wait for storage", 100*waits, t.kind),
			"what it waits for: kubectl plumbline why, pg_stat_activity"}
	}
	if !finite(f.simulated(i, 0.5)) {
		return noNumber(t.kind)
	}
	if !(t.response.beyond(0.5, f.simulated(i, 0.5)) <= mostOff) {
		return &Refusal{Unexplained, fmt.Sprintf("the model gives %s for the median of %s where the workload is now, and %s were measured", ms(f.simulated(i, 0.5)), t.kind, ms(t.response.Quantile(0.5))),
			"is the number of sessions right (--clients)? Measure workload and class at the same time"}
	}
	return nil
}

// totalCPU is how many CPUs all statements use.
func (f *fitted) totalCPU(w Workload) float64 {
	all, seconds := totals(w.Windows)
	used := 0.0
	for _, t := range all {
		used += t.phases["cpu"]
	}
	return used / seconds
}

func saturated(w Workload, cpus float64, when string) *Refusal {
	if w.Cores == 0 || cpus <= mostCPU*w.Cores {
		return nil
	}
	return &Refusal{Saturation, fmt.Sprintf("its statements would use %.1f of %.1f CPUs %s: these, and not storage, decide", cpus, w.Cores, when), "more CPUs, or less load"}
}
