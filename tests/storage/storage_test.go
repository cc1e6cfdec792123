//go:build e2e

// Package storage brings up a lab on real Ceph and one on real GlusterFS, from the distribution's packages, and
// compares what the rules make of their metrics with what the systems' own tools report.
//
//	go test -tags e2e -count=1 -v -timeout 60m ./tests/storage
package storage

import (
	"context"
	"fmt"
	"math"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/plumbline/plumbline/manifests/lab/config"
	"github.com/plumbline/plumbline/manifests/lab/table"
	"github.com/plumbline/plumbline/tests/testkit"
)

// agreement is how far a mean may be from the system's own.
const agreement = 0.10

// Ceph: an image's write latency against the OSDs' own counters, and a lost OSD is seen.
func TestCeph(t *testing.T) {
	l := start(t, "local", "ceph-rbd-r1", "ceph-rbd-r3")
	l.tableIsFull(t)
	compare(t, l, []string{"ceph-rbd-r1", "ceph-rbd-r3"}, cephTool{l})

	osd := l.process(t, "ceph-osd", filepath.Join(l.dir, "classes", "ceph-rbd-r3", "replicas", "3"))
	kill(t, osd)
	l.await(t, fmt.Sprintf("volume:degraded:bool{volume=%q}", volume("ceph-rbd-r3")), 1)
	l.await(t, fmt.Sprintf("volume:degraded:bool{volume=%q}", volume("ceph-rbd-r1")), 0)
	l.killed(t)
}

// GlusterFS: a brick's write and sync latency against its volume's profile, and a lost brick is seen.
func TestGluster(t *testing.T) {
	l := start(t, "local", "gluster-r3")
	l.tableIsFull(t)
	compare(t, l, []string{"gluster-r3"}, glusterTool{l})

	brick := l.process(t, "/usr/sbin/glusterfsd", filepath.Join(l.dir, "classes", "gluster-r3", "replicas", "3", "brick"))
	kill(t, brick)
	l.await(t, "plumbline_volume_healthy_replicas", 2)
	l.await(t, fmt.Sprintf("volume:degraded:bool{volume=%q}", volume("gluster-r3")), 1)
	l.killed(t)
}

// tool is a storage system's own measurement of how long it takes.
type tool interface {
	// mark begins the comparison.
	mark(t *testing.T)
	// means returns the mean times since then, in seconds, by the rule that should give the same.
	means(t *testing.T) map[string]float64
}

// compare lets both sides count the same operations: the volumes' file systems are frozen when the
// five minutes of the rules begin, and again before they end.
func compare(t *testing.T, l *lab, classes []string, own tool) {
	const window = 5 * time.Minute
	thaw := l.freeze(t, classes)
	l.settle(t)
	own.mark(t)
	begin := time.Now()
	thaw()
	until(t, begin.Add(window-90*time.Second))
	thaw = l.freeze(t, classes)
	l.settle(t)
	end := begin.Add(window)
	if time.Now().After(end) {
		t.Fatal("the systems' counters did not come to rest in time")
	}
	theirs := own.means(t)
	until(t, end.Add(5*time.Second)) // the rules' evaluations are 2 s apart
	thaw()
	for rule, their := range theirs {
		ours, err := l.api.NumberAt(context.Background(), rule, end)
		if err != nil {
			t.Error(err)
			continue
		}
		t.Logf("%s: %.3f ms, the system's own tool %.3f ms, ratio %.3f", rule, ours*1e3, their*1e3, ours/their)
		if math.IsNaN(ours/their) || math.Abs(ours/their-1) > agreement {
			t.Errorf("%s is %.3f ms where the system's own tool reports %.3f ms", rule, ours*1e3, their*1e3)
		}
	}
}

// until waits for a moment of the comparison.
func until(t *testing.T, moment time.Time) {
	t.Helper()
	testkit.Eventually(t, time.Until(moment)+time.Minute, func() error {
		if left := time.Until(moment); left > 0 {
			return fmt.Errorf("%s are left", left)
		}
		return nil
	})
}

// tableIsFull waits until the demo's table has every number for every class, and the engines' own
// table a row for each of them.
func (l *lab) tableIsFull(t *testing.T) {
	t.Helper()
	spec, err := table.ReadSpec(filepath.Join(testkit.Root(), "manifests", "lab", "table.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	p, err := table.NewPrometheus(l.prometheus)
	if err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, 10*time.Minute, func() error {
		var missing []string
		for _, one := range spec.Tables {
			values, err := p.Fill(context.Background(), one, (&config.Lab{Interval: config.DefaultInterval}).LiveTable())
			if err != nil {
				return err
			}
			missing = append(missing, table.Missing(one, values, l.classes)...)
		}
		for _, class := range l.classes[1:] {
			figure := fmt.Sprintf("max by (volume) (volume:engine_write_seconds:mean5m{volume=%[1]q} or replica:write_service_seconds:mean5m{volume=%[1]q})", volume(class))
			if _, err := l.api.NumberAt(context.Background(), figure, time.Now()); err != nil {
				missing = append(missing, err.Error())
			}
		}
		if len(missing) > 0 {
			return fmt.Errorf("missing: %s", strings.Join(missing, ", "))
		}
		return nil
	})
	out, err := l.command("status").CombinedOutput()
	if err != nil {
		t.Errorf("status: %v", err)
	}
	t.Logf("%s", out)
}

func kill(t *testing.T, pid int) {
	t.Helper()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatalf("killing process %d: %v", pid, err)
	}
}

// killed kills the lab's supervisor, as a machine in need of memory would: down must do without it.
func (l *lab) killed(t *testing.T) {
	t.Helper()
	kill(t, l.process(t, filepath.Join(l.dir, "bin", "process-compose")))
}
