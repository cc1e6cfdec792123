package blockio_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/plumbline/plumbline/tests/testkit"
)

// newLoop makes a loop device over a file of its own and returns its path and how to detach
// it; it is detached at the test's end in any case.
func newLoop(t testing.TB, size int64) (path string, detach func()) {
	t.Helper()
	testkit.NeedRoot(t)
	file := filepath.Join(diskTempDir(t), "disk")
	f, err := os.Create(file)
	if err == nil {
		err = f.Truncate(size)
		f.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	losetup := testkit.Tool(t, "losetup")
	out, err := exec.Command(losetup, "--find", "--show", "--direct-io=on", file).CombinedOutput()
	if err != nil {
		testkit.Skip(t, "needs loop devices: "+strings.TrimSpace(string(out)))
	}
	path = strings.TrimSpace(string(out))
	detached := false
	detach = func() {
		if detached {
			return
		}
		detached = true
		if out, err := exec.Command(losetup, "--detach", path).CombinedOutput(); err != nil {
			t.Errorf("detaching %s: %v: %s", path, err, out)
		}
	}
	t.Cleanup(detach)
	return path, detach
}
