package result

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/plumbline/plumbline/loadgen/stats"
)

// Generator is which of several generators of one load made a result.
type Generator struct {
	Number int `json:"number"` // from 0
	Of     int `json:"of"`
}

// Parts are what a result was summed up from, so that results of several generators can be merged: quantiles cannot be
// averaged, distributions can be added.
type Parts struct {
	Began        time.Time           `json:"began"` // of the measured time
	Response     stats.Distribution  `json:"response"`
	Service      stats.Distribution  `json:"service"`
	AfterOutages *stats.Distribution `json:"after_outages,omitempty"`
}

// Part is the result of one of several generators, with all that Merge needs.
type Part struct {
	Result
	Generator Generator `json:"generator"`
	Parts     Parts     `json:"parts"`
	// from is the file that it is of, and where in it.
	from string
}

// place names a result for people.
func (p Part) place(number int) string {
	if p.from == "" {
		return fmt.Sprintf("result %d", number)
	}
	return p.from
}

// Of is the result as that of one of several generators.
func (r Result) Of(g Generator) Part { return Part{Result: r, Generator: g, Parts: r.parts} }

// WriteJSON writes it as one indented JSON object.
func (p Part) WriteJSON(w io.Writer) error { return writeJSON(w, p) }

// Total is what the results of all generators add up to.
type Total struct {
	Result
	Generators int `json:"generators"`
}

// WriteJSON writes it as one indented JSON object.
func (t Total) WriteJSON(w io.Writer) error { return writeJSON(w, t) }

// WriteText writes it for people.
func (t Total) WriteText(w io.Writer) error {
	if _, err := fmt.Fprintf(w, "the sum of %d generators\n", t.Generators); err != nil {
		return err
	}
	return t.Result.WriteText(w)
}

// After is the distribution of the response times after outages.
func (r *Result) After(d stats.Distribution) {
	sum := Sum(&d)
	r.AfterOutages, r.parts.AfterOutages = &sum, &d
}

// together is the least share of the longest run in which all generators must have run, for their rates to add up.
const together = 0.95

// Merge adds up the results of the generators of one load. Each of them must be there, once.
func Merge(all []Part) (Total, error) {
	if len(all) == 0 {
		return Total{}, errors.New("no results")
	}
	if err := complete(all); err != nil {
		return Total{}, err
	}
	m := Total{all[0].Result, len(all)}
	m.Errors, m.Skipped, m.Notes, m.ToolEnds, m.Outages, m.AfterOutages = map[string]uint64{}, map[string]uint64{}, nil, nil, nil, nil
	m.TargetRate, m.Rate, m.Seconds, m.WarmedUp, m.CPUPer1000 = 0, 0, 0, 0, 0
	m.Offered, m.Completed, m.Restarts, m.ParseErrors, m.Lost = 0, 0, 0, 0, 0
	parts := Parts{Began: all[0].Parts.Began}
	began, ended := parts.Began, all[0].ended()
	cpu, notes := 0.0, map[string]int{}
	for _, r := range all {
		m.TargetRate += r.TargetRate
		m.Rate += r.Rate
		m.Seconds, m.WarmedUp = max(m.Seconds, r.Seconds), max(m.WarmedUp, r.WarmedUp)
		m.Offered, m.Completed = m.Offered+r.Offered, m.Completed+r.Completed
		m.Restarts, m.ParseErrors, m.Lost = m.Restarts+r.Restarts, m.ParseErrors+r.ParseErrors, m.Lost+r.Lost
		add(m.Errors, r.Errors)
		add(m.Skipped, r.Skipped)
		cpu += r.CPUPer1000 * float64(r.Completed)
		for _, n := range r.Notes {
			notes[n]++
		}
		m.ToolEnds = merge(m.ToolEnds, r.ToolEnds)
		m.Outages = append(m.Outages, r.Outages...)
		parts.Response.Merge(&r.Parts.Response)
		parts.Service.Merge(&r.Parts.Service)
		if after := r.Parts.AfterOutages; after != nil {
			if parts.AfterOutages == nil {
				parts.AfterOutages = &stats.Distribution{}
			}
			parts.AfterOutages.Merge(after)
		}
		if r.Parts.Began.After(began) {
			began = r.Parts.Began
		}
		if r.Parts.Began.Before(parts.Began) {
			parts.Began = r.Parts.Began
		}
		if r.ended().Before(ended) {
			ended = r.ended()
		}
	}
	m.parts, m.Response, m.Service, m.Outages = parts, Sum(&parts.Response), Sum(&parts.Service), merged(m.Outages)
	if parts.AfterOutages != nil {
		after := Sum(parts.AfterOutages)
		m.AfterOutages = &after
	}
	if m.Completed > 0 {
		m.CPUPer1000 = cpu / float64(m.Completed)
	}
	if share := max(0, ended.Sub(began).Seconds()) / m.Seconds; share < together {
		m.Notes = append(m.Notes, fmt.Sprintf("all generators ran together for %.0f %% of the longest run: the load was not what their rates add up to", 100*share))
	}
	for _, n := range slices.Sorted(maps.Keys(notes)) {
		m.Notes = append(m.Notes, fmt.Sprintf("%s (%d of %d generators)", n, notes[n], len(all)))
	}
	return m, nil
}

