package exporterkit

import (
	"bytes"
	"fmt"
	"log/slog"
	"math"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/plumbline/plumbline/tests/testkit"
	"github.com/plumbline/plumbline/tests/testkit/exposition"
)

// longTimeout is longer than any test: what waits for it fails by the tests' own deadline.
const longTimeout = time.Hour

// updateFunc is a collector.
type updateFunc func(chan<- prometheus.Metric) error

func (f updateFunc) Update(ch chan<- prometheus.Metric) error { return f(ch) }

func sendOne(ch chan<- prometheus.Metric, from string) {
	ch <- prometheus.MustNewConstMetric(fakeDesc, prometheus.GaugeValue, 1, from)
}

func registryOf(set *Set) *prometheus.Registry {
	r := prometheus.NewRegistry()
	r.MustRegister(set)
	return r
}

// has fails unless each line is in the text.
func has(t *testing.T, text string, lines ...string) {
	t.Helper()
	if line := lacking(text, lines...); line != "" {
		t.Errorf("no line %q in\n%s", line, text)
	}
}

// lacking is the first line that is not in the text.
func lacking(text string, lines ...string) string {
	for _, line := range lines {
		if !strings.Contains("\n"+text, "\n"+line+"\n") {
			return line
		}
	}
	return ""
}

func state(metric, collector string, value int) string {
	return fmt.Sprintf("plumbline_scrape_collector_%s{collector=%q} %d", metric, collector, value)
}

// A panic costs its collector the scrape, and affects no other; the log has the stack once.
func TestPanicIsRecovered(t *testing.T) {
	var log bytes.Buffer
	set := NewSet(slog.New(slog.NewTextHandler(&log, nil)))
	set.Add("good", fake{value: 3})
	set.Add("broken", updateFunc(func(ch chan<- prometheus.Metric) error {
		sendOne(ch, "before")
		var none map[string]int
		//lint:ignore SA5000 the panic is wanted
		none["x"] = 1
		return nil
	}))
	set.Add("badlabel", updateFunc(func(ch chan<- prometheus.Metric) error { sendOne(ch, "\xff"); return nil }))
	set.Add("gone", updateFunc(func(chan<- prometheus.Metric) error { runtime.Goexit(); return nil }))
	set.Add("rude", updateFunc(func(chan<- prometheus.Metric) error { panic(rude{}) }))
	registry := registryOf(set)
	for scrape := 1; scrape <= 3; scrape++ {
		has(t, exposition.Text(t, registry), `fake_value{from="fake"} 3`, `fake_value{from="before"} 1`, state("success", "good", 1),
			state("success", "broken", 0), state("panics_total", "broken", scrape), state("panics_total", "badlabel", scrape),
			state("success", "gone", 0), state("panics_total", "gone", 0), state("panics_total", "rude", scrape), state("panics_total", "good", 0))
	}
	if n := strings.Count(log.String(), "assignment to entry in nil map"); n != 1 {
		t.Errorf("the panic is in the log %d times, want once:\n%s", n, &log)
	}
	if !strings.Contains(log.String(), "update_test.go") {
		t.Errorf("the log lacks the place:\n%s", &log)
	}
}

// A collector that panics in its background goroutine reports that until the next answer: it counts as one panic.
func TestPanicOfABackgroundIsCountedOnce(t *testing.T) {
	set := NewSet(slog.New(slog.DiscardHandler))
	poll := func() error { return Recovered(func() error { panic("bad answer") }) }
	latest := poll()
	set.Add("polls", updateFunc(func(chan<- prometheus.Metric) error { return fmt.Errorf("latest answer: %w", latest) }))
	registry := registryOf(set)
	for _, want := range []int{1, 2} {
		for range 3 {
			has(t, exposition.Text(t, registry), state("panics_total", "polls", want))
		}
		latest = poll()
	}
}

