package report

import (
	"strings"
	"testing"
	"time"

	"github.com/plumbline/plumbline/loadgen/result"
	"github.com/plumbline/plumbline/loadgen/soak"
	"github.com/plumbline/plumbline/loadgen/stats"
)

// steady is a soak of 20 minutes of one class in which nothing happens, but the events, and what comes at minute 10:
// connections that the machine's suspend has broken.
func steady(events ...soak.Event) *soak.Data {
	d := run(1)
	d.Events, d.Samples = events, nil
	for i := range 120 {
		s := soak.Sample{Time: began.Add(time.Duration(i+1) * 10 * time.Second), StorageClass: "r3", Load: canary, Offered: 100, Completed: 100}
		for range 100 {
			s.Service.Observe(time.Millisecond)
		}
		s.Response = s.Service.Since(&stats.Distribution{})
		if i == 60 {
			s.Completed, s.Failed = 90, 10
			s.Outages = []result.Outage{{Began: began.Add(10 * time.Minute), Seconds: 4, Over: true, Errors: map[string]uint64{"connection": 10}}}
		}
		d.Samples = append(d.Samples, s)
	}
	d.Plan.Targets = d.Plan.Targets[1:]
	return d
}

// minuted is an event of a minute.
func minuted(minute float64, kind, name, what, detail string) soak.Event {
	return soak.Event{Time: began.Add(time.Duration(minute * float64(time.Minute))), Kind: kind, Name: name, What: what, Detail: detail}
}

// A suspend of the machine is reported, and is no outage of a database; what its end broke is explained. Without, it is
// not.
func TestSuspendIsNoOutage(t *testing.T) {
	const unexplained = "one outage of 1 s or more without a fault"
	if v := New("", steady()).Verdict(); v.Planned || !strings.Contains(strings.Join(v.Sentences, "\n"), unexplained) {
		t.Fatalf("without a suspend: %q", v.Sentences)
	}
	v := New("", steady(minuted(5, soak.MachineEvent, soak.Suspended, soak.Begin, "for 4m50s"), minuted(10, soak.MachineEvent, soak.Suspended, soak.End, ""))).Verdict()
	text := strings.Join(v.Sentences, "\n")
	if v.Planned || strings.Contains(text, "without a fault") ||
		!strings.Contains(text, "the soak's machine was suspended between 2026-11-21 00:05:00 and 2026-11-21 00:10:00, for 4m50s: nothing was due then, and it is no outage of a database.") {
		t.Errorf("%v, %q", v.Planned, v.Sentences)
	}
	// Killed between the two lines of it: all that comes later is not explained by it.
	v = New("", steady(minuted(1, soak.MachineEvent, soak.Suspended, soak.Begin, "for 50s"))).Verdict()
	if text := strings.Join(v.Sentences, "\n"); !strings.Contains(text, unexplained) {
		t.Errorf("after half a suspension: %q", v.Sentences)
	}
}

// A fault in which the clock was set back ends before it began, by the clock: its window is what lies between, and no
// window of nothing.
func TestClockSetBack(t *testing.T) {
	r := New("", steady(minuted(0, soak.SoakEvent, "soak", soak.Begin, ""), minuted(12, soak.FaultEvent, "slow disk", soak.Begin, ""),
		minuted(8, soak.MachineEvent, soak.ClockSet, soak.Begin, "back by 4m0s"), minuted(12, soak.MachineEvent, soak.ClockSet, soak.End, ""),
		minuted(9, soak.FaultEvent, "slow disk", soak.End, "")))
	v := r.Verdict()
	if text := strings.Join(v.Sentences, "\n"); !v.Planned || !strings.Contains(text, "the clock of the soak's machine was set between 2026-11-21 00:08:00 and 2026-11-21 00:12:00, back by 4m0s") {
		t.Errorf("%v, %q", v.Planned, v.Sentences)
	}
	for _, m := range r.Marks {
		if m.To.Before(m.From) {
			t.Errorf("a mark ends before it begins: %+v", m)
		}
	}
}
