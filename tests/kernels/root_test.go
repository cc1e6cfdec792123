package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/plumbline/plumbline/tests/testkit"
)

func TestCodename(t *testing.T) {
	for text, want := range map[string]string{
		"NAME=Debian\nVERSION_CODENAME=bookworm\nID=debian\n": "bookworm", "VERSION_CODENAME=\"trixie\"\n": "trixie", "NAME=Debian\n": "",
	} {
		if got := codename(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

// A root that lacks a package is not taken for one that has it.
func TestRootName(t *testing.T) {
	one := rootName("bookworm", []string{"dash", "mount"})
	if one != rootName("bookworm", []string{"dash", "mount"}) || !strings.HasPrefix(one, "root-bookworm-") {
		t.Errorf("%s", one)
	}
	if one == rootName("bookworm", []string{"mount"}) || one == rootName("trixie", []string{"dash", "mount"}) {
		t.Errorf("%s is another root's name, too", one)
	}
}

// Packages that have files in /lib and packages that have them in /usr/lib meet in one folder.
func TestUnpackAll(t *testing.T) {
	if _, err := exec.LookPath("dpkg-deb"); err != nil {
		testkit.Skip(t, err.Error())
	}
	debs, tree := t.TempDir(), t.TempDir()
	for name, file := range map[string]string{"old": "lib/old.so", "new": "usr/lib/new.so"} {
		folder := filepath.Join(t.TempDir(), name)
		write(t, filepath.Join(folder, file), name)
		write(t, filepath.Join(folder, "DEBIAN/control"),
			"Package: "+name+"\nVersion: 1\nArchitecture: arm64\nMaintainer: Nobody <nobody@localhost>\nDescription: none\n")
		if out, err := exec.Command("dpkg-deb", "--build", folder, filepath.Join(debs, name+".deb")).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	if err := skeleton(tree); err != nil {
		t.Fatal(err)
	}
	if err := unpackAll(t.Context(), debs, tree); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{"lib/old.so", "lib/new.so"} {
		if _, err := os.Stat(filepath.Join(tree, file)); err != nil {
			t.Error(err)
		}
	}
	if err := unpackAll(t.Context(), debs, filepath.Join(tree, "none")); err == nil {
		t.Error("a folder that is not there is no error")
	}
}
