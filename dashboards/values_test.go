package dashboards

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/promql/parser"
	"go.yaml.in/yaml/v3"

	"github.com/plumbline/plumbline/rules"
	"github.com/plumbline/plumbline/rules/layers"
	"github.com/plumbline/plumbline/tests/testkit"
)

// The tests here evaluate every panel over made-up series of each metric that it names: counters that begin at
// different times, pause for a while and grow at random, so that only an expression itself keeps its values within
// their bounds.

// steps are the samples of a series, one every half minute.
const steps = 80

// kinds are labels beside those of a place, by what a metric's name contains.
var kinds = []struct {
	metric *regexp.Regexp
	label  string
	values []string
}{
	{regexp.MustCompile(`^plumbline_query_(phase|id_phase|in_flight|oldest)|^plumbline_server_longest_wait|^server:phase_layer:`), "phase", layers.Names(layers.IsPhase)},
	{regexp.MustCompile(`layer_(growth_)?seconds:inferred|^server:phase_layer:`), "layer", layers.Names(func(layers.Layer) bool { return true })},
	{regexp.MustCompile(`^ebpf_exporter_blkio_.*_seconds$`), "op", []string{"read", "write", "flush"}},
	{regexp.MustCompile(`^plumbline_(replica_(request|service)_(duration_)?|volume_(frontend|path|target)_)seconds$`), "op", []string{"read", "write"}},
	{regexp.MustCompile(`_replica_mode$`), "mode", []string{"RW", "WO", "ERR"}},
	{regexp.MustCompile(`^loadgen_phase$`), "phase", []string{"init", "warmup", "steady", "stopped"}},
	{regexp.MustCompile(`^storageclass:suspect:info$`), "suspect", []string{"device"}},
	{regexp.MustCompile(`^ALERTS$`), "alertname", []string{"CanarySlow"}},
	{regexp.MustCompile(`^ALERTS$`), "alertstate", []string{"firing"}},
	{regexp.MustCompile(`^ALERTS$`), "severity", []string{"warning"}},
	{regexp.MustCompile(`^ALERTS$`), "part_of", []string{"plumbline"}},
	{regexp.MustCompile(`^prometheus_rule_group`), "rule_group", []string{"/etc/rules.yaml;plumbline-volume"}},
	{regexp.MustCompile(`^server:transactions:`), "outcome", []string{"commit", "rollback"}},
	{regexp.MustCompile(`^server:buffer_pages:`), "from", []string{"buffers", "files"}},
	{regexp.MustCompile(`^server:data_file_seconds:`), "op", []string{"read", "write"}},
	{regexp.MustCompile(`^server:checkpoints:`), "cause", []string{"timed", "requested"}},
	{regexp.MustCompile(`^server:checkpoint_seconds:`), "phase", []string{"write", "sync"}},
	{regexp.MustCompile(`^server:locks:`), "mode", []string{"rowexclusivelock"}},
	{regexp.MustCompile(`^plumbline_server_volume_info$`), "purpose", []string{"data"}},
	{regexp.MustCompile(`^plumbline_query_(id_)?file_reads`), "cache", []string{"hit", "miss"}},
	{regexp.MustCompile(`^pg_stat_activity_count$`), "state", []string{"active"}},
	{regexp.MustCompile(`^node_filesystem`), "fstype", []string{"ext4"}},
}

// used returns the metrics that expressions name, and whether they are histograms or counters.
func used(exprs []parser.Expr) map[string]string {
	metrics := map[string]string{}
	for _, expr := range exprs {
		parser.Inspect(expr, func(n parser.Node, path []parser.Node) error {
			s, ok := n.(*parser.VectorSelector)
			if !ok {
				return nil
			}
			kind := "gauge"
			switch rate := inCall(path, "rate"); {
			case rate && strings.HasSuffix(s.Name, "_seconds"), slices.Contains(recordedHistograms, s.Name):
				kind = "histogram"
			case rate:
				kind = "counter"
			}
			names := []string{s.Name}
			if s.Name == "" {
				for _, m := range s.LabelMatchers {
					if m.Name == "__name__" {
						names = m.SetMatches()
					}
				}
			}
			for _, name := range names {
				if metrics[name] == "" || kind != "gauge" {
					metrics[name] = kind
				}
			}
			return nil
		})
	}
	return metrics
}

