package collector

import (
	"flag"
	"path/filepath"
	"testing"

	"github.com/plumbline/plumbline/tests/results/rows"
	"github.com/plumbline/plumbline/tests/testkit"
)

var (
	benchResults = flag.String("bench.results", filepath.Join(testkit.Root(), "build", "results"), "Where the benchmarks' rows go.")
	benchCommand = flag.String("bench.command", "", "The command that the rows name as their origin, if not the benchmark's own.")
)

// results is where a benchmark's rows go, made by this command.
func results(b *testing.B, name, command string) *rows.File {
	if *benchCommand != "" {
		command = *benchCommand
	}
	file, err := rows.Open(*benchResults, name, command)
	if err != nil {
		b.Fatal(err)
	}
	return file
}
