package main

import (
	"strings"
	"testing"
)

// A program that is missing is named with what needs it and with all packages to install.
func TestMissingProgramsAreNamed(t *testing.T) {
	err := findPrograms("class x", map[string]string{"sh": "dash", "no-such-b": "package-b", "no-such-a": "package-a", "no-such-c": "package-b"})
	if err == nil {
		t.Fatal("programs that are not there were found")
	}
	for _, want := range []string{"class x needs no-such-a", "apt-get install package-a package-b"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("no %q in %q", want, err)
		}
	}
	if err := findPrograms("class x", map[string]string{"sh": "dash"}); err != nil {
		t.Error(err)
	}
}
