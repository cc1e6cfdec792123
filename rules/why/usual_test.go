package why

import (
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/plumbline/plumbline/rules/layers"
	"github.com/plumbline/plumbline/rules/why/whytest"
)

// The sentences for the demo's three classes, and for one that is slow, idle, shared or not known.
func TestUsual(t *testing.T) {
	const (
		write3 = "a write of 4.4 ms is usual for longhorn-v1 with 3 replicas on Amazon EBS gp3 over 10 Gbit/s (1.0 to 4.5 ms), disks that sysperfeval does not name (0.52 to 4.6 ms); " +
			"slow on NVMe SSDs for servers over 10 Gbit/s (0.25 to 1.3 ms)"
		sync3  = "a sync of 4.6 ms is usual for longhorn-v1 with 3 replicas on disks that Dalibo does not name (up to 19 ms); slow on our lab, on one machine (0.61 to 2.5 ms)"
		write1 = "a write of 2.4 ms is usual for longhorn-v1 with 1 replica on Amazon EBS gp3 over 10 Gbit/s with 3 replicas (up to 4.5 ms), disks that sysperfeval does not name with 3 replicas (up to 4.6 ms); " +
			"slow on NVMe SSDs for servers over 10 Gbit/s (0.25 to 1.2 ms)"
		write = "a write of 0.60 ms is usual for a local disk on disks that sysperfeval does not name (0.13 to 0.79 ms), Amazon EBS gp3 (0.40 to 1.6 ms); " +
			"slow on NVMe SSDs for servers (0.007 to 0.20 ms), SATA SSDs for servers (0.018 to 0.074 ms), SATA SSDs for desktops (0.033 to 0.14 ms)"
		sync = "a sync of 1.5 ms is usual for a local disk on NVMe SSDs for desktops (0.82 to 14 ms), SATA SSDs for desktops (0.17 to 1.8 ms), Amazon EBS gp3 (up to 5.1 ms); " +
			"slow on NVMe SSDs for servers (0.024 to 0.27 ms), our lab, on one machine (0.16 to 0.64 ms)"
	)
	for name, c := range map[string]struct {
		class string
		spoil func(l *whytest.Lab)
		want  []string
		words string // what is added to the finding's
	}{
		"local": {"local", func(*whytest.Lab) {}, []string{write, sync + "; fast on hard disks (5.2 to 21 ms)"}, ""},
		"longhorn-r1": {"r1", func(*whytest.Lab) {}, []string{write1,
			"a sync of 3.5 ms is usual for longhorn-v1 with 1 replica on disks that Dalibo does not name (up to 16 ms); slow on our lab, on one machine (0.50 to 2.0 ms)"}, ""},
		"longhorn-r3": {"r3", func(*whytest.Lab) {}, []string{write3, sync3}, ""},
		"slow": {"r3", func(l *whytest.Lab) { l.Device["r3"], l.Commit["r3"]["sync"] = 60, 62 }, []string{
			"a write of 60 ms is slow for longhorn-v1 with 3 replicas on NVMe SSDs for servers over 10 Gbit/s (0.25 to 1.3 ms), Amazon EBS gp3 over 10 Gbit/s (1.0 to 4.5 ms), disks that sysperfeval does not name (0.52 to 4.6 ms)",
			"a sync of 62 ms is slow for longhorn-v1 with 3 replicas on disks that Dalibo does not name (up to 19 ms), our lab, on one machine (0.61 to 2.5 ms)"},
			"; a write of 60 ms is not usual for longhorn-v1 with 3 replicas (up to 4.6 is)"},
		"reads": {"r3", func(l *whytest.Lab) {
			l.More = func(r *whytest.Recording) {
				r.Times(`ebpf_exporter_blkio_total_seconds{node="n",device="dev-r3",op="read"}`, 40, 0.0008)
			}
		}, []string{write3, sync3, "a read of 0.80 ms is usual for longhorn-v1 with 3 replicas on NVMe SSDs for servers over 10 Gbit/s (0.25 to 1.2 ms), " +
			"Amazon EBS gp3 over 10 Gbit/s (0.37 to 1.6 ms), disks that sysperfeval does not name (0.29 to 1.9 ms)"}, ""},
		"hardly too slow": {"r3", func(l *whytest.Lab) {
			l.More = func(r *whytest.Recording) {
				r.Times(`ebpf_exporter_blkio_total_seconds{node="n",device="dev-r3",op="read"}`, 40, 0.00194)
			}
		}, []string{write3, sync3, "a read of 1.94 ms is slow for longhorn-v1 with 3 replicas on NVMe SSDs for servers over 10 Gbit/s (0.250 to 1.20 ms), " +
			"Amazon EBS gp3 over 10 Gbit/s (0.370 to 1.62 ms), disks that sysperfeval does not name (0.288 to 1.91 ms)"},
			"; a read of 1.94 ms is not usual for longhorn-v1 with 3 replicas (up to 1.91 is)"},
		"commits that share syncs": {"r1", func(l *whytest.Lab) { l.Commit["r1"]["wait"] = 20 }, []string{write1}, ""},
		"a disk that is known not to rotate": {"local", func(l *whytest.Lab) {
			l.More = func(r *whytest.Recording) { r.Gauge(`node_disk_info{node="n",device="dev-local",rotational="0"}`, 1) }
		}, []string{write, sync}, ""},
		"a disk that reports that it rotates": {"local", func(l *whytest.Lab) {
			l.More = func(r *whytest.Recording) { r.Gauge(`node_disk_info{node="n",device="dev-local",rotational="1"}`, 1) }
		}, []string{write, sync + "; fast on hard disks (5.2 to 21 ms)"}, ""},
		"no operations": {"r3", func(l *whytest.Lab) { l.PerSecond["r3"] = 0.1 }, nil, ""},
		"a hostile backend": {"r3", func(l *whytest.Lab) { l.Backend["r3"] = "x\x1b[2J" }, []string{
			"a write takes 4.4 ms; what is usual for x?[2J with 3 replicas is not known", "a sync takes 4.6 ms; what is usual for x?[2J with 3 replicas is not known"}, ""},
	} {
		l := whytest.Healthy()
		l.Backend = map[string]string{"local": "disk", "r1": "longhorn-v1", "r3": "longhorn-v1"}
		c.spoil(l)
		f := find(t, l, Subject{Class: c.class})
		var got []string
		for _, one := range f.Usual() {
			got = append(got, Normal(one))
		}
		var page strings.Builder
		PlainPrinter(&page).Why(f)
		if !slices.Equal(got, c.want) || strings.Contains(page.String(), "Beside what is usual") != (len(got) > 0) {
			t.Errorf("%s: %q\n%s", name, got, &page)
		}
		words, verdict := f.Words(), f.Verdict
		l.Backend = nil
		unknown := find(t, l, Subject{Class: c.class})
		if without := unknown.Words(); words != without+c.words || !reflect.DeepEqual(unknown.Verdict, verdict) {
			t.Errorf("%s: with the table %q, without %q", name, words, without)
		}
		Checked(t, f)
	}
}

