package main

import (
	"context"
	"log/slog"

	"github.com/plumbline/plumbline/loadgen/export"
)

func (p *program) addExport() {
	var format, folder string
	var results []string
	c := p.add("export", "Write the levels of many results for a tool that looks for change points: Apache Otava (formerly Hunter).",
		func(context.Context, *slog.Logger) error { return export.Otava(folder, results) },
		"loadgen export --format=otava --folder=otava results/wal-*.json",
		"loadgen export --format=otava --folder=otava baseline-*.json soaks/*")
	c.Flag("format", "otava: a CSV file of each thing that was measured, with a row for each result, and otava.yaml, which names them.").
		Default("otava").EnumVar(&format, export.Formats...)
	c.Flag("folder", "Folder to write to; it is made, and files of the same names are replaced.").Required().StringVar(&folder)
	c.Arg("results", "Matrices' JSON (--output), baselines' records (--record), soaks' folders, in any order.").Required().StringsVar(&results)
}
