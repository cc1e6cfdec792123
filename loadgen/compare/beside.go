package compare

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/plumbline/plumbline/loadgen/stats"
)

// series are values in the order of time.
type series struct {
	values []float64
	// at are their moments, by which they find other classes' values of the same run: the ends of intervals, in
	// nanoseconds, or rounds.
	at []int64
	// unpaired is how many more there were.
	unpaired int
}

func (s *series) add(at int64, value float64) {
	s.at, s.values = append(s.at, at), append(s.values, value)
}

// over are the values as multiples of the reference's nearest in time of those not used yet; those that have none so
// near are left out.
func (s series) over(reference series, within time.Duration) (multiples series) {
	used := make([]bool, len(reference.at))
	for i, at := range s.at {
		if !(s.values[i] > 0) {
			continue
		}
		nearest := -1
		from, _ := slices.BinarySearch(reference.at, at-int64(within))
		for k := from; k < len(reference.at) && reference.at[k] <= at+int64(within); k++ {
			if !used[k] && reference.values[k] > 0 && (nearest < 0 || distance(reference.at[k], at) < distance(reference.at[nearest], at)) {
				nearest = k
			}
		}
		if nearest < 0 {
			multiples.unpaired++
			continue
		}
		used[nearest] = true
		multiples.add(at, s.values[i]/reference.values[nearest])
	}
	return multiples
}

func distance(a, b int64) int64 { return max(a-b, b-a) }

// side is what one of the pair's series has to show.
func (p pair) side(s series) Side {
	level, n := stats.Level(s.values)
	if p.of != "" {
		return Side{Values: n, Multiple: level, Unpaired: s.unpaired}
	}
	return Side{Values: n, Seconds: level}
}

// beside takes all pairs as multiples of those of a class, or of a server by the name that distinguishes it from others
// of its class: what slowed both by the same factor is in neither side. Their own pairs are the references.
func (c *Comparison) beside(pairs []pair, reference string) (references, multiples []pair, err error) {
	is := func(p pair) bool { return p.class == reference }
	if named := func(p pair) bool { return p.step == "" && p.name == reference }; slices.ContainsFunc(pairs, named) {
		is = named
	}
	var there []string
	for _, p := range pairs {
		if is(p) {
			references = append(references, p)
		}
		if !slices.Contains(there, p.class) {
			there = append(there, p.class)
		}
	}
	if len(references) == 0 {
		return nil, nil, fmt.Errorf("no class %q in both to compare beside; both have %s", reference, strings.Join(there, ", "))
	}
	for _, p := range pairs {
		if is(p) {
			continue
		}
		var own []pair
		for _, r := range references {
			if r.step == p.step && r.metric == p.metric {
				own = append(own, r)
			}
		}
		switch len(own) {
		case 0:
			c.Lone = append(c.Lone, p.name+", "+p.metric)
		case 1:
			p.a, p.b, p.of = p.a.over(own[0].a, p.within), p.b.over(own[0].b, p.within), reference
			for _, d := range own[0].doubts {
				if !slices.Contains(p.machine, d) {
					p.doubts = append(slices.Clip(p.doubts), own[0].name+": "+d)
				}
			}
			multiples = append(multiples, p)
		default:
			var names []string
			for _, r := range own {
				names = append(names, fmt.Sprintf("%q", r.name))
			}
			return nil, nil, fmt.Errorf("%d servers are on %s; compare beside one of them: %s", len(own), reference, strings.Join(names, ", "))
		}
	}
	if len(multiples) == 0 {
		return nil, nil, fmt.Errorf("nothing in both is measured beside %q", reference)
	}
	return references, multiples, nil
}

// doubtMoved adds a doubt to each line whose reference has moved by itself: then the line's ratio is the reference's,
// too.
func (c *Comparison) doubtMoved(multiples []pair) {
	for i, p := range multiples {
		for _, r := range c.References {
			if r.Metric == p.metric && r.step == p.step && (r.Verdict == Slower || r.Verdict == Faster) {
				c.Lines[i].Doubts = append(slices.Clip(c.Lines[i].Doubts), fmt.Sprintf("%s itself is %s: %s", r.Name, r.Verdict, r.ratio("")))
			}
		}
	}
}
