// Package outcome is what a guest of tests/kernels measured, and what of it is wrong.
package outcome

import (
	"fmt"
	"math"
	"regexp"
)

// Outcome is what one kernel gave.
type Outcome struct {
	// Release is the kernel's own name, Preempt how it is preempted (the model in parentheses is the one in use), where
	// the kernel reports it.
	Release string `json:"release"`
	Preempt string `json:"preempt"`
	// Query, Replica, NVMe, ISCSI and Blockio are whether these measure here.
	Query   Feature `json:"query"`
	Replica Feature `json:"replica"`
	NVMe    Feature `json:"nvme"`
	ISCSI   Feature `json:"iscsi"`
	Blockio Feature `json:"blockio"`
	// Statements are those of each kind that the server's log has, and that the agent counted.
	Statements []Count `json:"statements"`
	// Duration is the agent's sum of the statements' durations, Phases that of their phases, in seconds.
	Duration float64 `json:"duration_seconds"`
	Phases   float64 `json:"phases_seconds"`
	// Slept is how long statements were to sleep, Waited their phase wait, in seconds.
	Slept  float64 `json:"slept_seconds"`
	Waited float64 `json:"waited_seconds"`
	// Missed are the runs that the kernel left out, by program of the agent; with backup programs at most so many events,
	// of anybody. Lost is what the agent reports as lost.
	Missed  map[string]uint64 `json:"missed"`
	Backups bool              `json:"backups"`
	Lost    uint64            `json:"lost"`
	// NoVolume means that no Longhorn volume was requested.
	NoVolume bool `json:"no_volume,omitempty"`
	// Requests are those between a Longhorn engine and its replicas, made by us and counted by the agent.
	Requests []Count `json:"requests"`
	// NVMePaths and ISCSIPaths are what went between the kernel's initiators and its targets.
	NVMePaths  Remote `json:"nvme_paths"`
	ISCSIPaths Remote `json:"iscsi_paths"`
	// Disk are block requests: made by us, or in the kernel's own statistics, and counted by blockio.
	Disk []Count `json:"disk"`
	// Retries are block requests that a failing disk gave back, as blockio counted them, and how long all of their
	// attempts took.
	Retries Remote `json:"retries"`
	// NoRetries means that the kernel has no disk that can be made to fail: Debian's for arm64 are without scsi_debug.
	NoRetries bool `json:"no_retries,omitempty"`
	// Seconds is what all this took.
	Seconds float64 `json:"seconds"`
}

// Remote is what went to disks behind something else, such as a storage network: Commands, and the injected Delays of
// some.
type Remote struct {
	Commands []Count `json:"commands"`
	Delays   []Delay `json:"delays"`
}

// Feature is whether something measures, and if not, why.
type Feature struct {
	Works bool   `json:"works"`
	Why   string `json:"why,omitempty"`
}

// atBlockRequests matches the programs at block requests, whose ends in interrupts fall into the program's other runs.
var atBlockRequests = regexp.MustCompile(`\b(disk|trace|nvme|iscsi)_`)

// MissedRuns returns the runs that the kernel left out: of all programs, and of those at block requests.
func (o Outcome) MissedRuns() (all, interrupted uint64) {
	for program, n := range o.Missed {
		all += n
		if atBlockRequests.MatchString(program) {
			interrupted += n
		}
	}
	return all, interrupted
}

// Short reports whether statements that slept were seen to wait for less.
func (o Outcome) Short() bool { return o.Waited < asleep*o.Slept }

// Features returns all by name.
func (o Outcome) Features() map[string]Feature {
	return map[string]Feature{"query": o.Query, "replica": o.Replica, "nvme": o.NVMe, "iscsi": o.ISCSI, "blockio": o.Blockio}
}

// Count is a count with its truth.
type Count struct {
	What    string `json:"what"`
	Truth   uint64 `json:"truth"`
	Counted uint64 `json:"counted"`
}

// Delay is a time that something takes, in seconds. The truth is between the injected delay and another measurement,
// which includes work of its own. If the machine itself paused, it may also be as long as Waited, which is how long the
// requester waited for the same. Seen is all of the time there, Alone what it was without the delay, at another moment:
// on a machine that pauses now and then, their difference can be less than the delay, while Seen never is.
type Delay struct {
	What   string  `json:"what"`
	Put    float64 `json:"put_seconds"`
	Truth  float64 `json:"truth_seconds"`
	Waited float64 `json:"waited_seconds"`
	Seen   float64 `json:"seen_seconds"`
	Alone  float64 `json:"alone_seconds"`
}

