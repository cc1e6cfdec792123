package dashboards

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/grafana/grafana-foundation-sdk/go/cog/plugins"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/plumbline/plumbline/rules/histograms"
)

// committed reads the JSON in this folder back, strictly: a field that Grafana's schema does
// not know, or a value of the wrong type, is an error. Panels and queries included.
func committed(t *testing.T) map[string]dashboard.Dashboard {
	t.Helper()
	plugins.RegisterDefaultPlugins()
	paths, err := filepath.Glob("*.json")
	if err != nil || len(paths) != len(pages()) {
		t.Fatalf("%d files for %d dashboards: %v", len(paths), len(pages()), err)
	}
	boards := map[string]dashboard.Dashboard{}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var b dashboard.Dashboard
		if err := b.UnmarshalJSONStrict(withoutAnnotationFormats(t, text)); err != nil {
			t.Fatalf("%s does not keep to Grafana's schema: %v", path, err)
		}
		if err := b.Validate(); err != nil {
			t.Errorf("%s: %v", path, err)
		}
		boards[*b.Uid] = b
	}
	return boards
}

// withoutAnnotationFormats takes out the fields of the Prometheus data source's own.
func withoutAnnotationFormats(t *testing.T, text []byte) []byte {
	t.Helper()
	var all map[string]json.RawMessage
	var list struct {
		List []map[string]json.RawMessage `json:"list"`
	}
	if err := json.Unmarshal(text, &all); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(all["annotations"], &list); err != nil {
		t.Fatal(err)
	}
	for _, a := range list.List {
		delete(a, "titleFormat")
		delete(a, "textFormat")
	}
	all["annotations"], _ = json.Marshal(list)
	out, _ := json.Marshal(all)
	return out
}

func panelsOf(b dashboard.Dashboard) []dashboard.Panel {
	var all []dashboard.Panel
	for _, p := range b.Panels {
		if p.Panel != nil {
			all = append(all, *p.Panel)
		} else {
			all = append(all, p.RowPanel.Panels...)
		}
	}
	return all
}

// The committed files are what the generator writes.
func TestCommittedFilesAreCurrent(t *testing.T) {
	files, err := Files(Options{})
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range files {
		if have, err := os.ReadFile(name); err != nil || !bytes.Equal(have, want) {
			t.Errorf("%s is not what the generator writes (%v); run make generate", name, err)
		}
	}
	committed, err := filepath.Glob("*.json")
	if err != nil || len(committed) != len(files) {
		t.Errorf("%d files, want %d: remove those of dashboards that are gone (%v)", len(committed), len(files), err)
	}
}

// What knows no native histograms knows no functions of them.
func TestClassic(t *testing.T) {
	files, err := Files(Options{Histograms: histograms.Classic})
	if err != nil {
		t.Fatal(err)
	}
	native := regexp.MustCompile(`histogram_(count|sum|avg)`)
	for name, text := range files {
		if native.Match(text) {
			t.Errorf("%s queries native histograms", name)
		}
	}
}

// The files have the same JSON as Go's encoder writes, on lines that fit.
func TestFormat(t *testing.T) {
	for name, value := range map[string]any{
		"empty": map[string]any{}, "number": 1e21, "strings": []string{"a,\nb", `"{[<&>]}"`, strings.Repeat("long ", 60)},
		"nested": map[string]any{"a": []any{map[string]any{"b": strings.Repeat("c", 100)}, nil, true, -0.5, strings.Repeat("d", 100)}, "e": []int{}},
	} {
		plain, err := json.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		text, err := format(value)
		if err != nil {
			t.Fatal(err)
		}
		var compact bytes.Buffer
		if err := json.Compact(&compact, text); err != nil || compact.String() != string(plain) {
			t.Errorf("%s: %v\n%s\nwant %s", name, err, compact.String(), plain)
		}
		for line := range strings.Lines(string(text)) {
			if strings.Contains(line, ", ") && !strings.Contains(line, "long") && len(line) > widest+1 {
				t.Errorf("%s: a line of %d characters: %s", name, len(line), line)
			}
		}
	}
}

