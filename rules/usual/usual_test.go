package usual

import (
	"flag"
	"net/url"
	"os"
	"regexp"
	"slices"
	"testing"

	"github.com/plumbline/plumbline/exporters/agent/volume"
)

var update = flag.Bool("update", false, "write docs/usual.md anew")

func TestPage(t *testing.T) {
	const page = "../../docs/usual.md"
	if *update {
		if err := os.WriteFile(page, []byte(pageText()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if text, err := os.ReadFile(page); err != nil || string(text) != pageText() {
		t.Errorf("docs/usual.md is not the table's (%v): go test ./rules/usual -update", err)
	}
}

// Each row has a figure, and sources with a date; each figure is one that a disk can have, and each backend is one that
// an agent names.
func TestTable(t *testing.T) {
	named := append(volume.Backends(), "disk", "ebs.csi.aws.com", "pd.csi.storage.gke.io")
	for i, r := range Table {
		if i > 0 && slices.Equal(r.Backends, Table[i-1].Backends) && r.Replicas < Table[i-1].Replicas {
			t.Errorf("%+v stands below one of more replicas", r)
		}
		if len(r.Sources) == 0 || r.Disk == "" || r.Write == r.Sync && r.Sync == r.Read && r.Read == (Range{}) {
			t.Errorf("%+v lacks a source, a class or a figure", r)
		}
		for _, b := range r.Backends {
			if !slices.Contains(named, b) {
				t.Errorf("no agent names a backend %q", b)
			}
		}
		for _, of := range []Range{r.Write, r.Sync, r.Read} {
			if of != (Range{}) && !(of[0] >= 0 && of[1] >= of[0] && of[1] > 0 && of[1] < 100) {
				t.Errorf("%+v: %v is no range of milliseconds", r, of)
			}
		}
		for _, s := range r.Sources {
			if _, err := url.Parse(s.URL); err != nil || s.Title == "" || !regexp.MustCompile(`^(read )?20\d\d-\d\d-\d\d$`).MatchString(s.Date) {
				t.Errorf("source %+v: %v", s, err)
			}
		}
	}
}

func TestCompare(t *testing.T) {
	r3 := Volume{Backend: "longhorn-v1", Replicas: 3}
	for name, c := range map[string]struct {
		of         Volume
		operation  Operation
		seconds    float64
		want       Verdict
		candidates int
	}{
		"usual for one class":              {r3, Write, 0.004, Normal, 3},
		"slow for every class":             {r3, Write, 0.060, Slow, 3},
		"fast for every class":             {r3, Write, 0.00002, Fast, 3},
		"slow for one, fast for another":   {Volume{Backend: "ceph-rbd", Replicas: 3}, Write, 0.002, Normal, 2},
		"at the edge":                      {Volume{Backend: "longhorn-v2", Replicas: 3}, Write, 2 * 0.001083, Normal, 1},
		"over the edge":                    {Volume{Backend: "longhorn-v2", Replicas: 3}, Write, 2.01 * 0.001083, Slow, 1},
		"a bound has no slack":             {Volume{Backend: "azure-disk"}, Read, 0.021, Slow, 3},
		"nothing is fast below a bound":    {Volume{Backend: "azure-disk"}, Read, 0.000001, Normal, 3},
		"replicas that are not known":      {Volume{Backend: "longhorn-v1"}, Write, 0.004, Normal, 4},
		"more replicas than a row has":     {Volume{Backend: "longhorn-v1", Replicas: 5}, Write, 0.004, Unknown, 0},
		"fewer replicas than a row has":    {Volume{Backend: "longhorn-v1", Replicas: 2}, Write, 0.00002, Normal, 3},
		"fewer, which are no slower":       {Volume{Backend: "longhorn-v1", Replicas: 2}, Write, 0.060, Slow, 3},
		"fewer, of which one row is":       {Volume{Backend: "longhorn-v1", Replicas: 1}, Write, 0.00002, Normal, 3},
		"replicas that are not published":  {Volume{Backend: "portworx", Replicas: 2}, Write, 0.0005, Normal, 1},
		"an operation that no row has":     {Volume{Backend: "portworx"}, Sync, 0.004, Unknown, 0},
		"a backend that no row has":        {Volume{Backend: "gluster", Replicas: 3}, Sync, 0.004, Unknown, 0},
		"a backend that nobody knows":      {Volume{Backend: "evil\x1b[2J"}, Write, 0.004, Unknown, 0},
		"no backend":                       {Volume{}, Write, 0.004, Unknown, 0},
		"a disk that may rotate":           {Volume{Backend: "local-path"}, Sync, 0.020, Normal, 6},
		"a disk that is known not to":      {Volume{Backend: "local-path", Solid: true}, Sync, 0.020, Slow, 5},
		"a local disk, whatever is called": {Volume{Backend: "localpv-lvm"}, Sync, 0.0005, Normal, 6},
	} {
		if got := Compare(c.of, c.operation, c.seconds); got.Verdict != c.want || len(got.Candidates) != c.candidates {
			t.Errorf("%s: %s of %d candidates, want %s of %d: %+v", name, got.Verdict, len(got.Candidates), c.want, c.candidates, got)
		}
	}
}
