package server

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/plumbline/plumbline/exporters/agent/untrusted"
	"github.com/plumbline/plumbline/tests/testkit"
)

// Where a file is, is known by the kernel's number of its mount, whatever the file system calls its device; and the
// mount's source counts on btrfs only: others any user may mount, by a device's name.
func TestStorageOf(t *testing.T) {
	p := newProcess(t.TempDir(), 10)
	if err := os.MkdirAll(p.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	mounts := `21 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw
22 21 0:31 /subvolume /data rw,relatime shared:7 - btrfs /dev/sdb rw,subvol=/subvolume
23 21 0:32 / /memory rw - tmpfs /dev/sda rw
24 21 0:33 / /fuse rw - fuse.btrfs /dev/sda rw
25 21 0:34 / /layers rw - overlay /dev/sda rw,lowerdir=/a
26 21 8:17 /old//deleted /gone rw - ext4 /dev/sdb1 rw
`
	if err := os.WriteFile(filepath.Join(p.dir, "mountinfo"), []byte(mounts), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		mount        uint64
		device       uint32 // the minor number that the file system reports
		path         string
		want, source string
		on           string
	}{
		{21, 1, "/srv/pg", "8:1", "/dev/sda1", "/srv/pg"},
		{22, 77, "/data/pg", "0:31", "/dev/sdb", "/subvolume/pg"},
		{22, 77, "/data", "0:31", "/dev/sdb", "/subvolume"},
		{22, 77, "/elsewhere", "0:31", "/dev/sdb", ""},
		{23, 32, "/memory/pg", "0:32", "/dev/sda", "/pg"},
		{25, 77, "/layers/pg", "0:34", "/dev/sda", "/pg"},
		{26, 17, "/gone/pg", "8:17", "/dev/sdb1", "//deleted/old/pg"},
		// Not in the table: what the file system reports.
		{99, 35, "/x", "0:35", "", ""},
		{0, 35, "/x", "0:35", "", ""},
	} {
		got := p.storageOf(untrusted.File{Stat_t: unix.Stat_t{Dev: unix.Mkdev(0, c.device)}, Mount: c.mount}, c.path)
		if got.Mount.Device != c.want || got.Mount.Source != c.source || got.Place.Path != c.on {
			t.Errorf("mount %d: %+v", c.mount, got)
		}
	}
}

// The log and a tablespace of PostgreSQL's may be mounted into the data directory; a plain folder is where the data is.
func TestMountedLog(t *testing.T) {
	testkit.NeedRoot(t)
	for _, name := range []string{"pg_wal", "pg_xlog"} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			t.Chdir(dir)
			spaces := filepath.Join(dir, "pg_tblspc")
			if err := errors.Join(os.Mkdir(name, 0o700), os.MkdirAll(filepath.Join(spaces, "1"), 0o700), os.MkdirAll(filepath.Join(spaces, "2"), 0o700)); err != nil {
				t.Fatal(err)
			}
			p := process{root: "/proc", pid: os.Getpid(), dir: fmt.Sprintf("/proc/%d", os.Getpid())}
			data, err := untrusted.WorkingDirectory(p.root, p.pid)
			if err != nil {
				t.Fatal(err)
			}
			defer data.Close()
			here, err := data.File(".", untrusted.NoLinks)
			if err != nil {
				t.Fatal(err)
			}
			s := &Server{DataPath: dir, Data: p.storageOf(here, dir)}
			read := func() (log Storage, spaces []Storage) {
				t.Helper()
				log, err := postgresLog(p, s, data)
				spaces, noSpaces := postgresTablespaces(p, s, data)
				if err := errors.Join(err, noSpaces); err != nil {
					t.Fatal(err)
				}
				return log, spaces
			}
			if log, spaces := read(); log != (Storage{}) || len(spaces) != 0 {
				t.Errorf("plain folders are at %+v and %+v", log, spaces)
			}
			for _, at := range []string{filepath.Join(dir, name), filepath.Join(spaces, "2")} {
				if err := unix.Mount("tmpfs", at, "tmpfs", 0, ""); err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { unix.Unmount(at, unix.MNT_DETACH) })
			}
			log, found := read()
			if log.Mount.Point != filepath.Join(dir, name) || log.Mount.Device == s.Data.Mount.Device {
				t.Errorf("the log is at %+v, the data at %+v", log, s.Data)
			}
			if len(found) != 1 || found[0].Mount.Point != filepath.Join(spaces, "2") {
				t.Errorf("the tablespaces are at %+v", found)
			}
		})
	}
}
