package report

import (
	"embed"
	"encoding/json"
	"html/template"
	"io"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/plumbline/plumbline/loadgen/result"
)

// assets are the page's template and uPlot 1.6.32 (MIT, its licence beside it), which goes into
// the page, so that the page needs nothing else.
//
//go:embed assets
var assets embed.FS

// plot is one plot as the page's script takes it.
type plot struct {
	Title  string       `json:"title"`
	Names  []string     `json:"names"`
	Data   [][]*float64 `json:"data"` // first the times, in seconds; then milliseconds
	Points []float64    `json:"changes,omitempty"`
}

// band is a mark as the script takes it.
type band struct {
	Kind string  `json:"kind"`
	Name string  `json:"name"`
	From float64 `json:"from"`
	To   float64 `json:"to"`
}

func unix(t time.Time) float64 { return float64(t.UnixMilli()) / 1000 }

// join puts series of different times on one axis; where a series has no point it has a gap.
func join(title string, series []Series) plot {
	p := plot{Title: title}
	at := map[float64]int{}
	var times []float64
	for _, s := range series {
		for _, t := range s.Times {
			if x := unix(t); at[x] == 0 {
				at[x] = 1
				times = append(times, x)
			}
		}
	}
	slices.Sort(times)
	times = withGaps(times)
	axis := make([]*float64, len(times))
	for i := range times {
		at[times[i]], axis[i] = i, &times[i]
	}
	p.Data = append(p.Data, axis)
	for _, s := range series {
		line := make([]*float64, len(times))
		for i, t := range s.Times {
			if v := s.Values[i] * 1000; v > 0 && !math.IsInf(v, 0) { // the axis is logarithmic
				line[at[unix(t)]] = &v
			}
		}
		p.Names, p.Data = append(p.Names, s.Name), append(p.Data, line)
	}
	return p
}

// gap is how many usual distances apart two points are not joined by a line.
const gap = 3

// withGaps puts a time, at which no series has a point, into each gap between the others.
func withGaps(times []float64) []float64 {
	var distances []float64
	for i := 1; i < len(times); i++ {
		distances = append(distances, times[i]-times[i-1])
	}
	if len(distances) == 0 {
		return times
	}
	slices.Sort(distances)
	usual := distances[len(distances)/2]
	var out []float64
	for i, t := range times {
		if i > 0 && t-times[i-1] > gap*usual {
			out = append(out, (times[i-1]+t)/2)
		}
		out = append(out, t)
	}
	return out
}

func (r *Report) plots() []plot {
	var plots []plot
	for _, load := range loads(r.Classes) {
		var median, tail, service []Series
		var changes []float64
		for _, c := range r.Classes {
			if c.Load != load {
				continue
			}
			median = append(median, Series{Name: c.StorageClass, Times: c.Times, Values: c.P50})
			tail = append(tail, Series{Name: c.StorageClass, Times: c.Times, Values: c.P99})
			service = append(service, Series{Name: c.StorageClass, Times: c.Times, Values: c.ServiceP50})
			for _, x := range c.Changes {
				changes = append(changes, unix(x.Time))
			}
		}
		p := join(load+": median response", median)
		p.Points = changes
		plots = append(plots, p, join(load+": response p99", tail), join(load+": median service", service))
	}
	for _, class := range r.layerClasses() {
		var layers []Series
		for _, l := range r.Layers {
			if l.StorageClass == class {
				layers = append(layers, l)
			}
		}
		plots = append(plots, join(strings.TrimSpace("Layers of latency "+class), layers))
	}
	return plots
}

// layerClasses lists the storage classes the layers speak of, in their order.
func (r *Report) layerClasses() (classes []string) {
	for _, l := range r.Layers {
		if !slices.Contains(classes, l.StorageClass) {
			classes = append(classes, l.StorageClass)
		}
	}
	return classes
}

func loads(classes []Class) (names []string) {
	for _, c := range classes {
		if !slices.Contains(names, c.Load) {
			names = append(names, c.Load)
		}
	}
	return names
}

// WriteHTML writes the report as one page that needs no other file.
func (r *Report) WriteHTML(w io.Writer) error {
	read := func(name string) (string, error) {
		text, err := assets.ReadFile("assets/" + name)
		return string(text), err
	}
	script, err := read("uPlot.iife.min.js")
	if err != nil {
		return err
	}
	style, err := read("uPlot.min.css")
	if err != nil {
		return err
	}
	page, err := template.New("page.html").Funcs(template.FuncMap{
		"clock": clock, "ms": result.Milliseconds, "unit": unit, "quantile": withInterval, "number": number,
		"percent": func(v float64) float64 { return v * 100 },
	}).ParseFS(assets, "assets/page.html")
	if err != nil {
		return err
	}
	scaleBars(r.Sections)
	bands := []band{}
	for _, m := range r.Marks {
		bands = append(bands, band{m.Kind, m.Name, unix(m.From), unix(m.To)})
	}
	data, err := json.Marshal(map[string]any{"plots": r.plots(), "marks": bands})
	if err != nil {
		return err
	}
	return page.Execute(w, map[string]any{"Report": r, "Legend": legend(r.Sections), "Script": template.JS(script), "Style": template.CSS(style), "Data": template.JS(data)})
}
