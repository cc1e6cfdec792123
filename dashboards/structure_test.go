package dashboards

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/grafana/grafana-foundation-sdk/go/common"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/heatmap"
	"github.com/grafana/grafana-foundation-sdk/go/timeseries"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/plumbline/plumbline/rules"
)

// These tests catch, without a Grafana, what was wrong when the dashboards were first seen in one.

// screen is what a window of 1280 pixels leaves for the panels, beside the menu and the margins.
const screen = 1190

// pixels is the width of a panel's inside on that screen.
func pixels(columnsWide uint32) int { return int(columnsWide)*(screen+8)/columns - 8 - 18 }

// inner is the height of a panel's inside, below its title.
func inner(rows uint32) int { return int(rows)*38 - 8 - 36 }

// drawn is a panel with its place and the title of its row.
type drawn struct {
	dashboard.Panel
	name, row string
}

func allPanels(t *testing.T) []drawn {
	t.Helper()
	var all []drawn
	for uid, b := range committed(t) {
		row := ""
		add := func(p dashboard.Panel) { all = append(all, drawn{p, fmt.Sprintf("%s, %q", uid, *p.Title), row}) }
		for _, p := range b.Panels {
			if p.Panel != nil {
				add(*p.Panel)
				continue
			}
			row = *p.RowPanel.Title
			for _, one := range p.RowPanel.Panels {
				add(one)
			}
		}
	}
	if len(all) < 60 {
		t.Fatalf("only %d panels were found", len(all))
	}
	return all
}

// decode reads what the schema does not: a panel's options and its fields' custom settings.
func decode[T any](t *testing.T, from any) T {
	t.Helper()
	var to T
	text, err := json.Marshal(from)
	if err == nil {
		err = json.Unmarshal(text, &to)
	}
	if err != nil {
		t.Fatal(err)
	}
	return to
}

// exprs are a panel's expressions as Grafana's parser would see them.
func (d drawn) exprs(t *testing.T) []parser.Expr {
	t.Helper()
	var all []parser.Expr
	for _, target := range d.Targets {
		text := decode[struct{ Expr string }](t, target).Expr
		expr, err := parser.NewParser(parser.Options{}).ParseExpr(Expression{Text: text}.Fill(Intervals{Rate: "7m11s", Range: "13m17s"}, nil))
		if err != nil {
			t.Fatalf("%s: %v", d.name, err)
		}
		all = append(all, expr)
	}
	return all
}

// A state's text and colour come from its mapping. With colours by thresholds Grafana shows the
// threshold's range in place of the text: "-∞+".
func TestStatesShowTheirText(t *testing.T) {
	seen := 0
	for _, p := range allPanels(t) {
		if p.Type != "state-timeline" {
			continue
		}
		seen++
		d := p.FieldConfig.Defaults
		if d.Color == nil || d.Color.Mode == dashboard.FieldColorModeIdThresholds || len(d.Mappings) == 0 {
			t.Errorf("%s: colours by %+v, %d mappings; want fixed colours and a mapping", p.name, d.Color, len(d.Mappings))
		}
	}
	if seen < 5 {
		t.Errorf("only %d state timelines were found", seen)
	}
	// A value with a mapping among others, as in a tile, needs a colour mode of its own.
	for _, p := range allPanels(t) {
		for _, o := range p.FieldConfig.Overrides {
			ids := map[string]any{}
			for _, property := range o.Properties {
				ids[property.Id] = property.Value
			}
			if ids["mappings"] != nil && decode[struct{ Mode string }](t, ids["color"]).Mode != "fixed" {
				t.Errorf("%s: the mapping of %v has no fixed colours", p.name, o.Matcher.Options)
			}
		}
	}
}

