package why

import (
	"fmt"
	"slices"
)

// Kind is what a verdict is about.
type Kind string

// The kinds of verdicts, in the order in which they are looked for.
const (
	// Stall: something stands still now.
	Stalled Kind = "stall"
	// Few: too little was measured to judge.
	Few Kind = "few"
	// Lock: sessions wait for each other's locks; storage is not to blame.
	Lock Kind = "lock"
	// CPU: the host has too little of it.
	CPU Kind = "cpu"
	// SlowReplica: one replica is much slower than its peers.
	SlowReplica Kind = "replica"
	// Calm: nothing stands out; Layer is the largest part.
	Calm Kind = "calm"
)

// Verdict is what stands out.
type Verdict struct {
	Kind Kind
	// Layer is the layer to blame, or the largest; Replica names the replica, Device the disk.
	Layer, Replica, Device string
	// Text says it in words.
	Text string
}

// Same says whether two verdicts name the same, whatever the figures.
func (v Verdict) Same(w Verdict) bool {
	return v.Kind == w.Kind && v.Layer == w.Layer && v.Replica == w.Replica && v.Device == w.Device
}

// What stands out. Shares are of a statement's mean, times in seconds.
const (
	// largeShare of a time makes a phase the main one.
	largeShare = 0.4
	// leastCPUWait is below what waiting for a CPU is no trouble.
	leastCPUWait = 0.001
	// noSlower is below what ratio to the control a class is about as slow as it.
	noSlower = 1.5
	// leastBlocked is the mean number of statements that wait for a lock.
	leastBlocked = 0.5
	// longBlocked is for how long a lock is waited for that keeps statements from ending at all, in seconds.
	longBlocked = 5.0
	// longInStorage is for how long a process is in one read, write or sync that holds others up, in seconds.
	longInStorage = 2.0
	// outlier is how many times its peers' median a replica takes, and outlierBy by how much. On a host short
	// of CPU, where processes get their turn at random, it is outlierBusy.
	outlier, outlierBusy, outlierBy = 2.5, 3.5, 0.001
	// seenWaiting is the share of looks at a replica's process that found it stopped or not reading.
	seenWaiting = 0.2
)

func (f *Finding) judge() Verdict {
	main, name := f.main(), f.what()
	if f.Stall != nil {
		return Verdict{Stalled, f.Stall.Layer, f.Stall.Replica, f.Stall.Device, f.Stall.text(f.Target)}
	}
	if main.underWay() && f.InStorage.Seconds >= longInStorage {
		return Verdict{Kind: Stalled, Layer: "server", Text: fmt.Sprintf("a process of the server has been in one %s for %.0f s, and %ss do not end", f.InStorage.Name, f.InStorage.Seconds, name)}
	}
	if f.locked() {
		s := f.Statements
		spends := fmt.Sprintf("a statement spends %s of its %s ms waiting", ms(seconds(s.Phases, "wait")), ms(s.Mean))
		if s.underWay() {
			spends = fmt.Sprintf("%.0f %% of the statements' time is waiting", 100*seconds(s.Phases, "wait")/sum(s.Phases))
		}
		return Verdict{Kind: Lock, Layer: "wait", Text: fmt.Sprintf(
			"sessions hold each other up: at any moment %s statements wait for another session's lock, and %s; storage is not to blame", number(f.Blocked), spends)}
	}
	switch {
	case main.Count < leastSamples && f.BlockedFor >= longBlocked:
		return Verdict{Kind: Lock, Layer: "wait", Text: fmt.Sprintf("%s statements wait for another session's lock, the oldest for %.0f s; storage is not to blame", number(f.Blocked), f.BlockedFor)}
	case f.Target.Server == "":
		if !(f.Write.Count >= leastSamples) {
			return Verdict{Kind: Few, Text: "no database server is known on it, and " + few("writes", f.Write.Count, f)}
		}
	case !Known(main.Count):
		return Verdict{Kind: Few, Text: fmt.Sprintf("no statement of %s is measured: does the agent run on node %s, with BPF?", f.Target.Server, f.Target.Node)}
	case main.Count < leastSamples:
		return Verdict{Kind: Few, Text: few(name+"s", main.Count, f)}
	}
	// Peers on one host suffer alike from what else is wrong with it.
	if v, ok := f.judgeReplicas(); ok {
		return f.besides(v)
	}
	if v, ok := f.judgeCPU(); ok {
		return v
	}
	return f.besides(f.largest())
}

