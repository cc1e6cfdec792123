package compare

import (
	"fmt"
	"slices"
	"strings"

	"github.com/plumbline/plumbline/loadgen/matrix"
	"github.com/plumbline/plumbline/loadgen/soak"
)

// FailedSide is where something failed.
type FailedSide string

const (
	First  FailedSide = "first"
	Second FailedSide = "second"
	Both   FailedSide = "both" // which is no difference
)

// Failure is a step on a class, or a class of a soak, that failed on a side.
type Failure struct {
	Name  string     `json:"name"`
	Side  FailedSide `json:"side"`
	Words string     `json:"words"`
}

// String names what failed, and where.
func (f Failure) String() string { return f.Name + ": " + f.Words }

// list is failures in a sentence.
func list(failures []Failure) string {
	var all []string
	for _, f := range failures {
		all = append(all, f.String())
	}
	return strings.Join(all, "; ")
}

// Mismatch is an error that names what failed on one side alone, or nil.
func (c *Comparison) Mismatch() error {
	if failures := c.OneSided(); len(failures) > 0 {
		return fmt.Errorf("failed on one side only: %s; find out why, and measure that side again", list(failures))
	}
	return nil
}

// OneSided are the failures that one side alone has. No line reports that difference.
func (c *Comparison) OneSided() (failures []Failure) {
	for _, f := range c.Failures {
		if f.Side != Both {
			failures = append(failures, f)
		}
	}
	return failures
}

// runs are those of a step on a class.
type runs struct{ failed, all int }

func (r runs) String() string { return fmt.Sprintf("%d of %d", r.failed, r.all) }

// whole is whether all of them failed.
func (r runs) whole() bool { return r.failed == r.all }

// runsOf counts a step's runs on a class.
func runsOf(r *matrix.Report, c cell) (n runs) {
	for _, row := range r.Rows {
		if row.Step == c.step && row.StorageClass == c.class {
			n.all++
			if row.Error != "" {
				n.failed++
			}
		}
	}
	return n
}

// failedSteps finds the steps of two matrices that failed on a class that both have tried them on. A side of which all
// runs failed has failed more than one of which some did.
func failedSteps(a, b *matrix.Report) (failures []Failure) {
	seen := map[cell]bool{}
	for _, row := range a.Rows {
		c := cell{row.Step, row.StorageClass}
		x, y := runsOf(a, c), runsOf(b, c)
		if seen[c] || y.all == 0 || x.failed+y.failed == 0 {
			continue
		}
		seen[c] = true
		side := Both
		switch {
		case y.failed == 0, x.whole() && !y.whole():
			side = First
		case x.failed == 0, y.whole() && !x.whole():
			side = Second
		}
		failures = append(failures, Failure{c.String(), side, fmt.Sprintf("%s runs failed in the first, %s in the second", x, y)})
	}
	return failures
}

// failedClasses finds the classes in the plans of two soaks on which nothing was measured.
func failedClasses(a, b *soak.Data) (failures []Failure) {
	without := func(d *soak.Data) (names []string) {
		there := classes(d)
		for _, t := range d.Plan.Targets {
			if !slices.Contains(there, t.StorageClass) {
				names = append(names, t.StorageClass)
			}
		}
		return names
	}
	inA, inB := without(a), without(b)
	for _, t := range a.Plan.Targets {
		class := t.StorageClass
		x, y := slices.Contains(inA, class), slices.Contains(inB, class)
		planned := slices.ContainsFunc(b.Plan.Targets, func(u matrix.Target) bool { return u.StorageClass == class })
		f := Failure{Name: class, Words: "planned in both, and measured in none of them"}
		switch {
		case !planned, !x && !y:
			continue
		case x && y:
			f.Side = Both
		case x:
			f.Side, f.Words = First, "planned in both, and not measured in the first"
		default:
			f.Side, f.Words = Second, "planned in both, and not measured in the second"
		}
		failures = append(failures, f)
	}
	return failures
}