// Figures that a sentence compares read the same only if they are the same.
func TestMillisecondsBeside(t *testing.T) {
	for _, c := range []struct {
		one   float64
		other []float64
		want  string
	}{
		{0.0044, []float64{0.0019}, "4.4 1.9"},
		{0.0044, nil, "4.4"},
		{0.0044, []float64{0.0044}, "4.4 4.4"},
		{0.00196, []float64{0.001955}, "1.960 1.955"},
		{0.0104, []float64{0.00996, 0.5}, "10.4 9.96 500"}, // 10 and 10.0 are the same
		{0.0104, []float64{math.NaN()}, "10 ?"},
		{2e-7, []float64{1e-7}, "0 0"},
	} {
		ms := msBeside(c.one, c.other...)
		got := []string{ms(c.one)}
		for _, o := range c.other {
			got = append(got, ms(o))
		}
		if text := strings.Join(got, " "); text != c.want {
			t.Errorf("%v beside %v: %q, want %q", c.one, c.other, text, c.want)
		}
	}
	for want, text := range map[string]string{
		"1.94 ms of it pass between the engine and the replica, 1.91 within it":                  Replica{RoundTrip: 0.00385, Service: 0.00191}.where(Culprit{Layer: layers.Network}),
		"1.03 ms of it pass within the replica, before its disk sdb, which does a write in 1.02": Replica{Service: 0.00205, Disk: 0.00102, Device: "sdb"}.where(Culprit{Layer: layers.Replica}),
	} {
		if !strings.HasPrefix(text, want) {
			t.Errorf("%q, want %q", text, want)
		}
	}
}
