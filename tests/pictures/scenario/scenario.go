// Package scenario makes the series of a lab in which something happens: what its exporters would export, step by step,
// and what the rules record of it. The series and their labels are those that a real lab had
// (tests/contract/testdata/lab/series.txt); the values are made up, by lab.yaml and a file for each scenario.
package scenario

import (
	"bytes"
	"embed"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

//go:embed lab.yaml scenarios/*.yaml
var files embed.FS

// Step is the interval of samples and of the rules' evaluation.
const Step = 30 * time.Second

// Scenario is what happens in the lab.
type Scenario struct {
	Name string `yaml:"-"`
	// Text describes in a sentence what happens.
	Text    string   `yaml:"text"`
	Changes []change `yaml:"changes"`
}

// change gives the series of a selector other values from a moment on.
type change struct {
	Select string `yaml:"select"`
	// From and To count from the begin of what is shown; without To it is as long as the scenario.
	From time.Duration `yaml:"from"`
	To   time.Duration `yaml:"to"`
	// Rate and Mean are factors of the series' own; Value takes the place of a gauge's.
	Rate  *float64 `yaml:"rate"`
	Mean  *float64 `yaml:"mean"`
	Value *float64 `yaml:"value"`
	// Age makes a gauge the seconds since From.
	Age bool `yaml:"age"`
}

// lab is what all scenarios begin with.
type lab struct {
	Places []place `yaml:"places"`
	Lines  []line  `yaml:"lines"`
}

// place is a storage class of the lab, with one volume and one server.
type place struct {
	Class    string `yaml:"class"`
	Device   string `yaml:"device"`
	Backend  string `yaml:"backend"`
	Replicas int    `yaml:"replicas"`
}

// line describes the series of one metric when all is well. Of is the metric with labels; values separated by | are one
// series each. Labels missing in Of are taken from the lab's series of that metric.
type line struct {
	Of string `yaml:"of"`
	// Classes are the only ones that have it.
	Classes []string `yaml:"classes"`
	// Kind is histogram, or custom for a histogram with the bounds of blockio's; else Value makes a gauge, and
	// Rate a counter.
	Kind  string   `yaml:"kind"`
	Value *byClass `yaml:"value"`
	// Rate is the number of events a second, Mean what one adds: seconds, bytes, or 1.
	Rate *byClass `yaml:"rate"`
	Mean *byClass `yaml:"mean"`
}

// byClass is a number, or one for each class.
type byClass struct {
	all   float64
	class map[string]float64
}

// UnmarshalYAML takes a number, or a map of numbers by class.
func (b *byClass) UnmarshalYAML(n *yaml.Node) error {
	if n.Kind == yaml.ScalarNode {
		return n.Decode(&b.all)
	}
	return n.Decode(&b.class)
}

// of is a class's number; nil is the other one.
func (b *byClass) of(class string, other float64) float64 {
	switch {
	case b == nil:
		return other
	case b.class == nil:
		return b.all
	}
	return b.class[class]
}

// Names are the names of all scenarios.
func Names() []string {
	list, err := fs.Glob(files, "scenarios/*.yaml")
	if err != nil {
		return nil
	}
	for i, name := range list {
		list[i] = strings.TrimSuffix(path.Base(name), ".yaml")
	}
	return list
}

// Load reads a scenario.
func Load(name string) (*Scenario, error) {
	if !slices.Contains(Names(), name) {
		return nil, fmt.Errorf("there is no scenario %q; there are: %s", name, strings.Join(Names(), ", "))
	}
	s := &Scenario{Name: name}
	return s, read("scenarios/"+name+".yaml", s)
}

func read(name string, into any) error {
	text, err := files.ReadFile(name)
	if err != nil {
		return err
	}
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	decoder.KnownFields(true)
	if err := decoder.Decode(into); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}
