package outfile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// writes returns a function that writes a text.
func writes(text string) func(io.Writer) error {
	return func(w io.Writer) error {
		_, err := io.WriteString(w, text)
		return err
	}
}

// has checks a file's text, and that no other file is beside it.
func has(t *testing.T, path, want string) {
	t.Helper()
	if text, err := os.ReadFile(path); err != nil || string(text) != want {
		t.Errorf("%s has %q (%v), want %q", path, text, err, want)
	}
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(entries) != 1 {
		t.Errorf("beside it are %v (%v)", entries, err)
	}
}

// A file is replaced when all of the new one is there, and stays if that cannot be written. To check changes nothing.
func TestWrite(t *testing.T) {
	path := filepath.Join(t.TempDir(), "today.json")
	if err := Check(path); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err == nil {
		t.Error("to check made the file")
	}
	if err := Write(path, writes("yesterday")); err != nil {
		t.Fatal(err)
	}
	has(t, path, "yesterday")
	full := errors.New("no space left")
	err := Write(path, func(w io.Writer) error { return errors.Join(writes("half of tod")(w), full) })
	if !errors.Is(err, full) || !strings.Contains(err.Error(), path) {
		t.Errorf("a full disk gave %v", err)
	}
	has(t, path, "yesterday")
	if err := errors.Join(os.Chmod(path, 0o640), Check(path), Write(path, writes("today"))); err != nil {
		t.Fatal(err)
	}
	has(t, path, "today")
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o640 || !Replaces(path) {
		t.Errorf("its mode is %v (%v)", info, err)
	}
}

// What cannot be written is an error before, with its name.
func TestCheckRefuses(t *testing.T) {
	folder := t.TempDir()
	file := filepath.Join(folder, "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{filepath.Join(folder, "no", "such", "x.json"), folder, filepath.Join(file, "x.json"), "/proc/x.json"} {
		if err := Check(path); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%s is refused by %v", path, err)
		}
		if err := Write(path, writes("x")); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%s is written with %v", path, err)
		}
	}
}

// A link stays one, and what it leads to is replaced.
func TestLink(t *testing.T) {
	path, link := filepath.Join(t.TempDir(), "file"), filepath.Join(t.TempDir(), "link")
	if err := errors.Join(os.WriteFile(path, []byte("old"), 0o644), os.Symlink(path, link), Check(link), Write(link, writes("new"))); err != nil {
		t.Fatal(err)
	}
	has(t, path, "new")
	if to, err := os.Readlink(link); err != nil || to != path {
		t.Errorf("the link leads to %q (%v)", to, err)
	}
}

// A link to what is still to be made stays one, too.
func TestLinkToNothing(t *testing.T) {
	folder := t.TempDir()
	path, link := filepath.Join(folder, "there", "file"), filepath.Join(folder, "here", "link")
	err := errors.Join(os.Mkdir(filepath.Dir(path), 0o755), os.Mkdir(filepath.Dir(link), 0o755), os.Symlink("../there/second", link),
		os.Symlink("file", filepath.Join(folder, "there", "second")), Check(link), Write(link, writes("new")), os.Remove(filepath.Join(folder, "there", "second")))
	if err != nil {
		t.Fatal(err)
	}
	has(t, path, "new")
	if to, err := os.Readlink(link); err != nil || to != "../there/second" {
		t.Errorf("the link leads to %q (%v)", to, err)
	}
}

// The umask decides who may read a new file, unless its mode is given.
func TestUmask(t *testing.T) {
	folder := t.TempDir()
	before := syscall.Umask(0o027)
	defer syscall.Umask(before)
	for _, c := range []struct{ mode, want fs.FileMode }{{0, 0o640}, {0o644, 0o644}} {
		f := File{Path: filepath.Join(folder, c.want.String()), Mode: c.mode}
		if err := f.Write(writes("x")); err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(f.Path)
		if err != nil {
			t.Fatal(err)
		}
		if got := info.Mode().Perm(); got != c.want {
			t.Errorf("a new file with the mode %v has %v, want %v", c.mode, got, c.want)
		}
	}
}

// The standard output is written to as it is, a file or a pipe, in its order with what else is written there; a device
// as well.
func TestStreams(t *testing.T) {
	const inside = "OUTFILE_TEST_INSIDE"
	if os.Getenv(inside) != "" {
		_, err := os.Stdout.WriteString("one ")
		if err := errors.Join(err, Check("/dev/stdout"), Write("/dev/stdout", writes("two "))); err != nil || Replaces("/dev/stdout") {
			fmt.Fprintln(os.Stderr, "it was not written to:", err)
			os.Exit(1)
		}
		os.Stdout.WriteString("three")
		os.Exit(0)
	}
	child := func() *exec.Cmd {
		c := exec.Command(os.Args[0], "-test.run=^TestStreams$")
		c.Env = append(os.Environ(), inside+"=1")
		c.Stderr = t.Output()
		return c
	}
	if out, err := child().Output(); err != nil || string(out) != "one two three" {
		t.Errorf("a pipe has %q (%v)", out, err)
	}
	path := filepath.Join(t.TempDir(), "log")
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	c := child()
	c.Stdout = file
	if err := errors.Join(c.Run(), file.Close()); err != nil {
		t.Fatal(err)
	}
	has(t, path, "one two three")
	if err := errors.Join(Check("/dev/null"), Write("/dev/null", writes("x"))); err != nil || Replaces("/dev/null") {
		t.Errorf("/dev/null: %v", err)
	}
}