// A lasting error is logged when it begins, when its text changes and when it is over; at debug level each time.
func TestStandingErrorIsLoggedOnce(t *testing.T) {
	var log bytes.Buffer
	var err error
	set := NewSet(slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})))
	set.Add("first", updateFunc(func(chan<- prometheus.Metric) error { return err }))
	set.Add("other", updateFunc(func(chan<- prometheus.Metric) error { return fmt.Errorf("server away") }))
	registry := registryOf(set)
	for _, step := range []struct {
		err                      error
		scrapes                  int
		failed, as, over, noData int
	}{
		{err: nil, scrapes: 2},
		{err: fmt.Errorf("server away"), scrapes: 3, failed: 1, as: 2},
		{err: fmt.Errorf("forbidden"), scrapes: 3, failed: 1, as: 2},
		{err: nil, scrapes: 2, over: 1},
		{err: fmt.Errorf("forbidden"), scrapes: 2, failed: 1, as: 1},
		{err: fmt.Errorf("%w: none", ErrNoData), scrapes: 2, over: 1, noData: 2},
		{err: fmt.Errorf("%s", strings.Repeat("x", 2*maxStanding)), scrapes: 2, failed: 1, as: 1},
	} {
		err = step.err
		log.Reset()
		for range step.scrapes {
			exposition.Text(t, registry)
		}
		for line, want := range map[string]int{
			`level=ERROR msg="collector failed" collector=first`:           step.failed,
			`level=DEBUG msg="collector failed as before" collector=first`: step.as,
			`level=INFO msg="collector no longer fails" collector=first`:   step.over,
			`level=DEBUG msg="collector has no data" collector=first`:      step.noData,
		} {
			if n := strings.Count(log.String(), line); n != want {
				t.Errorf("%.100v: %d lines %s, want %d:\n%.2000s", step.err, n, line, want, &log)
			}
		}
		if n := len(set.members["first"].standing); n > maxStanding {
			t.Errorf("%d bytes of an error are kept, want at most %d", n, maxStanding)
		}
	}
}

// rude is a value that panics again when it is printed.
type rude struct{}

func (rude) String() string { panic("again") }

// However many different panics there are, the log is bounded.
func TestPanicsInLogAreBounded(t *testing.T) {
	var log bytes.Buffer
	once := newLogOnce(slog.New(slog.NewTextHandler(&log, nil)))
	for i := range 10 * maxOnce {
		once.dropped("c", fmt.Sprint(i), fmt.Errorf("reason"))
	}
	if n := strings.Count(log.String(), "\n"); n != maxOnce {
		t.Errorf("%d lines, want %d", n, maxOnce)
	}
	if e := newPanicError(strings.Repeat("x", 1<<20), bytes.Repeat([]byte("y"), 1<<20)); len(e.text)+len(e.stack) > maxPanicText+maxStack {
		t.Errorf("%d bytes of a panic", len(e.text)+len(e.stack))
	}
}

// hanging sends one series, and the other one only after it was let go.
type hanging struct {
	gate    chan struct{}
	calls   atomic.Int32
	entered chan struct{}
}

func (h *hanging) Update(ch chan<- prometheus.Metric) error {
	h.calls.Add(1)
	sendOne(ch, "early")
	select {
	case h.entered <- struct{}{}:
	default:
	}
	<-h.gate
	for i := range 1000 {
		sendOne(ch, fmt.Sprintf("late-%d", i))
	}
	return nil
}

// A collector that hangs delays one scrape. The next ones answer without it at once and never call it twice. When it
// returns, its late series are dropped and nothing of it stays behind.
func TestHangingCollector(t *testing.T) {
	before := runtime.NumGoroutine()
	timeout := 100 * time.Millisecond
	var h *hanging
	var set *Set
	var registry *prometheus.Registry
	var text string
	testkit.Eventually(t, testkit.DefaultTimeout, func() error {
		h = &hanging{gate: make(chan struct{})}
		set = NewSetWithTimeout(slog.New(slog.DiscardHandler), timeout)
		timeout *= 2 // on a busy machine the other collector is late, too
		set.Add("hangs", h)
		set.Add("good", fake{value: 3})
		registry = registryOf(set)
		text = exposition.Text(t, registry)
		line := lacking(text, `fake_value{from="early"} 1`, `fake_value{from="fake"} 3`, state("success", "hangs", 0), state("timeouts_total", "hangs", 1),
			state("success", "good", 1), state("timeouts_total", "good", 0))
		if line != "" {
			close(h.gate)
			return fmt.Errorf("no line %q in\n%s", line, text)
		}
		return nil
	})
	if strings.Contains(text, "late-") {
		t.Errorf("what was not sent yet is there:\n%s", text)
	}
	set.timeout = longTimeout
	for scrape := 2; scrape <= 5; scrape++ {
		text = exposition.Text(t, registry)
		has(t, text, `fake_value{from="fake"} 3`, state("success", "hangs", 0), state("timeouts_total", "hangs", scrape))
		if strings.Contains(text, "early") {
			t.Errorf("scrape %d has series of an earlier one:\n%s", scrape, text)
		}
	}
	if n := h.calls.Load(); n != 1 {
		t.Errorf("updated %d times while it hung", n)
	}
	close(h.gate)
	testkit.Eventually(t, testkit.DefaultTimeout, func() error {
		if text := exposition.Text(t, registry); !strings.Contains(text, state("success", "hangs", 1)+"\n") || !strings.Contains(text, `"late-999"`) {
			return fmt.Errorf("it is not updated again:\n%.2000s", text)
		}
		return nil
	})
	if n := h.calls.Load(); n != 2 {
		t.Errorf("updated %d times, want once more after it came back", n)
	}
	testkit.Eventually(t, testkit.DefaultTimeout, func() error {
		if now := runtime.NumGoroutine(); now > before {
			return fmt.Errorf("%d goroutines, %d before", now, before)
		}
		return nil
	})
}

