package contract

import (
	"flag"
	"fmt"
	"go/scanner"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var updateWords = flag.Bool("update", false, "write testdata/words.txt instead of comparing with it")

// people are verbs and phrases of people, for which programs have verbs of their own: reports, returns, reads, writes,
// queries, retries.
var people = regexp.MustCompile(`(?i)\b(tells?|told|untold|says?|said|asks?|asked|whom|stands? still|stood still)\b`)

var (
	cComment    = regexp.MustCompile(`(?s)/\*.*?\*/`)
	yamlComment = regexp.MustCompile(`(?m)#.*$`)
)

// prose is what a file has for people to read: comments, the texts of a program, a page.
func prose(path string, text []byte) string {
	switch filepath.Ext(path) {
	case ".md":
		return string(text)
	case ".c", ".h":
		return strings.Join(cComment.FindAllString(string(text), -1), "\n")
	case ".yaml", ".sh":
		return strings.Join(yamlComment.FindAllString(string(text), -1), "\n")
	case ".go":
		var all strings.Builder
		scan(text, func(kind token.Token, literal string) {
			if kind == token.COMMENT || kind == token.STRING {
				all.WriteString(literal + "\n")
			}
		})
		return all.String()
	}
	return ""
}

// scan calls f with each token of a Go file.
func scan(text []byte, f func(kind token.Token, literal string)) {
	var s scanner.Scanner
	s.Init(token.NewFileSet().AddFile("", -1, len(text)), text, nil, scanner.ScanComments)
	for _, kind, literal := s.Scan(); kind != token.EOF; _, kind, literal = s.Scan() {
		f(kind, literal)
	}
}

// lowerUpper and upperWord are where a word of an identifier ends: askWhy, PIDAsked.
var (
	lowerUpper = regexp.MustCompile(`([a-z0-9])([A-Z])`)
	upperWord  = regexp.MustCompile(`([A-Z])([A-Z][a-z])`)
)

// identifiers returns the words of a Go file's identifiers, split where the case changes.
func identifiers(path string, text []byte) string {
	if filepath.Ext(path) != ".go" {
		return ""
	}
	var all strings.Builder
	scan(text, func(kind token.Token, literal string) {
		if kind == token.IDENT {
			all.WriteString(literal + "\n")
		}
	})
	words := strings.ReplaceAll(all.String(), "_", " ")
	return upperWord.ReplaceAllString(lowerUpper.ReplaceAllString(words, "$1 $2"), "$1 $2")
}

// Identifiers have no verbs of people. In prose they become fewer in each folder: testdata/words.txt has how many there
// are, which `go test ./tests/contract -run TestVerbsOfPeople -update` writes after some were replaced.
func TestVerbsOfPeople(t *testing.T) {
	for folder, n := range verbsOfPeople(t, identifiers) {
		t.Errorf("identifiers of %s have %d verbs of people: a program reports, returns, reads, writes, queries", folder, n)
	}
	found := verbsOfPeople(t, prose)
	var now strings.Builder
	sum := 0
	for _, folder := range slices.Sorted(maps.Keys(found)) {
		fmt.Fprintf(&now, "%s %d\n", folder, found[folder])
		sum += found[folder]
	}
	file := filepath.Join("testdata", "words.txt")
	if *updateWords {
		if err := os.WriteFile(file, []byte(now.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	before := map[string]int{}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		var folder string
		var n int
		if _, err := fmt.Sscan(line, &folder, &n); err != nil {
			t.Fatalf("%s: %q: %v", file, line, err)
		}
		before[folder] = n
	}
	for _, folder := range slices.Sorted(maps.Keys(found)) {
		if found[folder] > before[folder] {
			t.Errorf("%s has %d verbs of people, %d before: a program reports, returns, reads, writes, queries", folder, found[folder], before[folder])
		}
	}
	if now.String() != string(text) {
		t.Errorf("there are %d now; write down that they are fewer: go test ./tests/contract -run TestVerbsOfPeople -update", sum)
	}
	t.Logf("%d verbs of people", sum)
}

// verbsOfPeople counts them by folder, in what of returns of each file.
func verbsOfPeople(t *testing.T, of func(path string, text []byte) string) map[string]int {
	found := map[string]int{}
	eachFile(t, func(name string, text []byte) {
		if n := len(people.FindAllString(of(name, text), -1)); n > 0 {
			found[filepath.Dir(name)] += n
		}
	})
	return found
}
