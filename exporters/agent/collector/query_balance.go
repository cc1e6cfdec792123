package collector

import (
	"errors"
	"time"
)

const (
	// balanceInterval is how often the cost of following each server is compared with its budget.
	balanceInterval = time.Second
	// maxPower bounds the sample: one in 64. A smaller one would save next to nothing, and show little of rare
	// statements.
	maxPower = 6
	// overLooks is for how many looks in a row the cost must be above the budget before a sample is taken: a moment's cost
	// disturbs nobody.
	overLooks = 3
	// calmLooks is for how many looks in a row the cost must be within half the budget before the sample is made
	// larger, and patientLooks for how many within all of it: then it is tried.
	calmLooks    = 10
	patientLooks = 300
	// leastSaving is how much of the cost the smallest sample must save, over trialLooks looks. One that saves less is
	// given up, for restTime: the time of all statements is worth more.
	leastSaving = 0.1
	trialLooks  = 10
	restTime    = 10 * time.Minute
)

// spent is what following a server cost, and what its processes used meanwhile.
type spent struct{ own, cpu float64 }

// add adds a look's, and keeps so much of what is past that about five looks count.
func (s *spent) add(own, cpu time.Duration) {
	const kept = 0.8
	s.own = s.own*kept + float64(own)
	s.cpu = s.cpu*kept + float64(cpu)
}

func (s spent) share() float64 {
	if s.cpu == 0 {
		return 0
	}
	return s.own / s.cpu
}

// balance decides of how many of a server's statements the time is split: of one in 2 to the power of power. Its zero
// value splits all.
type balance struct {
	power           uint32
	own, cpu        time.Duration
	looked          time.Time
	over, calm, fit int
	// all is what was spent lately while all were split, smallest what with the smallest sample, over so many looks;
	// until rests there is no other try.
	all, smallest spent
	tried         int
	rests         time.Time
}

// look compares what following the server cost since the last look with what it may: a part of a CPU for each CPU that
// the server used, and of one at least, for a small server's cost disturbs nobody. A sample that does not save saving
// of the cost is given up. It reports whether the power is another one now.
func (b *balance) look(own, cpu time.Duration, budget, saving float64, now time.Time) bool {
	passed, cost, used := now.Sub(b.looked), own-b.own, cpu-b.cpu
	first := b.looked.IsZero()
	b.own, b.cpu, b.looked = own, cpu, now
	if first || passed <= 0 || cost < 0 || used < 0 {
		return false
	}
	before := b.power
	if b.power == 0 {
		b.all.add(cost, used)
	}
	if allowed := time.Duration(budget * float64(max(passed, used))); cost > allowed {
		b.exceeded(cost, used, saving, now)
	} else {
		b.kept(cost <= allowed/2)
	}
	if b.power != before {
		b.over, b.calm, b.fit, b.tried, b.smallest = 0, 0, 0, 0, spent{}
	}
	return b.power != before
}

// exceeded makes the sample smaller, or gives it up.
func (b *balance) exceeded(cost, used time.Duration, saving float64, now time.Time) {
	b.over++
	b.calm, b.fit = 0, 0
	switch {
	case b.power == 0:
		if b.over >= overLooks && !now.Before(b.rests) {
			b.power = 1
		}
	case b.power < maxPower:
		b.power++
	default:
		b.smallest.add(cost, used)
		if b.tried++; b.tried >= trialLooks && b.smallest.share() > (1-saving)*b.all.share() {
			b.power, b.rests = 0, now.Add(restTime)
		}
	}
}

// kept makes the sample larger if the cost is within the budget for long, or well within it.
func (b *balance) kept(well bool) {
	b.over = 0
	if b.power == 0 {
		return
	}
	b.fit++
	b.calm++
	if !well {
		b.calm = 0
	}
	if b.calm >= calmLooks || b.fit >= patientLooks {
		b.power--
	}
}

// ratio is the share of the statements whose time is split.
func (b *balance) ratio() float64 { return 1 / float64(uint32(1)<<b.power) }

// balance has the kernel split the time of more or fewer statements of each server.
func (f *fleet) balance(budget float64, now time.Time) error {
	var problems []error
	for _, fo := range f.followers {
		// Those that share a number are not distinguished, and a thread that serves many connections has no statement's
		// clock.
		if fo.number == otherNumber || fo.Engine.ServesMany() {
			continue
		}
		own, cpu, err := f.kernel.budget(fo.number)
		before := fo.balance
		if err == nil && fo.balance.look(own, cpu, budget, f.saving, now) {
			f.log.Debug("what following a database server costs", "server", fo.label, "split", fo.balance.ratio())
			if err = f.kernel.sample(fo.number, fo.balance.power); err != nil {
				fo.balance = before // which the kernel still does
			}
		}
		if err != nil {
			problems = append(problems, err)
		}
	}
	return errors.Join(problems...)
}

// balance is done at an interval.
func (q *query) balance() {
	if q.options.Tracing.on() {
		return // what is traced is split
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if err := q.fleet.balance(q.options.Query.OverheadBudget, time.Now()); err != nil {
		q.log.Warn("what following costs is not known", "err", err)
	}
}
