// Command results writes tests/RESULTS.md from what the proofs' commands measured, which is
// in build/results as JSON lines.
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
var order = []string{"accuracy", "overhead", "blockio", "replicabench", "agentsize", "scale", "volumes", "faults", "security"}

func main() {
	app := kingpin.New("results", "Writes the page of results from the rows that the proofs' commands left.\n\n"+
		"Example, at the root of the checkout:\n  results --folder=build/results --page=tests/RESULTS.md")
	app.HelpFlag.Short('h')
	folder := app.Flag("folder", "Where the rows are, as .jsonl files.").Default("build/results").ExistingDir()
	page := app.Flag("page", "The page to write.").Default("tests/RESULTS.md").String()
	kingpin.MustParse(app.Parse(os.Args[1:]))
	if err := run(*folder, *page); err != nil {
		fmt.Fprintln(os.Stderr, "results:", err)
		os.Exit(1)
	}
}

func run(folder, page string) error {
	files, err := filepath.Glob(filepath.Join(folder, "*.jsonl"))
	if err != nil {
		return err
	}
	if len(files) == 0 {
		return fmt.Errorf("%s has no .jsonl file: run one of the proofs first, such as go run ./tests/accuracy", folder)
	}
	slices.SortStableFunc(files, func(a, b string) int { return place(a) - place(b) })
	var all []rows.Row
	for _, f := range files {
		r, err := rows.Read(f)
		if err != nil {
			return err
		}
		all = append(all, r...)
	}
	var text bytes.Buffer
	if err := rows.Page(&text, all); err != nil {
		return err
	}
	return os.WriteFile(page, text.Bytes(), 0o644)
}

func place(file string) int {
	if i := slices.Index(order, strings.TrimSuffix(filepath.Base(file), ".jsonl")); i >= 0 {
		return i
	}
	return len(order)
}
