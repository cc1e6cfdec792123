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
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/plumbline/plumbline/tests/results/rows"
	"github.com/plumbline/plumbline/tests/testkit"
)

// slowCase is what befalls a group of peers after the healthy time: by how much the time of its
// member 0 grows, that of the others, and how the load of member 0 compares with theirs.
type slowCase struct {
	name         string
	own, others  func(minute int) float64
	load         func(minute int) float64
	least, worst int     // grade of member 0 that must and that may be reached
	within       float64 // minutes in which least must be
}

func always(v float64) func(int) float64 { return func(int) float64 { return v } }

// upTo is v in the first minutes after the healthy time, nothing else.
func upTo(minutes int, v float64) func(int) float64 {
	return func(m int) float64 {
		if m >= 0 && m < minutes {
			return v
		}
		return 1
	}
}

func from(v float64) func(int) float64 { return upTo(math.MaxInt, v) }

// byDay is a load that swings between as much and 1.9 times as much as the others'.
func byDay(m int) float64 { return 1.45 + 0.45*math.Sin(2*math.Pi*float64(m)/1440) }

var slowCases = []slowCase{
	{"well", always(1), always(1), always(1), 0, 0, 0},
	{"1.5 times", from(1.5), always(1), always(1), 0, 1, 0}, // measured, but noise may hide it for hours
	{"2 times", from(2), always(1), always(1), 2, 2, 180},
	{"4 times", from(4), always(1), always(1), 3, 3, 60},
	{"10 times", from(10), always(1), always(1), 4, 4, 60},
	{"all 4 times", from(4), from(4), always(1), 0, 0, 0},
	{"10 times for 10 minutes", upTo(10, 10), always(1), always(1), 0, 0, 0},
	{"busier by day", func(m int) float64 { return math.Pow(byDay(m), 0.8) }, always(1), byDay, 0, 1, 0},
	{"4 times the load, 5 times as long", from(5), always(1), from(4), 0, 0, 0},
}

// peersOf is how many replicas a volume has, and how many disks a group.
var peersOf = map[string]int{"replica": 3, "disk": 5}

// TestFailSlow measures the grades of fail-slow replicas and disks: minutes to each, and minutes
// with a grade that nobody earned.
func TestFailSlow(t *testing.T) {
	promtool := testkit.Tool(t, "promtool")
	// In short the noises that differ most from one replica to the next.
	healthy, after, short := 4*60, 4*60, []string{"drift", "bursts", "heavy tail"}
	if *full {
		healthy, after = 24*60, 6*60
	}
	of := make([][]map[string]float64, len(noises))
	if *full {
		t.Cleanup(func() { recordFailSlow(t, of, healthy) })
	}
	for n, kind := range noises {
		if !*full && !slices.Contains(short, kind.name) {
			continue
		}
		t.Run(kind.name, func(t *testing.T) {
			t.Parallel()
			for seed := range uint64(*seeds) {
				found, err := failSlow(promtool, t.TempDir(), kind, seed+1, healthy, after)
				if err != nil {
					t.Fatal(err)
				}
				of[n] = append(of[n], found)
				judgeFailSlow(t, kind.name, seed+1, found)
			}
			t.Logf("%s noise, %d seeds: minutes to each grade; false minutes in %d h\n%s", kind.name, *seeds, *seeds*healthy/60, failSlowTable(of[n]))
		})
	}
}

func judgeFailSlow(t *testing.T, kind string, seed uint64, found map[string]float64) {
	for level := range peersOf {
		for _, c := range slowCases {
			name := level + " " + c.name
			for grade := c.worst + 1; grade <= 4; grade++ {
				if m, ok := found[fmt.Sprint(name, " delay ", grade)]; ok {
					t.Errorf("seed %d: %s got grade %d after %.0f minutes, at worst it is %d", seed, name, grade, m, c.worst)
				}
			}
			// By daily noise peers differ by up to a fifth for hours, which hides small slowdowns as long.
			if c.least > 2 || c.least > 0 && kind != "daily" {
				if m, ok := found[fmt.Sprint(name, " delay ", c.least)]; !ok || m > c.within {
					t.Errorf("seed %d: %s got grade %d after %.0f minutes (%v), want at most %.0f", seed, name, c.least, m, ok, c.within)
				}
			}
			for _, grade := range []int{1, 2, 3} {
				if m := found[fmt.Sprint(name, " false ", grade)]; m > 0 && (grade > 1 || c.name != "busier by day") {
					t.Errorf("seed %d: %s: %.0f minutes of grade %d while healthy", seed, name, m, grade)
				}
				if m := found[fmt.Sprint(name, " others ", grade)]; m > 0 {
					t.Errorf("seed %d: %s: %.0f minutes of grade %d of another member", seed, name, m, grade)
				}
			}
		}
	}
}

