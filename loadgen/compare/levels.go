package compare

import (
	"fmt"
	"time"

	"github.com/plumbline/plumbline/loadgen/baseline"
	"github.com/plumbline/plumbline/loadgen/matrix"
	"github.com/plumbline/plumbline/loadgen/stats"
)

// Levels is one result, each of its series as the one value that comparisons rest on: for what reads
// many results.
type Levels struct {
	Kind   string
	Time   time.Time
	Levels []Level
	// Damaged are why files of a soak's folder could not be read to their ends.
	Damaged []error
}

// Level is the geometric mean of a series.
type Level struct {
	Name, Metric string
	// Setting is what levels of several results must have in common to be of the same thing.
	Setting string
	Side
}

// ReadLevels reads a matrix's JSON, a baseline's record or a soak's folder.
func ReadLevels(path string) (*Levels, error) {
	what, err := kind(path)
	if err != nil {
		return nil, err
	}
	l := &Levels{Kind: what}
	switch what {
	case "matrix":
		r, err := matrix.Read(path)
		if err != nil {
			return nil, err
		}
		l.Time = r.Began
		setting := fmt.Sprintf("matrix %s, scale %g, at most %d clients", r.Matrix, r.Scale, r.MaxClients)
		for _, c := range cells(r) {
			l.add(c.String(), operation, setting, rounds(r, c))
		}
	case "soak":
		d, err := readSoak(path)
		if err != nil {
			return nil, err
		}
		l.Time, l.Damaged = d.Began, d.Damaged
		setting := fmt.Sprintf("soak, profile %s, %g/s, intervals of %v", d.Plan.Canary.Profile, d.Plan.Canary.Rate, d.Every)
		for _, class := range classes(d) {
			for _, m := range measures {
				values, _ := soakSeries(d, class, m.of)
				l.add(class, m.name, setting, values)
			}
		}
	case "baseline":
		r, err := baseline.ReadRecord(path)
		if err != nil {
			return nil, err
		}
		l.Time = r.Measured
		for _, class := range r.Classes {
			setting := fmt.Sprintf("baseline, profile %s, %g/s, intervals of %g s", class.Result.Profile, class.Result.TargetRate, r.Interval)
			for _, m := range pieceMeasures {
				l.add(ownName(class), m.name, setting, calm(class, m.of))
			}
		}
	}
	return l, nil
}

// add adds a series, unless all of it failed.
func (l *Levels) add(name, metric, setting string, s series) {
	if seconds, n := stats.Level(s.values); n > 0 {
		l.Levels = append(l.Levels, Level{name, metric, setting, Side{Values: n, Seconds: seconds}})
	}
}
