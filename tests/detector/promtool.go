package detector

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/plumbline/plumbline/loadgen/baseline"
)

// outcome is what one alert did on one series.
type outcome struct {
	// Delay is the minutes from the regression to the first firing; NaN if there was none.
	Delay float64
	// Last is the share of the last hour in which it fired, False the minutes it fired while healthy.
	Last, False float64
}

// run has promtool evaluate rules files over one kind of noise and seed, a series for each
// regression, and returns what each alert did, by alert and regression.
func run(promtool, dir string, rules []string, kind noise, seed uint64, healthy, after int, whats []regression) (map[string]map[string]outcome, error) {
	path := filepath.Join(dir, fmt.Sprintf("%s-%d.yaml", strings.ReplaceAll(kind.name, " ", "-"), seed))
	windows, err := parseWindows(kind)
	if err != nil {
		return nil, err
	}
	if len(windows) > 0 {
		declared := filepath.Join(dir, "expected.rules.yaml")
		if err := declare(declared, windows); err != nil {
			return nil, err
		}
		rules = append([]string{declared}, rules...)
	}
	if err := write(path, rules, windows, kind, seed, healthy, after, whats); err != nil {
		return nil, err
	}
	defer os.Remove(path)
	// The tests expect nothing, so promtool prints what it got instead.
	out, err := exec.Command(promtool, "test", "rules", path).CombinedOutput()
	if err == nil {
		return map[string]map[string]outcome{}, nil // no alert fired at all
	}
	return parse(out)
}

func parseWindows(kind noise) ([]baseline.Window, error) {
	var windows []baseline.Window
	for _, text := range kind.expected {
		w, err := baseline.ParseWindow(text, 3)
		if err != nil {
			return nil, err
		}
		windows = append(windows, w)
	}
	return windows, nil
}

// declare writes a rules file with the windows.
func declare(path string, windows []baseline.Window) error {
	var b strings.Builder
	b.WriteString("groups:\n  - name: expected\n    rules:\n")
	for _, w := range windows {
		fmt.Fprintf(&b, "      - {record: 'loadgen:expected_slow:ratio', expr: '%s', labels: {storageclass: r3, window: '%s'}}\n", w.Expr(), w)
	}
	return os.WriteFile(path, []byte(b.String()), 0o644)
}

var queries = []string{"delay", "last", "false"}

func write(path string, rules []string, windows []baseline.Window, kind noise, seed uint64, healthy, after int, whats []regression) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	defer file.Close()
	w := bufio.NewWriter(file)
	minutes := healthy + after
	day := pin(kind, seed+1000)
	quantiles := day.quantiles(0.5, 0.9, 0.95)
	hours := day.hours(windows)
	if hours == nil {
		return fmt.Errorf("a day of %s noise has no figures of its hours", kind.name)
	}
	fmt.Fprintf(w, "rule_files: [%s]\nevaluation_interval: 1m\ntests:\n", strings.Join(rules, ", "))
	line := func(series, values string) { fmt.Fprintf(w, "  - {series: '%s', values: '%s'}\n", series, values) }
	constant := func(v float64) string { return fmt.Sprintf("%gx%d", v, minutes) }
	// A test for each: promtool bounds the samples of a query, and histograms count as many.
	for _, what := range whats {
		fmt.Fprint(w, "- interval: 1m\n  input_series:\n")
		for q, v := range quantiles {
			line(fmt.Sprintf(`loadgen:baseline_response_seconds{tool="canary",profile="p",storageclass="r3",quantile="%g"}`, q), constant(v))
		}
		line(`loadgen:baseline_hour:ratio{tool="canary",profile="p",storageclass="r3",stat="max"}`, constant(hours.Max))
		line(`loadgen:baseline_hour:ratio{tool="canary",profile="p",storageclass="r3",stat="slow"}`, constant(hours.Slow))
		line(`loadgen:baseline_target_rate{tool="canary",profile="p",storageclass="r3"}`, constant(rate))
		labels := fmt.Sprintf(`{tool="canary",profile="p",storageclass="r3",database="%s"`, what.name)
		line("loadgen_target_rate"+labels+"}", constant(rate))
		line("loadgen_phase"+labels+`,phase="steady"}`, constant(1))
		fmt.Fprintf(w, "  - series: 'loadgen_response_seconds%s}'\n    values: '", labels)
		histograms(w, series(kind, seed, healthy, after, what))
		fmt.Fprint(w, "'\n  promql_expr_test:\n")
		query := func(name, expr string) {
			fmt.Fprintf(w, "  - {expr: '%s # %s', eval_time: %dm, exp_samples: []}\n", expr, name, minutes)
		}
		query("delay", fmt.Sprintf(`min by (alertname, database) (min_over_time(timestamp(ALERTS{alertstate="firing"})[%dm:1m])) / 60 - %d`, after, healthy))
		query("last", `sum by (alertname, database) (count_over_time(ALERTS{alertstate="firing"}[1h])) / 60`)
		query("false", fmt.Sprintf(`sum by (alertname, database) (count_over_time(ALERTS{alertstate="firing"}[%dm] offset %dm))`, healthy, after))
	}
	return w.Flush()
}

// histograms writes the cumulative histograms as promtool's notation has them.
func histograms(w io.Writer, minutes []counts) {
	low, high := math.MaxInt, math.MinInt
	for _, c := range minutes {
		for i := range c.buckets {
			low, high = min(low, i), max(high, i)
		}
	}
	total, sum, n := make([]int, high-low+1), 0.0, 0
	var b bytes.Buffer
	for _, c := range minutes {
		for i, k := range c.buckets {
			total[i-low] += k
		}
		sum += c.sum
		n += c.n
		b.Reset()
		fmt.Fprintf(&b, "{{schema:3 sum:%.6g count:%d offset:%d buckets:[", sum, n, low)
		for _, k := range total {
			b.WriteString(strconv.Itoa(k))
			b.WriteByte(' ')
		}
		b.Truncate(b.Len() - 1)
		b.WriteString("]}} ")
		w.Write(b.Bytes())
	}
}

var sample = regexp.MustCompile(`\{alertname="([^"]*)", database="([^"]*)"\} ([-+.0-9Ee]+)`)

// parse reads what promtool got instead of nothing.
func parse(out []byte) (map[string]map[string]outcome, error) {
	found := map[string]map[string]outcome{}
	name, seen := "", 0
	for lines := bufio.NewScanner(bytes.NewReader(out)); lines.Scan(); {
		line := lines.Text()
		if strings.Contains(line, "expr: ") {
			for _, q := range queries {
				if strings.Contains(line, "# "+q) {
					name = q
				}
			}
		}
		if !strings.Contains(line, "got:") {
			continue
		}
		seen++
		for _, m := range sample.FindAllStringSubmatch(line, -1) {
			value, err := strconv.ParseFloat(m[3], 64)
			if err != nil {
				return nil, err
			}
			if found[m[1]] == nil {
				found[m[1]] = map[string]outcome{}
			}
			o, known := found[m[1]][m[2]]
			if !known {
				o.Delay = math.NaN()
			}
			switch name {
			case "delay":
				o.Delay = value
			case "last":
				o.Last = value
			case "false":
				o.False = value
			}
			found[m[1]][m[2]] = o
		}
	}
	if seen == 0 {
		return nil, fmt.Errorf("promtool failed:\n%s", out)
	}
	return found, nil
}
