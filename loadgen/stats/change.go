package stats

import (
	"math"
	"math/rand/v2"
)

const (
	// leastSegment is the fewest points on either side of a change.
	leastSegment = 5
	// leastShift is the least change of level worth telling: 5 %.
	leastShift = 0.05
	// permutations of the series to distinguish a change from chance; none of them may split better.
	permutations = 200
)

// Change is a point from which on a series has another level.
type Change struct {
	// At is the index of the first point of the new level.
	At int
	// Before and After are the geometric means of the levels on either side.
	Before, After float64
}

// Changes finds the points where the level of a series of positive values changes for good. It
// splits the series where the means of the logarithms differ most for their spread, keeps the
// split if no shuffled series splits as well, and goes on with both sides. Points that are not
// positive numbers are left out. The outcome is the same each time.
func Changes(values []float64) []Change {
	var logs []float64
	var index []int
	for i, v := range values {
		if v > 0 && !math.IsInf(v, 1) {
			logs, index = append(logs, math.Log(v)), append(index, i)
		}
	}
	var cuts []int
	var split func(low, high int)
	split = func(low, high int) {
		part := logs[low:high]
		at, score := bestSplit(part)
		if at == 0 || !beatsChance(part, score) {
			return
		}
		split(low, low+at)
		cuts = append(cuts, low+at)
		split(low+at, high)
	}
	split(0, len(logs))
	var changes []Change
	for i, cut := range cuts {
		from, to := 0, len(logs)
		if i > 0 {
			from = cuts[i-1]
		}
		if i+1 < len(cuts) {
			to = cuts[i+1]
		}
		c := Change{index[cut], math.Exp(average(logs[from:cut])), math.Exp(average(logs[cut:to]))}
		if math.Abs(c.After/c.Before-1) >= leastShift {
			changes = append(changes, c)
		}
	}
	return changes
}

// bestSplit returns where to cut, and how much of the spread the cut explains; 0 if too short.
func bestSplit(x []float64) (at int, score float64) {
	total := 0.0
	for _, v := range x {
		total += v
	}
	left := 0.0
	n := float64(len(x))
	for i := range x {
		if i >= leastSegment && len(x)-i >= leastSegment {
			a, b := float64(i), n-float64(i)
			d := left/a - (total-left)/b
			if s := d * d * a * b / n; s > score {
				at, score = i, s
			}
		}
		left += x[i]
	}
	return at, score
}

func beatsChance(x []float64, score float64) bool {
	random := rand.New(rand.NewPCG(uint64(len(x)), 1))
	shuffled := append([]float64(nil), x...)
	for range permutations {
		random.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
		if _, s := bestSplit(shuffled); s >= score {
			return false
		}
	}
	return true
}

func average(x []float64) float64 {
	sum := 0.0
	for _, v := range x {
		sum += v
	}
	return sum / float64(len(x))
}
