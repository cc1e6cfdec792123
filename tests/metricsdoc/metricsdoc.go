// Package metricsdoc makes METRICS.md: every metric of every exporter, from where it is
// defined. It reads the Go sources (prometheus.NewDesc and the Opts structs with constant
// names), ebpf_exporter's YAML files, and the golden expositions, which know the types and
// also the metrics whose names are put together at run time.
package metricsdoc

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strconv"
	"strings"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"go.yaml.in/yaml/v3"
)

// Metric is one metric family.
type Metric struct {
	Name, Help, Type string
	Labels           []string
	// Group is where it is defined: a directory, and the comment over the definitions.
	Directory, Comment string
}

// Scan returns the metrics defined under the given directories of root, by name.
func Scan(root string, directories ...string) (map[string]*Metric, error) {
	s := scanner{root: root, metrics: map[string]*Metric{}}
	for _, directory := range directories {
		err := filepath.WalkDir(filepath.Join(root, directory), func(path string, d fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case d.IsDir():
				return s.goPackage(path)
			case filepath.Ext(path) == ".yaml" && filepath.Base(filepath.Dir(path)) == "blockio":
				return s.ebpf(path)
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
		// Expositions last: they add to what the sources have.
		err = filepath.WalkDir(filepath.Join(root, directory), func(path string, d fs.DirEntry, err error) error {
			if err == nil && filepath.Ext(path) == ".prom" && strings.Contains(path, "testdata") {
				return s.exposition(path)
			}
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return s.metrics, nil
}

type scanner struct {
	root    string
	metrics map[string]*Metric
}

func (s *scanner) add(m Metric) {
	if old := s.metrics[m.Name]; old != nil {
		if old.Type == "" {
			old.Type = m.Type
		}
		return
	}
	s.metrics[m.Name] = &m
}

func (s *scanner) relative(path string) string {
	r, err := filepath.Rel(s.root, path)
	if err != nil {
		return path
	}
	return filepath.ToSlash(r)
}

// goPackage reads the Go files in a directory, but not its tests.
func (s *scanner) goPackage(directory string) error {
	files := token.NewFileSet()
	paths, err := filepath.Glob(filepath.Join(directory, "*.go"))
	if err != nil {
		return err
	}
	p := packageReader{scanner: s, directory: s.relative(directory), values: map[string]ast.Expr{}, types: map[string]string{},
		helpers: map[string]helper{}, defined: map[string][]string{}}
	var parsed []*ast.File
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(files, path, nil, parser.ParseComments)
		if err != nil {
			return err
		}
		parsed = append(parsed, f)
		ast.Inspect(f, p.note)
	}
	for _, f := range parsed {
		for _, d := range f.Decls {
			comment := ""
			if g, ok := d.(*ast.GenDecl); ok && g.Doc != nil {
				comment = strings.Join(strings.Fields(g.Doc.Text()), " ")
			}
			ast.Inspect(d, func(n ast.Node) bool { return p.define(n, comment) })
		}
	}
	for variable, names := range p.defined {
		for _, name := range names {
			if kind := p.types[variable]; kind != "" && s.metrics[name] != nil {
				s.metrics[name].Type = kind
			}
		}
	}
	return nil
}

type packageReader struct {
	*scanner
	directory string
	values    map[string]ast.Expr // of the package's constants and variables
	types     map[string]string   // by the name of the variable that holds a Desc
	defined   map[string][]string // names of metrics by the variable that holds the Desc
	helpers   map[string]helper   // functions that define metrics with names they are given
	arguments map[string][]string // of the helper that is being read, by parameter
}

// helper is a function or a closure in a variable.
type helper struct {
	parameters *ast.FieldList
	body       *ast.BlockStmt
}

// note remembers values of constants and variables, and how a Desc is used.
func (p *packageReader) note(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.ValueSpec:
		for i, name := range n.Names {
			if i < len(n.Values) {
				p.values[name.Name] = n.Values[i]
			}
		}
	case *ast.FuncDecl:
		if n.Recv == nil && n.Body != nil {
			p.helpers[n.Name.Name] = helper{n.Type.Params, n.Body}
		}
	case *ast.AssignStmt:
		for i, left := range n.Lhs {
			if name := lastName(left); name != "" && i < len(n.Rhs) && n.Tok == token.DEFINE {
				if f, ok := n.Rhs[i].(*ast.FuncLit); ok {
					p.helpers[name] = helper{f.Type.Params, f.Body}
				} else {
					p.values[name] = n.Rhs[i]
				}
			}
		}
	case *ast.CallExpr:
		if selector, ok := n.Fun.(*ast.SelectorExpr); ok && lastName(selector.X) == "nativehist" && len(n.Args) > 0 {
			p.types[lastName(n.Args[0])] = "histogram" // the agent's own maker of native histograms
		}
		kind := map[string]string{"MustNewConstHistogram": "histogram", "MustNewConstNativeHistogram": "histogram",
			"NewConstNativeHistogram": "histogram", "MustNewConstSummary": "summary"}[called(n)]
		if called(n) == "MustNewConstMetric" && len(n.Args) > 1 {
			if selector, ok := n.Args[1].(*ast.SelectorExpr); ok {
				kind = map[string]string{"CounterValue": "counter", "GaugeValue": "gauge", "UntypedValue": "untyped"}[selector.Sel.Name]
			}
		}
		if kind != "" && len(n.Args) > 0 {
			if id := lastName(n.Args[0]); id != "" {
				p.types[id] = kind
			}
		}
	}
	return true
}

// define adds the metrics that a declaration or statement defines.
func (p *packageReader) define(n ast.Node, comment string) bool {
	switch n := n.(type) {
	case *ast.ValueSpec:
		for i, name := range n.Names {
			if i < len(n.Values) {
				p.bind(name.Name, n.Values[i])
			}
		}
	case *ast.KeyValueExpr:
		p.bind(lastName(n.Key), n.Value)
	case *ast.CallExpr:
		p.call(n, comment)
	}
	return true
}

// bind remembers which variable or field holds a Desc.
func (p *packageReader) bind(variable string, value ast.Expr) {
	call, ok := value.(*ast.CallExpr)
	if !ok || called(call) != "NewDesc" || len(call.Args) < 4 {
		return
	}
	if name, ok := p.text(call.Args[0]); ok {
		p.defined[variable] = append(p.defined[variable], name)
	}
}

func (p *packageReader) call(n *ast.CallExpr, comment string) {
	if id, ok := n.Fun.(*ast.Ident); ok && p.arguments == nil {
		if h, ok := p.helpers[id.Name]; ok {
			p.throughHelper(h, n.Args, comment)
		}
		return
	}
	name := called(n)
	if name == "NewDesc" && len(n.Args) == 4 {
		metric, ok := p.text(n.Args[0])
		help, okHelp := p.text(n.Args[1])
		if ok && okHelp {
			p.add(Metric{Name: metric, Help: help, Labels: p.list(n.Args[2]), Type: suffixType(metric), Directory: p.directory, Comment: comment})
		}
		return
	}
	kind := map[string]string{"NewCounter": "counter", "NewCounterVec": "counter", "NewGauge": "gauge", "NewGaugeVec": "gauge",
		"NewHistogram": "histogram", "NewHistogramVec": "histogram", "NewCounterFunc": "counter", "NewGaugeFunc": "gauge"}[name]
	if kind == "" || len(n.Args) == 0 {
		return
	}
	opts, ok := n.Args[0].(*ast.CompositeLit)
	if !ok {
		return
	}
	m := Metric{Type: kind, Directory: p.directory, Comment: comment}
	for _, e := range opts.Elts {
		if kv, ok := e.(*ast.KeyValueExpr); ok {
			switch lastName(kv.Key) {
			case "Name":
				m.Name, _ = p.text(kv.Value)
			case "Help":
				m.Help, _ = p.text(kv.Value)
			}
		}
	}
	if strings.HasSuffix(name, "Vec") && len(n.Args) > 1 {
		m.Labels = p.list(n.Args[1])
	}
	if m.Name != "" {
		p.add(m)
	}
}

// throughHelper reads the body of a helper with the arguments of one call.
func (p *packageReader) throughHelper(h helper, arguments []ast.Expr, comment string) {
	given, i := map[string][]string{}, 0
	for _, field := range h.parameters.List {
		_, variadic := field.Type.(*ast.Ellipsis)
		for _, name := range field.Names {
			for ; i < len(arguments); i++ {
				if text, ok := p.text(arguments[i]); ok {
					given[name.Name] = append(given[name.Name], text)
				} else {
					given[name.Name] = append(given[name.Name], p.list(arguments[i])...)
				}
				if !variadic {
					i++
					break
				}
			}
		}
	}
	p.arguments = given
	ast.Inspect(h.body, func(n ast.Node) bool { return p.define(n, comment) })
	p.arguments = nil
}

func called(n *ast.CallExpr) string {
	if selector, ok := n.Fun.(*ast.SelectorExpr); ok {
		if id, ok := selector.X.(*ast.Ident); ok && (id.Name == "prometheus" || id.Name == "promauto") {
			return selector.Sel.Name
		}
	}
	return ""
}

func lastName(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return e.Sel.Name
	}
	return ""
}

// text is the value of a constant string.
func (p *packageReader) text(e ast.Expr) (string, bool) {
	switch e := e.(type) {
	case *ast.BasicLit:
		s, err := strconv.Unquote(e.Value)
		return s, err == nil && e.Kind == token.STRING
	case *ast.BinaryExpr:
		a, okA := p.text(e.X)
		b, okB := p.text(e.Y)
		return a + b, okA && okB && e.Op == token.ADD
	case *ast.Ident:
		if given := p.arguments[e.Name]; len(given) == 1 {
			return given[0], true
		}
		if value := p.values[e.Name]; value != nil && !mentions(value, e.Name) {
			return p.text(value)
		}
	}
	return "", false
}

// list is the value of a list of constant strings.
func (p *packageReader) list(e ast.Expr) []string {
	switch e := e.(type) {
	case *ast.Ident:
		if given, ok := p.arguments[e.Name]; ok {
			return given
		}
		if value := p.values[e.Name]; value != nil && !mentions(value, e.Name) {
			return p.list(value)
		}
	case *ast.SliceExpr:
		return p.list(e.X)
	case *ast.CallExpr:
		if id, ok := e.Fun.(*ast.Ident); !ok || id.Name != "append" || len(e.Args) == 0 {
			return nil
		}
		all := slices.Clone(p.list(e.Args[0]))
		for _, a := range e.Args[1:] {
			if s, ok := p.text(a); ok {
				all = append(all, s)
			} else {
				all = append(all, p.list(a)...)
			}
		}
		return all
	case *ast.CompositeLit:
		var all []string
		for _, element := range e.Elts {
			if s, ok := p.text(element); ok {
				all = append(all, s)
			}
		}
		return all
	}
	return nil
}

// mentions reports whether an expression uses a name, as in x := f(x).
func mentions(e ast.Expr, name string) bool {
	found := false
	ast.Inspect(e, func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok && id.Name == name {
			found = true
		}
		return !found
	})
	return found
}

func suffixType(name string) string {
	if strings.HasSuffix(name, "_total") {
		return "counter"
	}
	return "gauge"
}

// ebpf reads a configuration of ebpf_exporter, which puts its own prefix before the names.
func (s *scanner) ebpf(path string) error {
	raw, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	type entry struct {
		Name   string
		Help   string
		Labels []struct{ Name string }
	}
	var file struct {
		Metrics struct{ Histograms, Counters, Gauges []entry }
	}
	if err := yaml.Unmarshal(raw, &file); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	for kind, entries := range map[string][]entry{"histogram": file.Metrics.Histograms, "counter": file.Metrics.Counters, "gauge": file.Metrics.Gauges} {
		for _, e := range entries {
			m := Metric{Name: "ebpf_exporter_" + e.Name, Help: e.Help, Type: kind, Directory: s.relative(filepath.Dir(path)),
				Comment: "From the kernel, by ebpf_exporter with " + filepath.Base(path) + "."}
			for _, l := range e.Labels {
				m.Labels = append(m.Labels, l.Name)
			}
			s.add(m)
		}
	}
	return nil
}

// exposition takes types, and metrics that the sources did not show, from a golden file.
func (s *scanner) exposition(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(f)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	for name, family := range families {
		if strings.HasPrefix(name, "go_") || strings.HasPrefix(name, "process_") || strings.HasPrefix(name, "promhttp_") {
			continue
		}
		kind := strings.ToLower(family.GetType().String())
		if m := s.metrics[name]; m != nil {
			m.Type = kind
			continue
		}
		component := s.relative(filepath.Dir(path))
		component = component[:strings.Index(component, "/testdata")]
		s.add(Metric{Name: name, Help: family.GetHelp(), Type: kind, Labels: labelsOf(family), Directory: component})
	}
	return nil
}

func labelsOf(family *dto.MetricFamily) []string {
	var names []string
	for _, m := range family.Metric {
		for _, l := range m.Label {
			if !slices.Contains(names, l.GetName()) {
				names = append(names, l.GetName())
			}
		}
	}
	return names
}

// units are endings of names, before _total, and what they mean.
var units = []struct{ ending, unit string }{
	{"_timestamp_seconds", "seconds since 1970"}, {"_seconds", "seconds"}, {"_bytes", "bytes"}, {"_ratio", "0 to 1"}, {"_info", "always 1"},
}

func unitOf(m *Metric) string {
	name := strings.TrimSuffix(m.Name, "_total")
	for _, u := range units {
		if strings.HasSuffix(name, u.ending) {
			return u.unit
		}
	}
	if m.Type == "counter" {
		return "count"
	}
	return "number"
}

// Render writes the metrics as METRICS.md.
func Render(metrics map[string]*Metric) string {
	byPlace := map[string]map[string][]*Metric{} // by directory and comment
	for _, m := range metrics {
		if byPlace[m.Directory] == nil {
			byPlace[m.Directory] = map[string][]*Metric{}
		}
		byPlace[m.Directory][m.Comment] = append(byPlace[m.Directory][m.Comment], m)
	}
	var b strings.Builder
	b.WriteString("# Metrics\n\nMade from the sources by `make generate`; do not edit. Sections are directories, and in them groups of\n" +
		"definitions with the comment over them, which names the source of the values and the versions it holds for.\n")
	for _, directory := range sortedKeys(byPlace) {
		fmt.Fprintf(&b, "\n## %s\n", directory)
		for _, comment := range sortedKeys(byPlace[directory]) {
			group := byPlace[directory][comment]
			sort.Slice(group, func(i, j int) bool { return group[i].Name < group[j].Name })
			if comment != "" {
				fmt.Fprintf(&b, "\n%s\n", comment)
			}
			b.WriteString("\n| metric | type | unit | labels | meaning |\n|---|---|---|---|---|\n")
			for _, m := range group {
				fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s |\n", m.Name, m.Type, unitOf(m), strings.Join(m.Labels, ", "), strings.ReplaceAll(m.Help, "|", "\\|"))
			}
		}
	}
	return b.String()
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	return keys
}
