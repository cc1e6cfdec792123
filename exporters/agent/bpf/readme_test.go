package bpf_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The functions and maps that README.md names are in the sources.
func TestReadmeNames(t *testing.T) {
	var sources strings.Builder
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".c" && filepath.Ext(path) != ".h" {
			return err
		}
		text, err := os.ReadFile(path)
		sources.Write(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	check := func(what, source string, names []string) {
		if len(names) == 0 {
			t.Errorf("README.md names no %s", what)
		}
		for _, name := range names {
			if strings.HasPrefix(name, "bpf_") {
				continue // the kernel's
			}
			if !regexp.MustCompile(strings.ReplaceAll(source, "NAME", name)).MatchString(sources.String()) {
				t.Errorf("README.md: there is no %s %s", what, name)
			}
		}
	}
	name := regexp.MustCompile("`([a-z][a-z0-9_]*)(?:\\(\\))?`")
	within := func(text string) (all []string) {
		for _, m := range name.FindAllStringSubmatch(text, -1) {
			all = append(all, m[1])
		}
		return all
	}
	check("function", `\bNAME\(`, within(strings.Join(regexp.MustCompile("`[a-z0-9_]+\\(\\)`").FindAllString(string(readme), -1), " ")))
	var rows []string
	for _, m := range regexp.MustCompile(`(?m)^\| [a-z][a-z, :]*: ([^|]*)\|`).FindAllStringSubmatch(string(readme), -1) {
		rows = append(rows, m[1])
	}
	check("map or variable", `\bNAME( SEC\("\.maps"\)|;)`, within(strings.Join(rows, " ")))
}
