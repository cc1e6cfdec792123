// Package table shows a table with one row per storage class, every number of which is the
// answer of a query to Prometheus.
package table

import (
	"bytes"
	"fmt"
	"os"
	"slices"

	"github.com/prometheus/common/model"
	"go.yaml.in/yaml/v3"
)

// Column is one column: a query that answers with one value per storage class.
type Column struct {
	// Group and Title are the two lines of the heading.
	Group string `yaml:"group"`
	Title string `yaml:"title"`
	// Unit is number, milliseconds (of a query in seconds) or ratio.
	Unit string `yaml:"unit"`
	// Expr is the query; $window stands for the table's window.
	Expr string `yaml:"expr"`
	// Needs names what the machine must allow for the column to exist, empty for nothing.
	Needs string `yaml:"needs"`
	// Optional columns may lack a value (a directory has no replicas).
	Optional bool `yaml:"optional"`
	// Summary columns are not in the live table.
	Summary bool `yaml:"summary"`
}

// Spec is the content of a table file.
type Spec struct {
	// Window is how far back the live table looks.
	Window model.Duration `yaml:"window"`
	// Steady is a query that answers 1 for each class whose load is steady.
	Steady string `yaml:"steady"`
	// Columns are the table's columns.
	Columns []Column `yaml:"columns"`
}

// ReadSpec reads a table file.
func ReadSpec(path string) (*Spec, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	var s Spec
	if err := d.Decode(&s); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	for _, c := range s.Columns {
		if c.Unit != "number" && c.Unit != "milliseconds" && c.Unit != "ratio" {
			return nil, fmt.Errorf("%s: column %s %s: unknown unit %q; want number, milliseconds or ratio", path, c.Group, c.Title, c.Unit)
		}
	}
	return &s, nil
}

// Live leaves out the columns of the summary.
func Live(columns []Column) []Column {
	return slices.DeleteFunc(slices.Clone(columns), func(c Column) bool { return c.Summary })
}

// Without returns the columns that a machine can show that refuses the named things.
func Without(columns []Column, refused map[string]string) []Column {
	var kept []Column
	for _, c := range columns {
		if c.Needs == "" || refused[c.Needs] == "" {
			kept = append(kept, c)
		}
	}
	return kept
}

// classLabel is the label every query answers by.
const classLabel = model.LabelName("storageclass")
