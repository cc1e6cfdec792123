// Package table shows tables whose numbers are results of Prometheus queries.
package table

import (
	"bytes"
	"fmt"
	"os"
	"slices"

	"github.com/prometheus/common/model"
	"go.yaml.in/yaml/v3"
)

// Column is one column: a query that answers with one value per row.
type Column struct {
	// Group and Title are the two lines of the heading.
	Group string `yaml:"group"`
	Title string `yaml:"title"`
	// Unit is number, milliseconds (of a query in seconds), ratio, or percent (of a ratio).
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

// Table is one table of the page: what its rows are and its columns.
type Table struct {
	// Title is shown above the table, if there is one.
	Title string `yaml:"title"`
	// By are the labels a row stands for, the first of them the storage class.
	By []model.LabelName `yaml:"by"`
	// Columns are the table's columns.
	Columns []Column `yaml:"columns"`
}

// perClass reports whether the table has exactly one row for each class.
func (t Table) perClass() bool { return len(t.By) == 1 }

// Spec is the content of a table file.
type Spec struct {
	// Steady is a query that answers 1 for each class whose load is steady.
	Steady string `yaml:"steady"`
	// Tables are shown one below the other.
	Tables []Table `yaml:"tables"`
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
	for _, t := range s.Tables {
		if len(t.By) == 0 || t.By[0] != classLabel {
			return nil, fmt.Errorf("%s: table %q: the first label of by is %s", path, t.Title, classLabel)
		}
		for _, c := range t.Columns {
			if c.Unit != "number" && c.Unit != "milliseconds" && c.Unit != "ratio" && c.Unit != "percent" {
				return nil, fmt.Errorf("%s: column %s %s: unknown unit %q; want number, milliseconds, ratio or percent", path, c.Group, c.Title, c.Unit)
			}
		}
	}
	return &s, nil
}

// Live leaves out the columns of the summary.
func Live(tables []Table) []Table {
	return each(tables, func(c Column) bool { return !c.Summary })
}

// Without leaves out the columns that a machine cannot show that refuses the named things,
// and tables of which nothing is left.
func Without(tables []Table, refused map[string]string) []Table {
	return each(tables, func(c Column) bool { return c.Needs == "" || refused[c.Needs] == "" })
}

func each(tables []Table, keep func(Column) bool) []Table {
	var kept []Table
	for _, t := range tables {
		t.Columns = slices.DeleteFunc(slices.Clone(t.Columns), func(c Column) bool { return !keep(c) })
		if len(t.Columns) > 0 {
			kept = append(kept, t)
		}
	}
	return kept
}

// classLabel is the label of every row.
const classLabel = model.LabelName("storageclass")
