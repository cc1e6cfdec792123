package report

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/plumbline/plumbline/loadgen/result"
	"github.com/plumbline/plumbline/loadgen/soak"
)

// notBack is from which difference on, as a share, a class's last level is not its first one again.
const notBack = 0.1

// mostUnfit is the share of transactions that may fail or be skipped without a fault or a phase, as in a baseline's
// run.
const mostUnfit = 0.001

// Verdict is what a soak's canaries have shown: a sentence for each storage class, and whether all of that was
// planned. What happens while a fault or a phase is in effect, or shortly after it, is.
type Verdict struct {
	Planned   bool
	Sentences []string
}

// Heading is the verdict in a sentence.
func (v Verdict) Heading() string {
	switch {
	case len(v.Sentences) == 0:
		return "No canary has measured anything."
	case v.Planned:
		return "Nothing happened that was not planned."
	}
	return "Something happened that was not planned."
}

// Verdict judges the canaries; the phases' loads are part of the plan.
func (r *Report) Verdict() Verdict {
	v := Verdict{Planned: true}
	for _, c := range r.Classes {
		if c.Load != canary {
			continue
		}
		planned, words := r.judge(c)
		v.Planned = v.Planned && planned
		v.Sentences = append(v.Sentences, c.StorageClass+": "+strings.Join(words, "; ")+".")
	}
	if len(v.Sentences) == 0 {
		return Verdict{}
	}
	for _, what := range r.failed {
		v.add(what)
	}
	for _, m := range r.Marks {
		switch {
		case m.Kind == soak.SoakEvent:
			v.add(fmt.Sprintf("the soak did not run from %s to %s", clock(m.From), clock(m.To)))
		case m.Kind == soak.MachineEvent && m.Name == soak.Suspended:
			v.add(fmt.Sprintf("the soak's machine was suspended between %s and %s, %s: nothing was due then, and it is no outage of a database", clock(m.From), clock(m.To), m.Detail))
		case m.Kind == soak.MachineEvent:
			v.Sentences = append(v.Sentences, fmt.Sprintf("the clock of the soak's machine was set between %s and %s, %s: what is reported of that time may be of another.", clock(m.From), clock(m.To), m.Detail))
		}
	}
	return v
}

// add adds something that was not planned.
func (v *Verdict) add(sentence string) {
	v.Planned = false
	v.Sentences = append(v.Sentences, sentence+".")
}

// judge returns what was of a class, and whether all of it was planned.
func (r *Report) judge(c Class) (planned bool, words []string) {
	if c.Offered == 0 {
		return false, []string{"it was never reached, or its tables were never made: no transaction was sent"}
	}
	if c.Completed == 0 {
		return false, []string{fmt.Sprintf("none of %d transactions was completed", c.Offered)}
	}
	planned = true
	unplanned := func(format string, a ...any) {
		planned = false
		words = append(words, fmt.Sprintf(format, a...))
	}
	explained, shared := 0, 0
	for _, change := range c.Changes {
		switch {
		case change.When != "":
			explained++
			continue
		case r.shared(c, change):
			shared++
			planned = false
			continue
		}
		unplanned("the median response went %s at %s, without a fault or a phase", change.Levels(), clock(change.Time))
	}
	switch n := len(c.Changes); {
	case n == 0:
		words = append(words, fmt.Sprintf("the median response stayed at %s", result.Milliseconds(c.Response.Quantile(0.5))))
	case explained > 0:
		words = append(words, fmt.Sprintf("the median response changed %s with a fault or a phase", countOf(explained, "time")))
	}
	if shared > 0 {
		words = append(words, fmt.Sprintf("the median response changed %s as the control's did at about that time: the machine, or what all classes share", countOf(shared, "time")))
	}
	if n := len(c.Changes); n > 0 {
		first, last := c.Changes[0].Before, c.Changes[n-1].After
		if math.Abs(last/first-1) > notBack {
			unplanned("at the end it is %.1f times what it was at the beginning", last/first)
		} else if n > 1 {
			words = append(words, "at the end it is what it was at the beginning")
		}
	}
	switch apart := r.unplannedOutages(c); {
	case apart > 0:
		unplanned("%s of %d s or more without a fault", countOf(apart, "outage"), markedOutage)
	case c.Outages.Count > 0:
		words = append(words, fmt.Sprintf("without a commit for %.1f s in all", c.Outages.Total))
	}
	if bad := c.Failed + c.Skipped; bad > 0 {
		all := fmt.Sprintf("%d of %d transactions failed or were skipped (%.2g %%)", bad, c.Offered, 100*float64(bad)/float64(c.Offered))
		switch most := mostUnfit * float64(c.calm); {
		case float64(c.unfit) > most:
			unplanned("%s, %d of them without a fault or a phase, where %.0f may (%g %%)", all, c.unfit, math.Floor(most), 100*mostUnfit)
		case c.unfit > 0:
			words = append(words, all)
		default:
			words = append(words, all+", all with a fault or a phase")
		}
	}
	if c.Saturated {
		unplanned("the generator was saturated, so that its own delay is in this")
	}
	return planned, words
}

// sharedWithin is how far apart changes of two classes may be that have one cause: they are found by medians of
// intervals.
const sharedWithin = 4 * time.Minute

// shared reports whether the control changed likewise at about the same time.
func (r *Report) shared(c Class, change Change) bool {
	for _, control := range r.Classes {
		if control.Load != canary || control.StorageClass != r.local || control.StorageClass == c.StorageClass {
			continue
		}
		for _, other := range control.Changes {
			if (other.After > other.Before) == (change.After > change.Before) && other.Time.Sub(change.Time).Abs() <= sharedWithin {
				return true
			}
		}
	}
	return false
}

// unplannedOutages counts a class's marked outages that no fault explains, nor the soak's own interruption.
func (r *Report) unplannedOutages(c Class) (n int) {
	for _, outage := range r.Marks {
		if outage.Kind == outageMark && outage.Name == outageName(c.Load, c.StorageClass) && r.cause(outage) == "" {
			n++
		}
	}
	return n
}

// countOf is a number of things.
func countOf(n int, what string) string {
	if n == 1 {
		return "one " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
