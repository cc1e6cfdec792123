// Package rules is Plumbline's rules as files, for programs that read them.
package rules

import (
	"embed"
	"fmt"
	"io/fs"

	"github.com/prometheus/common/model"
	"go.yaml.in/yaml/v3"

	"github.com/plumbline/plumbline/rules/histograms"
)

//go:generate go generate ./histograms/generate

//go:embed *.rules.yaml either/*.rules.yaml classic/*.rules.yaml
var files embed.FS

// Rule is a recording rule or an alert.
type Rule struct {
	Record string            `yaml:"record"`
	Alert  string            `yaml:"alert"`
	Expr   string            `yaml:"expr"`
	For    model.Duration    `yaml:"for"`
	Labels map[string]string `yaml:"labels"`
}

// All returns the rules, file by file and in their order there.
func All() ([]Rule, error) { return read("*.rules.yaml") }

// For returns the same for another kind of stored histograms, either or classic, in the same order.
func For(kind histograms.Kind) ([]Rule, error) { return read(string(kind) + "/*.rules.yaml") }

func read(pattern string) ([]Rule, error) {
	list, err := fs.Glob(files, pattern)
	if err != nil {
		return nil, err
	}
	var all []Rule
	for _, name := range list {
		text, err := files.ReadFile(name)
		if err != nil {
			return nil, err
		}
		var content struct {
			Groups []struct{ Rules []Rule }
		}
		if err := yaml.Unmarshal(text, &content); err != nil {
			return nil, fmt.Errorf("rules/%s: %w", name, err)
		}
		for _, g := range content.Groups {
			all = append(all, g.Rules...)
		}
	}
	return all, nil
}

// Alerts returns the names of all alerts, in the same order.
func Alerts() ([]string, error) {
	all, err := All()
	var names []string
	for _, r := range all {
		if r.Alert != "" {
			names = append(names, r.Alert)
		}
	}
	return names, err
}
