package baseline

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/plumbline/plumbline/loadgen/internal/given"
	"github.com/plumbline/plumbline/loadgen/result"
	"github.com/plumbline/plumbline/loadgen/stats"
)

// Interval is the piece of a run that its record keeps the times of.
const Interval = 10 * time.Second

// Record is all that a run has measured, for a later one to be compared with: pins alone do not have their uncertainty.
type Record struct {
	Kind     string    `json:"kind"` // RecordKind
	Version  string    `json:"version"`
	Measured time.Time `json:"measured"` // its end
	Interval float64   `json:"interval_seconds"`
	// Planned is of how many classes, or servers, it should be, if it lacks some: the run was interrupted, or they
	// failed. 0: it lacks none.
	Planned int           `json:"planned_classes,omitempty"`
	Classes []RecordClass `json:"classes"`
}

// RecordKind distinguishes a record from other JSON.
const RecordKind = "baseline"

// RecordClass is one server, or one storage class, of a record.
type RecordClass struct {
	StorageClass string        `json:"storageclass"`
	Database     string        `json:"database,omitempty"`
	Cluster      string        `json:"cluster,omitempty"`
	Replicas     int           `json:"replicas"`
	Spoilt       string        `json:"spoilt,omitempty"`
	Result       result.Result `json:"result"`
	Intervals    []Piece       `json:"intervals"`
}

// Piece is the response times of one interval of a run, in seconds. P95 of fewer than 20 is the longest of the
// interval.
type Piece struct {
	End      time.Time `json:"end"`
	Count    uint64    `json:"count"`
	P50      float64   `json:"p50"`
	P95      float64   `json:"p95"`
	Expected bool      `json:"expected,omitempty"` // in a time that is known to be slow
}

// pieces cuts a run in intervals.
type pieces struct {
	began, next time.Time
	sofar       stats.Distribution
	kept        []Piece
}

// add takes the run's response times at now, and keeps a piece whenever an interval is over. One that was
// added late has what came later, too, and the next is shorter.
func (p *pieces) add(now time.Time, response func() stats.Distribution, expected func(time.Time) bool) {
	if p.began.IsZero() {
		p.began, p.next = now, now.Add(Interval)
	}
	if now.Before(p.next) {
		return
	}
	all := response()
	d := all.Since(&p.sofar)
	p.sofar = all
	for !now.Before(p.next) {
		p.next = p.next.Add(Interval)
	}
	if d.Count() > 0 {
		p.kept = append(p.kept, Piece{now.UTC(), d.Count(), d.Quantile(0.5).Seconds(), d.Quantile(0.95).Seconds(), expected(now)})
	}
}

// WriteRecord writes the baselines, of so many planned ones, as a record.
func WriteRecord(w io.Writer, baselines []Baseline, planned int, version string, at time.Time) error {
	r := Record{Kind: RecordKind, Version: version, Measured: at.UTC(), Interval: Interval.Seconds()}
	if len(baselines) < planned {
		r.Planned = planned
	}
	for _, b := range baselines {
		r.Classes = append(r.Classes, RecordClass{b.StorageClass, b.Database, b.Cluster, b.Replicas, b.Spoilt, b.Result, b.Pieces})
	}
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(r)
}

// Lacks returns how many of the planned classes a record has, and whether it lacks some.
func (r *Record) Lacks() (words string, lacks bool) {
	return fmt.Sprintf("%d of %d classes were measured to the end", len(r.Classes), r.Planned), r.Planned > len(r.Classes)
}

// ReadRecord reads what WriteRecord wrote.
func ReadRecord(path string) (*Record, error) {
	text, err := given.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var r Record
	const wanted = "a baseline's record (loadgen baseline --record writes one)"
	if err := given.Decode(text, &r, false, 1); err != nil {
		return nil, fmt.Errorf("%s: %w; it is %s, and not %s", path, err, given.What(text), wanted)
	}
	switch {
	case r.Kind != RecordKind:
		return nil, given.NotA(path, text, wanted)
	case len(r.Classes) == 0:
		return nil, fmt.Errorf("%s: not a baseline's record (loadgen baseline --record writes one): classes is empty", path)
	}
	return &r, nil
}

// expects reports whether a time is in one of the windows.
func expects(windows []Window) func(time.Time) bool {
	return func(t time.Time) bool {
		return slices.ContainsFunc(windows, func(w Window) bool { return w.Contains(t) })
	}
}
