package dashboards

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
)

// Values are substituted as Grafana does it: a query that depends on a choice uses that choice, All is its own value or
// the list of all values, a list is a group, and special characters are escaped.
func TestChosen(t *testing.T) {
	variables := []Variable{
		{"class", `info`, "storageclass", ".*"},
		{"pvc", `info{storageclass=~"$class"}`, "pvc", ".*"},
		{"volume", `info{storageclass=~"$class", pvc=~"$pvc"}`, "volume", ""},
		{"device", `info{volume=~"$volume"}`, "device", ""},
	}
	answers := map[string][]string{
		`info{storageclass=~".*", pvc=~".*"} volume`:    {"v1", "v.2"},
		`info{volume=~"(v1|v\\.2)"} device`:             {"sda"},
		`info{storageclass=~".*", pvc=~"(a|b)"} volume`: {"v1"},
		`info{volume=~"v1"} device`:                     {},
	}
	for _, c := range []struct{ choice, want map[string]string }{
		{nil, map[string]string{"class": ".*", "pvc": ".*", "volume": `(v1|v\\.2)`, "device": "sda"}},
		{map[string]string{"pvc": "a b"}, map[string]string{"class": ".*", "pvc": "(a|b)", "volume": "v1", "device": "()"}},
	} {
		choice := map[string][]string{}
		for name, values := range c.choice {
			choice[name] = strings.Fields(values)
		}
		got, err := Chosen(variables, choice, func(selector, label string) ([]string, error) {
			values, ok := answers[selector+" "+label]
			if !ok {
				return nil, errors.New(selector + " was not expected to be queried")
			}
			return values, nil
		})
		if err != nil || !maps.Equal(got, c.want) {
			t.Errorf("%v: %v, %v; want %v", c.choice, got, err, c.want)
		}
	}
	if _, err := Chosen(variables, nil, func(string, string) ([]string, error) { return nil, errors.New("away") }); err == nil || !strings.Contains(err.Error(), "volume") {
		t.Errorf("an error that does not name the variable: %v", err)
	}
}

// The dashboards' variables are read in their order, and no selector of a panel gets thousands of names: those that
// have no value for All are of what the rules list.
func TestVariables(t *testing.T) {
	all, err := Variables(".")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, v := range all["plumbline-query-to-disk"] {
		names = append(names, v.Name)
	}
	if want := []string{"cluster", "storageclass", "namespace", "pvc", "volume", "node", "device", "server", "listed_server"}; !slices.Equal(names, want) {
		t.Errorf("have %v, want %v", names, want)
	}
	for uid, variables := range all {
		for _, v := range variables {
			if v.All == "" && !strings.Contains(v.Selector, ":listed:info") {
				t.Errorf("%s: All of %s is the list of all values of %s", uid, v.Name, v.Selector)
			}
		}
	}
}
