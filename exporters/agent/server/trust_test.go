package server

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/plumbline/plumbline/tests/testkit"
)

// sleeping runs a copy of sleep under a name and returns its process.
func sleeping(t *testing.T, path string, prepare func(path string) error) int {
	t.Helper()
	program, err := filepath.EvalSymlinks(testkit.Tool(t, "sleep"))
	if err != nil {
		t.Fatal(err)
	}
	copyFile(t, program, path)
	if err := prepare(path); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(path, "3600")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd.Process.Pid
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	in, err := os.Open(from)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	_, err = io.Copy(out, in)
	if err := errors.Join(err, out.Close(), os.Chmod(to, 0o755)); err != nil {
		t.Fatal(err)
	}
}

// shown is how a process's mappings would show a file.
func shown(t *testing.T, path string) Library {
	t.Helper()
	var s unix.Stat_t
	if err := unix.Stat(path, &s); err != nil {
		t.Fatal(err)
	}
	return Library{Path: path, Device: fmt.Sprintf("%02x:%02x", unix.Major(s.Dev), unix.Minor(s.Dev)), Inode: s.Ino}
}

// A library is opened only if nobody but root can have put it, and the server's program, there.
func TestOpenTrusted(t *testing.T) {
	testkit.NeedRoot(t)
	const nobody = 65534
	as := func(string) error { return nil }
	given := func(path string) error { return os.Chown(path, nobody, nobody) }
	writable := func(path string) error { return os.Chmod(path, 0o775) }
	for _, c := range []struct {
		name, program string
		prepare       func(path string) error
		library       func(path string) error
		mapped        func(l *Library)
		refused       string // part of the error; "" if it is opened
	}{
		{"root's files", "postgres", as, as, nil, ""},
		{"a program of another name", "sleep", as, as, nil, "no database server"},
		{"a user's program", "postgres", given, as, nil, "belongs to user 65534"},
		{"a program that others write", "postgres", writable, as, nil, "may write it"},
		{"a user's library", "postgres", as, given, nil, "belongs to user 65534"},
		{"a library that others write", "postgres", as, writable, nil, "may write it"},
		{"a library of another inode", "postgres", as, as, func(l *Library) { l.Inode++ }, "not the file"},
		{"a library of another device", "postgres", as, as, func(l *Library) { l.Device = "ff:ff" }, "not the file"},
		{"a folder", "postgres", as, func(path string) error { return errors.Join(os.Remove(path), os.Mkdir(path, 0o755)) }, nil, "regular"},
		{"a magic link", "postgres", as, func(path string) error {
			return errors.Join(os.Remove(path), os.Symlink("/proc/self/exe", path))
		}, nil, "TLS library"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir, err := os.MkdirTemp("/var/tmp", "trust-test-") // not mounted nosuid, as /tmp may be
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { os.RemoveAll(dir) })
			pid := sleeping(t, filepath.Join(dir, c.program), c.prepare)
			path := filepath.Join(dir, "libssl.so.3")
			if err := errors.Join(os.WriteFile(path, []byte("ELF"), 0o755), os.Chmod(path, 0o755), c.library(path)); err != nil {
				t.Fatal(err)
			}
			l := shown(t, path)
			if c.mapped != nil {
				c.mapped(&l)
			}
			f, err := Programs{}.OpenTrusted("/proc", pid, l)
			if f != nil {
				f.Close()
			}
			if c.refused == "" && err != nil || c.refused != "" && (err == nil || !strings.Contains(err.Error(), c.refused)) {
				t.Errorf("error %v, want %q", err, c.refused)
			}
		})
	}
}

// On a file system that users may mount, such as FUSE, an owner proves nothing.
func TestOpenTrustedNosuid(t *testing.T) {
	testkit.NeedRoot(t)
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", unix.MS_NOSUID, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Unmount(dir, unix.MNT_DETACH) })
	pid := sleeping(t, filepath.Join(dir, "postgres"), func(string) error { return nil })
	f, err := Programs{}.OpenTrusted("/proc", pid, shown(t, "/etc/passwd"))
	if f != nil {
		f.Close()
	}
	if !errors.Is(err, ErrUntrusted) || !strings.Contains(err.Error(), "nosuid") {
		t.Errorf("error %v", err)
	}
}
