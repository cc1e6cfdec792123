package report

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/promql/parser"

	"github.com/plumbline/plumbline/loadgen/internal/golden"
	"github.com/plumbline/plumbline/loadgen/matrix"
	"github.com/plumbline/plumbline/loadgen/result"
	"github.com/plumbline/plumbline/loadgen/soak"
	"github.com/plumbline/plumbline/loadgen/stats"
	"github.com/plumbline/plumbline/rules"
	"github.com/plumbline/plumbline/tests/testkit"
)

var began = time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC)

// run is a soak of 20 minutes on two classes: the replicated one is slower by half from minute
// 10 to 15, when a replica is down; from minute 5 to 6 the soak was not running.
func run(slower float64) *soak.Data {
	random := rand.New(rand.NewPCG(9, 9))
	d := &soak.Data{Began: began, Plan: soak.Plan{Duration: 20 * time.Minute,
		Targets: []matrix.Target{{StorageClass: "local", Local: true}, {StorageClass: "r3"}}}}
	event := func(minute float64, kind, name, what, detail string) {
		d.Events = append(d.Events, soak.Event{Time: began.Add(time.Duration(minute * float64(time.Minute))), Kind: kind, Name: name, What: what, Detail: detail})
	}
	event(0.001, soak.SoakEvent, "soak", soak.Begin, "")
	event(6, soak.SoakEvent, "soak", soak.Begin, "") // killed: there is no end
	event(10, soak.FaultEvent, "replica killed", soak.Begin, "")
	event(15, soak.FaultEvent, "replica killed", soak.End, "")
	event(16, soak.FaultEvent, "odd", soak.Failed, "no such <replica>")
	event(20, soak.SoakEvent, "soak", soak.End, "over")
	for i := range 120 {
		at := began.Add(time.Duration(i+1) * 10 * time.Second)
		minute := at.Sub(began).Minutes()
		if minute > 5 && minute <= 6 {
			continue
		}
		for _, class := range []string{"local", "r3"} {
			median := 1.0
			if class == "r3" {
				median = 3 * slower
			}
			s := soak.Sample{Time: at, StorageClass: class, Load: "canary", Offered: 100, Completed: 100}
			if class == "r3" && minute > 10 && minute <= 15 {
				median *= 1.5
				s.Failed, s.Completed = 1, 99
				switch minute {
				case 12:
					s.Outages = []result.Outage{{Began: at.Add(-4 * time.Second), Seconds: 3.2, Over: true, Errors: map[string]uint64{"connection": 7, "timeout": 1}}, {Began: at, Seconds: 0.1, Over: true}}
				case 15:
					s.Outages = []result.Outage{{Began: at.Add(-2 * time.Second), Seconds: 2, Errors: map[string]uint64{"read_only": 3}}}
				}
			}
			for range 100 {
				service := time.Duration(median * math.Exp(random.NormFloat64()*0.3) * float64(time.Millisecond))
				s.Service.Observe(service)
				s.Response.Observe(service + 100*time.Microsecond)
			}
			d.Samples = append(d.Samples, s)
		}
	}
	return d
}

