package predict

import (
	"strings"
	"testing"
)

// Sizes that are not known of both classes are not compared, and a note names the operations.
func TestUnknownSizes(t *testing.T) {
	w := world{clients: 1, think: 0.005, own: own{0.0003, 0.0001, 0.1}, sync: constantly(0.002)}
	const note = "sizes of operations of kind sync were not compared"
	for name, c := range map[string]struct {
		from, to float64
		want     bool
	}{"known": {8192, 8192, false}, "of neither": {0, 0, true}, "of one": {8192, 0, true}, "of the other": {0, 8192, true}} {
		load, from := w.run(t, "here", 1)
		_, to := w.run(t, "there", 2)
		sized(from, c.from)
		sized(to, c.to)
		p := predicted(t, &Input{Workload: load, From: from, To: to})
		if p.Refusal != nil {
			t.Fatal(p.Refusal)
		}
		if notes := strings.Join(p.Notes, "; "); strings.Contains(notes, note) != c.want {
			t.Errorf("%s: %s", name, notes)
		}
	}
}
