package layers_test

import (
	"go/ast"
	goparser "go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/promql/parser"

	"github.com/plumbline/plumbline/rules/layers"
	"github.com/plumbline/plumbline/tests/ruletests"
	"github.com/plumbline/plumbline/tests/testkit"
)

func all(layers.Layer) bool { return true }

// Names and letters differ, what lies lower comes later, and colours of what one panel shows differ.
func TestLayers(t *testing.T) {
	names, letters := map[string]bool{}, map[string]bool{}
	for i, l := range layers.All {
		if names[l.Name] || letters[l.Letter] || len(l.Letter) != 1 || l.Words == "" {
			t.Errorf("%+v: the name or letter is another layer's, or it has no words", l)
		}
		names[l.Name], letters[l.Letter] = true, true
		if l.Phase != (l.Spent != "") {
			t.Errorf("%s: phase %v, %q", l.Name, l.Phase, l.Spent)
		}
		if i > 0 && l.Place < layers.All[i-1].Place && l.Name != layers.Rest {
			t.Errorf("%s comes after %s, which lies lower", l.Name, layers.All[i-1].Name)
		}
	}
	for what, chosen := range map[string]func(layers.Layer) bool{"phases": layers.IsPhase,
		"a write": func(l layers.Layer) bool { return layers.IsStorage(l) || l.Name == layers.Rest },
		"parts": func(l layers.Layer) bool {
			return l.Part().Name == l.Name || l.Name == layers.Device || l.Name == layers.Disk
		}} {
		colours := map[string]string{}
		for _, name := range layers.Names(chosen) {
			colour := layers.Of(name).Colour.Grafana
			if colours[colour] != "" {
				t.Errorf("%s: %s has the colour of %s", what, name, colours[colour])
			}
			colours[colour] = name
		}
	}
	for _, p := range layers.Parts() {
		if !slices.ContainsFunc(layers.All, func(l layers.Layer) bool { return l.Part() == p && l.Colour.Grafana == p.Colour }) {
			t.Errorf("%+v has the colour of none of its layers", p)
		}
	}
}

// A layer that is not in the list has its own name, is shown and comes last.
func TestUnknown(t *testing.T) {
	l := layers.Of("gpu")
	if l.Name != "gpu" || l.Letter == "" || l.Colour.CSS == "" || l.Limit != "" || l.Part().Name != "gpu" ||
		!strings.Contains(l.Words, "gpu") || !strings.Contains(l.Spent, "gpu") {
		t.Errorf("%+v", l)
	}
	names := []string{"zpu", layers.Rest, "gpu", layers.Client}
	if slices.SortFunc(names, layers.Compare); !slices.Equal(names, []string{layers.Client, layers.Rest, "gpu", "zpu"}) {
		t.Error(names)
	}
}

// value is what a rule, or another file, writes as a layer's name.
type value struct{ where, label, text string }

// ordered returns the names that a matcher or a regular expression lists, and whether they are in the layers' order,
// up or down.
func ordered(text string) (names []string, in bool) {
	names = strings.Split(text, "|")
	up := slices.IsSortedFunc(names, layers.Compare)
	down := slices.IsSortedFunc(names, func(a, b string) int { return layers.Compare(b, a) })
	return names, up || down
}

// phased are the metrics whose label phase is a statement's.
var phased = regexp.MustCompile(`^(plumbline_query_|plumbline_server_longest_wait|server:query_|server:main_|storageclass:query_)`)

// values returns what an expression compares the labels layer, suspect and phase with, and what it sets them to.
func values(where, expr string) (found []value, err error) {
	parsed, err := parser.NewParser(parser.Options{}).ParseExpr(expr)
	if err != nil {
		return nil, err
	}
	parser.Inspect(parsed, func(n parser.Node, _ []parser.Node) error {
		switch n := n.(type) {
		case *parser.VectorSelector:
			for _, m := range n.LabelMatchers {
				if m.Name == "layer" || m.Name == "suspect" || m.Name == "phase" && phased.MatchString(n.Name) {
					found = append(found, value{where, m.Name, m.Value})
				}
			}
		case *parser.Call:
			if n.Func.Name != "label_replace" {
				return nil
			}
			to, set, from, pattern := literal(n.Args[1]), literal(n.Args[2]), literal(n.Args[3]), literal(n.Args[4])
			if (to == "layer" || to == "suspect") && !strings.Contains(set, "$") {
				found = append(found, value{where, to, set})
			}
			if (from == "layer" || from == "suspect") && pattern != "(.*)" && pattern != "(.+)" {
				found = append(found, value{where, from, pattern})
			}
		}
		return nil
	})
	return found, nil
}

