package lab

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/plumbline/plumbline/tests/testkit"
)

// A class is described in words, with its layers.
func TestWhy(t *testing.T) {
	running(t)
	eventually(t, "words of longhorn-r3", func() error {
		out, err := command("why", "longhorn-r3").CombinedOutput()
		if err != nil {
			return fmt.Errorf("%w\n%s", err, out)
		}
		for _, want := range []string{"longhorn-r3 commits take", "times local's", "A write of the volume", "  engine ", "longhorn-r3-replica-2", "The control local"} {
			if !bytes.Contains(out, []byte(want)) {
				return fmt.Errorf("no %q in\n%s", want, out)
			}
		}
		return nil
	})
	if out, err := command("why", "longhorn-r9").CombinedOutput(); err == nil || !bytes.Contains(out, []byte("lab/data-longhorn-r3 (class longhorn-r3)")) {
		t.Errorf("of a class that is not there: %v\n%s", err, out)
	}
}

// heal undoes what a killed break has done: a stopped process continues, a limit is gone.
func TestKilledBreakIsHealed(t *testing.T) {
	running(t)
	groups := func() []string {
		found, _ := filepath.Glob("/sys/fs/cgroup/plumbline-break")
		more, _ := filepath.Glob("/sys/fs/cgroup/blkio/plumbline-break")
		return append(found, more...)
	}
	for kind, broken := range map[string]func(pid int) bool{
		"replica": func(pid int) bool { return testkit.ProcessState(t, pid) == "T" },
		"disk":    func(int) bool { return len(groups()) == 1 },
	} {
		replica := process(t, dir, "replica", filepath.Join(dir, "classes", "longhorn-r3", "replicas", "3"))
		cmd := command("break", kind, "--duration=10m")
		var out bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &out
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		eventually(t, kind+" is broken", func() error {
			if !broken(replica) {
				return errors.New("not broken")
			}
			return nil
		})
		if twice, err := command("break", "cpu").CombinedOutput(); err == nil || !bytes.Contains(twice, []byte("broken already")) {
			t.Errorf("a second break beside %s: %v\n%s", kind, err, twice)
		}
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait()
		healed, err := command("heal").CombinedOutput()
		if err != nil || !strings.Contains(string(healed), "healed: break "+kind) {
			t.Errorf("heal: %v\n%s\nbreak printed:\n%s", err, healed, out.Bytes())
		}
		if s := testkit.ProcessState(t, replica); s == "T" || len(groups()) > 0 {
			t.Errorf("healed of %s the replica is in state %s, cgroups %v", kind, s, groups())
		}
		if _, err := os.Stat(filepath.Join(dir, "break.json")); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("the record of %s: %v", kind, err)
		}
	}
}
