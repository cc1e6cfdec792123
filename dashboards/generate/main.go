// Command generate writes the dashboards' JSON into a folder; `make generate` calls it.
package main

import (
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
	cluster := app.Flag("cluster-label", "Label that distinguishes Kubernetes clusters; series may be without it.").Default(dashboards.ClusterLabel).String()
	kind := app.Flag("histograms", "Histograms that panels read: either kind, or classic ones only.").Default(string(histograms.Either)).
		Enum(string(histograms.Either), string(histograms.Classic))
	kingpin.MustParse(app.Parse(os.Args[1:]))
	files, err := dashboards.Files(dashboards.Options{ClusterLabel: *cluster, Histograms: histograms.Kind(*kind)})
	for name, text := range files {
		if err == nil {
			err = os.WriteFile(filepath.Join(*into, name), text, 0o644)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "generate:", err)
		os.Exit(1)
	}
}