// Dashboards have a title of their own, a data source variable, the common time, and are
// found by the links of all the others.
func TestDashboards(t *testing.T) {
	boards := committed(t)
	titles := map[string]bool{}
	for uid, b := range boards {
		if titles[*b.Title] || b.Description == nil || len(*b.Description) < 40 {
			t.Errorf("%s: title %q is used twice or has no description", uid, *b.Title)
		}
		titles[*b.Title] = true
		if first := b.Templating.List[0]; first.Type != "datasource" || first.Name != "datasource" {
			t.Errorf("%s: the first variable is %q, want the data source", uid, first.Name)
		}
		if b.Id != nil || b.SchemaVersion != schemaVersion {
			t.Errorf("%s: id %v, schema version %d", uid, b.Id, b.SchemaVersion)
		}
		if second := b.Templating.List[1]; second.Name != "cluster" || second.AllValue == nil || *second.AllValue != ".*" {
			t.Errorf("%s: the second variable is %q, want the cluster, whose All selects series without the label, too", uid, second.Name)
		}
		// One menu leads to all that have the tag, so that it takes no row of the screen.
		if len(b.Links) != 1 || !b.Links[0].AsDropdown || !slices.Equal(b.Links[0].Tags, b.Tags) {
			t.Errorf("%s: the head's links are %+v, want one menu", uid, b.Links)
		}
		for _, l := range b.Links {
			if !l.KeepTime || !l.IncludeVars {
				t.Errorf("%s: the link %s loses the time or the variables", uid, l.Title)
			}
		}
	}
}

var panelKinds = []string{"timeseries", "stat", "table", "heatmap", "state-timeline", "barchart"}

// Every panel describes what it shows, has a unit and the common data source, and a kind that Grafana 10 has, too.
func TestPanels(t *testing.T) {
	for uid, b := range committed(t) {
		ids, titles := map[uint32]bool{}, map[string]bool{}
		own := func(id uint32) {
			if id == 0 || ids[id] {
				t.Errorf("%s: panel id %d is used twice or 0", uid, id)
			}
			ids[id] = true
		}
		for _, p := range b.Panels {
			if p.RowPanel != nil {
				own(p.RowPanel.Id)
			}
		}
		for _, p := range panelsOf(b) {
			own(*p.Id)
		}
		for _, p := range panelsOf(b) {
			name := fmt.Sprintf("%s, %q", uid, *p.Title)
			if titles[*p.Title] {
				t.Errorf("%s: another panel has this title", name)
			}
			titles[*p.Title] = true
			if !slices.Contains(panelKinds, p.Type) {
				t.Errorf("%s: a %s panel", name, p.Type)
			}
			if p.Description == nil || !strings.HasSuffix(*p.Description, ".") || len(*p.Description) < 40 {
				t.Errorf("%s: no description worth the name", name)
			}
			if p.FieldConfig == nil || p.FieldConfig.Defaults.Unit == nil || *p.FieldConfig.Defaults.Unit == "" {
				if p.Type != "heatmap" {
					t.Errorf("%s: no unit", name)
				}
			}
			if p.Datasource == nil || *p.Datasource.Uid != "${datasource}" || *p.Datasource.Type != "prometheus" {
				t.Errorf("%s: the data source is not the variable's", name)
			}
			if len(p.Targets) == 0 {
				t.Errorf("%s: no query", name)
			}
		}
	}
}

// Panels fill the grid's rows: nothing overlaps, nothing sticks out, no row has a gap, and
// graphs are wide enough to be read at 1280 pixels.
func TestLayout(t *testing.T) {
	for uid, b := range committed(t) {
		taken := map[[2]uint32]string{}
		bottom := uint32(0)
		place := func(name string, g *dashboard.GridPos) {
			if g.X+g.W > columns || g.W == 0 || g.H == 0 {
				t.Errorf("%s, %q: at %+v", uid, name, *g)
			}
			for x := g.X; x < g.X+g.W; x++ {
				for y := g.Y; y < g.Y+g.H; y++ {
					if other := taken[[2]uint32{x, y}]; other != "" {
						t.Fatalf("%s: %q lies on %q", uid, name, other)
					}
					taken[[2]uint32{x, y}] = name
				}
			}
			bottom = max(bottom, g.Y+g.H)
		}
		for _, p := range b.Panels {
			if p.RowPanel != nil {
				place(*p.RowPanel.Title, p.RowPanel.GridPos)
			}
		}
		for _, p := range panelsOf(b) {
			place(*p.Title, p.GridPos)
			if least := map[string]uint32{"timeseries": 6, "table": 8, "heatmap": 8, "state-timeline": 6, "barchart": 12}[p.Type]; p.GridPos.W < least {
				t.Errorf("%s, %q: %d columns wide, want %d", uid, *p.Title, p.GridPos.W, least)
			}
		}
		if want := int(columns * bottom); len(taken) != want {
			t.Errorf("%s: %d of the grid's %d cells are filled", uid, len(taken), want)
		}
	}
}

var (
	linkURL   = regexp.MustCompile(`"(?:url|Url)": ?"/d/([^"?]+)\??([^"]*)"`)
	linkParam = regexp.MustCompile(`var-(\w+)=`)
	// source is the label or column that a link takes a value from.
	linkSource = regexp.MustCompile(`\$\{__(?:data\.fields|field\.labels)\.(\w+)\}`)
)

