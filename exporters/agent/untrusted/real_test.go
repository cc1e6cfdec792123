package untrusted_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/plumbline/plumbline/exporters/agent/untrusted"
)

// A path leads where the kernel follows it to with the process's root as the root of all paths, and nowhere else.
func TestReal(t *testing.T) {
	procfs, root, _ := process(t)
	in := func(path string) string { return filepath.Join(root, path) }
	check(t, os.MkdirAll(in("srv/volumes/one"), 0o755), os.WriteFile(in("srv/file"), nil, 0o644),
		os.Symlink("/srv/volumes", in("mnt")), os.Symlink("../srv/volumes/one", in("data/pg")), os.Symlink("../../../../../srv", in("up")),
		os.Symlink("/up/volumes/../file", in("far")), os.Symlink("loop", in("loop")), os.Symlink("/nowhere", in("dangling")),
		os.Symlink(filepath.Dir(root), in("outside")))
	chain := func(name string, n int) {
		for i := range n {
			to := fmt.Sprintf("%s%d", name, i+1)
			if i == n-1 {
				to = "srv"
			}
			check(t, os.Symlink(to, in(fmt.Sprintf("%s%d", name, i))))
		}
	}
	chain("short", 40)
	chain("long", 41)
	top, err := untrusted.Root(procfs, 7)
	check(t, err)
	defer top.Close()
	for path, want := range map[string]string{
		"/srv/volumes/one": "/srv/volumes/one", "srv//volumes/./one/": "/srv/volumes/one", "/": "/", "": "/", "/mnt/one": "/srv/volumes/one",
		"/data/pg": "/srv/volumes/one", "/data/pg/..": "/srv/volumes", "/up": "/srv", "/../../srv": "/srv", "/far": "/srv/file", "/short0/file": "/srv/file",
		"/loop": "", "/dangling": "", "/outside": "", "/srv/none": "", "/srv/file/x": "", "/long0": "",
	} {
		got, err := top.Real(path)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%q leads to %q, %v; want %q", path, got, err, want)
		}
		if err != nil || got == "/" {
			continue
		}
		// The kernel's own way leads to the same file.
		theirs, errTheirs := top.Stat(path, untrusted.InRoot)
		ours, errOurs := top.Stat(got[1:], untrusted.NoLinks)
		if errors.Is(errTheirs, unix.EAGAIN) {
			continue // something on the machine was renamed or mounted meanwhile: the kernel does not follow ".." then
		}
		if errors.Join(errTheirs, errOurs) != nil || theirs.Ino != ours.Ino {
			t.Errorf("%q is another file: %v, %v", path, errTheirs, errOurs)
		}
	}
	if _, err := top.Real("/loop"); !errors.Is(err, unix.ELOOP) {
		t.Errorf("links without end give %v", err)
	}
}