func literal(e parser.Expr) string { return e.(*parser.StringLiteral).Val }

// wrong returns what is wrong with a value, or "" if it is a layer or layers in their order.
func wrong(v value) string {
	names, in := ordered(v.text)
	for _, name := range names {
		known := slices.Contains(layers.Names(all), name) || v.label == "suspect" && slices.Contains(layers.Besides, name)
		if v.label == "phase" {
			known = layers.Of(name).Phase
		}
		if !known && name != "" {
			return v.where + ": the " + v.label + " " + strconv.Quote(name) + " is none of the package layers"
		}
	}
	if !in {
		return v.where + ": " + v.text + " is not in the order of the package layers"
	}
	return ""
}

// queried is a matcher in the query of a template.
var queried = regexp.MustCompile(`\b(layer|suspect)=~?'(.*?)'`)

// The rules name a neighbour for the layers that OnDisk has.
func TestOnDisk(t *testing.T) {
	want := `server:grown_layer:info{layer=~"` + strings.Join(layers.Names(layers.OnDisk), "|") + `"`
	if text := string(must(os.ReadFile(filepath.Join(testkit.Root(), "rules/verdict.rules.yaml")))); !strings.Contains(text, want) {
		t.Errorf("verdict.rules.yaml has no %s", want)
	}
}

