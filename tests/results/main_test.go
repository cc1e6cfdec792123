package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The page in the checkout is what its rows give: it was not edited.
func TestPageIsOfTheRows(t *testing.T) {
	want, err := write("measured")
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(filepath.Join("..", "RESULTS.md"))
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != string(want) {
		t.Error("tests/RESULTS.md is not what tests/results/measured gives; run make generate")
	}
}

// A run's rows take the place of those of their names; the others stay; a damaged file is named.
func TestRun(t *testing.T) {
	dir := t.TempDir()
	put := func(path, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	runs, kept, page := filepath.Join(dir, "runs"), filepath.Join(dir, "kept"), filepath.Join(dir, "page.md")
	put(filepath.Join(kept, "faults.jsonl"), `{"section":"Faults","what":"one","cells":[{"column":"seen","value":"old"}]}
{"section":"Faults","what":"two","cells":[{"column":"seen","value":"stays"}]}
{"section":"Faults","what":"three","cells":[{"column":"seen","value":"an error"}]}
`)
	put(filepath.Join(runs, "faults.jsonl"), `{"section":"Faults","what":"one","cells":[{"column":"seen","value":"new"}]}
{"section":"Faults","what":"three","gone":true}
`)
	if err := run(runs, kept, page); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	for word, want := range map[string]bool{"old": false, "new": true, "stays": true, "an error": false} {
		if strings.Contains(string(text), "| "+word+" |") != want {
			t.Errorf("the page has %q: %v, want %v\n%s", word, !want, want, text)
		}
	}
	if left, err := os.ReadFile(filepath.Join(kept, "faults.jsonl")); err != nil || strings.Contains(string(left), "three") {
		t.Errorf("what is gone is kept: %v\n%s", err, left)
	}
	put(filepath.Join(runs, "faults.jsonl"), "{\n")
	if err := run(runs, kept, page); err == nil || !strings.Contains(err.Error(), "faults.jsonl, line 1") {
		t.Errorf("of a damaged file: %v", err)
	}
	if err := run(t.TempDir(), kept, page); err == nil || !strings.Contains(err.Error(), "no .jsonl file") {
		t.Errorf("of a folder without rows: %v", err)
	}
	if err := run("", kept, page); err != nil {
		t.Errorf("without runs: %v", err)
	}
	if err := run(runs, t.TempDir(), page); err == nil {
		t.Error("no error without rows")
	}
}
