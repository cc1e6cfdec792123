// Package rules is Plumbline's rules as files, for programs that have to know their names.
package rules

import (
	"embed"
	"fmt"

	"go.yaml.in/yaml/v3"
)

//go:embed *.rules.yaml
var files embed.FS

// Alerts returns the names of all alerts, file by file and in their order there.
func Alerts() ([]string, error) {
	list, err := files.ReadDir(".")
	if err != nil {
		return nil, err
	}
	var names []string
	for _, f := range list {
		text, err := files.ReadFile(f.Name())
		if err != nil {
			return nil, err
		}
		var content struct {
			Groups []struct{ Rules []struct{ Alert string } }
		}
		if err := yaml.Unmarshal(text, &content); err != nil {
			return nil, fmt.Errorf("rules/%s: %w", f.Name(), err)
		}
		for _, g := range content.Groups {
			for _, r := range g.Rules {
				if r.Alert != "" {
					names = append(names, r.Alert)
				}
			}
		}
	}
	return names, nil
}
