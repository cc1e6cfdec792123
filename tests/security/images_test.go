package main

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/plumbline/plumbline/manifests/images"
	"github.com/plumbline/plumbline/tests/testkit"
)

var update = flag.Bool("update", false, "write the golden files anew")

// The images hold nothing but what is listed: no shell, no package, no library; except loadgen-tools, whose permitted
// content a test in manifests/images/tools checks.
func TestImagesContent(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(testkit.Root(), "manifests", "images", "*.Dockerfile"))
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, file := range files {
		for _, arch := range []string{"amd64", "arm64"} {
			d, err := images.Read(file, arch)
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(&b, "%s for %s, user %s\n", strings.TrimSuffix(filepath.Base(file), ".Dockerfile"), arch, d.User)
			for _, copied := range []map[string]string{d.Folders, d.Files} {
				for _, target := range slices.Sorted(maps.Keys(copied)) {
					fmt.Fprintf(&b, "  %s from %s\n", target, copied[target])
				}
			}
		}
	}
	const golden = "testdata/images.txt"
	if *update {
		if err := os.WriteFile(golden, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if b.String() != string(want) {
		t.Errorf("differs from %s (run with -update to accept):\n%s", golden, b.String())
	}
}
