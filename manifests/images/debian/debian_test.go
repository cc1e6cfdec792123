package debian_test

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/plumbline/plumbline/manifests/images/debian"
	"github.com/plumbline/plumbline/tests/testkit"
)

// program is one that every Debian system has; it links libraries of several packages.
const program = "/usr/bin/dpkg-deb"

// take takes the program with its libraries.
func take(root string) (*debian.Contents, error) {
	s := debian.System(root)
	libraries, err := s.Libraries(runtime.GOARCH, []string{program})
	if err != nil {
		return nil, err
	}
	files := map[string]string{program: program}
	for _, l := range libraries {
		files[l] = l
	}
	return s.Take(files)
}

// copySystem makes a folder that is a small Debian system: the program's packages and their
// libraries', with the machine's own files and what dpkg knows of them.
func copySystem(t *testing.T) string {
	t.Helper()
	testkit.Tool(t, "dpkg-query")
	c, err := take("/")
	if err != nil {
		t.Fatal(err)
	}
	root := t.TempDir()
	info := filepath.Join(root, "var/lib/dpkg/info")
	// /lib and the like lead into /usr on most systems.
	for _, folder := range []string{info, filepath.Join(root, "usr/lib"), filepath.Join(root, "usr/lib64"), filepath.Join(root, "usr/bin"), filepath.Join(root, "usr/sbin")} {
		if err := os.MkdirAll(folder, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	var status bytes.Buffer
	for _, p := range c.Packages {
		status.Write(append(p.Status, '\n'))
		// A machine may have left out documentation that its packages brought.
		output, err := exec.Command("sh", "-euc", `dpkg-query --listfiles "$1" | grep -Ev '^package diverts|/gconv/|/locale/|/man/' |
tar --create --no-recursion --ignore-failed-read --files-from=- 2>/dev/null | tar --extract --keep-directory-symlink --directory="$2"
for file in /var/lib/dpkg/info/"$1".* /var/lib/dpkg/info/"$1":* /var/lib/dpkg/info/format; do
	case $file in *.list|*.md5sums|*/format) cp "$file" "$3";; esac
done`, "sh", p.Name, root, info).CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", p.Name, err, output)
		}
	}
	if err := os.WriteFile(filepath.Join(root, "var/lib/dpkg/status"), status.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	return root
}

// The same packages on another system make the same files; its links lead nowhere else.
func TestSame(t *testing.T) {
	root := copySystem(t)
	one, two := filepath.Join(t.TempDir(), "one"), filepath.Join(t.TempDir(), "two")
	for from, to := range map[string]string{"/": one, root: two} {
		c, err := take(from)
		if err != nil {
			t.Fatal(err)
		}
		// Written twice, the second in the place of the first.
		for range 2 {
			if err := c.Write(to); err != nil {
				t.Fatal(err)
			}
		}
	}
	if output, err := exec.Command("diff", "--recursive", one, two).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, output)
	}
	for _, file := range []string{program, "/var/lib/dpkg/status.d/dpkg", "/usr/share/doc/dpkg/copyright", "/usr/share/common-licenses/GPL-2", "/etc/os-release"} {
		if info, err := os.Lstat(filepath.Join(two, file)); err != nil || !info.Mode().IsRegular() || info.Size() == 0 {
			t.Errorf("%s: %v %v", file, err, info)
		}
	}
}

// What is not as it should be is refused by name.
func TestRefused(t *testing.T) {
	sound := copySystem(t)
	library := func(root string) string {
		found, err := filepath.Glob(filepath.Join(root, "usr/lib/*/libz.so.1"))
		if err != nil || len(found) != 1 {
			t.Fatalf("%v %v", err, found)
		}
		return found[0]
	}
	for name, c := range map[string]struct {
		do   func(root string) error
		want string
	}{
		"changed": {func(root string) error {
			f, err := os.OpenFile(library(root), os.O_APPEND|os.O_WRONLY, 0)
			if err != nil {
				return err
			}
			defer f.Close()
			_, err = f.WriteString("x")
			return err
		}, "is not as its package brought it"},
		"without a library":   {func(root string) error { return os.Remove(library(root)) }, "dpkg-deb: needs libz.so.1, which is in none of /lib/"},
		"without a licence":   {func(root string) error { return os.Remove(filepath.Join(root, "usr/share/doc/dpkg/copyright")) }, "apt-get install --reinstall dpkg"},
		"without its package": {func(root string) error { return os.Remove(filepath.Join(root, "var/lib/dpkg/info/dpkg.list")) }, program + ": it is of no Debian package"},
		"no program": {func(root string) error {
			return os.WriteFile(filepath.Join(root, program), []byte("#!/bin/sh\necho a script\n"), 0o755)
		}, program + ": bad magic number"},
		"a folder": {func(root string) error {
			file := filepath.Join(root, "usr/lib/os-release")
			return errors.Join(os.Remove(file), os.Mkdir(file, 0o755))
		}, "/usr/lib/os-release: it is no file"},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			if output, err := exec.Command("cp", "--archive", sound+"/.", root).CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, output)
			}
			if err := c.do(root); err != nil {
				t.Fatal(err)
			}
			if _, err := take(root); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
	other := map[string]string{"amd64": "arm64", "arm64": "amd64"}[runtime.GOARCH]
	if _, err := debian.System("/").Libraries(other, []string{program}); err == nil || !strings.Contains(err.Error(), "not for "+other) {
		t.Errorf("a program of this machine for %s: %v", other, err)
	}
	if _, err := debian.System("/").Libraries("vax", []string{program}); err == nil || !strings.Contains(err.Error(), "vax") {
		t.Errorf("for a VAX: %v", err)
	}
	c, err := take("/")
	if err != nil {
		t.Fatal(err)
	}
	others := t.TempDir()
	if err := c.Write(others); err == nil || !strings.Contains(err.Error(), others) {
		t.Errorf("another's folder: %v", err)
	}
}

func TestReadStatus(t *testing.T) {
	p, err := debian.ReadStatus([]byte("Package: libx1\nStatus: install ok installed\nArchitecture: amd64\nVersion: 1:2.3-4+b1\nConffiles:\n /etc/x 0123\n /etc/y 4567\nDescription: short\n long\n .\n more\n"))
	if err != nil || p.Name != "libx1" || p.Version != "1:2.3-4+b1" || p.Architecture != "amd64" {
		t.Errorf("%v %+v", err, p)
	}
	for _, text := range []string{"", "Package: x\nArchitecture: all\n", "no field\n"} {
		if _, err := debian.ReadStatus([]byte(text)); err == nil {
			t.Errorf("%q is a package", text)
		}
	}
}