// failSlow has promtool evaluate the rules over all cases, and returns minutes by
// "replica|disk case delay|false|others grade".
func failSlow(promtool, dir string, kind noise, seed uint64, healthy, after int) (map[string]float64, error) {
	path := filepath.Join(dir, "failslow.yaml")
	file, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	w := bufio.NewWriter(file)
	writeFailSlow(w, kind, seed, healthy, after)
	if err := w.Flush(); err != nil {
		return nil, err
	}
	if err := file.Close(); err != nil {
		return nil, err
	}
	out, err := exec.Command(promtool, "test", "rules", path).CombinedOutput()
	if err == nil {
		return nil, fmt.Errorf("promtool saw nothing, not even the number of peers")
	}
	return parseFailSlow(out)
}

func writeFailSlow(w io.Writer, kind noise, seed uint64, healthy, after int) {
	minutes := healthy + after
	fmt.Fprintf(w, "rule_files: [%s]\nevaluation_interval: 1m\ntests:\n- interval: 1m\n  input_series:\n", filepath.Join(testkit.Root(), "rules", "failslow.rules.yaml"))
	// Each case has peers of its own; all are in one test, as an evaluation costs about the same for all.
	for number, c := range slowCases {
		line := func(series string, values []float64) {
			fmt.Fprintf(w, "  - series: '%s'\n    values: '", series)
			for _, v := range values {
				fmt.Fprintf(w, "%.6g ", v)
			}
			fmt.Fprint(w, "'\n")
		}
		ones := slices.Repeat([]float64{1}, minutes)
		for level, peers := range peersOf {
			for i := range peers {
				by, load := c.others, always(1)
				if i == 0 {
					by, load = c.own, c.load
				}
				what := regression{c.name, func(m int) float64 { return by(m) - 1 }}
				if i == 0 && c.name == "busier by day" { // in its healthy time, too
					what.by = func(int) float64 { return 0 }
				}
				drawn := series(kind, seed*1000+uint64(number*10+i), healthy, after, what)
				node := fmt.Sprint(level, number, "-", i)
				var done, time, mean, none []float64
				n, sum := 0.0, 0.0
				for m, d := range drawn {
					l, took := load(m-healthy), d.sum
					if c.name == "busier by day" && i == 0 {
						took *= by(m - healthy)
					}
					n += float64(d.n) * l
					sum += took * l
					done, time, none = append(done, n), append(time, sum), append(none, 0)
					back := max(0, m-5)
					mean = append(mean, (time[m]-time[back])/max(1, done[m]-done[back]))
				}
				line(fmt.Sprintf(`node_disk_writes_completed_total{node="%s",device="d"}`, node), done)
				line(fmt.Sprintf(`node_disk_write_time_seconds_total{node="%s",device="d"}`, node), time)
				line(fmt.Sprintf(`node_disk_reads_completed_total{node="%s",device="d"}`, node), none)
				line(fmt.Sprintf(`node_disk_read_time_seconds_total{node="%s",device="d"}`, node), none)
				if level == "disk" {
					line(fmt.Sprintf(`plumbline_volume_info{node="%s",device="d",volume="%s",storageclass="case%d",backend="disk"}`, node, node, number), ones)
					continue
				}
				mean[0] = mean[1]
				line(fmt.Sprintf(`replica:write_service_seconds:mean5m{volume="v%d",replica="%d",backend="b%d"}`, number, i, number), mean)
				line(fmt.Sprintf(`plumbline_volume_replica_info{volume="v%d",replica="%d",node="%s",device="d",backend="b%d",address="a%d"}`, number, i, node, number, i), ones)
			}
		}
	}
	fmt.Fprint(w, "  promql_expr_test:\n")
	for number, c := range slowCases {
		query := func(level, what string, grade int, expr string) {
			fmt.Fprintf(w, "  - {expr: '%s # %s %s %s %d', eval_time: %dm, exp_samples: []}\n", expr, level, c.name, what, grade, minutes-1)
		}
		for level, member := range map[string]string{"replica": `replica="0"`, "disk": fmt.Sprintf(`node="disk%d-0"`, number)} {
			other := strings.Replace(member, "=", "!=", 1)
			group := fmt.Sprintf(map[string]string{"replica": `backend="b%d"`, "disk": `peers="case%d"`}[level], number)
			query(level, "ratios", 0, fmt.Sprintf(`max(count_over_time(%s:slowdown:ratio{%s}[%dm]))`, level, group, minutes))
			for grade := 1; grade <= 4; grade++ {
				query(level, "delay", grade, fmt.Sprintf(`min(min_over_time(timestamp(%s:slowdown:grade{%s, %s} >= %d)[%dm:1m])) / 60 - %d`, level, group, member, grade, after, healthy))
				query(level, "false", grade, fmt.Sprintf(`sum(count_over_time((%s:slowdown:grade{%s, %s} >= %d)[%dm:1m] offset %dm)) > 0`, level, group, member, grade, healthy, after))
				query(level, "others", grade, fmt.Sprintf(`sum(count_over_time((%s:slowdown:grade{%s, %s} >= %d)[%dm:1m])) > 0`, level, group, other, grade, minutes))
			}
		}
	}
}