func TestReport(t *testing.T) {
	r := New("Soak test", run(1))
	if len(r.Classes) != 2 || r.Classes[1].StorageClass != "r3" {
		t.Fatalf("classes %+v", r.Classes)
	}
	local, r3 := r.Classes[0], r.Classes[1]
	if local.ToLocal != 1 || r3.ToLocal < 2.5 || r3.ToLocal > 5 {
		t.Errorf("p95 to local %v and %v", local.ToLocal, r3.ToLocal)
	}
	if len(local.Changes) != 0 {
		t.Errorf("the steady class changed: %+v", local.Changes)
	}
	if len(r3.Changes) != 2 {
		t.Fatalf("changes %+v, want the fault's begin and end", r3.Changes)
	}
	for i, minute := range []float64{10, 15} {
		c := r3.Changes[i]
		if off := c.Time.Sub(began).Minutes() - minute; off < 0 || off > 0.7 || c.When != []string{"during", "after"}[i]+" fault replica killed" {
			t.Errorf("change %d at minute %.1f, %q; want minute %v with the fault's begin and end", i, off+minute, c.When, minute)
		}
	}
	if ratio := r3.Changes[0].After / r3.Changes[0].Before; ratio < 1.35 || ratio > 1.65 {
		t.Errorf("a step of 50 %% is reported as %v", ratio)
	}
	if r3.Failed == 0 || r.Done != 1 {
		t.Errorf("failed %d, done %v", r3.Failed, r.Done)
	}
	var gap bool
	for _, m := range r.Marks {
		if m.Name == "not running" {
			gap = m.From.Equal(began.Add(5*time.Minute)) && m.To.Equal(began.Add(6*time.Minute))
		}
	}
	if local.Outages.String() != "0" || r3.Outages.String() != "5.3 s, 3 times, longest 3.2 s" {
		t.Errorf("without a commit: %s and %s", local.Outages, r3.Outages)
	}
	var outages []string
	for _, m := range r.Marks {
		if m.Kind == outageMark {
			outages = append(outages, fmt.Sprintf("%s for %s: %s", m.Name, m.To.Sub(m.From), m.Detail))
		}
	}
	if want := []string{"canary on r3 for 3.2s: 3.2 s without a commit; 7 connection, 1 timeout", "canary on r3 for 2s: 2.0 s without a commit; 3 read_only; not over at the load's end"}; !slices.Equal(outages, want) {
		t.Errorf("outages are reported as %q, want %q", outages, want)
	}
	v := r.Verdict()
	if want := []string{
		fmt.Sprintf("local: the median response stayed at %s.", result.Milliseconds(local.Response.Quantile(0.5))),
		"r3: the median response changed 2 times with a fault or a phase; at the end it is what it was at the beginning; without a commit for 5.3 s in all; " +
			"30 of 11400 transactions failed or were skipped (0.26 %), all with a fault or a phase.",
		"fault odd could not be done.",
		"the soak did not run from 2026-11-21 00:05:00 to 2026-11-21 00:06:00.",
	}; v.Planned || !slices.Equal(v.Sentences, want) {
		t.Errorf("the verdict is %q, %q; want %q", v.Heading(), v.Sentences, want)
	}
	if !gap {
		t.Errorf("the minute the soak was not running is not marked: %+v", r.Marks)
	}
}

