package compare

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/plumbline/plumbline/loadgen/baseline"
	"github.com/plumbline/plumbline/loadgen/matrix"
	"github.com/plumbline/plumbline/loadgen/result"
)

// table is a matrix whose runs differ by noise alone, one time in twenty by four times as much, as
// runs on a real machine do; slow is a factor on the times of the first step's first class.
func table(random *rand.Rand, rounds, steps, classes int, noise, slow float64) *matrix.Report {
	r := &matrix.Report{Matrix: "wal", Scale: 1, Repeat: rounds}
	for step := range steps {
		for round := 1; round <= rounds; round++ {
			for class := range classes {
				spread, factor := noise, 1.0
				if random.IntN(20) == 0 {
					spread *= 4
				}
				if step+class == 0 {
					factor = slow
				}
				r.Rows = append(r.Rows, matrix.Row{Step: fmt.Sprint("step ", step), StorageClass: fmt.Sprint("class ", class), Round: round,
					Result: &result.Result{Rate: 1000 / factor * math.Exp(random.NormFloat64()*spread)}})
			}
		}
	}
	return r
}

// record is a baseline's: intervals of ten seconds whose level wanders over minutes.
func record(random *rand.Rand, intervals, classes int, slow float64) *baseline.Record {
	r := &baseline.Record{Kind: baseline.RecordKind, Interval: 10}
	for class := range classes {
		factor := 1.0
		if class == 0 {
			factor = slow
		}
		one := baseline.RecordClass{StorageClass: fmt.Sprint("class ", class), Replicas: 1, Result: result.Result{Profile: "tpcb-like", TargetRate: 10}}
		state := random.NormFloat64()
		for i := range intervals {
			state = 0.8*state + 0.6*random.NormFloat64()
			level := 0.005 * factor * math.Exp(0.1*state)
			one.Intervals = append(one.Intervals, baseline.Piece{End: time.Unix(int64(10*i), 0).UTC(), Count: 100,
				P50: level * math.Exp(0.03*random.NormFloat64()), P95: 2 * level * math.Exp(0.1*random.NormFloat64())})
		}
		r.Classes = append(r.Classes, one)
	}
	return r
}

// TestRates measures, on seeded series, how often equal things differ anywhere in a comparison
// (threshold 0, promised: one of twenty), and how often one class's +10 % is called slower.
func TestRates(t *testing.T) {
	random := rand.New(rand.NewPCG(21, 1))
	matrices := func(rounds, steps, classes int, noise float64) func(slow float64) [2]any {
		return func(slow float64) [2]any {
			return [2]any{table(random, rounds, steps, classes, noise, 1), table(random, rounds, steps, classes, noise, slow)}
		}
	}
	for _, c := range []struct {
		name     string
		make     func(slow float64) [2]any
		trials   int
		wrong    int // at the most, of equal ones
		detected int // at the least, of +10 %
	}{
		{"matrix, 6 rounds of 4 steps on 3 classes", matrices(6, 4, 3, 0.02), 200, 18, 160},
		{"matrix, 4 rounds of 10 steps on 4 classes", matrices(4, 10, 4, 0.02), 200, 18, 60},
		{"baseline, 3 hours on 3 classes", func(slow float64) [2]any {
			return [2]any{record(random, 1080, 3, 1), record(random, 1080, 3, slow)}
		}, 80, 10, 70},
	} {
		judged := func(slow float64) *Comparison {
			sides := c.make(slow)
			found, err := Paths(save(t, sides[0]), save(t, sides[1]), Options{})
			if err != nil {
				t.Fatal(err)
			}
			return found
		}
		wrong, detected := 0, 0
		for range c.trials {
			for _, l := range judged(1).Lines {
				if l.Verdict == Slower || l.Verdict == Faster {
					wrong++
					break
				}
			}
			if judged(1.1).Lines[0].Verdict == Slower {
				detected++
			}
		}
		t.Logf("%s: %d of %d equal ones called different, +10 %% called slower in %d", c.name, wrong, c.trials, detected)
		if wrong > c.wrong {
			t.Errorf("%s: %d of %d equal ones are called different, want at most %d", c.name, wrong, c.trials, c.wrong)
		}
		if detected < c.detected {
			t.Errorf("%s: +10 %% is called slower in %d of %d, want at least %d", c.name, detected, c.trials, c.detected)
		}
	}
}
