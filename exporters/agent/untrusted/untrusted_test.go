package untrusted_test

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/plumbline/plumbline/exporters/agent/untrusted"
	"github.com/plumbline/plumbline/exporters/agent/untrusted/untrustedtest"
)

const secret = "root:*:20228:0:99999:7:::"

// process makes the folder of a process in a made-up procfs whose root and working directory are
// new folders.
func process(t *testing.T) (procfs, root, cwd string) {
	t.Helper()
	procfs, root = t.TempDir(), t.TempDir()
	cwd = filepath.Join(root, "data")
	if err := errors.Join(os.Mkdir(cwd, 0o755), os.Mkdir(filepath.Join(procfs, "7"), 0o755),
		os.Symlink(root, filepath.Join(procfs, "7", "root")), os.Symlink(cwd, filepath.Join(procfs, "7", "cwd"))); err != nil {
		t.Fatal(err)
	}
	return procfs, root, cwd
}

func check(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// Only a regular file within the process's own view is read, and nothing waits.
func TestReadFile(t *testing.T) {
	outside := filepath.Join(t.TempDir(), "shadow")
	check(t, os.WriteFile(outside, []byte(secret), 0o600))
	for _, c := range []struct {
		name string
		make func(root, path string) error
		// want is what NoLinks and InRoot give: content, or "" for an error.
		noLinks, inRoot string
	}{
		{"a file", func(_, path string) error { return os.WriteFile(path, []byte("15\n"), 0o644) }, "15\n", "15\n"},
		{"nothing", func(_, path string) error { return nil }, "", ""},
		{"an absolute link", func(_, path string) error { return os.Symlink(outside, path) }, "", ""},
		{"a relative link", func(root, path string) error {
			to, err := filepath.Rel(filepath.Dir(path), outside)
			return errors.Join(err, os.Symlink(to, path))
		}, "", ""},
		{"a link within the root", func(root, path string) error {
			return errors.Join(os.WriteFile(filepath.Join(root, "v"), []byte("16\n"), 0o644), os.Symlink("/v", path))
		}, "", "16\n"},
		{"a magic link", func(_, path string) error { return os.Symlink("/proc/self/root"+outside, path) }, "", ""},
		{"a FIFO", func(_, path string) error { return syscall.Mkfifo(path, 0o644) }, "", ""},
		{"a device without end", func(_, path string) error {
			return unix.Mknod(path, unix.S_IFCHR|0o666, int(unix.Mkdev(1, 5)))
		}, "", ""},
		{"a link to such a device", func(_, path string) error { return os.Symlink("/dev/zero", path) }, "", ""},
		{"a socket", func(_, path string) error { return unix.Mknod(path, unix.S_IFSOCK|0o666, 0) }, "", ""},
		{"a folder", func(_, path string) error { return os.Mkdir(path, 0o755) }, "", ""},
		{"a file of 1 GiB", func(_, path string) error {
			return errors.Join(os.WriteFile(path, nil, 0o644), os.Truncate(path, 1<<30))
		}, "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			procfs, root, cwd := process(t)
			check(t, c.make(root, filepath.Join(cwd, "f")))
			data, err := untrusted.WorkingDirectory(procfs, 7)
			check(t, err)
			defer data.Close()
			top, err := untrusted.Root(procfs, 7)
			check(t, err)
			defer top.Close()
			for _, r := range []struct {
				dir  *untrusted.Dir
				path string
				how  untrusted.Resolution
				want string
			}{{data, "f", untrusted.NoLinks, c.noLinks}, {top, "/data/f", untrusted.InRoot, c.inRoot}} {
				text, err := r.dir.ReadFile(r.path, r.how, 64)
				if string(text) != r.want || (err == nil) != (r.want != "") {
					t.Errorf("%s with %x: %d bytes %.40q, %v; want %q", r.path, r.how, len(text), text, err, r.want)
				}
			}
		})
	}
}

// A folder on the way may be a link, too, and ".." leads nowhere.
func TestReadFileThroughFolders(t *testing.T) {
	procfs, root, _ := process(t)
	outside := t.TempDir()
	check(t, os.WriteFile(filepath.Join(outside, "f"), []byte(secret), 0o644), os.Symlink(outside, filepath.Join(root, "etc")),
		os.WriteFile(filepath.Join(filepath.Dir(root), "f"), []byte(secret), 0o644))
	top, err := untrusted.Root(procfs, 7)
	check(t, err)
	defer top.Close()
	for _, path := range []string{"etc/f", "../f", "/../f", "data/../../f"} {
		for _, how := range []untrusted.Resolution{untrusted.NoLinks, untrusted.InRoot} {
			if text, err := top.ReadFile(path, how, 64); err == nil {
				t.Errorf("%s with %x gives %q", path, how, text)
			}
		}
	}
}

