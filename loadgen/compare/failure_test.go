package compare

import (
	"encoding/json"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/plumbline/plumbline/loadgen/matrix"
	"github.com/plumbline/plumbline/loadgen/soak"
)

// A step that failed on one side only is named, with the side, whether or not anything of it was measured there.
func TestFailedSteps(t *testing.T) {
	fail := func(r *matrix.Report, class string, rounds int) {
		for i := range r.Rows {
			if row := &r.Rows[i]; row.StorageClass == class && row.Round <= rounds {
				row.Result, row.Error = nil, "no room"
			}
		}
	}
	classes := map[string]float64{"steady": 1, "r3": 1}
	for _, c := range []struct {
		first, second int // rounds of r3 that failed
		side          FailedSide
		words         string
	}{
		{0, 0, "", ""},
		{0, 1, Second, "0 of 6 runs failed in the first, 1 of 6 in the second"},
		{0, 6, Second, "0 of 6 runs failed in the first, 6 of 6 in the second"},
		{6, 0, First, "6 of 6 runs failed in the first, 0 of 6 in the second"},
		{1, 6, Second, "1 of 6 runs failed in the first, 6 of 6 in the second"},
		{6, 5, First, "6 of 6 runs failed in the first, 5 of 6 in the second"},
		{2, 1, Both, "2 of 6 runs failed in the first, 1 of 6 in the second"},
		{6, 6, Both, "6 of 6 runs failed in the first, 6 of 6 in the second"},
	} {
		a, b := run(rand.New(rand.NewPCG(3, 3)), 6, classes), run(rand.New(rand.NewPCG(3, 4)), 6, classes)
		fail(a, "r3", c.first)
		fail(b, "r3", c.second)
		got, err := Paths(save(t, a), save(t, b), Options{Threshold: 0.5})
		if err != nil {
			t.Fatal(err)
		}
		if c.side == "" {
			if len(got.Failures) > 0 || got.Mismatch() != nil {
				t.Errorf("without a failure there are %v, %v", got.Failures, got.Mismatch())
			}
			continue
		}
		if want := (Failure{"wal on r3", c.side, c.words}); len(got.Failures) != 1 || got.Failures[0] != want {
			t.Errorf("%d and %d rounds failed: %+v, want %+v", c.first, c.second, got.Failures, want)
		}
		if err := got.Mismatch(); (err != nil) != (c.side != Both) || err != nil && !strings.Contains(err.Error(), "wal on r3: "+c.words) {
			t.Errorf("%d and %d rounds failed: %v", c.first, c.second, err)
		}
	}
}

// The making of tables has no rate, and may fail as well.
func TestFailedInit(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 5))
	a, b := run(random, 6, map[string]float64{"r3": 1}), run(random, 6, map[string]float64{"r3": 1})
	a.Rows = append(a.Rows, matrix.Row{Step: "init", StorageClass: "r3", Round: 1})
	b.Rows = append(b.Rows, matrix.Row{Step: "init", StorageClass: "r3", Round: 1, Error: "no room"}, matrix.Row{Step: "other", StorageClass: "r3", Round: 1, Error: "no room"})
	c, err := Paths(save(t, a), save(t, b), Options{Threshold: 0.05})
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Failures) != 1 || c.Failures[0].Name != "init on r3" || c.Failures[0].Side != Second {
		t.Errorf("%+v", c.Failures)
	}
}

// A class that was never reached in one of two soaks is a difference.
func TestFailedClasses(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 6))
	one, two := makeSoak(t, random, 720, 1), makeSoak(t, random, 720, 1) // planned on r3 and local, run on r3
	at := time.Date(2026, 11, 22, 0, 0, 5, 0, time.UTC)
	add := func(folder string, s soak.Sample) {
		line, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(folder, "samples.jsonl")
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, append(text, append(line, '\n')...), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	compare := func() *Comparison {
		c, err := Paths(one, two, Options{Threshold: 0.5})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	if c := compare(); c.Mismatch() != nil || len(c.Failures) != 1 || c.Failures[0].Side != Both {
		t.Errorf("measured in none: %+v", c.Failures)
	}
	measured := soak.Sample{Time: at, StorageClass: "local", Load: canaryLoad}
	add(two, measured) // of a class that was down: no response time
	if c := compare(); c.Mismatch() != nil {
		t.Errorf("down in one, not there in the other: %+v", c.Failures)
	}
	measured.Response.Observe(time.Millisecond)
	add(one, measured)
	if c := compare(); c.Mismatch() == nil || c.Failures[0] != (Failure{"local", Second, "planned in both, and not measured in the second"}) {
		t.Errorf("measured in the first only: %+v", c.Failures)
	}
	one, two = two, one
	if c := compare(); c.Mismatch() == nil || c.Failures[0].Side != First {
		t.Errorf("measured in the second only: %+v", c.Failures)
	}
}
