// Command generate writes the dashboards' JSON into a folder; `make dashboards` calls it.
package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/alecthomas/kingpin/v2"

	"github.com/plumbline/plumbline/dashboards"
	"github.com/plumbline/plumbline/rules/histograms"
)

func main() {
	app := kingpin.New("generate", "Writes Plumbline's Grafana dashboards as JSON files.")
	into := app.Arg("folder", "Folder to write into.").Default("dashboards").ExistingDir()
	cluster := app.Flag("cluster-label", "Label that tells Kubernetes clusters apart; series may be without it.").Default(dashboards.ClusterLabel).String()
	kingpin.MustParse(app.Parse(os.Args[1:]))
	// The folder has panels that read either kind of histogram, its folder classic those that read classic ones only.
	for folder, kind := range map[string]histograms.Kind{*into: histograms.Either, filepath.Join(*into, string(histograms.Classic)): histograms.Classic} {
		files, err := dashboards.Files(dashboards.Options{ClusterLabel: *cluster, Histograms: kind})
		if err == nil {
			err = errors.Join(os.MkdirAll(folder, 0o755), write(folder, files))
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "generate:", err)
			os.Exit(1)
		}
	}
}

func write(folder string, files map[string][]byte) error {
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(folder, name), text, 0o644); err != nil {
			return err
		}
	}
	return nil
}