// Sum adds counts up.
func Sum(counts []Count) (truth, counted uint64) {
	for _, c := range counts {
		truth += c.Truth
		counted += c.Counted
	}
	return truth, counted
}

// split is how far the sums of phases and durations may be apart, in seconds: both are whole nanoseconds, added up as
// floats.
const split = 1e-5

// asleep is the least part of a nap that is spent asleep: its clock starts while the server still runs.
const asleep = 0.99

// nearly is by how much of a delay what was seen may be off.
const nearly = 0.05

// added is the least part of a delay that must be seen to come in addition.
const added = 0.75

func (d Delay) recovered() bool {
	more := d.Added()
	return d.Seen >= (1-nearly)*d.Put && more >= added*d.Put && (more <= (1+nearly)*d.Truth || more <= d.Waited)
}

// Added is what was seen to come in addition.
func (d Delay) Added() float64 { return d.Seen - d.Alone }

// String returns what was measured of a delay, beside what it was.
func (d Delay) String() string {
	return fmt.Sprintf("%.3f ms seen of %.3f, beside %.3f without it, and %.3f waited for", 1e3*d.Added(), 1e3*d.Truth, 1e3*d.Alone, 1e3*d.Waited)
}

// tolerated is how many events may be reported as missed. Where tasks are preempted within programs, these have backup
// programs, and what is reported is a bound for the events of all tasks: a client's, or the agent's own. An emulator
// preempts within a program far more often than a machine does: with 1 in 100 of our own events the backup programs
// still do what they are for, as one program alone misses more. Everywhere, an interrupt may end a block request while
// another one's end is measured. In any case, no statement and no request may be missing.
func (o Outcome) tolerated() uint64 {
	statements, _ := Sum(o.Statements)
	requests, _ := Sum(o.Requests)
	nvme, _ := Sum(o.NVMePaths.Commands)
	iscsi, _ := Sum(o.ISCSIPaths.Commands)
	most := (statements + requests + nvme + iscsi) / 100
	if _, interrupted := o.MissedRuns(); !o.Backups {
		return min(most, interrupted)
	}
	return most
}

// Wrong lists what a kernel's outcome has that must not be, of the features that work there: any count that is not the
// truth, phases that are not the duration, runs missed. A feature that does not work is not wrong here.
func (o Outcome) Wrong() []string {
	var wrong []string
	report := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	check := func(what string, works bool, counts []Count) {
		if !works {
			return
		}
		if truth, _ := Sum(counts); truth == 0 {
			report("%s: nothing was made", what)
		}
		for _, c := range counts {
			if c.Counted != c.Truth {
				report("%s, %s: %d counted of %d", what, c.What, c.Counted, c.Truth)
			}
		}
	}
	check("statements", o.Query.Works, o.Statements)
	check("requests to replicas", o.Replica.Works && !o.NoVolume, o.Requests)
	for _, wire := range []struct {
		name  string
		works bool
		seen  Remote
	}{{"NVMe/TCP", o.NVMe.Works, o.NVMePaths}, {"iSCSI", o.ISCSI.Works, o.ISCSIPaths}, {"a failing disk's", o.Blockio.Works && !o.NoRetries, o.Retries}} {
		check(wire.name+" commands", wire.works, wire.seen.Commands)
		for _, d := range wire.seen.Delays {
			if wire.works && !d.recovered() {
				report("%s, %s of %.3f ms: %s", wire.name, d.What, 1e3*d.Put, d)
			}
		}
	}
	check("block requests", o.Blockio.Works, o.Disk)
	if o.Query.Works {
		if math.Abs(o.Phases-o.Duration) > split {
			report("phases are %.6f s, durations %.6f s", o.Phases, o.Duration)
		}
		if o.Slept == 0 || o.Short() {
			report("statements that slept %.3f s waited %.3f s", o.Slept, o.Waited)
		}
	}
	missed, _ := o.MissedRuns()
	if missed > o.tolerated() {
		report("%d runs of the agent's programs were missed: %v", missed, o.Missed)
	}
	// What a missed run leaves, such as an end whose beginning was missed, is reported as lost, too.
	if o.Lost > 0 && (!o.Backups || o.Lost > missed) {
		report("%d events lost", o.Lost)
	}
	return wrong
}
