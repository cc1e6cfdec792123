package main

import (
	"errors"
	"fmt"
	"regexp"
	"testing"
	"time"

	"github.com/plumbline/plumbline/tests/rig"
	"github.com/plumbline/plumbline/tests/testkit"
)

// A real PostgreSQL between two stores, one session and eight: each move is predicted, in the right direction, and what
// is measured after it is within the interval.
func TestMoves(t *testing.T) {
	testkit.NeedRoot(t)
	o := options{agent: testkit.Tool(t, "plumbline-agent"), loadgen: testkit.Tool(t, "loadgen"), rounds: 4, window: 1500 * time.Millisecond,
		stores: regexp.MustCompile("^[28] ms$"), kinds: regexp.MustCompile("^(one|eight) session")}
	// A machine that pauses spoils what is measured: then it is measured again.
	testkit.Eventually(t, testkit.DefaultTimeout, func() error {
		err := moves(t, o)
		if err != nil {
			t.Log(err)
		}
		return err
	})
}

func moves(t *testing.T, o options) error {
	t.Helper()
	m, err := measureAlone(o, t.Logf)
	if errors.Is(err, rig.ErrNotAllowed) {
		testkit.Skip(t, err.Error())
	}
	if err != nil {
		t.Fatal(err)
	}
	found, err := predictAll(m)
	if err != nil {
		t.Fatal(err)
	}
	found.print(t.Output())
	if len(found.moves) != 4 {
		t.Fatalf("%d moves, want 4", len(found.moves))
	}
	var wrong []error
	for _, move := range found.moves {
		if move.refusal != nil {
			wrong = append(wrong, fmt.Errorf("%s: %w", move.name(), move.refusal))
			continue
		}
		p := move.predicted
		if slower := move.to == "8 ms"; p.Median.Expected > p.Median.Now != slower || move.measuredMedian > p.Median.Now != slower {
			wrong = append(wrong, fmt.Errorf("%s: a median of %s, %s expected, %s measured", move.name(), ms(p.Median.Now), ms(p.Median.Expected), ms(move.measuredMedian)))
		}
		if !holds(p.Median, move.measuredMedian) {
			wrong = append(wrong, fmt.Errorf("%s: a median of %s to %s expected, %s measured", move.name(), ms(p.Median.Low), ms(p.Median.High), ms(move.measuredMedian)))
		}
	}
	return errors.Join(wrong...)
}
