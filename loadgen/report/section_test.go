package report

import (
	"bytes"
	"math"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/plumbline/plumbline/rules/why"
	"github.com/plumbline/plumbline/rules/why/whytest"
)

// A page of sections has their words, escaped, and bars that are filled and to one scale; and nothing of a soak.
func TestSections(t *testing.T) {
	r := &Report{Title: "A demo", Began: whytest.End.Add(-time.Minute), Last: whytest.End, Done: 1}
	broken := whytest.Healthy()
	broken.Trip["r3-2"], broken.Device["r3"], broken.Commit["r3"]["sync"] = 30, 34, 40
	for title, lab := range map[string]*whytest.Lab{"Before": whytest.Healthy(), "While it was <broken>": broken} {
		f, err := why.Find(t.Context(), lab.Record(), why.Subject{Class: "r3"}, whytest.End, 20*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		r.Sections = append(r.Sections, Section{Title: title, Findings: []Finding{NewFinding(f)}})
	}
	var out bytes.Buffer
	if err := r.WriteHTML(&out); err != nil {
		t.Fatal(err)
	}
	page := out.String()
	for _, want := range []string{"<h2>Before</h2>", "While it was &lt;broken&gt;", "replica r3-2 stands out", "no replica stands out", `title="network`, "A demo"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page has no %q", want)
		}
	}
	for _, not := range []string{"transactions</th>", "Changes of level", "of the plan", "ZgotmplZ"} {
		if strings.Contains(page, not) {
			t.Errorf("the page has %q", not)
		}
	}
	number := func(pattern, text string) (values []float64) {
		for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(text, -1) {
			v, err := strconv.ParseFloat(m[1], 64)
			if err != nil {
				t.Fatal(err)
			}
			values = append(values, v)
		}
		return values
	}
	bars := strings.Split(page, `<div class="bar"`)[1:]
	full := 0
	for _, bar := range bars {
		bar, _, _ = strings.Cut(bar, "</div></div>")
		if scale := number(`^ style="width:([0-9.]+)%`, bar); len(scale) == 1 && scale[0] == 100 {
			full++
		}
		filled := 0.0
		for _, w := range number(`;width:([0-9.]+)%`, bar) {
			filled += w
		}
		if math.Abs(filled-100) > 0.1 {
			t.Errorf("the parts of a bar fill %.2f %% of it", filled)
		}
	}
	if len(bars) != 4 || full != 2 {
		t.Errorf("%d bars, of which %d are full; want a commit's and a write's of both sections, and the longest of each kind full", len(bars), full)
	}
}
