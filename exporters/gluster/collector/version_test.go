package collector

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/plumbline/plumbline/tests/testkit/exposition"
)

func TestUnitOfLatencies(t *testing.T) {
	for _, test := range []struct {
		text string
		want float64
	}{
		{"glusterfs 10.3\nRepository revision: git://git.gluster.org/glusterfs.git\n", 1e9},
		{"glusterfs 9.0\n", 1e9},
		{"glusterfs 8.6\n", 1e6},
		{"glusterfs 6.0\n", 1e6},
		{"glusterfs 3.7.11 built on Apr 18 2016\n", 1e6},
		{"glusterfs 9dev\n", 0},
		{"glusterfs 20201231.0123abc\n", 0},
		{"gluster: command not found", 0},
		{"", 0},
	} {
		if got, err := unitOf(test.text); got != test.want || (err == nil) != (test.want > 0) {
			t.Errorf("%q: %v, %v; want %v", test.text, got, err, test.want)
		}
	}
}

// Microseconds, as before GlusterFS 9, are no nanoseconds; of a version that is not known there are no latencies, and
// that is counted.
func TestVersions(t *testing.T) {
	const (
		fsync   = `plumbline_gluster_fop_seconds_total{fop="FSYNC",replica="127.25.2.200:/var/lib/plumbline-lab/classes/gluster-r3/replicas/1/brick",volume="lab-gluster-r3"} `
		unknown = `plumbline_gluster_errors_total{command="version"} `
	)
	for _, test := range []struct {
		version string
		known   bool
		want    []string
	}{
		{"glusterfs 10.3\n", true, []string{fsync + "2.853468", unknown + "0\n"}},
		{"glusterfs 8.6\n", true, []string{fsync + "2853.468", unknown + "0\n"}},
		{"glusterfs 20201231.0ab\n", false, []string{"plumbline_gluster_fops_total{", unknown + "1\n"}},
	} {
		_, r := polled(t, fake(t, filepath.Join("testdata", "healthy"), map[string]string{"version.txt": test.version}), "all")
		text := exposition.Text(t, r)
		for _, line := range test.want {
			if !strings.Contains(text, "\n"+line) {
				t.Errorf("%q: no %s in\n%s", test.version, line, text)
			}
		}
		if strings.Contains(text, "\nplumbline_gluster_fop_seconds_total{") != test.known {
			t.Errorf("%q: latencies are there, or lacking:\n%s", test.version, text)
		}
	}
}
