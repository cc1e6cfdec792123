package probe

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/plumbline/plumbline/tests/rig"
	"github.com/plumbline/plumbline/tests/testkit"
)

func config(dir string) Config {
	return Config{Directory: dir, Size: 8192, Pauses: []time.Duration{time.Millisecond, 0}, Window: 400 * time.Millisecond, Windows: 2}
}

// What the probe reads of a file system that holds back a known time is at least that, and what is not held back is
// less.
func TestMeasuresWhatIsHeldBack(t *testing.T) {
	testkit.NeedRoot(t)
	dir := t.TempDir()
	backing, at := filepath.Join(dir, "backing"), filepath.Join(dir, "mounted")
	for _, path := range []string{backing, at} {
		if err := os.Mkdir(path, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	files, err := rig.NewSlowFiles(t, backing, at)
	if errors.Is(err, rig.ErrNotAllowed) {
		testkit.Skip(t, err.Error())
	}
	if err != nil {
		t.Fatal(err)
	}
	const held = 100 * time.Millisecond // far more than a busy machine takes for a read
	files.Syncs.Set(held)
	c := config(at)
	c.Readers, c.FileSize, c.Window = 2, 4<<20, 2*time.Second
	found, err := Measure(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	if len(found) != 4 {
		t.Errorf("%d windows, want 4", len(found))
	}
	for i, l := range found {
		sync, read := l.Operations["sync"].Times, l.Operations["read"].Times
		if least := sync.Quantile(0.01); least < 0.98*held.Seconds() || read.Quantile(0.25) >= least {
			t.Errorf("window %d: syncs from %v s on, reads %v s", i, least, read.Quantile(0.25))
		}
		if n := l.Operations["write"].Times.Count(); n != sync.Count() || l.Operations["write"].Bytes != 8192 {
			t.Errorf("window %d: %v writes of %v bytes, %v syncs", i, n, l.Operations["write"].Bytes, sync.Count())
		}
	}
	if left, err := os.ReadDir(backing); err != nil || len(left) > 0 {
		t.Errorf("%v is left, %v", left, err)
	}
}

func TestRefuses(t *testing.T) {
	for want, change := range map[string]func(*Config){
		"a size of 100":             func(c *Config) { c.Size = 100 },
		"must be above 0":           func(c *Config) { c.Windows = 0 },
		"too small to read from":    func(c *Config) { c.Readers = 1 },
		"no such file or directory": func(c *Config) { c.Directory = "/nowhere" },
		"a pause of -1s":            func(c *Config) { c.Pauses[0] = -time.Second },
		"-1 readers; want 0 to 256": func(c *Config) { c.Readers = -1 },
	} {
		c := config(t.TempDir())
		change(&c)
		if _, err := Measure(t.Context(), c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