// recordings are the expressions of all rules that record, and the names that they record.
func recordings(t *testing.T) (names map[string]bool, exprs []parser.Expr) {
	t.Helper()
	all, err := rules.All()
	if err != nil {
		t.Fatal(err)
	}
	names = map[string]bool{}
	for _, r := range all {
		if r.Record == "" {
			continue
		}
		expr, err := parser.NewParser(parser.Options{}).ParseExpr(r.Expr)
		if err != nil {
			t.Fatalf("%s: %v", r.Record, err)
		}
		names[r.Record] = true
		exprs = append(exprs, expr)
	}
	return names, exprs
}

type inputSeries struct {
	Series string `yaml:"series"`
	Values string `yaml:"values"`
}

// madeUp are series of a metric in three places, each with a volume of three replicas.
func madeUp(metric, kind, cluster string) []inputSeries {
	return inPlaces(metric, cluster, []string{"class-0", "class-1", "class-2"}, func(series string, place int) string { return values(metric, kind, series, place) })
}

// inPlaces are series of a metric in places, each with a volume of three replicas of the place's class.
func inPlaces(metric, cluster string, classes []string, values func(series string, place int) string) []inputSeries {
	var all []inputSeries
	for place, class := range classes {
		for replica := range 3 {
			address := fmt.Sprintf("10.0.%d.%d:9502", place, replica)
			name := fmt.Sprintf("replica-%d-%d", place, replica)
			if strings.HasPrefix(metric, "plumbline_replica_") {
				name = address // the agent knows no other
			}
			base := fmt.Sprintf(`node="node-%d",device="sd%[1]d",volume="volume-%[1]d",storageclass="%[4]s",namespace="db",persistentvolumeclaim="claim-%[1]d",`+
				`server="db/pod-%[1]d",pod="pod-%[1]d",instance="instance-%[1]d",job="job",tool="canary",profile="oltp",db_system="postgresql",disk="sd%[1]d",mountpoint="/",fault="f",`+
				`command="commit",collector="query",map="m",program="p",role="engine",reason="r",replica="%[2]s",address="%[3]s"`, place, name, address, class)
			if cluster != "" {
				base += fmt.Sprintf(`,cluster="%s"`, cluster)
			}
			sets := []string{base}
			for _, k := range kinds {
				if !k.metric.MatchString(metric) {
					continue
				}
				var more []string
				for _, set := range sets {
					for _, v := range k.values {
						more = append(more, fmt.Sprintf(`%s,%s="%s"`, set, k.label, v))
					}
				}
				sets = more
			}
			for _, set := range sets {
				series := fmt.Sprintf("%s{%s}", metric, set)
				all = append(all, inputSeries{series, values(series, place)})
			}
			// A server, a node and a device are there once.
			if !strings.Contains(metric, "replica") {
				break
			}
		}
	}
	return all
}

// values are the samples of one series. The last place is idle in the second quarter.
func values(metric, kind, series string, place int) string {
	seed := fnv.New64a()
	seed.Write([]byte(series))
	random := rand.New(rand.NewPCG(seed.Sum64(), 18))
	from := random.IntN(8)
	samples := make([]string, 0, steps)
	sum := 0.0
	counts := make([]int, 4)
	for i := range steps {
		if i < from {
			samples = append(samples, "_")
			continue
		}
		idle := place == 2 && i >= steps/4 && i < steps/2
		if !idle {
			sum += random.Float64() * 60
			counts[random.IntN(len(counts))] += random.IntN(5)
		}
		total := 0
		for _, c := range counts {
			total += c
		}
		switch {
		case kind == "histogram" && (strings.HasPrefix(metric, "ebpf_") || strings.Contains(metric, ":block_")):
			samples = append(samples, fmt.Sprintf("{{schema:-53 sum:%g count:%d custom_values:[0.001 0.01 0.1] buckets:[%d %d %d %d]}}", float64(total)*0.01, total, counts[0], counts[1], counts[2], counts[3]))
		case kind == "histogram":
			samples = append(samples, fmt.Sprintf("{{schema:0 sum:%g count:%d offset:-6 buckets:[%d %d %d %d]}}", float64(total)*0.05, total, counts[0], counts[1], counts[2], counts[3]))
		case kind == "counter":
			samples = append(samples, fmt.Sprintf("%.3f", sum))
		default:
			samples = append(samples, gauge(metric, series, random, idle))
		}
	}
	return strings.Join(samples, " ")
}

