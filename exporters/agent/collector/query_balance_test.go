package collector

import (
	"testing"
	"time"

	"github.com/plumbline/plumbline/exporters/agent/server"
)

// course is a balance that is looked at each second.
type course struct {
	balance
	own, cpu time.Duration
	now      time.Time
}

// passes lets seconds pass in each of which following costs so much, and the server uses so many CPUs.
func (c *course) passes(seconds int, cost time.Duration, cpus float64) {
	c.pass(seconds, cpus, func() time.Duration { return cost })
}

func (c *course) pass(seconds int, cpus float64, cost func() time.Duration) {
	for range seconds {
		c.own += cost()
		c.cpu += time.Duration(cpus * float64(time.Second))
		c.now = c.now.Add(time.Second)
		c.look(c.own, c.cpu, 0.01, leastSaving, c.now)
	}
}

// sampled lets seconds pass in which all of a flood costs 40 ms a second; the smallest sample saves a part of it.
func (c *course) sampled(seconds int, saved float64) {
	c.pass(seconds, 1, func() time.Duration {
		return time.Duration(float64(40*time.Millisecond) * (1 - saved*(1-c.ratio())))
	})
}

func TestBalance(t *testing.T) {
	const within, above = 8 * time.Millisecond, 12 * time.Millisecond // of 10 in a second
	const down = overLooks + maxPower                                 // looks until the sample is the smallest
	for _, c := range []struct {
		name string
		do   func(*course)
		want uint32
	}{
		{"within the budget", func(c *course) { c.passes(100, within, 1) }, 0},
		{"a little of a small server's CPU", func(c *course) { c.passes(100, within, 0.01) }, 0},
		{"above it for a moment", func(c *course) {
			c.passes(overLooks-1, above, 1)
			c.passes(1, within, 1)
			c.passes(overLooks-1, above, 1)
		}, 0},
		{"above it", func(c *course) { c.passes(overLooks+2, above, 1) }, 3},
		{"above it for longer", func(c *course) { c.passes(down, above, 1) }, maxPower},
		{"as much by a server that uses two CPUs", func(c *course) { c.passes(100, above, 2) }, 0},
		{"a sample that saves", func(c *course) { c.sampled(1000, 0.3) }, maxPower},
		{"one that saves next to nothing", func(c *course) { c.sampled(down+trialLooks+1, 0.05) }, 0},
		{"that is not tried soon again", func(c *course) { c.sampled(500, 0.05) }, 0},
		{"but later", func(c *course) { c.sampled(int(restTime/time.Second)+2*down+trialLooks-1, 0.05) }, maxPower},
		{"back when the flood ends", func(c *course) { c.passes(down, above, 1); c.passes(maxPower*calmLooks, 0, 0) }, 0},
		{"not at once", func(c *course) { c.passes(down, above, 1); c.passes(calmLooks-1, 0, 0) }, maxPower},
		{"not back and forth where the sample saves a third", func(c *course) { c.passes(overLooks+1, above, 1); c.passes(patientLooks-1, within, 1) }, 2},
		{"but tried at length", func(c *course) { c.passes(overLooks+1, above, 1); c.passes(patientLooks, within, 1) }, 1},
		{"the first look has nothing to compare with", func(c *course) { c.balance = balance{}; c.passes(1, time.Hour, 0) }, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := &course{now: begin}
			r.look(0, 0, 0.01, leastSaving, r.now)
			c.do(r)
			if r.power != c.want {
				t.Errorf("power %d, want %d", r.power, c.want)
			}
		})
	}
}

// What following cost makes no server of a process that never answered a statement.
func TestCostIsNoCount(t *testing.T) {
	f, k := testFleet(2)
	f.update([]sighting{running(1, "")}, begin)
	for number := range uint32(3) {
		k.costs[number] = time.Millisecond
	}
	f.update(nil, begin.Add(time.Minute))
	for range goneAfter + 1 {
		f.counted(&census{}, begin.Add(2*time.Minute))
	}
	if len(f.accounts) != 0 || f.hasOther {
		t.Errorf("accounts %v, and others %v, of a server that never had a statement", f.accounts, f.hasOther)
	}
}

// A clock that is set back, or counts that begin anew, are no cost.
func TestBalanceOddities(t *testing.T) {
	var b balance
	for range overLooks {
		b.look(time.Second, time.Second, 0.01, leastSaving, begin)
		b.look(2*time.Second, time.Second, 0.01, leastSaving, begin.Add(-time.Second))
		b.look(0, 0, 0.01, leastSaving, begin.Add(time.Second))
	}
	if b.power != 0 {
		t.Errorf("power %d", b.power)
	}
}

// Each server has a balance of its own; one without a number of its own, and one whose threads serve many connections
// at once, has none.
func TestFleetBalance(t *testing.T) {
	f, k := testFleet(2)
	redis := running(2, "cache")
	redis.Engine = server.Redis
	f.update([]sighting{running(1, "busy"), redis, running(3, "one too many")}, begin)
	for second := range 10 {
		for number := range uint32(3) {
			k.costs[number] += 20 * time.Millisecond
		}
		if err := f.balance(0.01, begin.Add(time.Duration(second)*time.Second)); err != nil {
			t.Fatal(err)
		}
	}
	for _, fo := range f.followers {
		want := uint32(0)
		if fo.Engine == server.PostgreSQL && fo.number != otherNumber {
			want = maxPower
		}
		if k.powers[fo.number] != want || fo.balance.power != want {
			t.Errorf("%s: power %d, and the kernel's %d, want %d", fo.label, fo.balance.power, k.powers[fo.number], want)
		}
	}
}
