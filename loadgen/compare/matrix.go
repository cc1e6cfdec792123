package compare

import (
	"errors"
	"fmt"
	"slices"

	"github.com/plumbline/plumbline/loadgen/matrix"
	"github.com/plumbline/plumbline/loadgen/stats"
)

// operation is the measure that matrices are compared by.
const operation = "time of an operation"

// matrices pairs each step on each class of two runs of a matrix.
func (c *Comparison) matrices(pathA, pathB string) ([]pair, error) {
	a, err := matrix.Read(pathA)
	b, errB := matrix.Read(pathB)
	if err = errors.Join(err, errB); err != nil {
		return nil, err
	}
	switch {
	case a.Matrix != b.Matrix:
		return nil, errDifferent(pathA, pathB, "the matrix", a.Matrix, b.Matrix)
	case a.Scale != b.Scale:
		return nil, errDifferent(pathA, pathB, "the scale", a.Scale, b.Scale)
	case a.MaxClients != b.MaxClients:
		return nil, errDifferent(pathA, pathB, "the most clients", a.MaxClients, b.MaxClients)
	}
	c.Failures = failedSteps(a, b)
	c.Cuts = append(cutMatrix(First, a), cutMatrix(Second, b)...)
	var doubts []string
	if a.Environment.CPU != b.Environment.CPU || a.Environment.CPUs != b.Environment.CPUs {
		doubts = append(doubts, fmt.Sprintf("another machine: %d of %s, %d of %s", a.Environment.CPUs, a.Environment.CPU, b.Environment.CPUs, b.Environment.CPU))
	}
	if a.Environment.Kernel != b.Environment.Kernel {
		doubts = append(doubts, fmt.Sprintf("another kernel: %s, %s", a.Environment.Kernel, b.Environment.Kernel))
	}
	var pairs []pair
	inA, inB := cells(a), cells(b)
	for _, cell := range inA {
		if !slices.Contains(inB, cell) {
			c.OnlyA = append(c.OnlyA, cell.String())
			continue
		}
		own := slices.Clone(doubts)
		if d := busy(a, b, cell); d != "" {
			own = append(own, d)
		}
		pairs = append(pairs, pair{name: cell.String(), step: cell.step, class: cell.class, metric: operation, values: "runs", a: rounds(a, cell), b: rounds(b, cell),
			compare: stats.Independent, doubts: own, machine: doubts})
	}
	for _, cell := range inB {
		if !slices.Contains(inA, cell) {
			c.OnlyB = append(c.OnlyB, cell.String())
		}
	}
	return pairs, nil
}

// rounds are the times of an operation of a step on a class, round by round.
func rounds(r *matrix.Report, c cell) (times series) {
	for round, v := range matrix.Times(r.Rates(c.step, c.class)) {
		times.add(int64(round), v)
	}
	return times
}

// busy returns a doubt if a cell's runs were not made on a quiet machine: then it is the machine that differs as
// likely as what is compared, however surely it does.
func busy(a, b *matrix.Report, c cell) string {
	count := func(r *matrix.Report) (busy, all int) {
		for _, row := range r.Rows {
			if row.Result == nil || row.Step != c.step || row.StorageClass != c.class {
				continue
			}
			if all++; row.CPUIdle < matrix.LeastIdle {
				busy++
			}
		}
		return busy, all
	}
	x, allX := count(a)
	y, allY := count(b)
	if x+y == 0 {
		return ""
	}
	return fmt.Sprintf("the generator's machine was busy in %d of %d and %d of %d runs", x, allX, y, allY)
}

type cell struct{ step, class string }

func (c cell) String() string { return c.step + " on " + c.class }

// cells are the steps on classes that were measured.
func cells(r *matrix.Report) []cell {
	var out []cell
	for _, row := range r.Rows {
		if one := (cell{row.Step, row.StorageClass}); row.Result != nil && !slices.Contains(out, one) {
			out = append(out, one)
		}
	}
	return out
}