// kept writes a soak's folder and reads it.
func kept(t *testing.T, d *soak.Data) *soak.Data {
	t.Helper()
	folder := t.TempDir()
	write := func(name string, values ...any) {
		var text strings.Builder
		for _, v := range values {
			line, err := json.Marshal(v)
			if err != nil {
				t.Fatal(err)
			}
			text.WriteString(string(line) + "\n")
		}
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	var events, samples []any
	for _, e := range d.Events {
		events = append(events, e)
	}
	for _, s := range d.Samples {
		samples = append(samples, s)
	}
	write("soak.json", map[string]any{"began": d.Began, "plan": d.Plan})
	write("events.jsonl", events...)
	write("samples.jsonl", samples...)
	back, err := soak.Read(folder)
	if err != nil {
		t.Fatal(err)
	}
	return back
}

// A soak that was killed in a phase wrote no end of it: it lasts to the last sample before, and explains nothing after
// that. One that is still under way lasts to the last sample of all. The report has both.
func TestKilledInAPhase(t *testing.T) {
	d := run(1)
	d.Plan.Interval = 10 * time.Second
	event := func(at time.Duration) soak.Event {
		return soak.Event{Time: began.Add(at), Kind: soak.PhaseEvent, Name: "burst", What: soak.Begin, Detail: "tpcb-like at 200/s"}
	}
	// Killed after minute 5, started again at minute 6; no fault explains what happens at minutes 10 and 15.
	d.Events = []soak.Event{d.Events[0], event(3 * time.Minute), d.Events[1], event(19 * time.Minute)}
	r := New("", kept(t, d))
	var phases []string
	for _, m := range r.Marks {
		if m.Kind == soak.PhaseEvent {
			phases = append(phases, fmt.Sprintf("%v to %v: %s", m.From.Sub(began), m.To.Sub(began), m.Detail))
		}
	}
	if want := []string{"3m0s to 5m0s: tpcb-like at 200/s; " + soak.Killed, "19m0s to 20m0s: tpcb-like at 200/s; not over at the last sample"}; !slices.Equal(phases, want) {
		t.Errorf("phases %q, want %q", phases, want)
	}
	if notes := strings.Join(r.Notes, "\n"); !strings.Contains(notes, "phase burst from 2026-11-21 00:03:00 on: the soak was killed in it") {
		t.Errorf("notes %q", notes)
	}
	for _, c := range r.Classes {
		for _, x := range c.Changes {
			if x.When != "" {
				t.Errorf("a change at minute %v is %s", x.Time.Sub(began), x.When)
			}
		}
	}
	if len(r.Classes[1].Changes) != 2 {
		t.Errorf("changes %+v", r.Classes[1].Changes)
	}
}

// A soak that was over and was started again and again, as a cluster does it, keeps its verdict: nothing after its end
// is a gap. Of one that was killed before its end the gap ends with the plan.
func TestStartedAfterTheEnd(t *testing.T) {
	minute := func(n int) time.Time { return began.Add(time.Duration(n) * time.Minute) }
	startAgain := func(d *soak.Data) {
		for n := 21; n <= 23; n++ {
			d.Events = append(d.Events, soak.Event{Time: minute(n), Kind: soak.SoakEvent, Name: "soak", What: soak.Begin},
				soak.Event{Time: minute(n), Kind: soak.FaultEvent, Name: "beyond the end", What: soak.Failed, Detail: "its time came while the soak was not running"},
				soak.Event{Time: minute(n).Add(time.Second), Kind: soak.SoakEvent, Name: "soak", What: soak.End, Detail: soak.Over})
		}
	}
	clean := func() *soak.Data {
		d := run(1)
		d.Plan.Interval = 10 * time.Second
		d.Events = slices.DeleteFunc(d.Events, func(e soak.Event) bool { return e.What == soak.Failed || e.Time.Equal(minute(6)) })
		return d
	}
	want := New("", kept(t, clean())).Verdict()
	if !want.Planned {
		t.Fatalf("without another start the verdict is %q", want.Sentences)
	}
	over := clean()
	startAgain(over)
	if got := New("", kept(t, over)).Verdict(); !got.Planned || !slices.Equal(got.Sentences, want.Sentences) {
		t.Errorf("started again after its end, the verdict is %q, want %q", got.Sentences, want.Sentences)
	}

	killed := clean()
	killed.Events = slices.DeleteFunc(killed.Events, func(e soak.Event) bool { return e.What == soak.End && e.Kind == soak.SoakEvent })
	killed.Samples = slices.DeleteFunc(killed.Samples, func(s soak.Sample) bool { return s.Time.After(minute(17)) })
	startAgain(killed)
	var gaps []string
	for _, m := range New("", kept(t, killed)).Marks {
		if m.Kind == soak.SoakEvent {
			gaps = append(gaps, fmt.Sprintf("%s to %s", m.From.Sub(began), m.To.Sub(began)))
		}
	}
	if !slices.Equal(gaps, []string{"17m0s to 20m0s"}) {
		t.Errorf("it did not run from %q, want from minute 17 to the plan's end", gaps)
	}
}

// A fault that was done and could not be mended stays in effect, and the report has that: what comes after is no
// fault-free time.
func TestUnmended(t *testing.T) {
	d := run(1)
	for i := range d.Events {
		if e := &d.Events[i]; e.Kind == soak.FaultEvent && e.What == soak.End {
			e.What, e.Detail = soak.Unmended, "fault: no such replica"
		}
	}
	r := New("", d)
	if v := r.Verdict(); v.Planned || !slices.Contains(v.Sentences, "fault replica killed could not be mended.") || slices.Contains(v.Sentences, "fault replica killed could not be done.") {
		t.Errorf("the verdict is %q", v.Sentences)
	}
	for _, m := range r.Marks {
		if m.Kind == soak.FaultEvent && (!m.To.Equal(r.Last) || m.Detail != "not over at the last sample") {
			t.Errorf("the fault lasts to %s: %s", m.To, m.Detail)
		}
	}
	for i, c := range r.Classes[1].Changes {
		if c.When != "during fault replica killed" {
			t.Errorf("change %d is %q", i, c.When)
		}
	}
	if notes := strings.Join(r.Notes, "\n"); !strings.Contains(notes, "fault replica killed could not be mended at 2026-11-21 00:15:00: fault: no such replica") {
		t.Errorf("notes %q", notes)
	}
}

// A fault that could be neither done nor mended has an end, and the report has both.
func TestNotDoneNorMended(t *testing.T) {
	d := run(1)
	end := began.Add(15 * time.Minute)
	for i := range d.Events {
		if e := &d.Events[i]; e.Kind == soak.FaultEvent && e.What == soak.End {
			e.Detail = "it was not done (no such replica), and not mended (nothing to mend)"
		}
	}
	r := New("", d)
	for _, m := range r.Marks {
		if m.Kind == soak.FaultEvent && (!m.To.Equal(end) || !strings.Contains(m.Detail, "nothing to mend")) {
			t.Errorf("the fault lasts to %s: %s", m.To, m.Detail)
		}
	}
	if notes := strings.Join(r.Notes, "\n"); !strings.Contains(notes, "fault replica killed from 2026-11-21 00:10:00 on: it was not done (no such replica), and not mended") {
		t.Errorf("notes %q", notes)
	}
}

// A run slowed by 20 % differs from the first, and more than 5 % of it are beyond the first's
// p95; the same run again does not.
func TestCompare(t *testing.T) {
	first := New("", run(1))
	for _, c := range []struct {
		slower  float64
		differs bool
	}{{1, false}, {1.2, true}} {
		r := New("", run(c.slower))
		r.Compare("first", first)
		o := r.Classes[1].Other
		if o == nil || o.Differs != c.differs || (o.SlowerLow > 0.05) != c.differs {
			t.Errorf("slowed %v times: %+v", c.slower, o)
		}
	}
}

// A ratio that differs is not printed as 1.00.
func TestRatioThatDiffers(t *testing.T) {
	for _, c := range []struct {
		Comparison
		want string
	}{{Comparison{Ratio: 1.004, Differs: true}, "1.004"}, {Comparison{Ratio: 0.9996, Differs: true}, "0.9996"}, {Comparison{Ratio: 1.2, Differs: true}, "1.20"},
		{Comparison{Ratio: 1.004}, "1.00"}} {
		if got := c.RatioText(); got != c.want {
			t.Errorf("%+v is printed as %s, want %s", c.Comparison, got, c.want)
		}
		r := &Report{Compared: "first", Classes: []Class{{Other: &c.Comparison}}}
		var page, text strings.Builder
		if err := errors.Join(r.WriteHTML(&page), r.WriteMarkdown(&text)); err != nil || !strings.Contains(page.String(), "<td>"+c.want+"</td>") || !strings.Contains(text.String(), "| "+c.want+" |") {
			t.Errorf("%s is not on the pages: %v", c.want, err)
		}
	}
}

func TestMarkdownGolden(t *testing.T) {
	r := New("Soak test", run(1.2))
	r.Compare("last week", New("", run(1)))
	var text strings.Builder
	if err := r.WriteMarkdown(&text); err != nil {
		t.Fatal(err)
	}
	golden.Compare(t, "testdata/report.md", text.String())
}

var pageData = regexp.MustCompile(`(?s)const report = (\{.*?\});\nconst lines`)

// The page holds its data, refers to nothing outside itself, and lets no name break out.
func TestHTML(t *testing.T) {
	r := New("Soak <test>", run(1))
	times := []time.Time{began, began.Add(time.Minute)}
	r.Layers = []Series{{"block write", "local", times, []float64{0.001, 0.002}}, {"block write", "r3", times, []float64{0.003, 0.004}}, {"engine write", "r3", times, []float64{0.005, 0.006}}}
	var text strings.Builder
	if err := r.WriteHTML(&text); err != nil {
		t.Fatal(err)
	}
	page := text.String()
	m := pageData.FindStringSubmatch(page)
	if m == nil {
		t.Fatal("no data in the page")
	}
	var data struct {
		Plots []plot `json:"plots"`
		Marks []band `json:"marks"`
	}
	if err := json.Unmarshal([]byte(m[1]), &data); err != nil {
		t.Fatal(err)
	}
	if len(data.Plots) != 5 || len(data.Marks) != len(r.Marks) || len(data.Plots[0].Points) != 2 {
		t.Errorf("%d plots, %d marks, changes %v", len(data.Plots), len(data.Marks), data.Plots[0].Points)
	}
	for _, p := range data.Plots {
		for i, line := range p.Data {
			if len(line) != len(p.Data[0]) || len(line) == 0 {
				t.Errorf("%s: line %d has %d points of %d", p.Title, i, len(line), len(p.Data[0]))
			}
		}
	}
	if last := data.Plots[4]; last.Title != "Layers of latency r3" || len(last.Names) != 2 || *last.Data[2][1] != 6 {
		t.Errorf("a layer of 6 ms is plotted as %v in %s %v", *last.Data[2][1], last.Title, last.Names)
	}
	if strings.Contains(page, "<test>") || strings.Contains(page, "<replica>") || strings.Contains(page, "ZgotmplZ") {
		t.Error("text is not escaped")
	}
	if regexp.MustCompile(`(src|href)=|url\(|@import`).MatchString(page) {
		t.Error("the page refers to something outside itself")
	}
}

// Layers and alerts come from Prometheus; what it refuses is a note.
func TestPrometheus(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		at := began.Unix()
		switch query := q.FormValue("query"); {
		case query == "bad":
			fmt.Fprint(w, `{"status":"error","error":"parse error"}`)
		case query == "none":
			fmt.Fprint(w, `{"status":"success","data":{"result":[]}}`)
		case strings.HasPrefix(query, "ALERTS"):
			fmt.Fprintf(w, `{"status":"success","data":{"result":[{"metric":{"__name__":"ALERTS","alertname":"Slow","storageclass":"r3"},"values":[[%d,"1"],[%d,"1"],[%d,"1"]]}]}}`, at, at+60, at+200)
		case strings.Contains(query, "changes(process_start_time_seconds["):
			fmt.Fprintf(w, `{"status":"success","data":{"result":[{"metric":{"process":"plumbline-agent 127.0.0.1:1"},"values":[[%d,"2"]]}]}}`, at)
		default:
			fmt.Fprintf(w, `{"status":"success","data":{"result":[{"metric":{"storageclass":"r3","op":"write"},"values":[[%d,"0.25"],[%d,"NaN"]]}]}}`, at, at+5)
		}
	}))
	defer server.Close()
	r := New("", run(1))
	before := len(r.Marks)
	r.AddPrometheus(t.Context(), server.URL, []Layer{{"write", "good"}, {"oops", "bad"}, {"empty", "none"}})
	if len(r.Layers) != 1 || r.Layers[0].Name != "write op=write" || r.Layers[0].StorageClass != "r3" || len(r.Layers[0].Values) != 1 || r.Layers[0].Values[0] != 0.25 {
		t.Errorf("layers %+v", r.Layers)
	}
	var alerts []Mark
	for _, m := range r.Marks {
		if m.Kind == "alert" {
			alerts = append(alerts, m)
		}
	}
	if len(r.Marks)-before != 2 || len(alerts) != 2 || alerts[0].Name != "Slow r3" || alerts[0].To.Sub(alerts[0].From) != time.Minute {
		t.Errorf("alerts %+v, want one of a minute and one of a moment", alerts)
	}
	if notes := strings.Join(r.Notes, "; "); !strings.Contains(notes, "oops") || !strings.Contains(notes, "parse error") || !strings.Contains(notes, "empty: no data") ||
		!strings.Contains(notes, "started again while the soak ran: plumbline-agent 127.0.0.1:1, 2 times") {
		t.Errorf("notes %q", notes)
	}
	for _, bad := range []string{"", "x", "=q", "n="} {
		if _, err := ParseLayer(bad); err == nil {
			t.Errorf("%q is a layer", bad)
		}
	}
}

