package trace

import (
	"encoding/json"
	"fmt"
	"html/template"
	"io"
	"maps"
	"slices"

	"github.com/plumbline/plumbline/rules/layers"
)

// maxSteps bounds the bars of one statement on the page.
const maxSteps = 200

// bar is a step as a part of its statement's width, in percent.
type bar struct {
	Step
	Left, Width string
}

type waterfall struct {
	Statement
	Bars []bar
	More int
}

// share is a part of a statement.
type share struct {
	Layer   string
	Seconds float64
	Percent float64
}

// Shares are the statement's layers, from the top.
func (w waterfall) Shares() (all []share) {
	for _, l := range slices.SortedFunc(maps.Keys(w.Layers), layers.Compare) {
		if s := w.Layers[l]; s > 0 {
			all = append(all, share{l, s, 100 * s / w.Seconds})
		}
	}
	return all
}

func newWaterfall(s Statement) waterfall {
	w := waterfall{Statement: s}
	for i, step := range s.Steps {
		if i == maxSteps {
			w.More = len(s.Steps) - i
			break
		}
		w.Bars = append(w.Bars, bar{step, percent(step.Offset, s.Seconds), percent(step.Seconds, s.Seconds)})
	}
	return w
}

func percent(part, whole float64) string {
	if whole <= 0 {
		return "0"
	}
	return fmt.Sprintf("%.3f", 100*part/whole)
}

// WriteHTML writes a page of statements, and of requests that replicas served for engines elsewhere. It needs nothing
// from elsewhere and runs no script.
func WriteHTML(w io.Writer, statements, served []Statement) error {
	return page.Execute(w, struct{ Statements, Served []waterfall }{waterfalls(statements), waterfalls(served)})
}

func waterfalls(statements []Statement) (all []waterfall) {
	for _, s := range statements {
		all = append(all, newWaterfall(s))
	}
	return all
}

// WriteJSON writes the same for programs.
func WriteJSON(w io.Writer, statements []Statement) error {
	if statements == nil {
		statements = []Statement{}
	}
	e := json.NewEncoder(w)
	e.SetIndent("", " ")
	return e.Encode(statements)
}

var page = template.Must(template.New("slowest").Funcs(template.FuncMap{
	"colour": func(layer string) template.CSS { return template.CSS(layers.Of(layer).Colour.CSS) },
	"time": func(s float64) string {
		switch {
		case s >= 1:
			return fmt.Sprintf("%.3f s", s)
		case s >= 1e-3:
			return fmt.Sprintf("%.3f ms", s*1e3)
		}
		return fmt.Sprintf("%.1f µs", s*1e6)
	},
}).Parse(`<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>Slowest statements</title>
<style>
body { font: 14px sans-serif; margin: 2em; color: #222; }
h2 { font-size: 16px; margin: 2em 0 0.3em; }
table { border-collapse: collapse; width: 100%; }
td { padding: 1px 6px; white-space: nowrap; }
td.bar { width: 55%; padding: 0; background: #f4f4f4; }
td.bar div { height: 12px; border: 1px solid #888; box-sizing: border-box; min-width: 1px; }
.small { color: #666; } .exact { color: #2a7a2a; } .incomplete, .ambiguous { color: #b03020; }
</style>
</head>
<body>
<h1>Slowest statements</h1>
<p>Those of the last ten minutes that waited for a file or another session, the slowest first; the same as <a href="slowest.json">JSON</a>.
Each bar is one step, below the one that waited for it.</p>
{{- range .Statements}}{{template "one" .}}
{{- else}}
<p>None yet.</p>
{{- end}}
<h1>Slowest requests to replicas of this node</h1>
<p>Those of the last ten minutes from engines on other nodes; the same as <a href="slowest-served.json">JSON</a>. On the engine's node, the step of
the statement that waited has the same trace number.</p>
{{- range .Served}}{{template "one" .}}
{{- else}}
<p>None yet.</p>
{{- end}}
</body>
</html>
{{- define "one"}}
<h2>{{.Server}}: {{.Command}}, {{time .Seconds}}{{with .QueryID}}, query {{.}}{{end}}</h2>
<p class="small">{{.Start.UTC.Format "2006-01-02 15:04:05.000000"}} UTC, trace {{.TraceID}}, <span class="{{.Verdict}}">{{.Verdict}}</span>{{range .Reasons}} {{.}}{{end}}{{if .WakeupSeconds}}; its bytes woke the server's task {{time .WakeupSeconds}} before{{end}}<br>
{{range .Shares}}{{.Layer}} {{time .Seconds}} ({{printf "%.0f" .Percent}} %) {{end}}</p>
<table>
{{- range .Bars}}
<tr><td style="padding-left: {{.Depth}}em">{{.Layer}}</td><td>{{.What}}{{with .ReplicaTraceID}}<span class="small">, there trace {{.}}</span>{{end}}</td><td>{{time .Offset}}</td><td>{{time .Seconds}}</td><td class="bar"><div style="margin-left: {{.Left}}%; width: {{.Width}}%; background: {{colour .Layer}}"></div></td></tr>
{{- end}}
</table>
{{- if .More}}<p class="small">and {{.More}} more steps, in the JSON</p>{{end}}
{{- end}}
`))
