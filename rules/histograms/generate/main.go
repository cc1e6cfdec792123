// Command generate writes the rules of rules/ for what stores no native histograms (rules/classic), or some of each kind
// (rules/either).
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"github.com/plumbline/plumbline/rules/histograms"
)

//go:generate go run . -rules ../..

// heads are the files' first comments.
var heads = map[histograms.Kind]string{
	histograms.Either: "# Made by rules/histograms/generate; change the file of this name in the folder above. Each histogram is read as a native\n" +
		"# one, or else from its classic parts.",
	histograms.Classic: "# Made by rules/histograms/generate; change the file of this name in the folder above. Each histogram is read from its\n" +
		"# classic parts.",
}

func main() {
	rules := flag.String("rules", "rules", "The folder of rules.")
	out := flag.String("out", "", "The folder that gets the folders either and classic; that of the rules if empty.")
	flag.Parse()
	if *out == "" {
		*out = *rules
	}
	for kind := range heads {
		if err := generate(kind, *rules, filepath.Join(*out, string(kind))); err != nil {
			fmt.Fprintln(os.Stderr, "rules/histograms/generate:", err)
			os.Exit(1)
		}
	}
}

// generate writes the folder of a kind anew, so that a file that is gone takes its own with it.
func generate(kind histograms.Kind, from, to string) error {
	made, err := files(kind, from)
	if err != nil {
		return err
	}
	if err := errors.Join(os.RemoveAll(to), os.MkdirAll(to, 0o755)); err != nil {
		return err
	}
	for name, text := range made {
		if err := os.WriteFile(filepath.Join(to, name), text, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// files are the files' texts by their names.
func files(kind histograms.Kind, from string) (map[string][]byte, error) {
	paths, err := filepath.Glob(filepath.Join(from, "*.rules.yaml"))
	if err != nil || len(paths) == 0 {
		return nil, fmt.Errorf("%s has no rules (%v)", from, err)
	}
	// Twice: a file may use what a later one records.
	known := histograms.Of(kind, histograms.Exported...)
	var made map[string][]byte
	for range 2 {
		made = map[string][]byte{}
		for _, path := range paths {
			text, err := os.ReadFile(path)
			if err != nil {
				return nil, err
			}
			if made[filepath.Base(path)], err = known.File(text, heads[kind]); err != nil {
				return nil, fmt.Errorf("%s: %w", path, err)
			}
		}
	}
	return made, nil
}