// Every name of a layer in the rules and in Alertmanager's inhibitions is one of the package, and lists of them are in
// its order.
func TestRules(t *testing.T) {
	var every []ruletests.Rule
	for _, path := range ruletests.Files(t) {
		every = append(every, ruletests.Rules(t, path)...)
	}
	var found []value
	recorded := map[string][]string{} // the label layer of the rules that record a name, in their order
	for _, r := range every {
		where := r.Record + r.Alert
		one, err := values(where, r.Expr)
		if err != nil {
			t.Fatal(err)
		}
		if where == "volume:stalled_seconds:max" && r.Labels["layer"] == "" {
			var order []string
			for _, v := range one {
				order = append(order, v.text)
			}
			// A stall of the file system is what is left, by a rule of its own.
			stuck := layers.Names(func(l layers.Layer) bool { return l.Stuck != "" && l.Name != layers.FileSystem })
			if slices.Reverse(stuck); !slices.Equal(order, stuck) {
				t.Errorf("%s looks for %v, want the lowest first, %v", where, order, stuck)
			}
		}
		for _, label := range []string{"layer", "suspect"} {
			if name := r.Labels[label]; name != "" {
				one = append(one, value{where, label, name})
				recorded[where+r.Labels["op"]] = append(recorded[where+r.Labels["op"]], name)
			}
		}
		found = append(found, one...)
		for _, text := range r.Annotations {
			for _, m := range queried.FindAllStringSubmatch(text, -1) {
				found = append(found, value{where, m[1], m[2]})
			}
		}
	}
	for name, of := range recorded {
		// A verdict's rules come from the surest reason, a slow replica's from the layer that excludes the others.
		if strings.Contains(name, ":verdict:") || name == "replica:slow_layer:info" {
			continue
		}
		if !slices.IsSortedFunc(of, layers.Compare) {
			t.Errorf("%s is recorded in the order %v", name, of)
		}
	}
	inhibitions, err := os.ReadFile(filepath.Join(testkit.Root(), "manifests/kube-prometheus-stack/alertmanager.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	inhibited := regexp.MustCompile(`layer=~"(.*?)"`).FindAllStringSubmatch(string(inhibitions), -1)
	for _, m := range inhibited {
		found = append(found, value{"alertmanager.yaml", "layer", m[1]})
	}
	if len(found) < 40 || len(inhibited) < 4 || len(recorded["volume:write_layer_seconds:inferred5m"]) < 8 {
		t.Errorf("only %d names of layers are found, %d of them inhibitions", len(found), len(inhibited))
	}
	for _, v := range found {
		if text := wrong(v); text != "" {
			t.Error(text)
		}
	}
	storage := strings.Join(layers.Names(layers.IsStorage), "|")
	if !slices.ContainsFunc(found, func(v value) bool { return v.text == storage }) {
		t.Errorf("no rule chooses among all layers of storage, %s", storage)
	}
}

// What TestRules looks for is seen.
func TestWrong(t *testing.T) {
	for expr, want := range map[string]int{
		`a{layer="device"} or a{suspect=~"load|disk"}`: 0,
		`a{layer="gpu"}`:                                        1,
		`a{layer=~"network|gpu"}`:                               1,
		`a{layer=~"disk|queue|network"}`:                        1,
		`a{suspect="rebuilds"} or a{layer="load"}`:              2,
		`label_replace(a, "layer", "drive", "", "")`:            1,
		`label_replace(a, "part", "x", "layer", "queue|drive")`: 1,
		`label_replace(label_replace(a, "layer", "$1", "b", "(.*)"), "suspect", "$1", "layer", "(.*)")`: 0,
		`plumbline_query_phase_seconds_total{phase="device"}`:                                           1,
		`loadgen_phase{phase="steady"}`:                                                                 0,
	} {
		found, err := values("rule", expr)
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for _, v := range found {
			if wrong(v) != "" {
				n++
			}
		}
		if n != want {
			t.Errorf("%s: %d names are wrong, want %d", expr, n, want)
		}
	}
}

// notLayers are lists whose words happen to be layers' names.
var notLayers = map[string]string{
	"manifests/lab/damage/break.go": "kinds of damage that a person chooses from",
	"loadgen/matrix/layers.go":      "a run's limits",
	"rules/why/whytest/lab.go":      "a recorded lab's figures",
}

// lists returns where Go source lists at least three layers as text: in one literal, declaration or choice. Operations
// of block devices and files (read, write, sync, flush) are no layers, and neither are names of labels, beside node or
// volume.
func lists(file string, source any) (found []string, err error) {
	set := token.NewFileSet()
	parsed, err := goparser.ParseFile(set, file, source, 0)
	if err != nil {
		return nil, err
	}
	operations := []string{layers.Read, layers.Write, layers.Sync, layers.Flush}
	check := func(n ast.Node) {
		listed, labels := map[string]bool{}, false
		ast.Inspect(n, func(x ast.Node) bool {
			text, ok := x.(*ast.BasicLit)
			if !ok || text.Kind != token.STRING {
				return true
			}
			s, _ := strconv.Unquote(text.Value)
			for word := range strings.SplitSeq(s, "|") {
				labels = labels || word == "node" || word == "volume"
				if slices.Contains(layers.Names(all), word) && !slices.Contains(operations, word) {
					listed[word] = true
				}
			}
			return true
		})
		if len(listed) >= 3 && !labels {
			found = append(found, file+":"+strconv.Itoa(set.Position(n.Pos()).Line))
		}
	}
	for _, d := range parsed.Decls {
		switch d := d.(type) {
		case *ast.GenDecl:
			check(d)
		case *ast.FuncDecl:
			ast.Inspect(d, func(x ast.Node) bool {
				switch x.(type) {
				case *ast.CompositeLit, *ast.SwitchStmt, *ast.BasicLit:
					check(x)
					return false
				}
				return true
			})
		}
	}
	return found, nil
}

// There is no other list of layers: what has one takes it from here.
func TestNoOtherList(t *testing.T) {
	root, files, excused := testkit.Root(), 0, map[string]bool{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		name, _ := filepath.Rel(root, path)
		switch {
		case err != nil:
			return err
		case d.IsDir() && (name == "build" || name == ".git" || name == filepath.Join("rules", "layers")):
			return fs.SkipDir
		case d.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go"):
			return nil
		}
		files++
		found, err := lists(name, must(os.ReadFile(path)))
		if err != nil {
			return err
		}
		if notLayers[name] != "" {
			excused[name] = len(found) > 0
			return nil
		}
		for _, where := range found {
			t.Errorf("%s lists layers: take them from the package layers", where)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if files < 300 {
		t.Errorf("only %d Go files are found", files)
	}
	for name := range notLayers {
		if !excused[name] {
			t.Errorf("%s lists none any more: it needs no exception", name)
		}
	}
	for source, want := range map[string]int{
		`var a = []string{"cpu", "wait", "disk"}`:                            1,
		`const a = "cpu|wait|disk"`:                                          1,
		`var a = map[string]int{"cpu": 1, "wait": 2, "network": 3}`:          1,
		`func f(s string) { switch s { case "cpu", "wait": case "disk": } }`: 1,
		`func f() { g([]string{"cpu", "wait", "disk"}) }`:                    1,
		`var a = []string{"node", "device", "replica", "disk"}`:              0,
		`var a = []string{"read", "write", "sync", "flush"}`:                 0,
		`func f() { g("cpu"); g("wait"); g("disk") }`:                        0,
	} {
		found, err := lists("a.go", "package a\n"+source)
		if err != nil || len(found) != want {
			t.Errorf("%s: %v, %v; want %d lists", source, found, err, want)
		}
	}
}

func must(text []byte, err error) []byte {
	if err != nil {
		panic(err)
	}
	return text
}

// page returns docs/layers.md, and the cells of its table's rows.
func page() (text string, rows [][]string) {
	text = string(must(os.ReadFile(filepath.Join(testkit.Root(), "docs/layers.md"))))
	for line := range strings.Lines(text) {
		if cells := strings.Split(line, "|"); len(cells) == 9 && strings.HasPrefix(line, "| `") {
			for i := range cells {
				cells[i] = strings.TrimSpace(cells[i])
			}
			rows = append(rows, cells[1:8])
		}
	}
	return text, rows
}

// docs/layers.md has each layer, in order, with what the package has of it.
func TestPage(t *testing.T) {
	yes := map[bool]string{true: "yes"}
	var want, got [][]string
	for _, l := range layers.All {
		want = append(want, []string{"`" + l.Name + "`", l.Letter, yes[l.Phase], yes[l.Traced], l.Stuck})
	}
	page, rows := page()
	for _, cells := range rows {
		got = append(got, slices.Concat(cells[:2], cells[3:6]))
	}
	if !slices.EqualFunc(got, want, slices.Equal) {
		t.Errorf("docs/layers.md has\n%q, want\n%q", got, want)
	}
	_, picture, _ := strings.Cut(page, "```mermaid")
	picture, _, _ = strings.Cut(picture, "```")
	for _, name := range layers.Names(func(l layers.Layer) bool { return l.Name != layers.Rest }) {
		if !regexp.MustCompile(`\b` + name + `\b`).MatchString(picture) {
			t.Errorf("docs/layers.md: the picture lacks %s", name)
		}
	}
}

// measured are the records by which a storage backend's layer is known.
var measured = map[string]string{
	layers.Engine:  "volume:engine_write_seconds:mean5m",
	layers.Network: "replica:write_seconds:mean5m",
	layers.Replica: "replica:write_service_seconds:mean5m",
}

// The backends of a layer, as docs/layers.md has them, have rules, and a backend whose own rules record a layer is one of
// the layer's.
func TestBackends(t *testing.T) {
	has := map[string]string{}
	for _, path := range ruletests.Glob(t, "rules", "backend-*.rules.yaml") {
		name := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(path), "backend-"), ".rules.yaml")
		for _, r := range ruletests.Rules(t, path) {
			has[name] += r.Record + " "
		}
	}
	_, rows := page()
	for _, cells := range rows {
		layer, named := strings.Trim(cells[0], "`"), cells[6]
		backends := strings.FieldsFunc(named, func(r rune) bool { return r == ',' || r == ' ' })
		if !slices.IsSorted(backends) {
			t.Errorf("docs/layers.md: %s: %s is not sorted", layer, named)
		}
		for _, b := range backends {
			if _, ok := has[b]; !ok {
				t.Errorf("docs/layers.md: %s: no rules of the backend %s", layer, b)
			}
		}
		for b, records := range has {
			if measured[layer] != "" && strings.Contains(records, measured[layer]+" ") && !slices.Contains(backends, b) {
				t.Errorf("docs/layers.md: %s: rules of %s record it", layer, b)
			}
		}
	}
}
