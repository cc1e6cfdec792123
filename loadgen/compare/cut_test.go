package compare

import (
	"encoding/json"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/plumbline/plumbline/loadgen/baseline"
	"github.com/plumbline/plumbline/loadgen/soak"
)

// cuts returns the lines of a comparison that report that a side is not whole. What is in JSON is the same.
func cuts(t *testing.T, a, b string) (lines []string) {
	t.Helper()
	c, err := Paths(a, b, Options{Threshold: 0.05})
	if err != nil {
		t.Fatal(err)
	}
	var text, object strings.Builder
	if err := c.WriteMarkdown(&text); err != nil {
		t.Fatal(err)
	}
	if err := c.WriteJSON(&object); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(text.String()) {
		if strings.Contains(line, "not whole") {
			lines = append(lines, strings.TrimSuffix(line, "\n"))
		}
	}
	if strings.Contains(object.String(), `"cuts"`) != (len(lines) > 0) {
		t.Errorf("the lines are %q, and in JSON:\n%s", lines, &object)
	}
	return lines
}

// expect fails unless these are the lines.
func expect(t *testing.T, got []string, want ...string) {
	t.Helper()
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// A soak that was killed in a phase, began again, was interrupted, and ended before its time: the comparison reports
// all of it, of its side.
func TestCutSoak(t *testing.T) {
	random := rand.New(rand.NewPCG(4, 1))
	whole, cut := makeSoak(t, random, 360, 1), makeSoakOf(t, random, 360, 1, 2*time.Hour)
	began := time.Date(2026, 11, 22, 0, 0, 0, 0, time.UTC)
	var text strings.Builder
	for _, e := range []soak.Event{
		{Time: began.Add(time.Second), Kind: soak.SoakEvent, Name: "soak", What: soak.Begin},
		{Time: began.Add(10 * time.Minute), Kind: soak.PhaseEvent, Name: "burst", What: soak.Begin},
		{Time: began.Add(20*time.Minute + 5*time.Second), Kind: soak.SoakEvent, Name: "soak", What: soak.Begin},
		{Time: began.Add(30 * time.Minute), Kind: soak.SoakEvent, Name: "soak", What: soak.End, Detail: "interrupted"},
		{Time: began.Add(30*time.Minute + 7*time.Second), Kind: soak.SoakEvent, Name: "soak", What: soak.Begin},
		{Time: began.Add(40 * time.Minute), Kind: soak.PhaseEvent, Name: "burst", What: soak.Begin},
		{Time: began.Add(50 * time.Minute), Kind: soak.PhaseEvent, Name: "burst", What: soak.End},
		{Time: began.Add(52 * time.Minute), Kind: soak.MachineEvent, Name: soak.Suspended, What: soak.Begin, Detail: "for 2m0s"},
		{Time: began.Add(54 * time.Minute), Kind: soak.MachineEvent, Name: soak.Suspended, What: soak.End},
	} {
		line, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		text.WriteString(string(line) + "\n")
	}
	if err := os.WriteFile(filepath.Join(cut, "events.jsonl"), []byte(text.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	want := func(side string) []string {
		return []string{
			"- the " + side + " is not whole: phase burst: begun at 2026-11-22 00:10:00 UTC: the soak was killed in it; its end is the last sample before.",
			"- the " + side + " is not whole: soak: killed, and did not run from 2026-11-22 00:20:00 UTC to 2026-11-22 00:20:05 UTC.",
			"- the " + side + " is not whole: soak: interrupted, and did not run from 2026-11-22 00:30:00 UTC to 2026-11-22 00:30:07 UTC.",
			"- the " + side + " is not whole: soak: its machine was suspended after 2026-11-22 00:52:00 UTC, for 2m0s.",
			"- the " + side + " is not whole: soak: its last sample is of 1h0m0s after its beginning, and planned are 2h0m0s.",
		}
	}
	expect(t, cuts(t, whole, whole))
	expect(t, cuts(t, whole, cut), want("second")...)
	expect(t, cuts(t, cut, whole), want("first")...)
	expect(t, cuts(t, cut, cut), append(want("first"), want("second")...)...)
}

// A comparison reports an interrupted matrix by its source.
func TestCutMatrix(t *testing.T) {
	random := rand.New(rand.NewPCG(4, 2))
	whole, cut := run(random, 6, map[string]float64{"r1": 1, "r3": 1}), run(random, 4, map[string]float64{"r1": 1, "r3": 1})
	whole.Source, cut.Source = "A test.", "A test. Interrupted after 8 of 12 runs."
	expect(t, cuts(t, save(t, whole), save(t, whole)))
	expect(t, cuts(t, save(t, cut), save(t, whole)), "- the first is not whole: matrix wal: interrupted after 8 of 12 runs.")
	cut.Source = "Of others: Interrupted after 8 of 12 runs. And more."
	expect(t, cuts(t, save(t, whole), save(t, cut)))
}

// The record of a baseline that lacks classes is no whole one.
func TestCutBaseline(t *testing.T) {
	write := func(planned int) string {
		path := filepath.Join(t.TempDir(), "baseline.json")
		r := baseline.Record{Kind: baseline.RecordKind, Interval: 10, Planned: planned, Classes: []baseline.RecordClass{{StorageClass: "r3"}}}
		text, err := json.Marshal(r)
		if err == nil {
			err = os.WriteFile(path, text, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
		return path
	}
	whole, partial := write(0), write(3)
	expect(t, cuts(t, whole, whole))
	expect(t, cuts(t, whole, partial), "- the second is not whole: baseline: 1 of 3 classes were measured to the end.")
}
