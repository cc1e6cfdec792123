package server

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// A library is where the process itself has it, also in a root of its own, whose paths procfs shows from outside.
func TestLibraryPath(t *testing.T) {
	for _, c := range []struct{ name, root, shown, want string }{
		{"a usual process", "/", "/usr/lib/libssl.so.3", "/usr/lib/libssl.so.3"},
		{"in a chroot", "/srv/my", "/srv/my/usr/lib/libssl.so.3", "/usr/lib/libssl.so.3"},
		{"in a container's chroot", "/srv/my", "/usr/lib/libssl.so.3", "/usr/lib/libssl.so.3"},
		{"beside the chroot", "/srv/my", "/srv/mysql/libssl.so.3", "/srv/mysql/libssl.so.3"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newProcess(t.TempDir(), 7)
			maps := "7f0000000000-7f0000001000 r-xp 00001000 08:01 42 " + c.shown + "\n"
			err := errors.Join(os.Mkdir(p.dir, 0o755), os.Symlink(c.root, filepath.Join(p.dir, "root")), os.WriteFile(filepath.Join(p.dir, "maps"), []byte(maps), 0o644))
			if err != nil {
				t.Fatal(err)
			}
			var s Server
			if err := p.readLibrary(&s); err != nil {
				t.Fatal(err)
			}
			if want := (Library{Path: c.want, Device: "08:01", Inode: 42}); s.TLSLibrary != want {
				t.Errorf("%+v, want %+v", s.TLSLibrary, want)
			}
		})
	}
}
