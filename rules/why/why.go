// Package why describes where the time of a database's commits goes: it queries a Prometheus that
// has Plumbline's series and rules, and turns the answers into a finding, sentences and bars. The
// lab's demo, `plumbline-lab why` and `kubectl plumbline` use it.
//
// A figure that is not measured is NaN and is reported as missing; it is never shown as 0. A mean of
// too few operations is shown and not judged.
package why

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"
)

// Subject selects what a finding is about. Empty fields are any.
type Subject struct {
	// Class is a storage class, Server the agent's name of a database server, Volume the storage
	// engine's name of a volume.
	Class, Server, Volume string
	// Namespace and Claim name a PersistentVolumeClaim, Namespace and Pod a pod.
	Namespace, Claim, Pod string
	// Address, HOST:PORT, is where a database server answers, as it reports itself.
	Address string
	// AllStatements describes a server by all its statements, even if it commits.
	AllStatements bool
}

// Target is a database server and its volume; Server is empty if no server is known to use it.
type Target struct {
	Cluster, Node, Server, Engine string
	// Volume is where commits wait: the volume of the write-ahead log.
	Volume, Device, Namespace, Claim, Class, Backend string
	// data and class are the volume of the data, which is Volume or another, and its class, which is the server's.
	data, class string
}

// ofServer returns the storage class that the rules have the server in: its data's.
func (t Target) ofServer() string { return cmp.Or(t.class, t.Class) }

// Layer is a part of a time.
type Layer struct {
	// Name is a phase of a statement or a layer of a write, as in rules/decomposition.rules.yaml.
	Name string
	// Seconds is its part of the mean.
	Seconds float64
}

// Statement is the mean of a server's statements of a kind.
type Statement struct {
	// Count is how many ended in the window, Mean and P99 are in seconds.
	Count, Mean, P99 float64
	// Phases add up to the mean, if no statement is long under way: cpu, runqueue, read, write, sync, wait, client.
	Phases []Layer
	// Layers are the phases with sync split by what the volume's device spent its time on.
	Layers []Layer
}

// UnderWay reports whether most of the time was not that of the statements that ended: the phases count a statement
// while it is under way, its duration counts when it has ended. So it is in a stall's first seconds.
func (s Statement) UnderWay() bool { return s.Count > 0 && sum(s.Phases) > 2*s.Mean }

// spends words the time of a phase beside the statement's: milliseconds of milliseconds, or a share of all phases where
// they do not fit into the mean. A phase counts when it passes and a statement when it ends, so that in a short window
// the sums can differ.
func (s Statement) spends(phase string) string {
	of := seconds(s.Phases, phase)
	if s.fits() {
		return fmt.Sprintf("%s of its %s ms", ms(of), ms(s.Mean))
	}
	return fmt.Sprintf("%.0f %% of its time", 100*of/sum(s.Phases))
}

// fits reports whether no phase exceeds the mean that it is a part of.
func (s Statement) fits() bool {
	return !s.UnderWay() && !slices.ContainsFunc(s.Phases, func(p Layer) bool { return p.Seconds > s.Mean })
}

// Write is the mean of a volume's writes, in seconds, from the kernel's block layer down.
type Write struct {
	// Count is how many ended in the window; Path is over the network to the storage backend and back, Engine within
	// the engine.
	Count, Total, Queue, Device, Path, Engine float64
	// Layers add up to Total.
	Layers []Layer
	// FlushCount and Flush, Flush queue and device, are those of the device's cache flushes.
	FlushCount, Flush, FlushQueue, FlushDevice float64
}

// Replica is one replica's part in a volume's writes.
type Replica struct {
	// Name is the storage backend's; Node, Device and Address locate it.
	Name, Node, Device, Address string
	// Count is how many writes it answered in the window.
	Count float64
	// RoundTrip is a write's as the engine sees it, Service its time within the replica, Disk the
	// mean write of the disk below it, which others may use, too. All in seconds.
	RoundTrip, Service, Disk float64
	// LastShare is the share of the volume's writes that waited for it last.
	LastShare float64
	// Unread is how many bytes of requests had arrived there unread, and Stopped for how long its process had been
	// stopped, in seconds, at the least in a fifth of the samples, one a scrape.
	Unread, Stopped float64
	// backlogged is set if most of a round trip is requests that the replica's process does not get to.
	backlogged bool
}

