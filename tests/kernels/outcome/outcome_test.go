package outcome

import (
	"strings"
	"testing"
)

// fine is an outcome with nothing wrong.
func fine() Outcome {
	yes := Feature{Works: true}
	// The second delay is later than the disk's own statistics, and no later than the reader saw it. The third was seen
	// beside what the machine, which paused, took without it.
	paths := func() Remote {
		return Remote{Commands: []Count{{"reads", 150, 150}}, Delays: []Delay{{What: "a link's delay", Put: .025, Truth: .027, Waited: .026, Seen: .028},
			{What: "a disk's delay", Put: .03, Truth: .031, Waited: .039, Seen: .035},
			{What: "another link's delay", Put: .025, Truth: .027, Waited: .062, Seen: .032, Alone: .0083}}}
	}
	return Outcome{Query: yes, Replica: yes, NVMe: yes, NVMePaths: paths(), ISCSI: yes, ISCSIPaths: paths(), Blockio: yes, Duration: 2.5, Phases: 2.500000001, Slept: 1, Waited: 1.01,
		Statements: []Count{{"simple", 200, 200}, {"tls", 100, 100}}, Requests: []Count{{"writes", 400, 400}}, Disk: []Count{{"reads", 7, 7}, {"discards", 0, 0}},
		Retries: retries()}
}

// retries are of a disk that is seen to fail as often, and to take as long, as it does.
func retries() Remote {
	return Remote{Commands: []Count{{"retries", 19, 19}}, Delays: []Delay{{What: "time of all attempts", Put: .78, Truth: .79, Waited: .79, Seen: .785}}}
}

func TestWrong(t *testing.T) {
	if wrong := fine().Wrong(); len(wrong) > 0 {
		t.Errorf("nothing is wrong, but: %q", wrong)
	}
	bounded := fine()
	bounded.Missed, bounded.Backups = map[string]uint64{"query sched_switch": 7, "replica files": 3}, true
	if wrong := bounded.Wrong(); len(wrong) > 0 {
		t.Errorf("10 of 1,000 events at most were missed by backup programs, and of ours none: %q", wrong)
	}
	bounded.Lost = 10
	if wrong := bounded.Wrong(); len(wrong) > 0 {
		t.Errorf("10 at most were missed, and 10 ends had no beginning: %q", wrong)
	}
	nested := fine()
	nested.Missed = map[string]uint64{"disk disk_request_ends": 7, "nvme nvme_request_ends": 2}
	if wrong := nested.Wrong(); len(wrong) > 0 {
		t.Errorf("9 ends of block requests came in an interrupt within another's: %q", wrong)
	}
	for _, c := range []struct {
		want   string
		change func(*Outcome)
	}{
		{"statements, tls: 99 counted of 100", func(o *Outcome) { o.Statements[1].Counted-- }},
		{"statements, tls: 101 counted of 100", func(o *Outcome) { o.Statements[1].Counted++ }},
		{"statements: nothing was made", func(o *Outcome) { o.Statements = nil }},
		{"requests to replicas, writes: 0 counted of 400", func(o *Outcome) { o.Requests[0].Counted = 0 }},
		{"NVMe/TCP commands, reads: 149 counted of 150", func(o *Outcome) { o.NVMePaths.Commands[0].Counted-- }},
		{"iSCSI commands, reads: 151 counted of 150", func(o *Outcome) { o.ISCSIPaths.Commands[0].Counted++ }},
		{"iSCSI commands: nothing was made", func(o *Outcome) { o.ISCSIPaths.Commands = nil }},
		{"iSCSI, a link's delay of 25.000 ms: 23.000 ms seen of 27.000", func(o *Outcome) { o.ISCSIPaths.Delays[0].Seen = .023 }},
		{"iSCSI, a link's delay of 25.000 ms: 29.000 ms seen of 27.000", func(o *Outcome) { o.ISCSIPaths.Delays[0].Seen = .029 }},
		{"NVMe/TCP, a disk's delay of 30.000 ms: 40.000 ms seen of 31.000, beside 0.000 without it, and 39.000 waited for", func(o *Outcome) { o.NVMePaths.Delays[1].Seen = .04 }},
		{"iSCSI, another link's delay of 25.000 ms: 0.500 ms seen of 27.000, beside 31.500", func(o *Outcome) { o.ISCSIPaths.Delays[2].Alone = .0315 }},
		{"block requests, reads: 0 counted of 7", func(o *Outcome) { o.Disk[0].Counted = 0 }},
		{"a failing disk's commands, retries: 0 counted of 19", func(o *Outcome) { o.Retries.Commands[0].Counted = 0 }},
		{"a failing disk's, time of all attempts of 780.000 ms: 400.000 ms seen", func(o *Outcome) { o.Retries.Delays[0].Seen = .4 }},
		{"block requests: nothing was made", func(o *Outcome) { o.Disk = nil }},
		{"phases are 2.506700 s, durations 2.500000 s", func(o *Outcome) { o.Phases = 2.5067 }},
		{"phases are 2.400000 s, durations 2.500000 s", func(o *Outcome) { o.Phases = 2.4 }},
		{"statements that slept 1.000 s waited 0.989 s", func(o *Outcome) { o.Waited = 0.989 }},
		{"statements that slept 0.000 s", func(o *Outcome) { o.Slept = 0 }},
		{"40 runs of the agent's programs were missed: map[disk disk_request_ends:1 query task_waking:39]", func(o *Outcome) { o.Missed = map[string]uint64{"disk disk_request_ends": 1, "query task_waking": 39} }},
		{"1 runs of the agent's programs were missed", func(o *Outcome) { o.Missed = map[string]uint64{"query task_waking": 1} }},
		{"41 runs of the agent's programs were missed", func(o *Outcome) { o.Missed = map[string]uint64{"disk disk_request_ends": 41} }},
		{"39 runs of the agent's programs were missed", func(o *Outcome) { o.Missed, o.Backups = map[string]uint64{"query task_waking": 39}, true }},
		{"1 events lost", func(o *Outcome) { o.Lost = 1 }},
		{"1 events lost", func(o *Outcome) { o.Lost, o.Backups = 1, true }},
		{"6 events lost", func(o *Outcome) { o.Lost, o.Missed, o.Backups = 6, map[string]uint64{"query task_waking": 5}, true }},
	} {
		o := fine()
		c.change(&o)
		if wrong := strings.Join(o.Wrong(), "; "); !strings.Contains(wrong, c.want) {
			t.Errorf("want %q, got %q", c.want, wrong)
		}
	}
}

// What does not work has counted nothing, which is no second failure: that it does not work is reported elsewhere.
func TestNotWorking(t *testing.T) {
	o := Outcome{Blockio: Feature{Works: true}, Disk: []Count{{"reads", 7, 7}}, Retries: retries()}
	if wrong := o.Wrong(); len(wrong) > 0 {
		t.Errorf("without query and replica: %q", wrong)
	}
	o.Retries, o.NoRetries = Remote{}, true
	if wrong := o.Wrong(); len(wrong) > 0 {
		t.Errorf("without a disk that fails: %q", wrong)
	}
}
