package matrix

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/plumbline/plumbline/loadgen/internal/words"
	"github.com/plumbline/plumbline/loadgen/result"
	"github.com/plumbline/plumbline/loadgen/stats"
	"github.com/plumbline/plumbline/rules/layers"
)

// pageTemplate needs nothing else: no script, no font, no picture.
//
//go:embed page.html
var pageTemplate string

// Schema is the JSON schema of a report's JSON.
//
//go:embed schema.json
var Schema string

// mark is a ratio with its interval on the page's axis, in percent of its width.
type mark struct {
	Dot, Left, Width float64
	Interval, Shown  bool
}

// tick is a labelled ratio of the axis.
type tick struct {
	At    float64
	Label string
}

// line is a step on a class.
type line struct {
	Class, Rate, Ratio, Limit string
	Mark                      mark
	Bars                      []bar
	BarTitle                  string
	Doubts                    []string
}

// bar is a layer's part of a bar.
type bar struct {
	Title   string
	Colour  template.CSS
	Percent float64
}

type pageStep struct {
	Name  string
	Lines []line
}

type pageClass struct {
	Class
	Mark mark
}

// axis is logarithmic and holds all ratios and 1.
type axis struct{ low, high float64 }

func (a *axis) hold(ratios ...float64) {
	for _, v := range ratios {
		if v > 0 && !math.IsInf(v, 1) {
			a.low, a.high = min(a.low, v), max(a.high, v)
		}
	}
}

func (a axis) at(ratio float64) float64 {
	from, to := math.Log(a.low)-0.05, math.Log(a.high)+0.05
	return 100 * min(max((math.Log(ratio)-from)/(to-from), 0), 1)
}

func (a axis) mark(ratio float64, d *stats.Difference) mark {
	switch {
	case d != nil:
		return mark{Dot: a.at(d.Ratio), Left: a.at(d.Low), Width: a.at(d.High) - a.at(d.Low), Interval: true, Shown: true}
	case ratio > 0:
		return mark{Dot: a.at(ratio), Shown: true}
	}
	return mark{}
}

func (a axis) ticks() (ticks []tick) {
	for _, v := range []float64{0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100} {
		if v >= a.low && v <= a.high {
			ticks = append(ticks, tick{a.at(v), fmt.Sprintf("%g×", v)})
		}
	}
	return ticks
}

// toReference is a step's time on a class as a multiple of the reference's: the ratio, 0 if there is none,
// and its interval if there are enough rounds.
func (r *Report) toReference(step, class string) (float64, *stats.Difference) {
	reference := r.reference()
	if class == reference {
		return 1, nil
	}
	a, b := Times(r.Rates(step, reference)), Times(r.Rates(step, class))
	if d, ok := stats.Paired(a, b, 0.05); ok {
		return d.Ratio, &d
	}
	var x, y []float64
	for i := range a {
		if a[i] > 0 && b[i] > 0 {
			x, y = append(x, a[i]), append(y, b[i])
		}
	}
	first, n := stats.Level(x)
	second, _ := stats.Level(y)
	if n == 0 {
		return 0, nil
	}
	return second / first, nil
}

// WriteHTML writes the report as one page that needs no other file.
func (r *Report) WriteHTML(w io.Writer) error {
	a := axis{0.8, 1.5}
	for _, c := range r.Classes {
		a.hold(c.Ratio)
		if c.Difference != nil {
			a.hold(c.Difference.Low, c.Difference.High)
		}
	}
	for _, step := range r.Steps() {
		for _, t := range r.Targets {
			ratio, d := r.toReference(step, t.StorageClass)
			a.hold(ratio)
			if d != nil {
				a.hold(d.Low, d.High)
			}
		}
	}
	var classes []pageClass
	for _, c := range r.Classes {
		classes = append(classes, pageClass{c, a.mark(c.Ratio, c.Difference)})
	}
	// The slowest first: that is what the page is opened for.
	slices.SortStableFunc(classes, func(x, y pageClass) int {
		switch {
		case x.Ratio > y.Ratio:
			return -1
		case x.Ratio < y.Ratio:
			return 1
		}
		return 0
	})
	var steps []pageStep
	legend, seen := []bar{}, map[string]bool{}
	for _, step := range r.Steps() {
		s := pageStep{Name: step}
		for _, t := range r.Targets {
			l := r.line(step, t.StorageClass, a)
			for _, part := range r.meanParts(step, t.StorageClass) {
				if !seen[part.Name] {
					seen[part.Name] = true
					legend = append(legend, bar{Title: part.Name, Colour: template.CSS(layers.Of(part.Name).Colour.CSS)})
				}
			}
			s.Lines = append(s.Lines, l)
		}
		steps = append(steps, s)
	}
	page, err := template.New("page").Funcs(template.FuncMap{
		"replicas": copies,
		"plot":     func(m mark) map[string]any { return map[string]any{"Ticks": a.ticks(), "Mark": m} },
	}).Parse(pageTemplate)
	if err != nil {
		return err
	}
	return page.Execute(w, map[string]any{"Report": r, "Classes": classes, "Steps": steps, "Ticks": a.ticks(), "Legend": legend, "Failed": r.failures(),
		"Reference": r.reference(), "Enough": max(r.Repeat, 1) >= stats.LeastRepeats, "Least": stats.LeastRepeats})
}