// A panic of an Update that was given up is still counted.
func TestLatePanicIsCounted(t *testing.T) {
	gate := make(chan struct{})
	set := NewSetWithTimeout(slog.New(slog.DiscardHandler), 10*time.Millisecond)
	set.Add("hangs", updateFunc(func(chan<- prometheus.Metric) error { <-gate; panic("late") }))
	registry := registryOf(set)
	has(t, exposition.Text(t, registry), state("panics_total", "hangs", 0), state("timeouts_total", "hangs", 1))
	close(gate)
	testkit.Eventually(t, testkit.DefaultTimeout, func() error {
		if text := exposition.Text(t, registry); strings.Contains(text, state("panics_total", "hangs", 0)+"\n") {
			return fmt.Errorf("not counted:\n%s", text)
		}
		return nil
	})
}

// Scrapes at the same time share one Update.
func TestScrapesShareAnUpdate(t *testing.T) {
	h := &hanging{gate: make(chan struct{})}
	set := NewSetWithTimeout(slog.New(slog.DiscardHandler), longTimeout)
	set.Add("slow", h)
	first, second := set.members["slow"].request(), set.members["slow"].request()
	if first.run != second.run || !first.joined || !second.joined {
		t.Fatal("the second scrape has an Update of its own, or none")
	}
	close(h.gate)
	<-first.settled
	if n := len(first.answer.series); n != 1001 || first.answer.late {
		t.Errorf("%d series, late %t", n, first.answer.late)
	}
	if third := set.members["slow"].request(); third.run == first.run {
		t.Error("a later scrape gets the answer of an earlier one")
	}
}

// Many scrapes at once, with collectors that come, go and are replaced, under the race detector.
func TestScrapesAtOnce(t *testing.T) {
	var running, calls atomic.Int32
	set := NewSet(slog.New(slog.DiscardHandler))
	set.Add("one", updateFunc(func(ch chan<- prometheus.Metric) error {
		if running.Add(1) > 1 {
			t.Error("two Updates of a collector at once")
		}
		defer running.Add(-1)
		calls.Add(1)
		for i := range 100 {
			sendOne(ch, fmt.Sprint(i))
		}
		return nil
	}))
	registry := registryOf(set)
	var scrapes sync.WaitGroup
	for range 8 {
		scrapes.Go(func() {
			for range 25 {
				families, err := registry.Gather()
				if err != nil {
					t.Error(err)
				}
				if n := len(families[0].Metric); families[0].GetName() != "fake_value" || n < 100 {
					t.Errorf("%d series of %s", n, families[0].GetName())
				}
			}
		})
	}
	scrapes.Go(func() {
		for i := range 25 {
			set.Add("other", fake{value: float64(i)})
		}
	})
	scrapes.Wait()
	if calls.Load() == 0 {
		t.Error("never updated")
	}
}

// metric is a prometheus.Metric as a careless collector might make one.
type metric struct {
	desc  *prometheus.Desc
	write func(*dto.Metric) error
}

func (m metric) Desc() *prometheus.Desc      { return m.desc }
func (m metric) Write(out *dto.Metric) error { return m.write(out) }

func labelled(pairs ...string) func(*dto.Metric) error {
	return func(out *dto.Metric) error {
		for i := 0; i < len(pairs); i += 2 {
			out.Label = append(out.Label, &dto.LabelPair{Name: &pairs[i], Value: &pairs[i+1]})
		}
		value := 1.0
		out.Gauge = &dto.Gauge{Value: &value}
		return nil
	}
}

