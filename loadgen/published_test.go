package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/plumbline/plumbline/loadgen/matrix"
)

var (
	repeated = regexp.MustCompile(`(?m)^    (loadgen .*)$`)
	named    = regexp.MustCompile("loadgen matrix ([a-z][a-z-]+)")
	pageLink = regexp.MustCompile(`\]\(([a-z0-9-]+\.md)\)`)
	public   = regexp.MustCompile(`<https://[^ >]+>`)
)

// Each page on a published comparison names whose it is and how it is repeated: by a matrix that
// there is, on targets that can be read and have what its steps need, or by a canary.
func TestPublished(t *testing.T) {
	index, err := os.ReadFile("published/README.md")
	if err != nil {
		t.Fatal(err)
	}
	files, used, listed := glob(t, "published/*.yaml"), map[string]bool{}, map[string]bool{}
	for _, m := range pageLink.FindAllStringSubmatch(string(index), -1) {
		listed["published/"+m[1]] = true
	}
	for _, page := range glob(t, "published/*.md") {
		if page == "published/README.md" {
			continue
		}
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		if !listed[page] {
			t.Errorf("%s is not in the list", page)
		}
		delete(listed, page)
		if !public.Match(text) || !strings.Contains(string(text), "\n## What cannot be compared\n") {
			t.Errorf("%s lacks where it was published, or what cannot be compared", page)
		}
		lines := repeated.FindAllStringSubmatch(string(text), -1)
		if len(lines) == 0 {
			t.Errorf("%s has no command", page)
		}
		for _, line := range lines {
			if file := repeats(t, page, line[1]); file != "" {
				used[file] = true
			}
		}
	}
	for page := range listed {
		t.Errorf("%s is in the list, and not there", page)
	}
	for _, file := range files {
		if !used[file] {
			t.Errorf("no page uses %s", file)
		}
	}
	for _, m := range named.FindAllStringSubmatch(string(index), -1) {
		if _, ok := matrix.Matrices[m[1]]; !ok {
			t.Errorf("there is no matrix %s", m[1])
		}
	}
}

// repeats checks one command line of a page and returns its file of targets; a canary has none.
func repeats(t *testing.T, page, line string) string {
	t.Helper()
	p := newProgram()
	switch chosen, err := p.Flags.Parse(strings.Fields(line)[1:]); {
	case err != nil || chosen != "matrix" && chosen != "canary":
		t.Errorf("%s: %s: %q, %v", page, line, chosen, err)
	case chosen == "canary":
		return ""
	}
	name := named.FindStringSubmatch(line)
	if name == nil {
		t.Fatalf("%s: %s: no matrix", page, line)
	}
	m, ok := matrix.Matrices[name[1]]
	if !ok {
		t.Errorf("%s: there is no matrix %s", page, name[1])
	}
	file := ""
	for _, word := range strings.Fields(line) {
		if path, ok := strings.CutPrefix(word, "--targets=loadgen/"); ok {
			file = path
		}
	}
	targets, err := matrix.ReadTargets(file)
	if err != nil {
		t.Fatalf("%s: %v", page, err)
	}
	local := 0
	for _, target := range targets {
		if target.Local {
			local++
		}
		for _, s := range m.Steps {
			if s.FIO != nil && target.Directory == "" || s.FIO == nil && target.DSN == "" {
				t.Errorf("%s: %s has not what %s needs", page, target.StorageClass, s.Name)
			}
			if (s.Init != nil || s.Pgbench != nil || s.Scan != nil) && target.Engine != "postgres" {
				t.Errorf("%s: %s needs PostgreSQL", page, s.Name)
			}
		}
	}
	if local != 1 {
		t.Errorf("%s: %d local classes to compare with", file, local)
	}
	return file
}

func glob(t *testing.T, pattern string) []string {
	t.Helper()
	found, err := filepath.Glob(pattern)
	if err != nil || len(found) == 0 {
		t.Fatalf("%s: %v, %v", pattern, found, err)
	}
	return found
}
