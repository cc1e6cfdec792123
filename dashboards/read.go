package dashboards

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// Expression is one PromQL expression of a dashboard, with Grafana's variables still in it.
type Expression struct {
	// Dashboard is the dashboard's uid.
	Dashboard string
	// Place is the panel's title, or the variable's or annotation's name.
	Place string
	// Kind is "panel", "variable" or "annotation".
	Kind string
	Text string
	// Instant is whether Grafana queries its value only at the end of the time range shown.
	Instant bool
	// Legend is what a panel calls each series, with labels in braces.
	Legend string
}

// Where names the expression's place for a message.
func (e Expression) Where() string { return fmt.Sprintf("%s, %s %q", e.Dashboard, e.Kind, e.Place) }

// Expressions reads all expressions of the dashboards in a folder: of panels, of variables
// (as a query for the label's values), and of annotations.
func Expressions(folder string) ([]Expression, error) {
	paths, err := filepath.Glob(filepath.Join(folder, "*.json"))
	if err != nil || len(paths) == 0 {
		return nil, fmt.Errorf("%s has no dashboards (%v)", folder, err)
	}
	var all []Expression
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		found, err := expressions(text)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		all = append(all, found...)
	}
	return all, nil
}

// target is a panel's query.
type target struct {
	Expr         string
	Instant      bool
	LegendFormat string
}

func expressions(text []byte) ([]Expression, error) {
	var board struct {
		UID    string
		Panels []struct {
			Title   string
			Targets []target
			// Panels are those of a closed row.
			Panels []struct {
				Title   string
				Targets []target
			}
		}
		Templating struct {
			List []struct{ Name, Type, Query string }
		}
		Annotations struct {
			List []struct{ Name, Expr string }
		}
	}
	if err := json.Unmarshal(text, &board); err != nil {
		return nil, err
	}
	var all []Expression
	for _, v := range board.Templating.List {
		if v.Type != "query" {
			continue
		}
		query, err := labelValuesQuery(v.Query)
		if err != nil {
			return nil, fmt.Errorf("variable %s: %w", v.Name, err)
		}
		all = append(all, Expression{board.UID, v.Name, "variable", query, true, ""})
	}
	for _, p := range board.Panels {
		for _, t := range p.Targets {
			all = append(all, Expression{board.UID, p.Title, "panel", t.Expr, t.Instant, t.LegendFormat})
		}
		for _, inner := range p.Panels {
			for _, t := range inner.Targets {
				all = append(all, Expression{board.UID, inner.Title, "panel", t.Expr, t.Instant, t.LegendFormat})
			}
		}
	}
	for _, a := range board.Annotations.List {
		all = append(all, Expression{board.UID, a.Name, "annotation", a.Expr, false, ""})
	}
	return all, nil
}

var labelValuesForm = regexp.MustCompile(`^label_values\((.+), (\w+)\)$`)

// labelValuesQuery turns Grafana's label_values(series, label) into PromQL: one series for
// each value of the label.
func labelValuesQuery(text string) (string, error) {
	m := labelValuesForm.FindStringSubmatch(text)
	if m == nil {
		return "", fmt.Errorf("%q is not label_values(series, label)", text)
	}
	return fmt.Sprintf(`group by (%s) (%s)`, m[2], m[1]), nil
}

// Intervals are what Grafana fills in for its own variables.
type Intervals struct{ Rate, Range string }

// Fill puts in what Grafana would: intervals, and the values of variables, which all stand
// in patterns. A variable that has no value here gets the pattern for everything.
func (e Expression) Fill(i Intervals, values map[string]string) string {
	return fill(strings.NewReplacer("$__rate_interval", i.Rate, "$__range", i.Range).Replace(e.Text), values)
}

// fill puts in the values of variables.
func fill(text string, values map[string]string) string {
	return variableUse.ReplaceAllStringFunc(text, func(name string) string {
		if v, ok := values[name[1:]]; ok {
			return v
		}
		return ".*"
	})
}

// variableUse is a use of a dashboard's variable; $1 of label_replace is none.
var variableUse = regexp.MustCompile(`\$[a-z][a-z_]*`)
