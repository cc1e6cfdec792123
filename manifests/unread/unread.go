// Package unread tells which metrics no rule, no page and no command of Plumbline reads. They are for who looks at an
// exporter itself; where Prometheus is short of memory, it can drop them as it scrapes: the component
// manifests/kubernetes/optional/drop-unread, or the chart's value prometheus.metrics.
package unread

import (
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/plumbline/plumbline/rules/histograms"
	"github.com/plumbline/plumbline/tests/metricsdoc"
)

//go:generate go run ./generate -root ../..

// libraries are the metrics of the exporters' libraries: of the processes only what the page of Plumbline itself shows is read.
var libraries = []string{"go_.*", "promhttp_.*", "process_(max_fds|open_fds|network_.*|virtual_.*)",
	"ebpf_exporter_(build_info|decoder_errors_total|ebpf_program_.*)"}

// sentTo are metrics that the exporters' own messages send people to.
var sentTo = []string{"plumbline_scrape_collector_dropped_series_total"}

// Pattern is a regular expression of their names, for Prometheus' relabelling.
func Pattern(root string) (string, error) {
	names, err := Names(root)
	return strings.Join(slices.Concat(libraries, names), "|"), err
}

// Names are those of Plumbline's own exporters. A name that any text of the project has, but for the list of all
// metrics and the exporter that defines it, is taken for read.
func Names(root string) ([]string, error) {
	metrics, err := metricsdoc.Scan(root, "exporters", "loadgen")
	if err != nil {
		return nil, err
	}
	read, err := words(root)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, name := range slices.Sorted(maps.Keys(metrics)) {
		if !slices.Contains(sentTo, name) && !slices.ContainsFunc(append([]string{""}, histograms.Parts...), func(part string) bool { return read[name+part] }) {
			names = append(names, name)
		}
	}
	return names, nil
}

var word = regexp.MustCompile(`[a-z][a-z0-9_]*`)

// words are all words of what may read a metric.
func words(root string) (map[string]bool, error) {
	all := map[string]bool{}
	for _, folder := range []string{"dashboards", "exporters", "loadgen", "manifests", "rules", "."} {
		err := filepath.WalkDir(filepath.Join(root, folder), func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			inside, err := filepath.Rel(root, path)
			if err != nil {
				return err
			}
			if d.IsDir() {
				if folder == "." && path != filepath.Join(root, folder) {
					return filepath.SkipDir // once, by its name
				}
				return nil
			}
			if !reads(filepath.ToSlash(inside)) {
				return nil
			}
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			for _, w := range word.FindAllString(string(text), -1) {
				all[w] = true
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return all, nil
}

// reads tells whether a file may read a metric.
func reads(path string) bool {
	base := filepath.Base(path)
	switch {
	case path == "METRICS.md", path == "CHANGELOG.md", strings.HasSuffix(base, "_test.go"), strings.Contains(path, "drop-unread"), base == "_unread.tpl":
		return false
	case filepath.Ext(base) == ".md":
		return true
	case strings.HasPrefix(path, "exporters/"):
		return false
	}
	return slices.Contains([]string{".go", ".yaml", ".yml", ".json", ".tpl", ".txt"}, filepath.Ext(base))
}