// ended is when its measured time was over.
func (r Part) ended() time.Time {
	return r.Parts.Began.Add(time.Duration(r.Seconds * float64(time.Second)))
}

// complete checks that these are all generators of one load. It names each result that is not.
func complete(all []Part) error {
	var errs []error
	fail := func(format string, a ...any) { errs = append(errs, fmt.Errorf(format, a...)) }
	i := max(0, slices.IndexFunc(all, func(p Part) bool { return p.Generator.Of > 0 }))
	first, name, seen := all[i], all[i].place(i+1), map[int]string{}
	for i, r := range all {
		what := r.place(i + 1)
		switch {
		case r.Generator.Of <= 0:
			fail("%s is not of one of several generators: generator.of is missing; want what --json prints with --generators", what)
			continue
		case r.Tool != first.Tool || r.Profile != first.Profile || r.Database != first.Database || r.StorageClass != first.StorageClass:
			fail("%s is of another load: %s, and the first, %s, of %s: want the same tool, profile, database and storageclass", what, r.title(), name, first.title())
			continue
		case r.Generator.Of != first.Generator.Of:
			fail("%s is of %d generators, and the first of %d, by generator.of; that is %s", what, r.Generator.Of, first.Generator.Of, name)
			continue
		case r.Generator.Number < 0 || r.Generator.Number >= r.Generator.Of:
			fail("%s is of generator %d of %d, which there is not: want a generator.number of 0 to %d", what, r.Generator.Number, r.Generator.Of, r.Generator.Of-1)
			continue
		case seen[r.Generator.Number] != "":
			fail("generator %d is there twice: %s and %s", r.Generator.Number, seen[r.Generator.Number], what)
			continue
		case r.Seconds <= 0:
			fail("%s has measured nothing: its seconds are %g", what, r.Seconds)
		}
		seen[r.Generator.Number] = what
	}
	var missing []int
	for i := range first.Generator.Of {
		if seen[i] == "" {
			missing = append(missing, i)
		}
	}
	if len(missing) > 0 {
		fail("of %d generators these are missing: %v", first.Generator.Of, missing)
	}
	return errors.Join(errs...)
}

func (r Result) title() string {
	return fmt.Sprintf("%s %s on database %s of class %s", r.Tool, r.Profile, dash(r.Database), dash(r.StorageClass))
}

func add(to, more map[string]uint64) {
	for k, n := range more {
		to[k] += n
	}
}

// merge adds up tool ends of the same cause.
func merge(to, more []ToolEnd) []ToolEnd {
	for _, e := range more {
		i := slices.IndexFunc(to, func(t ToolEnd) bool { return t.Reason == e.Reason && t.Cause == e.Cause })
		if i < 0 {
			to = append(to, e)
			continue
		}
		to[i].Times += e.Times
	}
	return to
}

// merged are outages of which several generators saw parts: what overlaps is one, in which not all need have failed.
func merged(all []Outage) []Outage {
	slices.SortFunc(all, func(a, b Outage) int { return a.Began.Compare(b.Began) })
	var out []Outage
	for _, o := range all {
		if len(out) == 0 || o.Began.After(out[len(out)-1].ended()) {
			o.Errors = maps.Clone(o.Errors)
			out = append(out, o)
			continue
		}
		last := &out[len(out)-1]
		// Whoever saw most of it knows whether it was over.
		if o.ended().After(last.ended()) {
			last.Seconds, last.Over = o.ended().Sub(last.Began).Seconds(), o.Over
		}
		if last.Errors == nil {
			last.Errors = map[string]uint64{}
		}
		add(last.Errors, o.Errors)
	}
	return out
}

func (o Outage) ended() time.Time {
	return o.Began.Add(time.Duration(o.Seconds * float64(time.Second)))
}
