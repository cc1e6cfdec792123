// Package stage makes what a checkout has in one form only and a release in several: rules and dashboards for each kind
// of histograms that a Prometheus may store, and the charts with them.
package stage

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"

	"github.com/plumbline/plumbline/dashboards"
	"github.com/plumbline/plumbline/rules"
	"github.com/plumbline/plumbline/rules/histograms"
)

// Files returns the rules and dashboards: rules and rules/either and rules/classic, dashboards and dashboards/classic.
// The dashboards in the first folder read native and classic histograms.
func Files() (map[string][]byte, error) {
	all := map[string][]byte{}
	add := func(folder string, kind histograms.Kind, files map[string][]byte, err error) error {
		for name, text := range files {
			all[path.Join(folder, string(kind), name)] = text
		}
		return err
	}
	for _, kind := range []histograms.Kind{"", histograms.Either, histograms.Classic} {
		files, err := rules.Files(kind)
		if err := add("rules", kind, files, err); err != nil {
			return nil, err
		}
	}
	for _, kind := range []histograms.Kind{"", histograms.Classic} {
		files, err := dashboards.Files(dashboards.Options{Histograms: kind})
		if err := add("dashboards", kind, files, err); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// Charts returns the folders of a checkout's charts.
func Charts(root string) ([]string, error) {
	files, err := filepath.Glob(filepath.Join(root, "manifests", "*", "Chart.yaml"))
	if err == nil && len(files) == 0 {
		err = fmt.Errorf("no chart in %s", filepath.Join(root, "manifests"))
	}
	for i := range files {
		files[i] = filepath.Dir(files[i])
	}
	return files, err
}

// Chart returns a chart's files as Helm packs them, in a folder of the chart's name; the one that has rules gets them
// for every kind of histograms. Helm takes the arguments, such as --version.
func Chart(helm, folder string, arguments ...string) (map[string][]byte, error) {
	dir, err := os.MkdirTemp("", "plumbline-chart")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	cmd := exec.Command(helm, append([]string{"package", folder, "--destination=" + dir}, arguments...)...)
	if text, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%w: %s", err, text)
	}
	archives, err := filepath.Glob(filepath.Join(dir, "*.tgz"))
	if err != nil || len(archives) != 1 {
		return nil, fmt.Errorf("helm package %s: %d archives: %v", folder, len(archives), err)
	}
	files, err := Unpack(archives[0])
	if err != nil {
		return nil, err
	}
	for name := range files {
		chart, rest, _ := strings.Cut(name, "/")
		if rest == "templates/rules.yaml" {
			made, err := Files()
			if err != nil {
				return nil, err
			}
			for name, text := range made {
				files[chart+"/"+name] = text
			}
			break
		}
	}
	return files, nil
}

// Write writes files into a folder.
func Write(folder string, files map[string][]byte) error {
	for name, text := range files {
		file := filepath.Join(folder, filepath.FromSlash(name))
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, text, 0o644)); err != nil {
			return err
		}
	}
	return nil
}