// Alerts of a soak of twenty days are seen by the minute: a short one is there, two of some minutes apart are two, and
// one over the border of two queries is one. The report has how far apart the values of layers are.
func TestAlertsOfALongSoak(t *testing.T) {
	const length = 20 * 24 * time.Hour
	border := queryPoints * alertStep
	windows := [][2]time.Duration{{time.Hour, time.Hour + 3*time.Minute}, {time.Hour + 8*time.Minute, time.Hour + 10*time.Minute}, {border - 10*time.Minute, border + 10*time.Minute}}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		whole := q.FormValue("query") == historyQuery
		if !whole && !strings.HasPrefix(q.FormValue("query"), "ALERTS") {
			fmt.Fprintf(w, `{"status":"success","data":{"result":[{"metric":{"storageclass":"r3"},"values":[[%d,"0.25"]]}]}}`, began.Unix())
			return
		}
		seconds := func(name string) int64 {
			n, err := strconv.ParseInt(q.FormValue(name), 10, 64)
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			return n
		}
		step, err := time.ParseDuration(q.FormValue("step"))
		if err != nil || step < time.Second || step > time.Minute {
			t.Errorf("alerts are queried every %q", q.FormValue("step"))
			step = time.Minute
		}
		start, end := seconds("start"), seconds("end")
		if points := (end-start)/int64(step.Seconds()) + 1; points > 11_000 {
			fmt.Fprint(w, `{"status":"error","error":"exceeded maximum resolution of 11,000 points per timeseries"}`)
			return
		}
		var values []string
		for at := start; at <= end; at += int64(step.Seconds()) {
			since := time.Duration(at-began.Unix()) * time.Second
			if whole || slices.ContainsFunc(windows, func(w [2]time.Duration) bool { return since >= w[0] && since < w[1] }) {
				values = append(values, fmt.Sprintf(`[%d,"1"]`, at))
			}
		}
		result := ""
		if len(values) > 0 { // Prometheus leaves out a series without a value
			result = fmt.Sprintf(`{"metric":{"alertname":"Slow","storageclass":"r3"},"values":[%s]}`, strings.Join(values, ","))
		}
		fmt.Fprintf(w, `{"status":"success","data":{"result":[%s]}}`, result)
	}))
	defer server.Close()
	r := New("", &soak.Data{Began: began, Plan: soak.Plan{Duration: length}, Samples: []soak.Sample{{Time: began.Add(length), StorageClass: "r3", Load: canary}}})
	r.AddPrometheus(t.Context(), server.URL, []Layer{{"write", "good"}})
	var found [][2]time.Duration
	for _, m := range r.Marks {
		if m.Kind == alertMark {
			found = append(found, [2]time.Duration{m.From.Sub(began), m.To.Sub(began) + alertStep})
		}
	}
	if !slices.Equal(found, windows) {
		t.Errorf("alerts %v, want %v", found, windows)
	}
	if notes := strings.Join(r.Notes, "; "); !strings.Contains(notes, "layers of latency: a value every 28m48s") || strings.Contains(notes, "alerts") {
		t.Errorf("notes %q", notes)
	}
}