// gauge is a sample of a gauge: what its exporter or rule promises, and else anything.
func gauge(metric, series string, random *rand.Rand, idle bool) string {
	switch {
	case strings.HasSuffix(metric, "info"), metric == "ALERTS", strings.HasSuffix(metric, "_up"), metric == "up":
		return "1"
	case strings.HasSuffix(metric, "capacity_bytes"), strings.HasSuffix(metric, "filesystem_size_bytes"):
		return "1"
	case strings.HasSuffix(metric, "_replica_mode"):
		return map[bool]string{true: "1", false: "0"}[strings.Contains(series, `mode="RW"`)]
	case strings.HasSuffix(metric, "desired_replicas"):
		return "3"
	case strings.Contains(metric, "healthy_replicas"):
		return fmt.Sprint(2 + random.IntN(2))
	case strings.HasSuffix(metric, ":bool"), metric == "loadgen_phase", metric == "loadgen_saturated":
		return fmt.Sprint(random.IntN(2))
	case idle:
		return "0"
	}
	return fmt.Sprintf("%.4f", random.Float64())
}

// missing is what the bars' parts do not add up to, of all phases of the statements; a class whose
// parts add up has no value.
func missing(t *testing.T, p drawn) string {
	t.Helper()
	var parts []string
	for _, target := range p.Targets {
		parts = append(parts, "("+Expression{Text: decode[struct{ Expr string }](t, target).Expr}.Fill(Intervals{}, nil)+")")
	}
	all, _, err := perCluster(ofClass(`sum by (node, server) (rate(plumbline_query_phase_seconds_total[2m]))`), Options{})
	if err != nil {
		t.Fatal(err)
	}
	count, _, err := perCluster(ofClass(`histogram_count(sum by (node, server) (rate(plumbline_query_duration_seconds[2m])))`), Options{})
	if err != nil {
		t.Fatal(err)
	}
	by := "sum by (cluster, storageclass) (%s)"
	whole := fmt.Sprintf(by+" / ("+by+" > 0)", all, count)
	return Expression{Text: fmt.Sprintf("abs(1 - (%s) / (%s)) > 1e-9", strings.Join(parts, "\n+\n"), whole)}.Fill(Intervals{}, nil)
}

// allExprs are the expressions of all panels.
func allExprs(t *testing.T, panels []drawn) []parser.Expr {
	t.Helper()
	var all []parser.Expr
	for _, p := range panels {
		all = append(all, p.exprs(t)...)
	}
	return all
}

// evaluation is promtool's input: expressions over series, none of which may have a value.
type evaluation struct {
	input  []inputSeries
	checks []map[string]any
}

func (e *evaluation) check(p drawn, what, expr string, minutes ...int) {
	for _, m := range minutes {
		e.checks = append(e.checks, map[string]any{"expr": expr + " # " + p.name + ": " + what, "eval_time": fmt.Sprintf("%dm", m), "exp_samples": []string{}})
	}
}

var failure = regexp.MustCompile(`# (plumbline-[^\n]*?): (nothing|not a number|not the same|not the sum of its parts|above [\d.]+|below [\d.]+)"(?:, time: \w+, err: ([^\n]*))?`)

// run returns what is wrong, with the rules' files loaded.
func (e *evaluation) run(t *testing.T, files []string) []string {
	t.Helper()
	text, err := yaml.Marshal(map[string]any{
		"rule_files":          files,
		"evaluation_interval": "30s",
		"tests":               []any{map[string]any{"interval": "30s", "input_series": e.input, "promql_expr_test": e.checks}},
	})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "values.yaml")
	if err := os.WriteFile(path, text, 0o644); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(testkit.Tool(t, "promtool"), "test", "rules", path).CombinedOutput()
	if err == nil {
		return nil
	}
	// promtool prints the whole expression; the comment at its end names what is wrong, or an error follows it.
	var wrong []string
	for _, m := range failure.FindAllStringSubmatch(string(out), -1) {
		one := strings.ReplaceAll(m[1], `\"`, `"`) + ": " + m[2]
		if m[3] != "" {
			one += fmt.Sprintf(": %.300s", m[3])
		}
		if !slices.Contains(wrong, one) {
			wrong = append(wrong, one)
		}
	}
	if len(wrong) == 0 {
		t.Fatalf("%.4000s", out)
	}
	return wrong
}

