//go:build e2e

package storage

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/plumbline/plumbline/manifests/lab/config"
	"github.com/plumbline/plumbline/manifests/lab/sandbox"
	"github.com/plumbline/plumbline/tests/promapi"
	"github.com/plumbline/plumbline/tests/testkit"
)

const portBase = 27600

// lab is a running lab of this test's own.
type lab struct {
	dir, prometheus string
	classes         []string
	api             *promapi.Server
}

// start brings a lab up and, at the test's end, down again; the machine is then as it was.
func start(t *testing.T, classes ...string) *lab {
	t.Helper()
	testkit.NeedBPF(t)
	testkit.Tool(t, "plumbline-lab")
	l := &lab{
		dir: fmt.Sprintf("/var/tmp/plumbline-storage-%d", os.Getpid()), classes: classes,
		prometheus: fmt.Sprintf("http://127.0.0.1:%d", portBase),
	}
	var err error
	if l.api, err = promapi.At(l.prometheus); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if out, err := l.command("down").CombinedOutput(); err != nil {
			t.Errorf("down: %v\n%s", err, out)
		}
		l.restored(t)
	})
	if out, err := l.command("up").CombinedOutput(); err != nil {
		t.Fatalf("up: %v\n%s", err, out)
	}
	return l
}

// volume names a class's volume.
func volume(class string) string {
	c := config.Lab{PortBase: portBase}
	return c.Volume(class)
}

// command prepares a call of the lab's program. The load is light: everything is on one machine, and
// rbd-fuse does one thing at a time.
func (l *lab) command(args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(testkit.Root(), "build", "bin", "plumbline-lab"), args...)
	cmd.Dir = testkit.Root()
	cmd.Env = append(os.Environ(), "LAB_DIR="+l.dir, fmt.Sprintf("LAB_PORT_BASE=%d", portBase), "LAB_CLASSES="+strings.Join(l.classes, " "),
		"LAB_SCALE=2", "LAB_RATE=20")
	return cmd
}

// restored fails the test unless nothing of the lab is left.
func (l *lab) restored(t *testing.T) {
	t.Helper()
	if pids, err := sandbox.Processes(l.dir); err != nil || len(pids) > 0 {
		t.Errorf("processes left: %v %v", pids, err)
	}
	if _, err := os.Stat(l.dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s is left: %v", l.dir, err)
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil || strings.Contains(string(mounts), l.dir) {
		t.Errorf("something is still mounted below %s (%v)", l.dir, err)
	}
	attached, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	if err != nil {
		t.Error(err)
	}
	for _, path := range attached {
		if text, err := os.ReadFile(path); err == nil && strings.HasPrefix(string(text), l.dir) {
			t.Errorf("%s is still attached to %s", path, text)
		}
	}
}

// process returns the lab's process that has the words, a program among them, in its command line.
func (l *lab) process(t *testing.T, words ...string) int {
	t.Helper()
	pid, err := sandbox.Find(l.dir, words...)
	if err != nil {
		t.Fatal(err)
	}
	return pid
}

// await waits until a query's one value is as wanted.
func (l *lab) await(t *testing.T, query string, want float64) {
	t.Helper()
	testkit.Eventually(t, 5*time.Minute, func() error {
		v, err := l.api.Number(context.Background(), query)
		if err == nil && v != want {
			err = fmt.Errorf("%s is %v, want %v", query, v, want)
		}
		return err
	})
}

// freeze stops all writes of the classes' volumes until thaw is called, or the test ends.
func (l *lab) freeze(t *testing.T, classes []string) (thaw func()) {
	t.Helper()
	inside := strconv.Itoa(l.process(t, filepath.Join(l.dir, "bin", "prometheus"), "--config.file="+filepath.Join(l.dir, "prometheus.yml")))
	call := func(option, class string) error {
		out, err := exec.Command("nsenter", "-t", inside, "-m", "fsfreeze", option, filepath.Join(l.dir, "classes", class, "volume")).CombinedOutput()
		if err != nil {
			return fmt.Errorf("fsfreeze %s %s: %w: %s", option, class, err, out)
		}
		return nil
	}
	frozen := map[string]bool{}
	thaw = func() {
		for class := range frozen {
			if err := call("--unfreeze", class); err != nil {
				t.Error(err)
			}
		}
		clear(frozen)
	}
	t.Cleanup(thaw)
	for _, class := range classes {
		if err := call("--freeze", class); err != nil {
			t.Fatal(err)
		}
		frozen[class] = true
	}
	return thaw
}

// settle waits until Prometheus' counts of the engines' writes have not changed for 15 s: the systems report them some
// seconds late.
func (l *lab) settle(t *testing.T) {
	t.Helper()
	const writes = `sum(ceph_rbd_write_latency_count or plumbline_gluster_fops_total{fop=~"WRITE|FSYNC"})`
	last, since := -1.0, time.Now()
	testkit.Eventually(t, 3*time.Minute, func() error {
		v, err := l.api.NumberAt(context.Background(), writes, time.Now())
		if err != nil {
			return err
		}
		if v != last {
			last, since = v, time.Now()
		}
		if rest := time.Since(since); rest < 15*time.Second {
			return fmt.Errorf("%v writes, for %s", v, rest)
		}
		return nil
	})
}
