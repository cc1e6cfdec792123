package dashboards

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Variable is a dashboard's variable, and where its values come from.
type Variable struct {
	Name string
	// Selector, with other variables in it, selects the series whose Label has the values.
	Selector, Label string
	// All is what "All" stands for; empty is the list of all values.
	All string
}

// Variables reads each dashboard's variables, in the order in which they follow from each other, by the dashboard's
// uid.
func Variables(folder string) (map[string][]Variable, error) {
	paths, err := filepath.Glob(filepath.Join(folder, "*.json"))
	if err != nil || len(paths) == 0 {
		return nil, fmt.Errorf("%s has no dashboards (%v)", folder, err)
	}
	all := map[string][]Variable{}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		var board struct {
			UID        string
			Templating struct {
				List []struct{ Name, Type, Query, AllValue string }
			}
		}
		if err := json.Unmarshal(text, &board); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		for _, v := range board.Templating.List {
			if v.Type != "query" {
				continue
			}
			m := labelValuesForm.FindStringSubmatch(v.Query)
			if m == nil {
				return nil, fmt.Errorf("%s: variable %s: %q is not label_values(series, label)", path, v.Name, v.Query)
			}
			all[board.UID] = append(all[board.UID], Variable{v.Name, m[1], m[2], v.AllValue})
		}
	}
	return all, nil
}

// Chosen returns what Grafana substitutes for variables: the chosen values, or what "All" stands for. question returns the
// values of a label of the series that a selector selects.
func Chosen(variables []Variable, choice map[string][]string, question func(selector, label string) ([]string, error)) (map[string]string, error) {
	values := map[string]string{}
	for _, v := range variables {
		options, ok := choice[v.Name]
		if !ok && v.All != "" {
			values[v.Name] = v.All
			continue
		}
		if !ok {
			var err error
			if options, err = question(fill(v.Selector, values), v.Label); err != nil {
				return nil, fmt.Errorf("variable %s: %w", v.Name, err)
			}
		}
		values[v.Name] = pattern(options)
	}
	return values, nil
}

// escaped are the characters of a value that Grafana's Prometheus data source escapes, for a pattern within quotes.
var escaped = func() *strings.Replacer {
	pairs := []string{`\`, `\\\\`}
	for _, c := range `$^*{}[]'+?.()|` {
		pairs = append(pairs, string(c), `\\`+string(c))
	}
	return strings.NewReplacer(pairs...)
}()

// pattern is what that data source makes of a variable's values: a group, also of none.
func pattern(values []string) string {
	var all []string
	for _, v := range values {
		all = append(all, escaped.Replace(v))
	}
	if len(all) == 1 {
		return all[0]
	}
	return "(" + strings.Join(all, "|") + ")"
}