// failure is an error of a step on a class, and the rounds that it ended.
type failure struct {
	Step, Class, Error string
	Rounds             []string
}

// In names the rounds.
func (f failure) In() string {
	if len(f.Rounds) == 1 {
		return "round " + f.Rounds[0]
	}
	return "rounds " + strings.Join(f.Rounds, ", ")
}

// failures are the runs that failed, those of the same reason together.
func (r *Report) failures() (all []failure) {
	for _, row := range r.Rows {
		if row.Error == "" {
			continue
		}
		i := slices.IndexFunc(all, func(f failure) bool { return f.Step == row.Step && f.Class == row.StorageClass && f.Error == row.Error })
		if i < 0 {
			i, all = len(all), append(all, failure{Step: row.Step, Class: row.StorageClass, Error: row.Error})
		}
		all[i].Rounds = append(all[i].Rounds, strconv.Itoa(row.Round))
	}
	return all
}

// line is the page's line for a step on a class.
func (r *Report) line(step, class string, a axis) line {
	l := line{Class: class}
	ratio, d := r.toReference(step, class)
	l.Mark = a.mark(ratio, d)
	switch {
	case class == r.reference():
		l.Ratio = "reference"
	case d != nil:
		l.Ratio = fmt.Sprintf("%.2f (%.2f to %.2f)", d.Ratio, d.Low, d.High)
	case ratio > 0:
		l.Ratio = fmt.Sprintf("%.2f, interval unknown", ratio)
	default:
		l.Ratio = "not measured"
	}
	if rate, n := stats.Level(r.Rates(step, class)); n > 0 {
		l.Rate = perSecond(rate) + "/s"
	}
	mean, of := 0.0, ""
	parts := r.meanParts(step, class)
	for _, p := range parts {
		mean += p.Seconds
	}
	for _, p := range parts {
		l.Bars = append(l.Bars, bar{fmt.Sprintf("%s %s, %s", p.Name, result.Milliseconds(p.Seconds), words.Percent(p.Seconds/mean)),
			template.CSS(layers.Of(p.Name).Colour.CSS), 100 * p.Seconds / mean})
	}
	limits := map[string]bool{}
	for i := range r.Rows {
		row := &r.Rows[i]
		if row.Step != step || row.StorageClass != class {
			continue
		}
		if row.Layers != nil {
			of = row.Layers.Of
		}
		if row.Result != nil {
			if text := row.limitWords(); !limits[text] {
				limits[text] = true
				if l.Limit != "" {
					l.Limit += "; "
				}
				l.Limit += text
			}
		}
		for _, d := range row.Doubts {
			if !slices.Contains(l.Doubts, d) {
				l.Doubts = append(l.Doubts, d)
			}
		}
	}
	if len(parts) > 0 {
		l.BarTitle = fmt.Sprintf("a %s: %s", of, result.Milliseconds(mean))
	}
	return l
}

// meanParts are the layers of a step on a class, the mean of its rounds, in the order of a statement's.
func (r *Report) meanParts(step, class string) (parts []Part) {
	sums, rounds := map[string]float64{}, 0
	for _, row := range r.Rows {
		if row.Step != step || row.StorageClass != class || row.Layers == nil {
			continue
		}
		rounds++
		for _, p := range row.Layers.Parts {
			sums[p.Name] += p.Seconds
		}
	}
	for _, name := range slices.SortedFunc(maps.Keys(sums), layers.Compare) {
		if sums[name] > 0 {
			parts = append(parts, Part{name, sums[name] / float64(rounds)})
		}
	}
	return parts
}
