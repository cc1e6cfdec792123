// Package export writes results in the formats of tools that read many of them.
package export

import (
	"encoding/csv"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/plumbline/plumbline/loadgen/compare"
)

// Formats are those there are.
var Formats = []string{"otava"}

// otavaTime is a form of time that Otava reads and that has its zone.
const otavaTime = "2006-01-02 15:04:05 -0700"

// otavaConfig is Otava's configuration, of its part on CSV.
type otavaConfig struct {
	Tests  map[string]otavaTest `yaml:"tests"`
	Groups map[string][]string  `yaml:"test_groups"`
}

type otavaTest struct {
	Type       string                 `yaml:"type"`
	File       string                 `yaml:"file"`
	TimeColumn string                 `yaml:"time_column"`
	Attributes []string               `yaml:"attributes"`
	Metrics    map[string]otavaMetric `yaml:"metrics"`
	Options    map[string]string      `yaml:"csv_options"`
}

// otavaMetric is a column; direction -1 means that less is better.
type otavaMetric struct {
	Column    string `yaml:"column"`
	Direction int    `yaml:"direction"`
}

// history is one thing over all results: Otava's test. Each of its points has all its metrics, for Otava
// does not read a row with an empty field.
type history struct {
	kind, name, setting string
	metrics             []string
	points              []point
}

type point struct {
	of     *compare.Levels
	at     time.Time
	run    string
	values map[string]compare.Side
}

// Otava writes, into a folder, the configuration and the data for Apache Otava (formerly Hunter), which finds change
// points in the history of each thing that the results have measured: a row for each result, its level in seconds, that
// of compare's verdicts. A result that cannot be taken keeps none of the others from being written; it is an error all
// the same.
func Otava(folder string, results []string) error {
	histories, bad := read(results)
	if len(histories) == 0 {
		return errors.Join(bad, errors.New("nothing is written: none of the results can be exported"))
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	// Otava looks for relative files where it is started, not beside its configuration.
	absolute, err := filepath.Abs(folder)
	if err != nil {
		return err
	}
	config := otavaConfig{map[string]otavaTest{}, map[string][]string{}}
	for _, h := range histories {
		test := slug(h.kind) + "." + slug(h.name)
		if _, taken := config.Tests[test]; taken {
			bad = errors.Join(bad, fmt.Errorf("two things would both be called %s: %s is one, and is left out", test, h.name))
			continue
		}
		file := filepath.Join(absolute, test+".csv")
		metrics := map[string]otavaMetric{}
		for _, m := range h.metrics {
			metrics[column(m)] = otavaMetric{column(m), -1}
		}
		config.Tests[test] = otavaTest{"csv", file, "time", []string{"run", "values"}, metrics, map[string]string{"delimiter": ",", "quote_char": `"`}}
		config.Groups[h.kind] = append(config.Groups[h.kind], test)
		bad = errors.Join(bad, h.write(file))
	}
	text, err := yaml.Marshal(config)
	if err != nil {
		return err
	}
	return errors.Join(bad, os.WriteFile(filepath.Join(folder, "otava.yaml"), text, 0o644))
}

// read puts results in order of time, and each thing that they have measured together. Those that cannot be taken are
// an error; the others are returned with it.
func read(results []string) ([]*history, error) {
	if len(results) == 0 {
		return nil, errors.New("no results")
	}
	var histories []*history
	var bad []error
	for _, path := range results {
		r, err := compare.ReadLevels(path)
		if err != nil {
			bad = append(bad, err)
			continue
		}
		bad = append(bad, r.Damaged...)
		if r.Time.IsZero() {
			bad = append(bad, fmt.Errorf("%s: began, or measured, is missing: the time of the measurement is unknown", path))
			continue
		}
		for _, l := range r.Levels {
			if err := add(&histories, path, r, l); err != nil {
				bad = append(bad, err)
			}
		}
	}
	for _, h := range histories {
		h.points = slices.DeleteFunc(h.points, func(p point) bool { return len(p.values) < len(h.metrics) })
		slices.SortStableFunc(h.points, func(a, b point) int { return a.at.Compare(b.at) })
		h.points = slices.CompactFunc(h.points, func(a, b point) bool {
			if a.at.Equal(b.at) {
				bad = append(bad, fmt.Errorf("%s and %s were measured at the same time: is it one result twice? Of %s the first is taken", a.run, b.run, h.name))
			}
			return a.at.Equal(b.at)
		})
	}
	histories = slices.DeleteFunc(histories, func(h *history) bool { return len(h.points) == 0 })
	return histories, errors.Join(bad...)
}

// add adds a level of a result to the history of its thing.
func add(histories *[]*history, path string, r *compare.Levels, l compare.Level) error {
	i := slices.IndexFunc(*histories, func(h *history) bool { return h.kind == r.Kind && h.name == l.Name })
	if i < 0 {
		i = len(*histories)
		*histories = append(*histories, &history{kind: r.Kind, name: l.Name, setting: l.Setting})
	}
	h := (*histories)[i]
	if h.setting != l.Setting {
		return fmt.Errorf("%s: %s was measured as %q, in results before it as %q; their levels are not of the same thing", path, l.Name, l.Setting, h.setting)
	}
	if !slices.Contains(h.metrics, l.Metric) {
		h.metrics = append(h.metrics, l.Metric)
	}
	if n := len(h.points); n == 0 || h.points[n-1].of != r {
		h.points = append(h.points, point{r, r.Time, path, map[string]compare.Side{}})
	}
	h.points[len(h.points)-1].values[l.Metric] = l.Side
	return nil
}

// write writes a history as CSV. The column values has how many runs or intervals each row rests on.
func (h *history) write(path string) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	w := csv.NewWriter(file)
	head := []string{"time", "run", "values"}
	for _, m := range h.metrics {
		head = append(head, column(m))
	}
	rows := [][]string{head}
	for _, p := range h.points {
		row := []string{p.at.UTC().Format(otavaTime), filepath.Base(p.run), strconv.Itoa(p.values[h.metrics[0]].Values)}
		for _, m := range h.metrics {
			row = append(row, strconv.FormatFloat(p.values[m].Seconds, 'g', 9, 64))
		}
		rows = append(rows, row)
	}
	return errors.Join(w.WriteAll(rows), file.Close())
}

// column is a metric's name without spaces, which stand in headings that Otava prints and on its
// command line.
func column(metric string) string { return slug(metric) + "_seconds" }

// slug is a name of letters, digits, dots and dashes.
func slug(name string) string {
	return strings.Join(strings.FieldsFunc(name, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '.' || r == '-')
	}), "-")
}
