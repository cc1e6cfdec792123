package compare

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/plumbline/plumbline/loadgen/baseline"
	"github.com/plumbline/plumbline/loadgen/stats"
)

// pieceMeasures are the times of an interval that baselines are compared by, those of soaks.
var pieceMeasures = []struct {
	name string
	of   func(baseline.Piece) float64
}{
	{"response, median", func(p baseline.Piece) float64 { return p.P50 }},
	{"response, p95", func(p baseline.Piece) float64 { return p.P95 }},
}

// baselines pairs each server, or class, of two baselines by its intervals, without those in a time that
// is known to be slow.
func (c *Comparison) baselines(pathA, pathB string) ([]pair, error) {
	a, err := baseline.ReadRecord(pathA)
	b, errB := baseline.ReadRecord(pathB)
	if err = errors.Join(err, errB); err != nil {
		return nil, err
	}
	if a.Interval != b.Interval {
		return nil, errDifferent(pathA, pathB, "the interval in seconds", a.Interval, b.Interval)
	}
	c.Cuts = append(cutBaseline(First, a), cutBaseline(Second, b)...)
	var pairs []pair
	for _, x := range a.Classes {
		i := slices.IndexFunc(b.Classes, func(y baseline.RecordClass) bool { return ownName(x) == ownName(y) })
		if i < 0 {
			c.OnlyA = append(c.OnlyA, ownName(x))
			continue
		}
		y := b.Classes[i]
		switch {
		case x.Result.Profile != y.Result.Profile:
			return nil, errDifferent(pathA, pathB, "the profile on "+ownName(x), x.Result.Profile, y.Result.Profile)
		case x.Result.TargetRate != y.Result.TargetRate:
			return nil, errDifferent(pathA, pathB, "the rate on "+ownName(x), x.Result.TargetRate, y.Result.TargetRate)
		}
		var doubts []string
		for side, class := range map[string]baseline.RecordClass{"the first": x, "the second": y} {
			if class.Spoilt != "" {
				doubts = append(doubts, side+" is spoilt: "+class.Spoilt)
			}
		}
		slices.Sort(doubts)
		if x.Replicas != y.Replicas && x.Replicas > 0 && y.Replicas > 0 {
			doubts = append(doubts, fmt.Sprintf("replicas: %d and %d", x.Replicas, y.Replicas))
		}
		for _, m := range pieceMeasures {
			pairs = append(pairs, pair{name: ownName(x), class: x.StorageClass, metric: m.name, values: "intervals", within: seconds(a.Interval) / 2, a: calm(x, m.of), b: calm(y, m.of),
				compare: stats.Series, doubts: doubts})
		}
	}
	for _, y := range b.Classes {
		if !slices.ContainsFunc(a.Classes, func(x baseline.RecordClass) bool { return ownName(x) == ownName(y) }) {
			c.OnlyB = append(c.OnlyB, ownName(y))
		}
	}
	return pairs, nil
}

// ownName distinguishes the classes and servers of a record.
func ownName(c baseline.RecordClass) string {
	name := c.StorageClass
	for _, more := range []string{c.Database, c.Cluster} {
		if more != "" {
			name += " " + more
		}
	}
	return name
}

// calm is a measure of the intervals that are not expected to be slow.
func calm(c baseline.RecordClass, of func(baseline.Piece) float64) (values series) {
	for _, p := range c.Intervals {
		if !p.Expected {
			values.add(p.End.UnixNano(), of(p))
		}
	}
	return values
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