// A table's columns fit beside each other on a screen of 1280 pixels, and its value is not behind
// its labels where it is the only one.
func TestTablesFit(t *testing.T) {
	for _, p := range allPanels(t) {
		if p.Type != "table" {
			continue
		}
		index := map[string]int{}
		for _, one := range p.Transformations {
			if one.Id == "organize" {
				index = decode[struct{ IndexByName map[string]int }](t, one.Options).IndexByName
			}
		}
		sum, values, seen := 0, 0, map[string]bool{}
		for _, o := range p.FieldConfig.Overrides {
			field, title, width := fmt.Sprint(o.Matcher.Options), "", 0
			for _, property := range o.Properties {
				switch property.Id {
				case "displayName":
					title = fmt.Sprint(property.Value)
				case "custom.minWidth":
					width = decode[int](t, property.Value)
				}
			}
			if seen[title] || title == clusterTitle {
				continue // Grafana's other name of an only value; a column that most have not
			}
			seen[title] = true
			if width < textWidth(title)+20 {
				t.Errorf("%s: the column %q is %d pixels wide, too narrow for its title", p.name, title, width)
			}
			sum += width
			if strings.HasPrefix(field, "Value") {
				values++
			}
		}
		if have := pixels(p.GridPos.W); sum > have {
			t.Errorf("%s: its columns need %d pixels, and it has %d", p.name, sum, have)
		}
		if last := index[ClusterLabel]; last != len(seen) {
			t.Errorf("%s: the cluster is column %d of %d, want the last", p.name, last, len(seen))
		}
		if values == 1 && index["Value"] != 0 {
			t.Errorf("%s: its only value is column %d", p.name, index["Value"])
		}
	}
}

// Titles are not cut off.
func TestTitlesFit(t *testing.T) {
	for _, p := range allPanels(t) {
		width := p.GridPos.W
		if p.Repeat != nil {
			width = columns / tilesPerRow
		}
		// 14 px, and the sign of the description beside it.
		if need := len([]rune(*p.Title))*75/10 + 22; need > pixels(width) {
			t.Errorf("%s: its title needs %d pixels of %d", p.name, need, pixels(width))
		}
	}
}

var question = regexp.MustCompile(`^[A-Z][^.?]*\?( |$)`)

// A description begins with the operator's question, and then answers how to read the panel.
func TestDescriptionsAreQuestions(t *testing.T) {
	questions := map[string]string{}
	for _, p := range allPanels(t) {
		q := question.FindString(*p.Description)
		if q == "" || len(*p.Description) < len(q)+30 {
			t.Errorf("%s has no question, or does not describe how to read the answer: %s", p.name, *p.Description)
		}
		page, _, _ := strings.Cut(p.name, ",")
		if other := questions[page+q]; other != "" {
			t.Errorf("%s has the same question as %s: %s", p.name, other, q)
		}
		questions[page+q] = p.name
	}
}

// An empty panel explains why it is empty, or that this is good.
func TestEmptyPanelsHaveReason(t *testing.T) {
	for _, p := range allPanels(t) {
		// For states Grafana shows its own text for no data, so a series must carry the reason.
		if p.Type == "state-timeline" && !strings.Contains(p.exprs(t)[0].String(), `"absent"`) {
			t.Errorf("%s: its query gives nothing when there are no states", p.name)
		}
		if no := p.FieldConfig.Defaults.NoValue; no == nil || *no == "" || strings.EqualFold(*no, "no data") {
			t.Errorf("%s has no text of its own for when it is empty", p.name)
		}
	}
}

// Legends sort by a number that one sample which is none does not spoil, and have room for their columns.
func TestLegends(t *testing.T) {
	for _, p := range allPanels(t) {
		if p.Type != "timeseries" {
			continue
		}
		legend := decode[struct{ Legend common.VizLegendOptions }](t, p.Options).Legend
		if legend.SortBy == nil || *legend.SortBy != "Max" || slices.Contains(legend.Calcs, "mean") {
			t.Errorf("%s: its legend sorts by %v of %v", p.name, legend.SortBy, legend.Calcs)
		}
	}
}

