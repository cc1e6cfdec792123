package try_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/plumbline/plumbline/manifests/kubectl-plumbline/try"
)

// page is what an exporter reports after some seconds. One gauge is there for the first five.
func page(seconds int) string {
	text := fmt.Sprintf(`# TYPE plumbline_a_total counter
plumbline_a_total{server="it's \"é\\\n"} %d
# TYPE plumbline_odd counter
plumbline_odd 1
# TYPE ebpf_exporter_b_seconds histogram
ebpf_exporter_b_seconds_bucket{device="sda",le="0.001"} %d
ebpf_exporter_b_seconds_bucket{device="sda",le="0.01"} %[2]d
ebpf_exporter_b_seconds_bucket{device="sda",le="0.1"} %d
ebpf_exporter_b_seconds_bucket{device="sda",le="+Inf"} %d
ebpf_exporter_b_seconds_sum{device="sda"} %g
ebpf_exporter_b_seconds_count{device="sda"} %[4]d
# TYPE go_goroutines gauge
go_goroutines 7
`, 3*seconds, 2*seconds, 5*seconds, 6*seconds, 0.3*float64(seconds))
	if seconds < 5 {
		text += "# TYPE plumbline_g gauge\nplumbline_g 1\n"
	}
	return text
}

// noNote fails if anything is left out: no rule fails.
func noNote(t *testing.T) func(error) {
	return func(err error) { t.Errorf("left out: %v", err) }
}

// measured is a Measurement of twelve seconds, in one of which the exporter did not answer.
func measured(t *testing.T) *try.Measurement {
	t.Helper()
	m, err := try.New(noNote(t))
	if err != nil {
		t.Fatal(err)
	}
	evaluations := 0
	begin := time.UnixMilli(1_790_000_000_123)
	for i := range 13 {
		p := try.Page{Text: []byte(page(i)), Target: map[string]string{"job": "tried", "node": "here"}}
		if i == 8 {
			p.Err = errors.New("no answer")
		}
		// Not quite each second, as on a busy machine.
		evaluated, err := m.Add(t.Context(), begin.Add(time.Duration(i)*1003*time.Millisecond), p)
		if (err != nil) != (i == 8) {
			t.Fatal(err)
		}
		if evaluated {
			evaluations++
		}
	}
	m.Evaluate(t.Context())
	if evaluations != 2 || m.Window() != 12*time.Second {
		t.Errorf("%d evaluations in %v, want 2 in 12 s", evaluations, m.Window())
	}
	return m
}

// queries and what they answer of measured. What has ended has no value.
var queries = map[string]string{
	`round(increase(plumbline_a_total{server="it's \"é\\\n"}[12s]))`: `{job="tried", node="here", server="it's \"é\\\n"} => 36`,
	`plumbline_odd`: `plumbline_odd{job="tried", node="here"} => 1`,
	`round(histogram_count(increase(ebpf_exporter_b_seconds[12s])))`:                   `{device="sda", job="tried", node="here"} => 72`,
	`histogram_avg(increase(ebpf_exporter_b_seconds[12s]))`:                            `{device="sda", job="tried", node="here"} => 0.05`,
	`histogram_quantile(0.5, rate(ebpf_exporter_b_seconds{device="sda"}[12s])) < 0.11`: `{device="sda", job="tried", node="here"} => 0.04`,
	`plumbline_g`:             ``,
	`go_goroutines`:           ``,
	`up`:                      `up{job="tried", node="here"} => 1`,
	`min_over_time(up[12s])`:  `{job="tried", node="here"} => 0`,
	`count_over_time(up[1m])`: `{job="tried", node="here"} => 13`,
	// A rule's.
	`threshold:main_part:ratio`: `threshold:main_part:ratio => 0.4`,
}

// What is measured and what its record has answer the same, to the last digit.
func TestReplay(t *testing.T) {
	m := measured(t)
	var record bytes.Buffer
	if err := m.Record(&record); err != nil {
		t.Fatal(err)
	}
	replayed, err := try.Replay(t.Context(), "record", bytes.NewReader(record.Bytes()), noNote(t))
	if err != nil {
		t.Fatal(err)
	}
	if !replayed.First.Equal(m.First) || !replayed.Last.Equal(m.Last) {
		t.Errorf("from %v to %v, want %v to %v", replayed.First, replayed.Last, m.First, m.Last)
	}
	for query, want := range queries {
		got, _, err := m.Query(t.Context(), query, m.Last)
		if err != nil {
			t.Fatal(err)
		}
		again, _, err := replayed.Query(t.Context(), query, m.Last)
		if err != nil {
			t.Fatal(err)
		}
		if got.String() != again.String() {
			t.Errorf("%s: %v, of the record %v", query, got, again)
		}
		if text, _, _ := strings.Cut(got.String(), " @"); text != want {
			t.Errorf("%s: %s, want %s", query, text, want)
		}
	}
}

// An answer of a part of a record would be of another moment.
func TestReplayInterrupted(t *testing.T) {
	m := measured(t)
	var record bytes.Buffer
	if err := m.Record(&record); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := try.Replay(ctx, "record", &record, noNote(t)); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

// A record that is damaged is refused by file and line, and nothing else of it is used.
func TestDamaged(t *testing.T) {
	whole := func(lines string) string { return "# TYPE plumbline_a gauge\n" + lines + "# EOF\n" }
	for name, c := range map[string]struct {
		text, want string
	}{
		"empty":         {"", "record:1: "},
		"cut short":     {"# TYPE plumbline_a gauge\nplumbline_a 1 2\nplumbline_a 1", "record:3: "},
		"no end":        {"plumbline_a 1 2\n", "record:2: no record of kubectl plumbline try: it ends without # EOF"},
		"after the end": {whole("plumbline_a 1 2\n") + "plumbline_a 1 3\n", "record:4: "},
		"no sample":     {whole(""), "it has no sample"},
		"no timestamp":  {whole("plumbline_a 1 2\nplumbline_a 1\n"), "record:3: no record of kubectl plumbline try: plumbline_a has no timestamp"},
		"no number":     {whole("plumbline_a one 2\n"), "record:2: "},
		"quote":         {whole("plumbline_a{b=\"c} 1 2\n"), "record:2: "},
		"not UTF-8":     {whole("plumbline_a{b=\"\xff\"} 1 2\n"), "record:2: "},
		"twice":         {whole("plumbline_a 1 2\nplumbline_a 1 2\n"), `at 2.000: a record: series {__name__="plumbline_a"} is there twice`},
		"long line":     {whole("plumbline_a{b=\"" + strings.Repeat("c", 1<<20) + "\"} 1 2\n"), "record:2: "},
		"too long":      {whole("plumbline_a 1 2\nplumbline_a 1 700\n"), "record: no record of kubectl plumbline try: its timestamps span 11m38s, more than 10m0s"},
		"binary":        {"\x00\x01\x02\n", "record:1: "},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := try.Replay(t.Context(), "record", strings.NewReader(c.text), noNote(t)); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}
