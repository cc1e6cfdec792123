package compare

import (
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/plumbline/plumbline/loadgen/soak"
	"github.com/plumbline/plumbline/loadgen/stats"
)

// canaryLoad is the name of a soak's constant load.
const canaryLoad = "canary"

// measures are the times of an interval that soaks are compared by.
var measures = []struct {
	name string
	of   func(*stats.Distribution) float64
}{
	{"response, median", func(d *stats.Distribution) float64 { return d.Quantile(0.5).Seconds() }},
	{"response, p95", func(d *stats.Distribution) float64 { return d.Quantile(0.95).Seconds() }},
}

// soaks pairs each class of two soaks by its canary's intervals, without those in which a phase of
// load or a fault of the plan was going on.
func (c *Comparison) soaks(pathA, pathB string) ([]pair, error) {
	a, err := readSoak(pathA)
	b, errB := readSoak(pathB)
	if err = errors.Join(err, errB); err != nil {
		return nil, err
	}
	switch {
	case a.Plan.Canary.Profile != b.Plan.Canary.Profile:
		return nil, errDifferent(pathA, pathB, "the canary's profile", a.Plan.Canary.Profile, b.Plan.Canary.Profile)
	case a.Plan.Canary.Rate != b.Plan.Canary.Rate:
		return nil, errDifferent(pathA, pathB, "the canary's rate", a.Plan.Canary.Rate, b.Plan.Canary.Rate)
	case a.Plan.Interval != b.Plan.Interval:
		return nil, errDifferent(pathA, pathB, "the interval", a.Plan.Interval, b.Plan.Interval)
	}
	// A long soak is read in longer intervals; then so is the other.
	if a, b, err = alike(pathA, a, pathB, b); err != nil {
		return nil, err
	}
	c.Failures = failedClasses(a, b)
	c.Cuts = append(cutSoak(First, a), cutSoak(Second, b)...)
	classesA, classesB := classes(a), classes(b)
	var pairs []pair
	for _, class := range classesA {
		if !slices.Contains(classesB, class) {
			c.OnlyA = append(c.OnlyA, class)
			continue
		}
		for _, m := range measures {
			x, doubtX := soakSeries(a, class, m.of)
			y, doubtY := soakSeries(b, class, m.of)
			pairs = append(pairs, pair{name: class, class: class, metric: m.name, values: "intervals", within: a.Every / 2, a: x, b: y, compare: stats.Series, doubts: append(doubtX, doubtY...)})
		}
	}
	for _, class := range classesB {
		if !slices.Contains(classesA, class) {
			c.OnlyB = append(c.OnlyB, class)
		}
	}
	return pairs, nil
}

// alike reads the one in shorter intervals again in the other's.
func alike(pathA string, a *soak.Data, pathB string, b *soak.Data) (*soak.Data, *soak.Data, error) {
	var err error
	switch {
	case a.Every < b.Every:
		a, err = soak.ReadEvery(pathA, b.Every)
	case b.Every < a.Every:
		b, err = soak.ReadEvery(pathB, a.Every)
	}
	return a, b, err
}

// classes are those of which a canary has response times.
func classes(d *soak.Data) []string {
	var out []string
	for i := range d.Samples {
		s := &d.Samples[i]
		if s.Load == canaryLoad && s.Response.Count() > 0 && !slices.Contains(out, s.StorageClass) {
			out = append(out, s.StorageClass)
		}
	}
	return out
}

// soakSeries is a measure of a class's canary, interval by interval.
func soakSeries(d *soak.Data, class string, of func(*stats.Distribution) float64) (values series, doubts []string) {
	saturated := false
	for i := range d.Samples {
		s := &d.Samples[i]
		if s.Load != canaryLoad || s.StorageClass != class || s.Response.Count() == 0 || disturbed(d.Events, s.Time, d.Every, time.Duration(d.Plan.Interval)) {
			continue
		}
		saturated = saturated || s.Saturated
		values.add(s.Time.UnixNano(), of(&s.Response))
	}
	if saturated {
		doubts = append(doubts, "the generator was saturated")
	}
	return values, doubts
}

// disturbed reports whether a phase or a fault went on in the interval that ended at a time, or had ended less than an
// interval before, or the machine was suspended then, or its clock set. A fault that could not be done goes on until it
// is mended, as in a report.
func disturbed(events []soak.Event, end time.Time, every, after time.Duration) bool {
	begun := map[string]time.Time{}
	for _, e := range events {
		if e.Kind == soak.SoakEvent {
			continue
		}
		id := e.Kind + e.Name
		switch e.What {
		case soak.Begin:
			begun[id] = e.Time
		case soak.End:
			if from, ok := begun[id]; ok && from.Before(end) && end.Add(-every-after).Before(e.Time) {
				return true
			}
			delete(begun, id)
		}
	}
	for id, from := range begun {
		if from.Before(end) && !strings.HasPrefix(id, soak.MachineEvent) { // whose end is written with it, unless it is killed between
			return true
		}
	}
	return false
}
