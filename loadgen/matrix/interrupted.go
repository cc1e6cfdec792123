package matrix

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
)

// interruptedForm is what the source of an interrupted matrix ends with, and interruptedSource finds it.
const interruptedForm = " Interrupted after %d of %d runs."

var interruptedSource = regexp.MustCompile(` Interrupted after (\d{1,9}) of (\d{1,9}) runs\.$`)

// interrupt notes in a report that it has only so many of the planned runs.
func (r *Report) interrupt(planned int) {
	r.Source += fmt.Sprintf(interruptedForm, len(r.Rows), planned)
}

// sofar is the report of a matrix that is interrupted now. Layers are queried when all runs are over, and are not in
// it.
func (r *Report) sofar(planned int) *Report {
	part := *r
	part.Rows = slices.Clone(r.Rows)
	part.interrupt(planned)
	part.judge()
	part.sumUp()
	return &part
}

// Interrupted reports whether the matrix was interrupted, and after how many of how many runs.
func (r *Report) Interrupted() (done, planned int, ok bool) {
	m := interruptedSource.FindStringSubmatch(r.Source)
	if m == nil {
		return 0, 0, false
	}
	done, _ = strconv.Atoi(m[1])
	planned, _ = strconv.Atoi(m[2])
	return done, planned, true
}