// there is an expression that has a value where a panel's query has something to show.
func there(p drawn, expr string) string {
	if p.Type == "state-timeline" { // one state means that there is no data
		return fmt.Sprintf("(%s != %d)", expr, absent)
	}
	return expr
}

// Every panel has values, none of them NaN, none beyond the end of its axis; also where two
// clusters have nodes, classes and volumes of the same names.
func TestValues(t *testing.T) {
	panels := allPanels(t)
	const end = steps/2 - 1
	for name, clusters := range map[string][]string{"one cluster, without a name": {""}, "two clusters, alike": {"a", "b"}} {
		t.Run(name, func(t *testing.T) {
			var e evaluation
			for metric, kind := range used(allExprs(t, panels)) {
				for _, cluster := range clusters {
					e.input = append(e.input, madeUp(metric, kind, cluster)...)
				}
			}
			if len(e.input) < 300 {
				t.Fatalf("only %d series", len(e.input))
			}
			for _, p := range panels {
				d := p.FieldConfig.Defaults
				for _, target := range p.Targets {
					text := decode[struct{ Expr string }](t, target).Expr
					expr := "(\n" + Expression{Text: text}.Fill(Intervals{Rate: "2m", Range: "20m"}, nil) + "\n)"
					e.check(p, "nothing", "absent"+there(p, expr), end)
					e.check(p, "not a number", fmt.Sprintf("%[1]s != %[1]s", expr), 5, 15, end)
					if d.Max != nil {
						e.check(p, fmt.Sprintf("above %g", *d.Max), fmt.Sprintf("%s > %g", expr, *d.Max+1e-9), 5, 15, end)
					}
					if d.Min != nil {
						e.check(p, fmt.Sprintf("below %g", *d.Min), fmt.Sprintf("%s < %g", expr, *d.Min-1e-9), 5, 15, end)
					}
				}
				if p.Type == "barchart" {
					e.check(p, "not the sum of its parts", missing(t, p), 5, 15, end)
				}
			}
			for _, one := range e.run(t, nil) {
				t.Error(one)
			}
		})
	}
}

// notFromRules are the panels without a value where all is well, however many metrics there are.
var notFromRules = []string{
	`plumbline-load, "95th percentile against the baseline's"`, // no baseline
	`plumbline-load, "Comparable with the baseline"`,
	`plumbline-overview, "95th percentile against the baseline's"`,
	`plumbline-overview, "Stalled volumes"`,
	`plumbline-replicas, "Replicas against the volume's others"`, // six hours of past
	`plumbline-replicas, "Disks against their peers"`,
	`plumbline-replicas, "Grades"`,
	`plumbline-replicas, "Rebuilds under way"`,
}

// What the rules record of the exporters' metrics fits what the panels join it with: each panel
// has values, and none of them is NaN.
func TestValuesOfRules(t *testing.T) {
	panels := allPanels(t)
	recorded, exprs := recordings(t)
	var e evaluation
	for metric, kind := range used(append(allExprs(t, panels), exprs...)) {
		// Other engines would answer for the same volumes, too.
		if !recorded[metric] && !strings.HasPrefix(metric, "ALERTS") && ours.MatchString(metric) {
			e.input = append(e.input, madeUp(metric, kind, "")...)
		}
	}
	for _, p := range panels {
		if slices.Contains(notFromRules, p.name) {
			continue
		}
		for _, target := range p.Targets {
			text := decode[struct{ Expr string }](t, target).Expr
			if strings.Contains(text, "ALERTS") {
				continue // as TestValues has them
			}
			expr := "(\n" + Expression{Text: text}.Fill(Intervals{Rate: "2m", Range: "20m"}, nil) + "\n)"
			e.check(p, "nothing", "absent"+there(p, expr), steps/2-1)
			e.check(p, "not a number", fmt.Sprintf("%[1]s != %[1]s", expr), steps/2-1)
		}
	}
	files, err := filepath.Glob(filepath.Join(testkit.Root(), "rules", "*.rules.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no rules: %v", err)
	}
	for _, one := range e.run(t, files) {
		t.Error(one)
	}
}

// ours are the metrics of Plumbline's own exporters, of Longhorn and of what runs beside them.
var ours = regexp.MustCompile(`^(plumbline_(agent|bpf|device|disk|feature|query|replica|scrape|server|storage|storageclass|unidentified|volume|longhorn)_|loadgen_|ebpf_exporter_|node_|kubelet_|container_|pg_|mysql_|process_|prometheus_|scrape_|up$)`)