// The layers that a report queries are such as the project's rules record or its exporters have.
func TestDefaultLayersAreKnown(t *testing.T) {
	known := map[string]bool{}
	all, err := rules.All()
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range all {
		known[r.Record] = true
	}
	metrics, err := os.ReadFile(filepath.Join(testkit.Root(), "METRICS.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile("(?m)^\\| `(\\w+)` \\|").FindAllStringSubmatch(string(metrics), -1) {
		known[m[1]] = true
	}
	for _, layer := range DefaultLayers {
		expr, err := parser.NewParser(parser.Options{}).ParseExpr(layer.Query)
		if err != nil {
			t.Errorf("%s: %v", layer.Name, err)
			continue
		}
		parser.Inspect(expr, func(n parser.Node, _ []parser.Node) error {
			if s, ok := n.(*parser.VectorSelector); ok && !known[s.Name] {
				t.Errorf("%s: nobody has %s", layer.Name, s.Name)
			}
			return nil
		})
	}
}

// An empty soak, just begun, has a report too.
func TestEmpty(t *testing.T) {
	r := New("Soak", &soak.Data{Began: began, Plan: soak.Plan{Duration: time.Hour}})
	var html, markdown strings.Builder
	if err := r.WriteHTML(&html); err != nil {
		t.Error(err)
	}
	if err := r.WriteMarkdown(&markdown); err != nil {
		t.Error(err)
	}
	if !strings.Contains(markdown.String(), "0 % of the plan") {
		t.Error(markdown.String())
	}
}

// What no fault and no phase explains is not planned.
func TestVerdictUnplanned(t *testing.T) {
	for name, c := range map[string]struct {
		change func(d *soak.Data)
		want   string
	}{
		"a change": {func(d *soak.Data) {
			d.Events = slices.DeleteFunc(d.Events, func(e soak.Event) bool { return e.Kind == soak.FaultEvent })
		}, "without a fault or a phase"},
		"an outage": {func(d *soak.Data) {
			s := &d.Samples[len(d.Samples)-1]
			s.Outages = []result.Outage{{Began: s.Time.Add(-3 * time.Second), Seconds: 3, Over: true}}
		}, "; one outage of 1 s or more without a fault"},
		"a level that stays": {func(d *soak.Data) {
			for i := range d.Samples {
				s := &d.Samples[i]
				if s.StorageClass == "r3" && s.Time.Sub(began) > 15*time.Minute {
					*s = again(*s, 2)
				}
			}
		}, "at the end it is 2.0 times what it was"},
		"a change of the control, too": {func(d *soak.Data) {
			for i := range d.Samples {
				if s := &d.Samples[i]; s.Time.Sub(began) > 17*time.Minute {
					*s = again(*s, 2)
				}
			}
		}, "the median response changed one time as the control's did at about that time"},
		"a generator without CPU": {func(d *soak.Data) { d.Samples[3].Saturated = true }, "the generator was saturated"},
		"failures": {func(d *soak.Data) {
			for i := range d.Samples {
				if s := &d.Samples[i]; s.StorageClass == "local" && s.Time.Sub(began) <= 3*time.Minute {
					s.Failed, s.Completed = 2, s.Completed-2
				}
			}
		}, "local: the median response stayed at 1.11 ms; 36 of 11400 transactions failed or were skipped (0.32 %), 36 of them without a fault or a phase, where 7 may (0.1 %)"},
		"what was skipped": {func(d *soak.Data) { d.Samples[0].Skipped = 20 }, "20 of 11400 transactions failed or were skipped (0.18 %), 20 of them"},
		"no transaction": {func(d *soak.Data) {
			for i := range d.Samples {
				d.Samples[i].Completed = 0
			}
		}, "transactions was completed"},
		"a class without a sample": {func(d *soak.Data) {
			d.Samples = slices.DeleteFunc(d.Samples, func(s soak.Sample) bool { return s.StorageClass == "r3" })
		}, "r3: it was never reached"},
		"a class that was down all the time": {func(d *soak.Data) {
			d.Samples = slices.DeleteFunc(d.Samples, func(s soak.Sample) bool { return s.StorageClass == "r3" })
			d.Samples = append(d.Samples, soak.Sample{Time: began.Add(20 * time.Minute), StorageClass: "r3", Load: "canary",
				Outages: []result.Outage{{Began: began, Seconds: 1200, Errors: map[string]uint64{"connection": 80}}}})
		}, "r3: it was never reached"},
	} {
		d := run(1)
		d.Events = slices.DeleteFunc(d.Events, func(e soak.Event) bool { return e.What == soak.Failed || e.Time.Equal(began.Add(6*time.Minute)) })
		if v := New("", d).Verdict(); !v.Planned {
			t.Fatalf("without anything else the verdict is %q, %q", v.Heading(), v.Sentences)
		}
		c.change(d)
		r := New("", d)
		if v := r.Verdict(); v.Planned || !strings.Contains(strings.Join(v.Sentences, "\n"), c.want) {
			t.Errorf("%s: the verdict is %q, %q, without %q", name, v.Heading(), v.Sentences, c.want)
		}
		if err := errors.Join(r.WriteHTML(io.Discard), r.WriteMarkdown(io.Discard)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	// A lost connection now and then is reported, and no more.
	d := run(1)
	d.Events = slices.DeleteFunc(d.Events, func(e soak.Event) bool { return e.What == soak.Failed || e.Time.Equal(began.Add(6*time.Minute)) })
	d.Samples[0].Failed, d.Samples[0].Completed = 3, 97
	if v := New("", d).Verdict(); !v.Planned || !strings.Contains(v.Sentences[0], "; 3 of 11400 transactions failed or were skipped (0.026 %).") {
		t.Errorf("with three failures the verdict is %q, %q", v.Heading(), v.Sentences)
	}
	if v := New("", &soak.Data{Began: began}).Verdict(); v.Planned || v.Heading() != "No canary has measured anything." {
		t.Errorf("of nothing the verdict is %+v", v)
	}
}

// The two levels of a change never read the same.
func TestLevels(t *testing.T) {
	for want, c := range map[string]Change{
		"from 3.68 ms to 5.48 ms":       {Before: 0.00368, After: 0.00548},
		"from 0.440 ms to 0.441 ms":     {Before: 0.00044, After: 0.000441},
		"from 12345.1 ms to 12345.0 ms": {Before: 12.3451, After: 12.345},
	} {
		if got := c.Levels(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// again is a sample of as many transactions, each taking a multiple of the median.
func again(s soak.Sample, factor float64) soak.Sample {
	median := s.Response.Quantile(0.5)
	n := s.Response.Count()
	s.Response = stats.Distribution{}
	for range n {
		s.Response.Observe(time.Duration(float64(median) * factor))
	}
	return s
}
