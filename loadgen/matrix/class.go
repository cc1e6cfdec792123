package matrix

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/plumbline/plumbline/loadgen/internal/words"
	"github.com/plumbline/plumbline/loadgen/stats"
)

// Class is a storage class over all steps, beside the one that it is compared with.
type Class struct {
	StorageClass string `json:"storageclass"`
	// Reference is the class it is compared with: the local one, or else the first. A class that is
	// Reference itself is not compared.
	Reference string `json:"reference"`
	Steps     int    `json:"steps"`  // that both have measured
	Rounds    int    `json:"rounds"` // in which both have measured all of these
	// LeftOut are the steps that one of the two has measured and the other one has not, which are in no figure of it.
	LeftOut []string `json:"left_out,omitempty"`
	// Ratio is the time of an operation as a multiple of the reference's, the geometric mean over steps
	// and rounds; 0 if there is none.
	Ratio float64 `json:"ratio,omitempty"`
	// Difference is the ratio with its 95 % interval, by rounds; nil if there are too few.
	Difference *stats.Difference `json:"difference,omitempty"`
	// Limits are what its runs' limits were, and how many runs had each.
	Limits map[string]int `json:"limits,omitempty"`
	// Verdict is one of Verdicts, Words a sentence with figures.
	Verdict string `json:"verdict"`
	Words   string `json:"words"`
}

// Verdicts are those of classes.
var Verdicts = []string{"reference", "surely slower", "surely faster", "inconclusive", "too few rounds", "not measured"}

// reference is the class that others are compared with.
func (r *Report) reference() string {
	for _, t := range r.Targets {
		if t.Local {
			return t.StorageClass
		}
	}
	if len(r.Targets) > 0 {
		return r.Targets[0].StorageClass
	}
	return ""
}

// sumUpClasses makes the classes' summaries, in the order of the targets.
func (r *Report) sumUpClasses() {
	r.Classes = nil
	reference := r.reference()
	for _, t := range r.Targets {
		c := Class{StorageClass: t.StorageClass, Reference: reference}
		for _, row := range r.Rows {
			if row.StorageClass == t.StorageClass && row.Limit != nil {
				if c.Limits == nil {
					c.Limits = map[string]int{}
				}
				c.Limits[row.Limit.What]++
			}
		}
		if t.StorageClass != reference {
			r.compareClass(&c)
		}
		c.judge()
		r.Classes = append(r.Classes, c)
	}
}

// compareClass compares a class with the reference, round by round: a round's value is the geometric mean
// of its steps, so that one step with much noise is not the whole, and rounds do not depend on each other.
func (r *Report) compareClass(c *Class) {
	var ours, theirs [][]float64
	for _, step := range r.Steps() {
		a, b := Times(r.Rates(step, c.Reference)), Times(r.Rates(step, c.StorageClass))
		switch first, second := slices.Max(a) > 0, slices.Max(b) > 0; {
		case first && second:
			theirs, ours = append(theirs, a), append(ours, b)
		case first:
			c.LeftOut = append(c.LeftOut, step+", not measured on "+c.StorageClass)
		case second:
			c.LeftOut = append(c.LeftOut, step+", not measured on "+c.Reference)
		}
	}
	c.Steps = len(ours)
	if c.Steps == 0 {
		return
	}
	var a, b []float64
	for round := range ours[0] {
		if x, y := roundMean(theirs, round), roundMean(ours, round); x > 0 && y > 0 {
			a, b = append(a, x), append(b, y)
		}
	}
	if c.Rounds = len(a); c.Rounds == 0 {
		return
	}
	first, _ := stats.Level(a)
	second, _ := stats.Level(b)
	c.Ratio = second / first
	if d, ok := stats.Paired(a, b, 0.05); ok {
		c.Difference = &d
	}
}

// roundMean is the geometric mean of the steps' times in a round, 0 if one of them failed.
func roundMean(steps [][]float64, round int) float64 {
	sum := 0.0
	for _, times := range steps {
		if times[round] <= 0 {
			return 0
		}
		sum += math.Log(times[round])
	}
	return math.Exp(sum / float64(len(steps)))
}

// judge sets a class's verdict and its sentence.
func (c *Class) judge() {
	d := c.Difference
	rounds := plural(c.Rounds, "round")
	on := func(last float64) string { return fmt.Sprintf("%s on %s", words.Beside(last), c.Reference) }
	switch {
	case c.StorageClass == c.Reference:
		c.Verdict, c.Words = "reference", "what the others are compared with"
	case c.Rounds == 0:
		c.Verdict, c.Words = "not measured", "it and "+c.Reference+" have no round in which both have measured all their common steps"
	case d == nil:
		c.Verdict = "too few rounds"
		c.Words = fmt.Sprintf("an operation's time was %s %s, in %s; how sure that is cannot be computed from fewer than %d",
			words.Change(c.Ratio), on(c.Ratio), rounds, stats.LeastRepeats)
	case d.Low > 1:
		c.Verdict = "surely slower"
	case d.High < 1:
		c.Verdict = "surely faster"
	default:
		c.Verdict = "inconclusive"
		c.Words = fmt.Sprintf("an operation's time is between %s and %s %s, over %s; a slowdown under %s could not have been seen",
			words.Change(d.Low), words.Change(d.High), on(d.High), rounds, words.Percent(d.Least))
	}
	if c.Words == "" {
		c.Words = fmt.Sprintf("an operation's time is %s %s: with 95 %% confidence between %s and %s, over %s",
			words.Change(d.Ratio), on(d.Ratio), words.Change(d.Low), words.Change(d.High), rounds)
	}
	if len(c.LeftOut) > 0 {
		c.Words += "; without " + strings.Join(c.LeftOut, "; ")
	}
}

// Why is a class's limits in words, the commonest first.
func (c Class) Why() string {
	total, names := 0, []string{}
	for name, n := range c.Limits {
		total += n
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int {
		if d := c.Limits[b] - c.Limits[a]; d != 0 {
			return d
		}
		return strings.Compare(a, b)
	})
	var parts []string
	for _, name := range names {
		parts = append(parts, fmt.Sprintf("%s in %d of %s", name, c.Limits[name], plural(total, "run")))
	}
	if len(parts) == 0 {
		return limitUnknown
	}
	return strings.Join(parts, ", ")
}
