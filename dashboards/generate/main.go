// Command generate writes the dashboards' JSON into a folder; `make dashboards` calls it.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/alecthomas/kingpin/v2"

	"github.com/plumbline/plumbline/dashboards"
)

func main() {
	app := kingpin.New("generate", "Writes Plumbline's Grafana dashboards as JSON files.")
	into := app.Arg("folder", "Folder to write into.").Default("dashboards").ExistingDir()
	cluster := app.Flag("cluster-label", "Label that tells Kubernetes clusters apart; series may be without it.").Default(dashboards.ClusterLabel).String()
	kingpin.MustParse(app.Parse(os.Args[1:]))
	files, err := dashboards.Files(dashboards.Options{ClusterLabel: *cluster})
	if err == nil {
		err = write(*into, files)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "generate:", err)
		os.Exit(1)
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
