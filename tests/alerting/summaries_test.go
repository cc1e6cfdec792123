package alerting

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/plumbline/plumbline/tests/ruletests"
)

// rendered is an alert's annotation with the labels and the value of a test in which it fires.
type rendered struct{ alert, annotation, text string }

// firing is an alert as one of its tests renders it.
type firing struct{ alert, summary, description string }

func (f firing) annotations() []rendered {
	return []rendered{{f.alert, "summary", f.summary}, {f.alert, "description", f.description}}
}

var (
	empty = regexp.MustCompile(`<no value>|<error|error executing|\bNaN\b|[+-]Inf\b|  |\(\)|\(/|/\)|\( | \)|''| [.,;:]|,\.|%!`)
	// A number that a sentence or a part of it ends with has no unit.
	number  = regexp.MustCompile(`(?:^|[\s(])(\d+(?:\.\d+)?)(?:[.,;:)]+(?:\s|$)|$)`)
	precise = regexp.MustCompile(`\d\.\d{4,}`)
	grade   = regexp.MustCompile(`grade \d of \d`)
)

// faults returns what is wrong with an annotation: no whole sentences, an empty label, a number without a unit.
func (r rendered) faults() (wrong []string) {
	text := r.text
	if text == "" || !regexp.MustCompile(`^['"\w]`).MatchString(text) {
		wrong = append(wrong, "does not begin with a word")
	}
	if !strings.HasSuffix(text, ".") {
		wrong = append(wrong, "does not end with a full stop")
	}
	if r.annotation == "summary" && regexp.MustCompile(`\. [A-Z]`).MatchString(text) {
		wrong = append(wrong, "is more than a sentence")
	}
	if found := empty.FindString(text); found != "" {
		wrong = append(wrong, fmt.Sprintf("has an empty value at %q", found))
	}
	if m := number.FindStringSubmatch(grade.ReplaceAllString(text, "a grade")); m != nil {
		wrong = append(wrong, fmt.Sprintf("has the number %s without a unit", m[1]))
	}
	if found := precise.FindString(text); found != "" {
		wrong = append(wrong, fmt.Sprintf("has a number of too many digits, %s", found))
	}
	return wrong
}

// alertNames returns the names of the alerts in files of rules.
func alertNames(t *testing.T, files ...string) (names []string) {
	t.Helper()
	for _, file := range files {
		for _, r := range ruletests.Rules(t, file) {
			if r.Alert != "" {
				names = append(names, r.Alert)
			}
		}
	}
	return names
}

// The summary and the description of each alert, rendered with the labels and values of its own tests, are whole
// sentences; and rules/ALERTS.md shows them.
func TestSummariesAreSentences(t *testing.T) {
	t.Parallel()
	if *update && isMade(t) {
		return
	}
	seen := map[string][]firing{}
	for path, one := range evaluated(t) {
		for _, f := range one.rendered {
			seen[f.alert] = append(seen[f.alert], f)
			for _, r := range f.annotations() {
				for _, wrong := range r.faults() {
					t.Errorf("%s: the %s of %s %s: %s", filepath.Base(path), r.annotation, r.alert, wrong, r.text)
				}
			}
		}
	}
	names := alertNames(t, ruletests.Files(t)...)
	for _, name := range names {
		if len(seen[name]) == 0 {
			t.Errorf("no test renders %s", name)
		}
	}
	checkAlertsPage(t, seen)
}

// The test itself finds what it is there to find.
func TestFaultsFindMistakes(t *testing.T) {
	for text, want := range map[string]string{
		"Volume v (db/c) is slow.":              "",
		"A write takes 4.4ms, 3 times as long.": "",
		"It is of grade 3 of 4.":                "",
		"It is 85.2% full, for 2m 0s.":          "",
		"Volume v (/) is slow.":                 "empty value",
		"Volume  is slow.":                      "empty value",
		"Writes of volume .":                    "empty value",
		"It is on node , disk sda.":             "empty value",
		"It takes NaN seconds.":                 "empty value",
		"Server <no value> is slow.":            "empty value",
		"Volume v is slow":                      "full stop",
		"It has waited for 12.":                 "without a unit",
		"It has 12, others less.":               "without a unit",
		"It is 1.33333333 times as slow.":       "too many digits",
		"One thing. Another thing.":             "more than a sentence",
		" is slow.":                             "begin with a word",
	} {
		got := strings.Join(rendered{"A", "summary", text}.faults(), "; ")
		if (want == "") != (got == "") || !strings.Contains(got, want) {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}