// The target of a magic link is read if it is a regular file; otherwise the error names the reason.
func TestOpenMagic(t *testing.T) {
	f, _, err := untrusted.OpenMagic("/proc/self/exe")
	check(t, err)
	f.Close()
	zero, err := os.Open("/dev/zero")
	check(t, err)
	defer zero.Close()
	link := filepath.Join("/proc/self/fd", strconv.Itoa(int(zero.Fd())))
	if _, _, err := untrusted.OpenMagic(link); !errors.Is(err, untrusted.ErrNotRegular) {
		t.Errorf("a device gives %v", err)
	}
	s, err := untrusted.FileMagic(link)
	if err != nil || s.Mode&unix.S_IFMT != unix.S_IFCHR {
		t.Errorf("a device has mode %#o, %v", s.Mode, err)
	}
}

// Lines and lengths are bounded, and what is within the bounds is there.
func TestLines(t *testing.T) {
	path := filepath.Join(t.TempDir(), "maps")
	for _, c := range []struct {
		name, text string
		limit      int
		lines      int
		fails      bool
	}{
		{"all", "a\nb\nc\n", 100, 3, false},
		{"exactly", "a\nb\n", 4, 2, false},
		{"too many", strings.Repeat("a\n", 100), 50, -1, true},
		{"too long", strings.Repeat("a", 100<<10) + "\nb\n", 1 << 20, 0, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			check(t, os.WriteFile(path, []byte(c.text), 0o644))
			n := 0
			err := untrusted.Lines(path, c.limit, func(string) bool { n++; return true })
			if (err != nil) != c.fails || c.lines >= 0 && n != c.lines || n > c.limit {
				t.Errorf("%d lines, %v", n, err)
			}
		})
	}
}

// A device's number is found in /dev, and not by what users may have put below it.
func TestDevice(t *testing.T) {
	s, err := untrusted.Device("zero")
	if err != nil || s.Mode&unix.S_IFMT != unix.S_IFCHR {
		t.Errorf("zero: %#o, %v", s.Mode, err)
	}
	host := t.TempDir()
	check(t, os.Mkdir(filepath.Join(host, "1"), 0o755), os.Symlink("/", filepath.Join(host, "1", "root")))
	if s, err := untrusted.HostDevice(host, "zero"); err != nil || s.Mode&unix.S_IFMT != unix.S_IFCHR {
		t.Errorf("the host's zero: %#o, %v", s.Mode, err)
	}
	var dev, shm unix.Stat_t
	check(t, unix.Stat("/dev", &dev), unix.Stat("/dev/shm", &shm))
	if dev.Dev == shm.Dev {
		t.Skip("/dev/shm is no file system of its own")
	}
	link := filepath.Join("/dev/shm", filepath.Base(t.TempDir())+"-plumbline")
	check(t, os.Symlink("/dev/zero", link))
	defer os.Remove(link)
	for _, name := range []string{"shm/" + filepath.Base(link), "../etc/passwd", "fd/0", "/etc/passwd"} {
		if _, err := untrusted.Device(name); err == nil {
			t.Errorf("%s is opened", name)
		}
		if _, err := untrusted.HostDevice(host, name); err == nil {
			t.Errorf("%s of the host is opened", name)
		}
	}
}

// A file system whose server does not answer costs one call, and its timeout.
func TestHungFileSystem(t *testing.T) {
	hung, release := untrustedtest.HungMount(t)
	procfs := t.TempDir()
	check(t, os.Mkdir(filepath.Join(procfs, "7"), 0o755), os.Symlink(hung, filepath.Join(procfs, "7", "cwd")))
	calls := untrusted.NewCalls(50*time.Millisecond, 8)
	for range 2 {
		_, err := untrusted.Call(calls, untrusted.Owner{}, "hung", func() ([]byte, error) {
			dir, err := untrusted.WorkingDirectory(procfs, 7)
			if err != nil {
				return nil, err
			}
			defer dir.Close()
			return dir.ReadFile("PG_VERSION", untrusted.NoLinks, 64)
		})
		if !errors.Is(err, untrusted.ErrUnanswered) {
			t.Fatalf("error %v", err)
		}
	}
	if calls.Hanging() != 1 || calls.Late() != 1 {
		t.Errorf("%d calls hang, %d were late", calls.Hanging(), calls.Late())
	}
	release()
}