// The numbers in a legend are not outside at 1280 pixels: a narrow panel has one beside each name, and names of two
// words and a state's row have room.
func TestLegendsAndRowsFit(t *testing.T) {
	for _, p := range allPanels(t) {
		longest := 0
		for _, target := range p.Targets {
			longest = max(longest, strings.Count(decode[struct{ LegendFormat string }](t, target).LegendFormat, "{{"))
		}
		switch p.Type {
		case "timeseries":
			calcs := decode[struct{ Legend common.VizLegendOptions }](t, p.Options).Legend.Calcs
			if narrow := p.GridPos.W < 8 || p.GridPos.W == 8 && *p.FieldConfig.Defaults.Unit == perSec; narrow && len(calcs) > 1 {
				t.Errorf("%s: %d numbers beside each name in a panel of %d columns", p.name, len(calcs), p.GridPos.W)
			}
		case "state-timeline":
			// The cluster and the reason for nothing are empty for most.
			if longest-2 >= 2 && p.GridPos.W < 8 {
				t.Errorf("%s: names of %d words in a panel of %d columns", p.name, longest-2, p.GridPos.W)
			}
		}
	}
}

// A bar chart without any bar shows Grafana's own text, so each class has one.
func TestBarsAreNeverMissing(t *testing.T) {
	for _, p := range allPanels(t) {
		if p.Type == "barchart" && !strings.Contains(p.exprs(t)[0].String(), "or on (cluster, storageclass) (0 * group by") && !strings.Contains(p.exprs(t)[0].String(), "or on (cluster, storageclass) 0 * group by") {
			t.Errorf("%s: nothing where no class has statements: %s", p.name, p.exprs(t)[0])
		}
	}
}

// An axis fits its unit: without an end, one with nothing but zeros goes to 100, which is
// 10000 % of a ratio.
func TestAxesFit(t *testing.T) {
	for _, p := range allPanels(t) {
		unit := p.FieldConfig.Defaults.Unit
		if unit != nil && *unit == "percent" {
			t.Errorf("%s: the unit percent; shares are from 0 to 1 here", p.name)
		}
		if p.Type != "timeseries" {
			continue
		}
		custom := decode[timeseries.FieldConfig](t, p.FieldConfig.Defaults.Custom)
		log := custom.ScaleDistribution != nil && custom.ScaleDistribution.Type == common.ScaleDistributionLog
		if bounded := p.FieldConfig.Defaults.Max != nil || custom.AxisSoftMax != nil || log; !bounded && slices.Contains([]string{ratio, perSec, count, times}, *unit) {
			t.Errorf("%s: its axis of %s has no end", p.name, *unit)
		}
		for _, expr := range p.exprs(t) {
			if *unit == ratio && regexp.MustCompile(`\* 100\b|100 \*`).MatchString(expr.String()) {
				t.Errorf("%s: percent of percent: %s", p.name, expr)
			}
		}
	}
}

// The lines of an axis by powers of ten that have no number have no text either: Grafana takes a series' text for
// nothing there, once for each line, over the numbers and into the graph.
func TestLogAxesHaveNumbersOnly(t *testing.T) {
	seen := 0
	for _, p := range allPanels(t) {
		if p.Type != "timeseries" {
			continue
		}
		custom := decode[timeseries.FieldConfig](t, p.FieldConfig.Defaults.Custom)
		if custom.ScaleDistribution == nil || custom.ScaleDistribution.Type != common.ScaleDistributionLog {
			continue
		}
		seen++
		if !slices.ContainsFunc(p.FieldConfig.Overrides, func(o dashboard.DashboardFieldConfigSourceOverrides) bool {
			return o.Matcher.Id == "byRegexp" && o.Matcher.Options == "/.*/" && slices.ContainsFunc(o.Properties, func(one dashboard.DynamicConfigValue) bool {
				return one.Id == "noValue" && one.Value == ""
			})
		}) {
			t.Errorf("%s: its axis shows the panel's text for nothing", p.name)
		}
	}
	if seen < 3 {
		t.Errorf("only %d axes by powers of ten were found", seen)
	}
}

// A heat map's rows are high enough for their names.
func TestHeatMapsHaveRoom(t *testing.T) {
	for _, p := range allPanels(t) {
		if p.Type != "heatmap" {
			continue
		}
		expr := p.exprs(t)[0].String()
		rows := strings.Count(expr, `"le"`)
		if rows < 5 {
			t.Errorf("%s: %d buckets; Grafana would make rows of the histogram's own", p.name, rows)
		}
		rest := 25 // the time axis
		if decode[heatmap.Options](t, p.Options).Legend.Show {
			rest += 40
		}
		if each := (inner(p.GridPos.H) - rest) / (rows + 1); each < 14 {
			t.Errorf("%s: %d pixels for each of %d rows' names", p.name, each, rows+1)
		}
	}
}