// Time is the replica's time of a write: the round trip, or where that is not seen its own.
func (r Replica) Time() float64 { return first(r.RoundTrip, r.Service) }

// Query is one of a server's queries: statements that it gives the same identifier.
type Query struct {
	// ID is that identifier, as pg_stat_statements has it.
	ID string
	// Count is how many of its statements ended in the window, Mean what one took, and Wait how much of that was in the
	// phases that wait for the layer to blame, in seconds. Share is its part of all statements' time there.
	Count, Mean, Wait, Share float64
	// Before is the mean in the hour before the last one, NaN if that is unknown; Grown means that it was far less.
	Before float64
	Grown  bool
}

// Control is the same statement on the control class of the same node.
type Control struct {
	Class, Server string
	// Statement is its commits, or its statements where the target has no commits.
	Statement Statement
	// Ratio is that of our mean to its.
	Ratio float64
}

// Stall is what is stalled now.
type Stall struct {
	// Layer is one of rules/stall.rules.yaml, or server if no volume is known to be to blame.
	Layer, Replica, Node, Device string
	// Seconds is for how long.
	Seconds float64
	// ofServer is set if it is a process of the server that waits, and no volume is known to be stalled.
	ofServer bool
}

// Alert is one that fires.
type Alert struct{ Name, Severity, Replica, Device string }

// Finding is what is known of a target.
type Finding struct {
	// At is the time of the finding, Window how far back the means go.
	At     time.Time
	Window time.Duration
	// Subject is that of the call. It has Servers servers, of which Target is the slowest.
	Subject Subject
	Target  Target
	Servers int
	// Commits are the server's commits, Statements all of its statements, commits among them.
	Commits, Statements Statement
	Write               Write
	// Reads is how many reads of the volume's device ended in the window, Read their mean in seconds.
	Reads, Read float64
	Replicas    []Replica
	// Healthy and Desired count replicas; Rebuilding is set if one is being rebuilt.
	Healthy, Desired float64
	Rebuilding       bool
	// IsControl is set if the target is of the control class. Control is nil then, or if there is none.
	IsControl bool
	Control   *Control
	Stall     *Stall
	// Blocked is the mean number of statements that waited for another session's lock, BlockedFor
	// the age of the oldest now, in seconds.
	Blocked, BlockedFor float64
	// InStorage is the phase in which a process of the server is now in one call for longest, and for how long.
	InStorage Layer
	// CPUWaiting is the share of time in which something on the node waited for a CPU.
	CPUWaiting float64
	Alerts     []Alert
	// Queries are those that wait most for the verdict's layer, where the server's query identifiers are known.
	Queries []Query
	// Verdict is what explains the time.
	Verdict Verdict

	// grown are the layers that the rules know to have grown, of the class on the node; loadExplains and hostExplains
	// are set if they know that the load or the host explains that. cpuShort is set if statements here or on the
	// control wait for a CPU. neighbours are who keeps disks below the volume busy, slowNeighbours those that may hold
	// its writes up, and limits those disks that do no more than a limit.
	grown                                []string
	neighbours, slowNeighbours           []neighbour
	limits                               []diskLimit
	loadExplains, hostExplains, cpuShort bool
	// solid is set if the volume's device is known not to rotate.
	solid bool
	// failed is what it lacks because a query or a rule of the verdict failed.
	failed []string
}

// what names the statements that the finding describes: commits, if there are any.
func (f *Finding) what() string {
	if f.Commits.Count >= 1 {
		return "commit"
	}
	return "statement"
}

// main are those statements.
func (f *Finding) main() Statement {
	if f.what() == "commit" {
		return f.Commits
	}
	return f.Statements
}

// Main returns what the finding describes, commit or statement, its mean in seconds, and its layers.
func (f *Finding) Main() (what string, mean float64, layers []Layer) {
	return f.what(), f.main().Mean, f.main().Layers
}

// Known reports whether a figure was measured.
func Known(v float64) bool { return !math.IsNaN(v) }

// first returns the first figure that was measured.
func first(values ...float64) float64 {
	for _, v := range values {
		if Known(v) {
			return v
		}
	}
	return math.NaN()
}

// seconds returns a layer's part, NaN if there is none of that name.
func seconds(layers []Layer, name string) float64 {
	for _, l := range layers {
		if l.Name == name {
			return l.Seconds
		}
	}
	return math.NaN()
}