var failSlowSample = regexp.MustCompile(`\{[^{}]*\} ([-+.0-9Ee]+)`)

func parseFailSlow(out []byte) (map[string]float64, error) {
	found := map[string]float64{}
	name := ""
	for lines := bufio.NewScanner(bytes.NewReader(out)); lines.Scan(); {
		line := lines.Text()
		if i := strings.Index(line, " # "); i >= 0 && strings.Contains(line, "expr: ") {
			name, _, _ = strings.Cut(line[i+3:], `"`)
		}
		if m := failSlowSample.FindStringSubmatch(line); m != nil && strings.Contains(line, "got:") {
			value, err := strconv.ParseFloat(m[1], 64)
			if err != nil {
				return nil, err
			}
			found[name] = value
		}
	}
	for level := range peersOf {
		if found[level+" well ratios 0"] < 100 {
			return nil, fmt.Errorf("no %s has a ratio, promtool prints\n%.4000s", level, out)
		}
	}
	return found, nil
}

// failSlowCell is the median of the minutes to a grade, and of how many seeds.
func failSlowCell(results []map[string]float64, level, name string, grade int) string {
	var delays []float64
	for _, found := range results {
		if m, ok := found[fmt.Sprint(level, " ", name, " delay ", grade)]; ok {
			delays = append(delays, m)
		}
	}
	if len(delays) == 0 {
		return "-"
	}
	slices.Sort(delays)
	return fmt.Sprintf("%.0f min (%d/%d)", delays[len(delays)/2], len(delays), len(results))
}

// failSlowFalse is the minutes with a grade or a higher one of members that were well, in all cases.
func failSlowFalse(results []map[string]float64, level string, grade int) (sum float64) {
	for _, found := range results {
		for _, c := range slowCases {
			sum += found[fmt.Sprint(level, " ", c.name, " false ", grade)]
			sum += found[fmt.Sprint(level, " ", c.name, " others ", grade)]
		}
	}
	return sum
}

func failSlowTable(results []map[string]float64) string {
	var b strings.Builder
	for _, level := range []string{"replica", "disk"} {
		for _, c := range slowCases[1:] {
			fmt.Fprintf(&b, "  %-8s%-36s", level, c.name)
			for grade := 1; grade <= 4; grade++ {
				fmt.Fprintf(&b, " | %d: %-14s", grade, failSlowCell(results, level, c.name, grade))
			}
			b.WriteByte('\n')
		}
		fmt.Fprintf(&b, "  %-8sfalse minutes of grade 1, 2, 3: %.0f, %.0f, %.0f\n", level, failSlowFalse(results, level, 1), failSlowFalse(results, level, 2), failSlowFalse(results, level, 3))
	}
	return b.String()
}

func recordFailSlow(t *testing.T, of [][]map[string]float64, healthy int) {
	file, err := rows.Open(filepath.Join(testkit.Root(), "build", "results"), "failslow",
		fmt.Sprintf("go test ./tests/detector -run FailSlow -v -timeout 60m -args -full -seeds %d", *seeds))
	if err != nil {
		t.Fatal(err)
	}
	for n, results := range of {
		if results == nil {
			continue
		}
		for _, level := range []string{"replica", "disk"} {
			cells := []string{"seeds", fmt.Sprint(*seeds)}
			for i, name := range []string{"1.5 times", "2 times", "4 times", "10 times"} {
				cells = append(cells, fmt.Sprintf("%s: grade %d after", name, i+1), failSlowCell(results, level, name, i+1))
			}
			cells = append(cells, "false minutes of grade 1, 2, 3",
				fmt.Sprintf("%.0f, %.0f, %.0f", failSlowFalse(results, level, 1), failSlowFalse(results, level, 2), failSlowFalse(results, level, 3)))
			file.Add(fmt.Sprintf("Fail-slow: grades, %d h healthy before each of %d cases", healthy/60, len(slowCases)), noises[n].name+": "+level, cells...)
		}
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
}
