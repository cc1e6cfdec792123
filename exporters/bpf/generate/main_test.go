package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/plumbline/plumbline/tests/testkit"
)

// The committed objects are those of the sources; this needs no clang.
func TestObjectsAreCurrent(t *testing.T) {
	want, err := sources(testkit.Root())
	if err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(filepath.Join(testkit.Root(), made)); err != nil || string(got) != want {
		t.Errorf("BPF sources have changed since their objects were compiled (%v); run make generate", err)
	}
}

// A change of a program, of a header and of the compiler's flags is seen, that of other Go code is not.
func TestSources(t *testing.T) {
	root := t.TempDir()
	put := func(name, text string) string {
		t.Helper()
		file := filepath.Join(root, "exporters", "a", name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		sum, err := sources(root)
		if err != nil {
			t.Fatal(err)
		}
		return sum
	}
	seen := map[string]bool{}
	for i, sum := range []string{put("x.bpf.c", "int a;\n"), put("x.h", "int b;\n"), put("gen.go", "package a\n\n//go:generate clang\n"),
		put("x.bpf.c", "int c;\n"), put("gen.go", "package a\n\n//go:generate clang -O2\n")} {
		if seen[sum] {
			t.Errorf("change %d is not seen", i)
		}
		seen[sum] = true
	}
	before := put("y.go", "package a\n")
	if after := put("y.go", "package a\n\n// b\n"); after != before || put("testdata/z.c", "int z;\n") != before {
		t.Error("a change that compiles nothing is seen")
	}
}
