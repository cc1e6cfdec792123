package main

import (
	"strings"
	"testing"
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