// locked says whether locks are the trouble. A slow commit makes others wait for its locks, too: the time
// for which statements other than commits wait must exceed what commits take.
func (f *Finding) locked() bool {
	s, c := f.Statements, f.Commits
	waiting := seconds(s.Phases, "wait")
	if !(s.Count >= leastSamples && waiting >= largeShare*s.Mean && f.Blocked >= leastBlocked) {
		return false
	}
	if c.Count >= 1 {
		perCommit := (waiting*s.Count - first(seconds(c.Phases, "wait"), 0)*c.Count) / c.Count
		return perCommit > 2*c.Mean
	}
	return waiting > 2*first(seconds(s.Phases, "sync"), 0)
}

func few(what string, n float64, f *Finding) string {
	if !(n >= 0.5) {
		return fmt.Sprintf("no %s ended in the last %s", what[:len(what)-1], span(f.Window))
	}
	return fmt.Sprintf("only %.0f %s ended in the last %s: too few to judge", n, what, span(f.Window))
}

// shortOfCPU says whether a statement spends much of its time waiting for a CPU.
func shortOfCPU(s Statement) bool {
	wait := seconds(s.Phases, "runqueue")
	return s.Count >= leastSamples && wait >= leastCPUWait && wait >= largeShare*s.Mean
}

func (f *Finding) judgeCPU() (Verdict, bool) {
	name, s, who := f.what(), f.main(), "a "+f.what()
	if !shortOfCPU(s) {
		// On an engine's class the engine waits for a CPU, too, which shows as the engine's time: if the
		// class is no slower than the control, what is wrong with the control is wrong with it.
		if f.Control == nil || !shortOfCPU(f.Control.Statement) || !(f.Control.Ratio < noSlower) {
			return Verdict{}, false
		}
		s, who = f.Control.Statement, fmt.Sprintf("on %s, the control, a %s", f.Control.Class, name)
	}
	pressure := ""
	if Known(f.CPUWaiting) {
		pressure = fmt.Sprintf("; something waited for one %.0f %% of the time", 100*min(f.CPUWaiting, 1))
	}
	return Verdict{Kind: CPU, Layer: "runqueue", Text: fmt.Sprintf("host %s is short of CPU: %s waits %s of its %s ms for one%s; storage is not to blame",
		f.Target.Node, who, ms(seconds(s.Phases, "runqueue")), ms(s.Mean), pressure)}, true
}

// besides adds that the host is short of CPU, where that is not the main thing.
func (f *Finding) besides(v Verdict) Verdict {
	if f.hostShort() {
		v.Text += fmt.Sprintf("; besides, host %s is short of CPU", f.Target.Node)
	}
	return v
}

// hostShort says whether statements here or on the control wait much for a CPU.
func (f *Finding) hostShort() bool {
	return shortOfCPU(f.main()) || shortOfCPU(f.Statements) || f.Control != nil && shortOfCPU(f.Control.Statement)
}

// judgeReplicas finds a replica that takes much longer than its peers, which get the same writes.
func (f *Finding) judgeReplicas() (Verdict, bool) {
	slowest := slowestOf(f.Replicas)
	var others []float64
	for _, r := range f.Replicas {
		if r.Name != slowest.Name && Known(r.Time()) {
			others = append(others, r.Time())
		}
	}
	if len(others) == 0 || slowest.Count < leastSamples { // an engine's own means have no count
		return Verdict{}, false
	}
	slices.Sort(others)
	peers := others[len(others)/2]
	limit := outlier
	if f.hostShort() {
		limit = outlierBusy
	}
	if slowest.Time() < limit*peers || slowest.Time() < peers+outlierBy {
		return Verdict{}, false
	}
	layer, where := slowest.where()
	return Verdict{SlowReplica, layer, slowest.Name, slowest.Device, fmt.Sprintf("replica %s stands out: a write takes %s ms there and %s on the others; %s",
		slowest.Name, ms(slowest.Time()), ms(peers), where)}, true
}

// keepsWaiting says that most of a round trip is requests that the replica's process does not get to.
func (r Replica) keepsWaiting() bool {
	return r.RoundTrip-r.Service > r.Service && (r.Stopped >= seenWaiting || r.Unread >= seenWaiting)
}

