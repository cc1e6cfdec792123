// Package rules is Plumbline's rules as files, for programs that read them.
package rules

import (
	"embed"
	"fmt"
	"io/fs"
	"maps"
	"slices"

	"github.com/prometheus/common/model"
	"go.yaml.in/yaml/v3"

	"github.com/plumbline/plumbline/rules/histograms"
)

//go:embed *.rules.yaml
var files embed.FS

// Rule is a recording rule or an alert.
type Rule struct {
	Record string            `yaml:"record"`
	Alert  string            `yaml:"alert"`
	Expr   string            `yaml:"expr"`
	For    model.Duration    `yaml:"for"`
	Labels map[string]string `yaml:"labels"`
}

// Files returns the files' texts by their names, for the histograms that a Prometheus stores: as they are written,
// which is for native ones, if kind is empty.
func Files(kind histograms.Kind) (map[string][]byte, error) {
	names, err := fs.Glob(files, "*.rules.yaml")
	if err != nil {
		return nil, err
	}
	written := map[string][]byte{}
	for _, name := range names {
		if written[name], err = files.ReadFile(name); err != nil {
			return nil, err
		}
	}
	if kind == "" {
		return written, nil
	}
	return histograms.Files(kind, written)
}

// All returns the rules, file by file and in their order there.
func All() ([]Rule, error) { return For("") }

// Groups returns the rules of some groups of one file, in their order there.
func Groups(name string, groups ...string) ([]Rule, error) {
	text, err := files.ReadFile(name)
	if err != nil {
		return nil, err
	}
	var content struct {
		Groups []struct {
			Name  string
			Rules []Rule
		}
	}
	if err := yaml.Unmarshal(text, &content); err != nil {
		return nil, fmt.Errorf("rules/%s: %w", name, err)
	}
	var all []Rule
	for _, g := range content.Groups {
		if slices.Contains(groups, g.Name) {
			all = append(all, g.Rules...)
		}
	}
	return all, nil
}

// For returns the same for another kind of stored histograms, in the same order.
func For(kind histograms.Kind) ([]Rule, error) {
	texts, err := Files(kind)
	if err != nil {
		return nil, err
	}
	var all []Rule
	for _, name := range slices.Sorted(maps.Keys(texts)) {
		var content struct {
			Groups []struct{ Rules []Rule }
		}
		if err := yaml.Unmarshal(texts[name], &content); err != nil {
			return nil, fmt.Errorf("rules/%s: %w", name, err)
		}
		for _, g := range content.Groups {
			all = append(all, g.Rules...)
		}
	}
	return all, nil
}
