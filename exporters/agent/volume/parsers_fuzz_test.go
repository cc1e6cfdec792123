package volume

import (
	"github.com/plumbline/plumbline/exporters/agent/pod"
	"os"
	"path/filepath"
	"testing"
)

// An identity file is complete, or refused.
func FuzzIdentity(f *testing.F) {
	f.Add([]byte("volumes:\n  - {volume: pvc-1, storageclass: local, backend: disk, mountpoint: /srv}\n"))
	f.Add([]byte("volumes:\n  - {volume: pvc-1, device: sda}\n  - {volume: pvc-1, device: sdb}\n"))
	f.Add([]byte("volumes: [{volume: \"\\xff\"}]"))
	f.Add([]byte("volumes: &a [*a]"))
	f.Fuzz(func(t *testing.T, text []byte) {
		identities, err := parse(text, "here")
		if err != nil {
			return
		}
		seen := map[string]bool{}
		for _, i := range identities {
			if err := i.check(); err != nil {
				t.Errorf("accepted, but %v", err)
			}
			if seen[i.Volume] {
				t.Errorf("volume %q twice", i.Volume)
			}
			seen[i.Volume] = true
		}
	})
}

// A mount table is read or refused, and a path lies in one of its mounts or in none.
func FuzzMountinfo(f *testing.F) {
	own, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(own, "/var/lib")
	f.Add([]byte("36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue\n"), "/mnt2/a")
	f.Add([]byte("36 35 98:0 /with\\040space /mnt\\0402 rw shared:1 master:2 - ext3 /dev/root rw\n"), "/mnt 2")
	f.Add([]byte("36 35 98:0 / / rw\n"), "/")
	f.Add([]byte("a b c d e f - g h i\n"), "")
	root := f.TempDir()
	if err := os.MkdirAll(filepath.Join(root, "1"), 0o700); err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, text []byte, path string) {
		if err := os.WriteFile(filepath.Join(root, "1", "mountinfo"), text, 0o600); err != nil {
			t.Fatal(err)
		}
		tables, err := ReadTables(root, pod.NewWalk(root))
		if err != nil {
			return
		}
		if m, ok := tables.Holding(path); ok && !within(path, m.Point) {
			t.Errorf("%q is reported to lie in %q", path, m.Point)
		}
		if m := tables.At(path); len(m) > 0 && m[0].Point != path {
			t.Errorf("%q is found at %q", path, m[0].Point)
		}
		tables.kubelet(csiPlugin, path)
	})
}
