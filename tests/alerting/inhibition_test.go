package alerting

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"testing"

	"github.com/plumbline/plumbline/tests/testkit"
)

// inhibition is one of the configuration's inhibit rules.
type inhibition struct {
	source, target []matcher
	equal          []string
}

// matcher is one in the forms that the example uses.
type matcher struct{ name, op, value string }

var matcherForm = regexp.MustCompile(`^(\w+)(=~|!=|=)"(.*)"$`)

func (m matcher) matches(l labels) bool {
	switch m.op {
	case "=~":
		return regexp.MustCompile("^(?:" + m.value + ")$").MatchString(l[m.name])
	case "!=":
		return l[m.name] != m.value
	}
	return l[m.name] == m.value
}

// inhibitions are those of Plumbline's alerts. The others are the chart's own three, which are there because the values
// replace its list.
func inhibitions(t *testing.T) (rules []inhibition) {
	t.Helper()
	others := 0
	parse := func(list any) (all []matcher) {
		for _, text := range list.([]any) {
			m := matcherForm.FindStringSubmatch(text.(string))
			if m == nil {
				t.Fatalf("matcher %v", text)
			}
			all = append(all, matcher{m[1], m[2], m[3]})
		}
		return all
	}
	for _, r := range example(t)["inhibit_rules"].([]any) {
		r := r.(map[string]any)
		rule := inhibition{source: parse(r["source_matchers"]), target: parse(r["target_matchers"])}
		for _, name := range r["equal"].([]any) {
			rule.equal = append(rule.equal, name.(string))
		}
		if !names(rule.source) || !names(rule.target) {
			others++
			continue
		}
		rules = append(rules, rule)
	}
	if others != 3 {
		t.Errorf("%d inhibitions name no alert on either side, want the chart's own 3", others)
	}
	return rules
}

// names reports whether matchers name alerts.
func names(all []matcher) bool {
	return slices.ContainsFunc(all, func(m matcher) bool { return m.name == "alertname" })
}

// alternatives are the names of alerts that a matcher of alertname lists.
func alternatives(t *testing.T, all []matcher) []string {
	t.Helper()
	for _, m := range all {
		if m.name == "alertname" {
			return regexp.MustCompile(`\w+`).FindAllString(m.value, -1)
		}
	}
	t.Fatalf("%v names no alert", all)
	return nil
}

// pick returns the labels of an alert, as it fires in the rules' tests, that a rule can go by:
// two alerts that both lack a label count as equal in it.
func (r inhibition) pick(of []labels, matchers []matcher) (labels, error) {
	for _, l := range of {
		fits := func(m matcher) bool { return m.matches(l) }
		// On one cluster alone nothing has the label: that is equal, too.
		missing := func(name string) bool { return name != "cluster" && l[name] == "" }
		if !slices.ContainsFunc(r.equal, missing) && (matchers == nil || !slices.ContainsFunc(matchers, func(m matcher) bool { return !fits(m) })) {
			return l, nil
		}
	}
	return nil, fmt.Errorf("never fires with %v in the rules' tests, but with %v", r.equal, of)
}

// Every inhibit rule holds back each alert that it names, with the labels that these alerts really
// have, and no alert of another volume, node or class.
func TestInhibition(t *testing.T) {
	t.Parallel()
	all := fired(t)
	m := startManager(t)
	n := 0
	// own gives an alert places of its own, so that only one rule can have to do with it. The labels that the rule
	// requires of the source stay.
	own := func(l labels, requested []matcher) labels {
		n++
		l = maps.Clone(l)
		for name := range l {
			stays := slices.ContainsFunc(requested, func(m matcher) bool { return m.name == name && m.op != "!=" })
			if name != "alertname" && name != "severity" && !stays {
				l[name] = fmt.Sprintf("%s-%d", name, n)
			}
		}
		return l
	}
	for i, rule := range inhibitions(t) {
		for _, sourceName := range alternatives(t, rule.source) {
			source, err := rule.pick(all[sourceName], rule.source)
			if err != nil {
				t.Errorf("inhibit rule %d: %s %v", i+1, sourceName, err)
				continue
			}
			for _, targetName := range alternatives(t, rule.target) {
				if targetName == sourceName {
					continue
				}
				target, err := rule.pick(all[targetName], nil)
				if err != nil {
					t.Errorf("inhibit rule %d: %s %v", i+1, targetName, err)
					continue
				}
				source, same, other := own(source, rule.source), own(target, nil), own(target, nil)
				for _, name := range rule.equal {
					if same[name] = source[name]; source[name] == "" {
						delete(same, name)
					}
				}
				m.post(t, source, same, other)
				testkit.Eventually(t, testkit.DefaultTimeout, func() error {
					held, err := m.held(same)
					if err == nil && !held {
						err = errors.New("not held back")
					}
					if err != nil {
						err = fmt.Errorf("%s by %s with the same %v: %w", targetName, sourceName, rule.equal, err)
					}
					return err
				})
				if held, err := m.held(other); err != nil || held {
					t.Errorf("%s of another %v is held back by %s (%v)", targetName, rule.equal, sourceName, err)
				}
			}
		}
	}
}