// What is called now is over the shortest window; means over longer windows are labelled as such.
func TestNowIsNow(t *testing.T) {
	recorded := regexp.MustCompile(`:(mean|inferred|p99_|ratio_p95_|rate)5m`)
	for _, p := range allPanels(t) {
		all := ""
		for _, e := range p.exprs(t) {
			all += e.String() + "\n"
		}
		titles := *p.Title + " " + p.row
		short := strings.Contains(all, "["+nowWindow+"]")
		if hasNow := strings.Contains(titles, "last 2 minutes"); short && !hasNow {
			t.Errorf("%s: a window of %s that neither its title nor its row names", p.name, nowWindow)
		}
		if regexp.MustCompile(`(?i)\bnow\b`).MatchString(titles) && !strings.Contains(titles, "last 2 minutes") {
			t.Errorf("%s: now, but not how long now is", p.name)
		}
		if kind := p.Type == "table" || p.Type == "stat"; kind && !short && recorded.MatchString(all) && !strings.Contains(strings.ToLower(*p.Title), "5 min") {
			t.Errorf("%s: means over five minutes that its title does not mention", p.name)
		}
	}
}

// A mean over nothing is no number; a line with one such sample has no mean, and sorts first. So
// each mean and each quotient drops it.
func TestNoExpressionGivesNaN(t *testing.T) {
	for _, p := range allPanels(t) {
		for _, expr := range p.exprs(t) {
			parser.Inspect(expr, func(n parser.Node, path []parser.Node) error {
				switch n := n.(type) {
				case *parser.Call:
					if slices.Contains([]string{"histogram_avg", "histogram_quantile", "histogram_fraction"}, n.Func.Name) && p.Type != "heatmap" && !slices.ContainsFunc(path, compares) {
						t.Errorf("%s: %s may be over nothing", p.name, n)
					}
				case *parser.BinaryExpr:
					if _, constant := n.RHS.(*parser.NumberLiteral); n.Op == parser.DIV && !constant && !compares(unwrap(n.RHS)) {
						t.Errorf("%s: %s may divide by 0", p.name, n)
					}
				}
				return nil
			})
		}
	}
}

func compares(n parser.Node) bool {
	b, ok := n.(*parser.BinaryExpr)
	return ok && b.Op.IsComparisonOperator() && !b.ReturnBool
}

func unwrap(e parser.Expr) parser.Expr {
	if p, ok := e.(*parser.ParenExpr); ok {
		return unwrap(p.Expr)
	}
	return e
}

