package compare

import (
	"fmt"
	"time"

	"github.com/plumbline/plumbline/loadgen/baseline"
	"github.com/plumbline/plumbline/loadgen/matrix"
	"github.com/plumbline/plumbline/loadgen/soak"
)

// Cut is what a kill, or whoever interrupted it, left out of a side's run: what is compared of it is not what was
// planned.
type Cut struct {
	Side  FailedSide `json:"side"` // first or second
	Name  string     `json:"name"` // the matrix, the soak or one of its phases
	Words string     `json:"words"`
}

// String names what was cut, and how.
func (c Cut) String() string { return c.Name + ": " + c.Words }

// cutMatrix returns a cut if a matrix was interrupted.
func cutMatrix(side FailedSide, r *matrix.Report) []Cut {
	done, planned, ok := r.Interrupted()
	if !ok {
		return nil
	}
	return []Cut{{side, "matrix " + r.Matrix, fmt.Sprintf("interrupted after %d of %d runs", done, planned)}}
}

// cutBaseline returns a cut if a baseline lacks classes.
func cutBaseline(side FailedSide, r *baseline.Record) []Cut {
	words, lacks := r.Lacks()
	if !lacks {
		return nil
	}
	return []Cut{{side, "baseline", words}}
}

// cutSoak finds the phases of a soak that a kill ended, the times in which it did not run, and whether it ended before
// its time.
func cutSoak(side FailedSide, d *soak.Data) (cuts []Cut) {
	add := func(name, format string, a ...any) { cuts = append(cuts, Cut{side, name, fmt.Sprintf(format, a...)}) }
	begun := map[string]time.Time{}
	began, running := false, false // by the events: a soak that was killed has no end
	for _, e := range d.Events {
		switch {
		case e.Kind == soak.SoakEvent && e.What == soak.Begin:
			if began {
				how := "interrupted"
				if running {
					how = "killed"
				}
				add("soak", "%s, and did not run from %s to %s", how, clock(lastBefore(d, e.Time)), clock(e.Time))
			}
			began, running = true, true
		case e.Kind == soak.SoakEvent && e.What == soak.End:
			running = false
		case e.Kind == soak.PhaseEvent && e.What == soak.Begin:
			begun[e.Name] = e.Time
		case e.Kind == soak.MachineEvent && e.Name == soak.Suspended && e.What == soak.Begin:
			add("soak", "its machine was suspended after %s, %s", clock(e.Time), e.Detail)
		case e.Kind == soak.PhaseEvent && e.What == soak.End && e.Detail == soak.Killed:
			add("phase "+e.Name, "begun at %s: %s", clock(begun[e.Name]), e.Detail)
		}
	}
	ran, planned := lastBefore(d, d.Began.Add(d.Plan.Duration)).Sub(d.Began), d.Plan.Duration
	if ran+2*d.Every < planned {
		add("soak", "its last sample is of %s after its beginning, and planned are %s", ran.Round(time.Second), planned)
	}
	return cuts
}

// lastBefore is the time of the last sample before another, or at it; if there is none, the soak's beginning. The
// samples are in their order.
func lastBefore(d *soak.Data, t time.Time) time.Time {
	last := d.Began
	for i := range d.Samples {
		if d.Samples[i].Time.After(t) {
			break
		}
		last = d.Samples[i].Time
	}
	return last
}

// clock prints a moment; runs of days are compared.
func clock(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") }
