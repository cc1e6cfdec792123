package why

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/plumbline/plumbline/tests/testkit"
)

var (
	// ofKind is where the metric's help begins with a kind; itsReasons stand in parentheses behind what they mean.
	ofKind     = regexp.MustCompile(`\. (claim|process|server|replica|path|listener|block_device|line): `)
	itsReasons = regexp.MustCompile(`\(([a-z_]+(?:, [a-z_]+)*)[;)]`)
)

// There is advice for each kind and reason that METRICS.md names, and for no other.
func TestUnidentifiedAdvice(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(testkit.Root(), "METRICS.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, row, ok := strings.Cut(string(text), "| `plumbline_unidentified_objects` |")
	if !ok {
		t.Fatal("METRICS.md has no such metric")
	}
	row, _, _ = strings.Cut(row, "\n")
	named := map[string]bool{}
	begins := ofKind.FindAllStringSubmatchIndex(row, -1)
	for i, at := range begins {
		end := len(row)
		if i+1 < len(begins) {
			end = begins[i+1][0]
		}
		m := ofKind.FindStringSubmatch(row[at[0]:at[1]])
		for _, reasons := range itsReasons.FindAllStringSubmatch(row[at[1]:end], -1) {
			for reason := range strings.SplitSeq(reasons[1], ", ") {
				named[m[1]+" "+reason] = true
			}
		}
	}
	if got, want := slices.Sorted(maps.Keys(advice)), slices.Sorted(maps.Keys(named)); !slices.Equal(got, want) {
		t.Errorf("there is advice for\n%s\nand METRICS.md has\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// Many nodes are named in part.
func TestUnidentifiedNodes(t *testing.T) {
	u := Unidentified{Kind: "line", Reason: "stat", Count: 9, Nodes: []string{"a", "b", "c", "d", "e"}, What: "w", Next: "Do."}
	if got, want := u.String(), "line stat: 9 on a, b, c and 2 more: w. Do."; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