// Every query selects the chosen clusters, and none relies on what is unique only within one.
func TestClusters(t *testing.T) {
	all, err := Expressions(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range all {
		if e.Place == "cluster" && e.Kind == "variable" {
			continue
		}
		expr, err := parser.NewParser(parser.Options{}).ParseExpr(e.Fill(Intervals{"1m", "1h"}, map[string]string{"cluster": "chosen"}))
		if err != nil {
			t.Fatalf("%s: %v", e.Where(), err)
		}
		check := func(what string, names []string) {
			if !slices.Equal(withCluster(slices.Clone(names), ClusterLabel), names) {
				t.Errorf("%s: %s (%s) without the cluster", e.Where(), what, strings.Join(names, ", "))
			}
		}
		parser.Inspect(expr, func(n parser.Node, _ []parser.Node) error {
			switch n := n.(type) {
			case *parser.VectorSelector:
				if !slices.ContainsFunc(n.LabelMatchers, func(m *labels.Matcher) bool { return m.Name == ClusterLabel && m.Value == "chosen" }) {
					t.Errorf("%s: %s of all clusters", e.Where(), n)
				}
				if n.Name == "ALERTS" {
					checkAlerts(t, e, n)
				}
			case *parser.AggregateExpr:
				if !n.Without && !(e.Kind == "variable" && n.Op == parser.GROUP) {
					check("by", n.Grouping)
				}
			case *parser.BinaryExpr:
				if m := n.VectorMatching; m != nil && m.On {
					check("on", m.MatchingLabels)
				}
			}
			return nil
		})
	}
}

// checkAlerts reports a selector that has other alerts than ours, such as the one that always fires, or not all of
// ours. It may leave out some by their severity.
func checkAlerts(t *testing.T, e Expression, s *parser.VectorSelector) {
	t.Helper()
	all, err := rules.All()
	if err != nil {
		t.Fatal(err)
	}
	shown := func(alert map[string]string) bool {
		return !slices.ContainsFunc(s.LabelMatchers, func(m *labels.Matcher) bool {
			return !slices.Contains([]string{"__name__", "alertstate", "severity", ClusterLabel}, m.Name) && !m.Matches(alert[m.Name])
		})
	}
	for _, name := range []string{"Watchdog", "InfoInhibitor"} {
		if shown(map[string]string{"alertname": name, "severity": "none"}) {
			t.Errorf("%s: %s are other people's alerts, too", e.Where(), s)
		}
	}
	n := 0
	for _, r := range all {
		if r.Alert == "" {
			continue
		}
		n++
		alert := map[string]string{"alertname": r.Alert}
		maps.Copy(alert, r.Labels)
		if !shown(alert) {
			t.Errorf("%s: the alert %s is not shown", e.Where(), r.Alert)
		}
	}
	if n < 30 {
		t.Fatalf("only %d alerts were found", n)
	}
}

// The label that distinguishes clusters is configurable.
func TestClusterLabel(t *testing.T) {
	files, err := Files(Options{ClusterLabel: "k8s_cluster"})
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range files {
		if !bytes.Contains(text, []byte(`k8s_cluster=~\"$cluster\"`)) || regexp.MustCompile(`[^_]cluster=~|`+clusterHere).Match(text) {
			t.Errorf("%s does not go by the label k8s_cluster throughout", name)
		}
	}
}

// The control class is the one that storageclass:control:info names, not one with a fixed name.
func TestControlHasNoName(t *testing.T) {
	for uid := range committed(t) {
		text, err := os.ReadFile(uid + ".json")
		if err != nil {
			t.Fatal(err)
		}
		if regexp.MustCompile(`storageclass(!?=~?)\\"local|_to_local`).Match(text) {
			t.Errorf("%s: the control is a class named local", uid)
		}
	}
}

// The overview's first screen answers which class is slow and where: tiles, bars and alerts, and
// no more rows than a laptop's screen has. On a phone they come in this order, one below the other.
func TestFirstScreen(t *testing.T) {
	board := committed(t)["plumbline-overview"]
	var kinds []string
	bottom := uint32(0)
	for _, p := range board.Panels[1:] {
		if p.RowPanel != nil {
			break
		}
		kinds = append(kinds, p.Panel.Type)
		bottom = max(bottom, p.Panel.GridPos.Y+p.Panel.GridPos.H)
	}
	if !slices.Equal(kinds, []string{"stat", "barchart", "table"}) || bottom > 18 {
		t.Errorf("%s, down to row %d of 18", strings.Join(kinds, ", "), bottom)
	}
	tile := board.Panels[1].Panel
	if tile.Repeat == nil || *tile.Repeat != "storageclass" || len(tile.Targets) != 4 {
		t.Errorf("the first panel is not there once for each class: %v, %d values", tile.Repeat, len(tile.Targets))
	}
}

// Annotations that are always on have no switch, so that switches take less than a row.
func TestSwitches(t *testing.T) {
	for uid, b := range committed(t) {
		var shown []string
		for _, a := range b.Annotations.List {
			if a.Hide == nil || !*a.Hide {
				shown = append(shown, a.Name)
			} else if !a.Enable {
				t.Errorf("%s: %s is off, and nobody can turn it on", uid, a.Name)
			}
		}
		if len(shown) > 1 {
			t.Errorf("%s: switches for %s", uid, strings.Join(shown, ", "))
		}
	}
}

// The disks of a volume's replicas are not on the node alone that uses the volume.
func TestDiskUsersOfAllNodes(t *testing.T) {
	for _, p := range diskUsers() {
		for _, q := range p.queries {
			if strings.Contains(q.expr, "$node") {
				t.Errorf("%s is of the chosen nodes only: %s", p.title, q.expr)
			}
		}
	}
}
