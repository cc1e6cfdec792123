package dashboards

import (
	"fmt"
	"hash/fnv"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/plumbline/plumbline/rules/histograms"
	"github.com/plumbline/plumbline/tests/testkit"
)

// classesOfMany are the classes of the places of a cluster with one class of more volumes than are listed, and one of
// few.
func classesOfMany() (all []string) {
	for range 101 {
		all = append(all, "many")
	}
	return append(all, "few", "few")
}

// steady returns the samples of a series that is constant or grows at a constant rate, so that the window does not
// matter.
func steady(metric, kind, series string) string {
	h := fnv.New64a()
	h.Write([]byte(series))
	n := 1 + h.Sum64()%97 // so many that hardly two replicas are alike: which of these is the slowest would be chance
	switch {
	case kind == "histogram" && strings.HasPrefix(metric, "ebpf_"):
		return fmt.Sprintf("{{schema:-53 sum:0 count:0 custom_values:[0.001 0.01] buckets:[0 0 0]}}+{{schema:-53 sum:%g count:%d custom_values:[0.001 0.01] buckets:[%d 1 0]}}x24", 0.005+float64(n)*0.0005, n+1, n)
	case kind == "histogram":
		return fmt.Sprintf("{{schema:0 sum:0 count:0 offset:-6 buckets:[0 0]}}+{{schema:0 sum:%g count:%d offset:-6 buckets:[%d 1]}}x24", 0.02+float64(n)*0.01, n+1, n)
	case kind == "counter":
		return fmt.Sprintf("0+%dx24", n)
	case strings.HasSuffix(metric, "info"):
		return "1x24"
	}
	return fmt.Sprintf("%dx24", n)
}

// places answers as Prometheus does with values of a label, of what the rules record of classesOfMany; all volumes are
// of one namespace.
func places(selector, label string) ([]string, error) {
	matchers, err := parser.NewParser(parser.Options{}).ParseMetricSelector(selector)
	if err != nil {
		return nil, err
	}
	var found []string
	for i, class := range classesOfMany() {
		for _, name := range []string{"plumbline_volume_info", "server:volume:info", "volume:listed:info", "server:listed:info"} {
			if class == "many" && strings.Contains(name, "listed") {
				continue
			}
			of := labels.FromMap(map[string]string{"__name__": name, "node": fmt.Sprintf("node-%d", i), "device": fmt.Sprintf("sd%d", i), "volume": fmt.Sprintf("volume-%d", i),
				"storageclass": class, "namespace": "db", "persistentvolumeclaim": fmt.Sprintf("claim-%d", i), "server": fmt.Sprintf("db/pod-%d", i)})
			if !slices.ContainsFunc(matchers, func(m *labels.Matcher) bool { return !m.Matches(of.Get(m.Name)) }) && !slices.Contains(found, of.Get(label)) {
				found = append(found, of.Get(label))
			}
		}
	}
	return found, nil
}

// With nothing narrower than a class chosen, a page shows the same as with the one namespace that has all of the
// class's volumes. It queries no list of the volumes of a class that has many.
func TestManyVolumes(t *testing.T) {
	variables, err := Variables(".")
	if err != nil {
		t.Fatal(err)
	}
	recorded, exprs := recordings(t)
	var panels []drawn
	for _, p := range allPanels(t) {
		if strings.HasPrefix(p.name, "plumbline-query-to-disk,") || p.name == `plumbline-volumes, "Operations"` {
			panels = append(panels, p)
		}
	}
	var e evaluation
	for metric, kind := range used(append(allExprs(t, panels), exprs...)) {
		classic := slices.ContainsFunc(histograms.Parts, func(part string) bool { return strings.HasSuffix(metric, "_seconds"+part) })
		if !recorded[metric] && ofVolumes.MatchString(metric) && !classic {
			e.input = append(e.input, inPlaces(metric, "", classesOfMany(), func(series string, _ int) string { return steady(metric, kind, series) })...)
		}
	}
	compared := 0
	for _, classes := range [][]string{{"many"}, {"few"}, {"many", "few"}} {
		for _, p := range panels {
			page, _, _ := strings.Cut(p.name, ",")
			fillIn := func(expr string, choice map[string][]string) string {
				choice["storageclass"] = classes
				values, err := Chosen(variables[page], choice, places)
				if err != nil {
					t.Fatal(err)
				}
				if many := strings.Count(values["volume"]+values["listed_server"], "|"); choice["namespace"] == nil && many > 2 {
					t.Errorf("%s: a list of %d volumes and servers: %.80s", p.name, many, values["volume"])
				}
				return "(\n" + Expression{Text: expr}.Fill(Intervals{Rate: "2m", Range: "5m"}, values) + "\n)"
			}
			for _, target := range p.Targets {
				expr := decode[struct{ Expr string }](t, target).Expr
				// A mean of a class counts once beside listed volumes' own, and single volumes are not shown of many.
				mean := strings.HasPrefix(expr, "avg") && len(classes) > 1
				single := classes[0] == "many" && strings.Contains(expr, "$") && !strings.Contains(expr, "chosen=~") && ofListedUse.MatchString(expr)
				if mean || single {
					continue
				}
				compared++
				all, chosen := fillIn(expr, map[string][]string{}), fillIn(expr, map[string][]string{"namespace": {"db"}})
				e.check(p, "nothing", "absent"+all, 10)
				e.check(p, "not the same", fmt.Sprintf("%[1]s unless %[2]s or %[2]s unless %[1]s or abs(%[1]s - %[2]s) > 1e-9 * abs%[2]s", all, chosen), 10)
			}
		}
	}
	if compared < 40 {
		t.Errorf("only %d expressions were compared", compared)
	}
	var files []string
	for _, name := range []string{"many", "query", "volume", "replica", "decomposition"} {
		files = append(files, filepath.Join(testkit.Root(), "rules", name+".rules.yaml"))
	}
	for _, one := range e.run(t, files) {
		t.Error(one)
	}
}

// ofVolumes are the metrics of volumes, their replicas and devices, and of statements.
var ofVolumes = regexp.MustCompile(`^(plumbline_(query|replica|volume|server_volume|server_longest|device)_|ebpf_exporter_blkio_)`)