// Links lead to a dashboard that is there, and set variables that it has.
func TestLinksResolve(t *testing.T) {
	boards := committed(t)
	links := 0
	defer func() {
		if links < 20 {
			t.Errorf("only %d links were found", links)
		}
	}()
	for uid := range boards {
		text, err := os.ReadFile(uid + ".json")
		if err != nil {
			t.Fatal(err)
		}
		found := linkURL.FindAllSubmatch(text, -1)
		links += len(found)
		for _, m := range found {
			to, ok := boards[string(m[1])]
			if !ok {
				t.Errorf("%s: a link to %s, which is not there", uid, m[1])
				continue
			}
			for _, param := range linkParam.FindAllSubmatch(m[2], -1) {
				if !slices.ContainsFunc(to.Templating.List, func(v dashboard.VariableModel) bool { return v.Name == string(param[1]) }) {
					t.Errorf("%s: a link sets %s, which %s does not have", uid, param[1], m[1])
				}
			}
		}
	}
}

// A panel's link takes values only from labels that the panel's series have: those that
// its expressions group by, join or select.
func TestLinksHaveTheirLabels(t *testing.T) {
	for uid, b := range committed(t) {
		for _, p := range panelsOf(b) {
			text, err := json.Marshal(p)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range linkSource.FindAllSubmatch(text, -1) {
				for i, target := range p.Targets {
					expr, _ := json.Marshal(target)
					if !bytes.Contains(expr, m[1]) {
						t.Errorf("%s, %q: a link needs the label %s, which query %d does not have", uid, *p.Title, m[1], i)
					}
				}
			}
		}
	}
}

// The thresholds and fixed colours are of a palette for colour-blind people.
func TestColours(t *testing.T) {
	palette := []string{blue, sky, green, yellow, orange, vermillion, purple, grey}
	hex := regexp.MustCompile(`#[0-9A-Fa-f]{6}`)
	for uid := range committed(t) {
		text, err := os.ReadFile(uid + ".json")
		if err != nil {
			t.Fatal(err)
		}
		for _, colour := range hex.FindAllString(string(text), -1) {
			if !slices.Contains(palette, colour) {
				t.Errorf("%s: the colour %s is not of the palette", uid, colour)
			}
		}
		for _, word := range []string{`"red"`, `"green"`, `continuous-GrYlRd`, `continuous-RdYlGr`} {
			if bytes.Contains(text, []byte(word)) {
				t.Errorf("%s: the colour %s", uid, word)
			}
		}
	}
}

// Expressions parse; a panel's ranges are Grafana's ($__rate_interval, $__range), so that they fit any scrape interval
// and zoom, or the window of what is called "now"; counters are never shown without a rate.
func TestExpressions(t *testing.T) {
	all, err := Expressions(".")
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 150 {
		t.Fatalf("only %d expressions were found", len(all))
	}
	marker := Intervals{Rate: "7m11s", Range: "7m11s"}
	promql := parser.NewParser(parser.Options{})
	for _, e := range all {
		expr, err := promql.ParseExpr(e.Fill(marker, nil))
		if err != nil {
			t.Errorf("%s: %v\n%s", e.Where(), err, e.Text)
			continue
		}
		parser.Inspect(expr, func(n parser.Node, path []parser.Node) error {
			switch n := n.(type) {
			case *parser.MatrixSelector:
				// Only the past has series of a target that is down.
				known := n.Range.String() == marker.Rate || n.Range.String() == nowWindow+"0s" || inCall(path, "last_over_time")
				if e.Kind == "panel" && !known {
					t.Errorf("%s: a fixed range [%s]", e.Where(), n.Range)
				}
			case *parser.VectorSelector:
				if e.Kind == "panel" && strings.HasSuffix(n.Name, "_total") && !inRange(path) {
					t.Errorf("%s: the counter %s without a rate", e.Where(), n.Name)
				}
			}
			return nil
		})
	}
}

func inRange(path []parser.Node) bool {
	return slices.ContainsFunc(path, func(n parser.Node) bool { _, ok := n.(*parser.MatrixSelector); return ok })
}

func inCall(path []parser.Node, name string) bool {
	return slices.ContainsFunc(path, func(n parser.Node) bool { c, ok := n.(*parser.Call); return ok && c.Func.Name == name })
}

func TestFill(t *testing.T) {
	e := Expression{Text: `rate(a{b=~"$bee", c=~"$c_d"}[$__rate_interval]) + label_replace(x[$__range], "y", "$1", "z", "(.*)")`}
	have := e.Fill(Intervals{"1m", "1h"}, map[string]string{"bee": "hive"})
	want := `rate(a{b=~"hive", c=~".*"}[1m]) + label_replace(x[1h], "y", "$1", "z", "(.*)")`
	if have != want {
		t.Errorf("have %s\nwant %s", have, want)
	}
}
