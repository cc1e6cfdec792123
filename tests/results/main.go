// Command results writes tests/RESULTS.md from what the proofs' commands measured: the rows that are in the checkout,
// in which it first puts those of this machine's runs, if it is given their folder.
package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/alecthomas/kingpin/v2"

	"github.com/plumbline/plumbline/tests/results/rows"
)

// order is that of the page; files of other names come after.
var order = []string{"accuracy", "predict", "overhead", "statementcost", "blockio", "replicabench", "agentsize", "scale", "volumes", "faults", "stalls", "security", "kernels"}

func main() {
	app := kingpin.New("results", "Takes over the rows that the proofs' commands left, and writes the page of results.\n\n"+
		"A row takes the place of the one of its name; what was not measured again stays. Examples, at the root of the checkout:\n  results\n  results --runs=build/results")
	app.HelpFlag.Short('h')
	runs := app.Flag("runs", "Where this machine's runs left their rows, as .jsonl files, which are taken over; none if empty.").String()
	kept := app.Flag("kept", "Where all rows are kept.").Default("tests/results/measured").ExistingDir()
	page := app.Flag("page", "The page to write.").Default("tests/RESULTS.md").String()
	kingpin.MustParse(app.Parse(os.Args[1:]))
	if err := run(*runs, *kept, *page); err != nil {
		fmt.Fprintln(os.Stderr, "results:", err)
		os.Exit(1)
	}
}

func run(runs, kept, page string) error {
	var files []string
	if runs != "" {
		var err error
		if files, err = filepath.Glob(filepath.Join(runs, "*.jsonl")); err != nil || len(files) == 0 {
			return fmt.Errorf("--runs=%s: there is no .jsonl file: run one of the proofs first, such as make accuracy (%v)", runs, err)
		}
	}
	for _, f := range files {
		r, err := rows.Read(f)
		if err != nil {
			return err
		}
		if err := rows.Keep(filepath.Join(kept, filepath.Base(f)), r); err != nil {
			return err
		}
	}
	text, err := write(kept)
	if err != nil {
		return err
	}
	return os.WriteFile(page, text, 0o644)
}

// write makes the page of the rows in a folder.
func write(kept string) ([]byte, error) {
	files, err := filepath.Glob(filepath.Join(kept, "*.jsonl"))
	if err != nil {
		return nil, err
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("%s has no .jsonl file: run one of the proofs first, such as go run ./tests/accuracy", kept)
	}
	slices.SortStableFunc(files, func(a, b string) int { return place(a) - place(b) })
	var all []rows.Row
	for _, f := range files {
		r, err := rows.Read(f)
		if err != nil {
			return nil, err
		}
		all = append(all, r...)
	}
	var text bytes.Buffer
	err = rows.Page(&text, all)
	return text.Bytes(), err
}

func place(file string) int {
	if i := slices.Index(order, strings.TrimSuffix(filepath.Base(file), ".jsonl")); i >= 0 {
		return i
	}
	return len(order)
}
