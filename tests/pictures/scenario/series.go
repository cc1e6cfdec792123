package scenario

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
)

// series is one series of an exporter, with how it goes.
type series struct {
	labels labels.Labels
	// class is its place's, or empty.
	class   string
	kind    string
	value   float64
	rate    float64
	mean    float64
	changes []change
}

// plan makes the series of a scenario: all that the lab had, by its lines or 0, and as the scenario changes them.
func (s *Scenario) plan(known templates) ([]*series, error) {
	var l lab
	if err := read("lab.yaml", &l); err != nil {
		return nil, err
	}
	byKey := map[string]*series{}
	for _, name := range slices.Sorted(maps.Keys(known)) {
		value := 0.0
		if strings.HasSuffix(name, "_info") {
			value = 1
		}
		for _, set := range known[name] {
			l.expand(name, set, func(class string, set map[string]string) {
				add(byKey, &series{labels: metric(name, set), class: class, value: value})
			})
		}
	}
	for _, one := range l.Lines {
		if err := l.apply(one, known, byKey); err != nil {
			return nil, fmt.Errorf("lab.yaml: %w", err)
		}
	}
	var all []*series
	for _, key := range slices.Sorted(maps.Keys(byKey)) {
		all = append(all, byKey[key])
	}
	for _, c := range s.Changes {
		if err := c.apply(all); err != nil {
			return nil, fmt.Errorf("scenario %s: %w", s.Name, err)
		}
	}
	return all, nil
}

func metric(name string, set map[string]string) labels.Labels {
	b := labels.NewBuilder(labels.FromMap(set))
	b.Set(model.MetricNameLabel, name)
	return b.Labels()
}

func add(all map[string]*series, s *series) { all[s.labels.String()] = s }

// expand calls each for every series of a template.
func (l lab) expand(name string, set map[string]string, each func(class string, set map[string]string)) {
	if _, ok := template(set, l.Places); !ok {
		each("", set)
		return
	}
	for _, p := range l.Places {
		for _, one := range p.at(set, l.Places) {
			each(p.Class, one)
		}
	}
}

func (l lab) apply(one line, known templates, all map[string]*series) error {
	name, with, err := parseSeries(one.Of)
	if err != nil {
		return err
	}
	for _, own := range alternatives(with) {
		set := maps.Clone(known.find(name, own))
		if set == nil {
			set = map[string]string{}
		}
		maps.Copy(set, own)
		l.expand(name, set, func(class string, set map[string]string) {
			if one.Classes != nil && !slices.Contains(one.Classes, class) {
				delete(all, metric(name, set).String())
				return
			}
			s := &series{labels: metric(name, set), class: class, kind: one.Kind}
			s.value, s.rate, s.mean = one.Value.of(class, 0), one.Rate.of(class, 0), one.Mean.of(class, 1)
			if s.kind == "" && one.Rate != nil {
				s.kind = "counter"
			}
			add(all, s)
		})
	}
	return nil
}

func (c change) apply(all []*series) error {
	matchers, err := parser.NewParser(parser.Options{}).ParseMetricSelector(c.Select)
	if err != nil {
		return fmt.Errorf("%s: %w", c.Select, err)
	}
	found := false
	for _, s := range all {
		if !slices.ContainsFunc(matchers, func(m *labels.Matcher) bool { return !m.Matches(s.labels.Get(m.Name)) }) {
			s.changes = append(s.changes, c)
			found = true
		}
	}
	if !found {
		return fmt.Errorf("%s selects none of the lab's series", c.Select)
	}
	return nil
}
