package report

import (
	"time"

	"github.com/plumbline/plumbline/loadgen/soak"
)

// calmness counts what was due, and what of it failed or was skipped, without a fault or a phase. What falls into an
// outage that a fault or a phase explains has that cause, too, however long after it.
func (r *Report) calmness(d *soak.Data, classes map[[2]string]*Class) {
	last := map[[2]string]time.Time{} // the end of a class's last sample is the beginning of the next
	for _, s := range d.Samples {
		key := [2]string{s.Load, s.StorageClass}
		from, ok := last[key]
		if last[key] = s.Time; !ok {
			from = s.Time
		}
		if r.when(s.Time) == "" && r.outageIn(outageName(s.Load, s.StorageClass), from, s.Time) == "" {
			c := classes[key]
			c.unfit, c.calm = c.unfit+s.Failed+s.Skipped, c.calm+s.Offered
		}
	}
}

// outageIn names what explains an outage that a time is partly in; "" without one.
func (r *Report) outageIn(outage string, from, to time.Time) string {
	for _, m := range r.Marks {
		if m.Kind == outageMark && m.Name == outage && from.Before(m.To) && !to.Before(m.From) {
			if cause := r.cause(m); cause != "" {
				return "after an outage with " + cause
			}
		}
	}
	return ""
}

// cause names the fault or phase that an outage is of, or the soak's own interruption: it overlaps that, or begins
// shortly after it.
func (r *Report) cause(outage Mark) string {
	for _, m := range r.Marks {
		if m.Kind != outageMark && m.Kind != alertMark && !outage.To.Before(m.From) && !outage.From.After(m.To.Add(markSlack)) {
			return m.Kind + " " + m.Name
		}
	}
	return ""
}