// where tells where most of a replica's time is.
func (r Replica) where() (layer, text string) {
	network := r.RoundTrip - r.Service
	disk := Layer{"disk", min(first(r.Disk, 0), r.Service)}
	switch {
	case !Known(r.Service):
		return "replica", "what of it is the network and what the replica is not measured"
	case r.keepsWaiting() && r.Stopped >= seenWaiting:
		return "replica", fmt.Sprintf("its process was found stopped at %.0f %% of the looks, with requests waiting for it: it is the process, not its disk or the network", 100*r.Stopped)
	case r.keepsWaiting():
		return "replica", fmt.Sprintf("requests lay there unread at %.0f %% of the looks: its process does not get to them, it is not its disk or the network", 100*r.Unread)
	case network > r.Service:
		return "network", fmt.Sprintf("%s ms of it pass between the engine and the replica, %s within it: the network, or a process that does not get to read", ms(network), ms(r.Service))
	case !Known(r.Disk):
		return "replica", fmt.Sprintf("%s ms of it are the replica's own; the disk below it is not measured", ms(r.Service))
	case disk.Seconds >= 0.5*r.Service:
		return "disk", fmt.Sprintf("%s ms of it are %s's, the disk below it on %s", ms(disk.Seconds), r.Device, r.Node)
	}
	return "replica", fmt.Sprintf("%s ms of it pass within the replica, before its disk %s, which does a write in %s ms: its process waits, as under a limit of writes, or computes",
		ms(r.Service-disk.Seconds), r.Device, ms(r.Disk))
}

// largest names the largest part where nothing stands out.
func (f *Finding) largest() Verdict {
	layers := f.main().Layers
	if f.Target.Server == "" {
		layers = f.Write.Layers
	}
	if len(layers) == 0 {
		return Verdict{Kind: Calm}
	}
	most := mostOf(layers)
	v := Verdict{Kind: Calm, Layer: most.Name}
	slowest := slowestOf(f.Replicas)
	if Known(slowest.Time()) {
		v.Replica, v.Device = slowest.Name, slowest.Device
	}
	v.Text = "most of it is " + f.layerWord(most.Name)
	if sync := seconds(f.main().Phases, "sync"); most.Name == "wait" && f.what() == "commit" && sync >= 0.15*f.main().Mean {
		// One session syncs the log for all: what is slow in the sync holds all up.
		v.Layer = mostOf(storageLayers(layers)).Name
		v.Text = "commits wait for their own sync and for each other's, most of which is " + f.layerWord(v.Layer)
	}
	n := 0
	for _, r := range f.Replicas {
		if Known(r.Time()) {
			n++
		}
	}
	switch {
	case n > 1:
		v.Text += "; no replica stands out"
	case n == 1 && (v.Layer == "replica" || v.Layer == "disk" || v.Layer == "network"):
		layer, where := slowest.where()
		v.Layer, v.Text = layer, fmt.Sprintf("most of a write is replica %s: %s", slowest.Name, where)
	}
	return v
}

func mostOf(layers []Layer) (most Layer) {
	for i, l := range layers {
		if i == 0 || l.Seconds > most.Seconds {
			most = l
		}
	}
	return most
}

// storageLayers are those that a sync is made of.
func storageLayers(layers []Layer) (all []Layer) {
	for _, l := range layers {
		if slices.Contains(Order[slices.Index(Order, "sync"):], l.Name) {
			all = append(all, l)
		}
	}
	return all
}

// text says what stands still.
func (s *Stall) text(t Target) string {
	what := map[string]string{
		"replica-disk": fmt.Sprintf("the disk %s below replica %s on %s has completed nothing", s.Device, s.Replica, s.Node),
		"replica":      fmt.Sprintf("replica %s on %s has answered nothing", s.Replica, s.Node),
		"network":      fmt.Sprintf("nothing has come back from replica %s, which has no request that old: the network to it has been silent", s.Replica),
		"engine":       "the storage engine of volume " + t.Volume + " has answered nothing, and no replica keeps it waiting,",
		"host-disk":    fmt.Sprintf("the host's disk %s below its device has completed nothing", s.Device),
		"device":       fmt.Sprintf("its block device %s on %s has completed nothing, and nothing below it is known to stand still,", s.Device, s.Node),
		"host":         "the server has been waiting in the file system, and no device is known to stand still,",
		"server":       "a process of the server has been in one read, write or sync",
	}[s.Layer]
	if what == "" {
		what = "layer " + s.Layer + " has stood still"
	}
	return fmt.Sprintf("it stands still: %s for %.0f s", what, s.Seconds)
}