// A series that cannot be exposed is left out and counted; the scrape has no error, and neither the
// collector's other series nor those of others suffer.
func TestBadSeries(t *testing.T) {
	good := prometheus.MustNewConstMetric(fakeDesc, prometheus.GaugeValue, 7, "here")
	for name, bad := range map[string]prometheus.Metric{
		"invalid":         prometheus.NewInvalidMetric(fakeDesc, fmt.Errorf("no")),
		"invalid desc":    prometheus.NewInvalidMetric(prometheus.NewInvalidDesc(fmt.Errorf("no")), fmt.Errorf("no")),
		"nil":             nil,
		"nil pointer":     (*series)(nil),
		"no desc":         metric{nil, labelled("from", "x")},
		"no UTF-8":        metric{fakeDesc, labelled("from", "\xff")},
		"no label name":   metric{fakeDesc, labelled("", "x")},
		"label twice":     metric{fakeDesc, labelled("from", "x", "from", "y")},
		"no value":        metric{fakeDesc, func(*dto.Metric) error { return nil }},
		"panics":          metric{fakeDesc, func(*dto.Metric) error { panic("no") }},
		"same again":      prometheus.MustNewConstMetric(fakeDesc, prometheus.GaugeValue, 8, "here"),
		"another's":       prometheus.MustNewConstMetric(fakeDesc, prometheus.GaugeValue, 9, "fake"),
		"another type":    prometheus.MustNewConstMetric(fakeDesc, prometheus.CounterValue, 9, "counter"),
		"another help":    prometheus.MustNewConstMetric(prometheus.NewDesc("fake_value", "Other.", []string{"from"}, nil), prometheus.GaugeValue, 9, "help"),
		"a second labels": metric{fakeDesc, labelled("from", "here")},
	} {
		t.Run(name, func(t *testing.T) {
			set := NewSet(slog.New(slog.DiscardHandler))
			set.Add("a", fake{value: 3})
			set.Add("b", updateFunc(func(ch chan<- prometheus.Metric) error { ch <- good; ch <- bad; sendOne(ch, "after"); return nil }))
			set.Add("c", updateFunc(func(ch chan<- prometheus.Metric) error { sendOne(ch, "c"); return nil }))
			registry := registryOf(set)
			for scrape := 1; scrape <= 2; scrape++ {
				has(t, exposition.Text(t, registry), `fake_value{from="fake"} 3`, `fake_value{from="here"} 7`, `fake_value{from="after"} 1`, `fake_value{from="c"} 1`,
					state("dropped_series_total", "a", 0), state("dropped_series_total", "b", scrape), state("dropped_series_total", "c", 0), state("success", "b", 1))
			}
		})
	}
}

// Values that are no numbers, and histograms, pass as they are.
func TestSeriesPassUnchanged(t *testing.T) {
	set := NewSet(slog.New(slog.DiscardHandler))
	set.Add("a", updateFunc(func(ch chan<- prometheus.Metric) error {
		ch <- prometheus.MustNewConstMetric(prometheus.NewDesc("nan", "N.", nil, nil), prometheus.GaugeValue, math.NaN())
		ch <- prometheus.MustNewConstHistogram(prometheus.NewDesc("h", "H.", nil, prometheus.Labels{"const": "x"}), 3, 4.5, map[float64]uint64{1: 2})
		ch <- prometheus.MustNewConstSummary(prometheus.NewDesc("s", "S.", nil, nil), 3, 4.5, map[float64]float64{0.5: 2})
		ch <- prometheus.NewMetricWithTimestamp(time.Unix(5, 0), prometheus.MustNewConstMetric(prometheus.NewDesc("old", "O.", nil, nil), prometheus.UntypedValue, 1))
		return nil
	}))
	has(t, exposition.Text(t, registryOf(set)), "nan NaN", `h_bucket{const="x",le="1"} 2`, `h_count{const="x"} 3`, `s{quantile="0.5"} 2`, "old 1 5000", state("dropped_series_total", "a", 0))
}

// A collector that never stops sending fills no memory without bound.
func TestSeriesAreBounded(t *testing.T) {
	set := NewSet(slog.New(slog.DiscardHandler))
	set.limit = 10
	set.Add("many", updateFunc(func(ch chan<- prometheus.Metric) error {
		for i := range 25 {
			sendOne(ch, fmt.Sprint(i))
		}
		return nil
	}))
	text := exposition.Text(t, registryOf(set))
	has(t, text, state("dropped_series_total", "many", 15))
	if n := strings.Count(text, "\nfake_value{"); n != 10 {
		t.Errorf("%d series", n)
	}
}
