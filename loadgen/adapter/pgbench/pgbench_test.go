package pgbench

import (
	"bytes"
	"fmt"
	"log/slog"
	"math"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/plumbline/plumbline/loadgen/adapter"
	"github.com/plumbline/plumbline/loadgen/metrics"
)

const ms, us = time.Millisecond, time.Microsecond

// log-15-rate.txt was written by pgbench 15.18 with --rate and --latency-limit; log-15-tries.txt
// follows the manual of 15 to 18 for --max-tries and --failures-detailed.
func TestParseTransactionTranscripts(t *testing.T) {
	for file, want := range map[string][]Transaction{
		"log-15-rate.txt": {
			{Latency: 2347 * us, Lag: 220 * us},
			{Latency: 3907 * us, Lag: 99 * us},
			{Outcome: Skipped},
			{Latency: 646 * us},
		},
		"log-15-tries.txt": {
			{Latency: 47423 * us, Lag: 75 * us, Retries: 3},
			{Latency: 8333 * us},
			{Outcome: Skipped},
			{Outcome: Failed, Kind: metrics.Other, Retries: 9},
			{Outcome: Failed, Kind: metrics.Serialization, Retries: 9},
			{Outcome: Failed, Kind: metrics.Deadlock, Retries: 9},
			{Outcome: Failed, Kind: metrics.Other},
		},
	} {
		text, err := os.ReadFile("testdata/" + file)
		if err != nil {
			t.Fatal(err)
		}
		var got []Transaction
		adapter.Lines(bytes.NewReader(text), func(line string) {
			one, err := ParseTransaction(line, true)
			if err != nil {
				t.Errorf("%s: %q: %v", file, line, err)
			}
			got = append(got, one)
		})
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s:\n got %+v\nwant %+v", file, got, want)
		}
	}
}

func TestParseTransactionRefusesOthers(t *testing.T) {
	for name, line := range map[string]string{
		"empty":             "",
		"half a line":       "0 1 2347 0 17952",
		"no rate":           "0 1 2347 0 1795260570 583858",
		"aggregated":        "1795253912 5542 1.2 3 4 5 6 7 8 9 10 11 12 13 14",
		"unknown outcome":   "0 1 abandoned 0 1795260570 583858 1",
		"negative":          "0 1 -5 0 1795260570 583858 1",
		"lag over latency":  "0 1 100 0 1795260570 583858 101",
		"would overflow":    "0 1 9223372036854775807 0 1795260570 583858 1",
		"not a transaction": "x 1 100 0 1795260570 583858 1",
	} {
		if got, err := ParseTransaction(line, true); err == nil {
			t.Errorf("%s: %q was taken as %+v", name, line, got)
		}
	}
}

// Without --rate there is no lag.
func TestParseTransactionWithoutRate(t *testing.T) {
	got, err := ParseTransaction("0 199 2241 0 1175850568 995598", false)
	if err != nil || got != (Transaction{Latency: 2241 * us}) {
		t.Errorf("%+v, %v", got, err)
	}
	got, err = ParseTransaction("3 0 47423 0 1499414498 34501 3", false)
	if err != nil || got != (Transaction{Latency: 47423 * us, Retries: 3}) {
		t.Errorf("with retries: %+v, %v", got, err)
	}
	if _, err := ParseTransaction("0 199 2241 0 1175850568", false); err == nil {
		t.Error("half a line was taken")
	}
}

func FuzzParseTransaction(f *testing.F) {
	for _, file := range []string{"testdata/log-15-rate.txt", "testdata/log-15-tries.txt"} {
		text, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		for _, line := range bytes.Split(text, []byte("\n")) {
			f.Add(string(line))
		}
	}
	f.Fuzz(func(t *testing.T, line string) {
		one, err := ParseTransaction(line, true)
		if err != nil {
			return
		}
		if one.Latency < 0 || one.Lag < 0 || one.Lag > one.Latency {
			t.Errorf("%q: latency %v, lag %v", line, one.Latency, one.Lag)
		}
		if one.Outcome != Completed && one.Latency != 0 {
			t.Errorf("%q: latency %v of a transaction that did not complete", line, one.Latency)
		}
	})
}

func TestParseProgress(t *testing.T) {
	nan := math.NaN()
	for _, c := range []struct {
		line string
		want Progress
	}{
		{"progress: 5.0 s, 2513.8 tps, lat 3.181 ms stddev 1.003", Progress{TPS: 2513.8, Latency: 3.181, Stddev: 1.003}}, // 13
		{"progress: 1.0 s, 45.0 tps, lat 1.216 ms stddev 0.958, 0 failed, lag 0.138 ms, 7 skipped, 0 retried, 0 retries",
			Progress{TPS: 45, Latency: 1.216, Stddev: 0.958, Lag: 0.138, Skipped: 7}},
		{"progress: 2.0 s, 16.0 tps, lat 0.984 ms stddev 0.300, 3 failed, lag 0.150 ms",
			Progress{TPS: 16, Latency: 0.984, Stddev: 0.3, Failed: 3, Lag: 0.15}},
		{"progress: 3.0 s, 0.0 tps, lat NaN ms stddev -nan, 0 failed, lag -nan ms, 0 skipped", Progress{Latency: nan, Stddev: nan, Lag: nan}},
		{"progress: 3.0 s, 0.0 tps, lat 0.000 ms stddev 0.000, 0 failed", Progress{}},
	} {
		got, ok, err := ParseProgress(c.line)
		if !ok || err != nil || fmt.Sprint(got) != fmt.Sprint(c.want) {
			t.Errorf("%q:\n got %+v, %v, %v\nwant %+v", c.line, got, ok, err, c.want)
		}
	}
	if _, ok, err := ParseProgress("progress: 1.0 s, many tps"); !ok || err == nil {
		t.Error("a report of a new form must be an error")
	}
	if _, ok, _ := ParseProgress("starting vacuum...end."); ok {
		t.Error("not a report")
	}
}

func FuzzParseProgress(f *testing.F) {
	f.Add("progress: 1.0 s, 45.0 tps, lat 1.216 ms stddev 0.958, 0 failed, lag 0.138 ms, 7 skipped, 0 retried, 0 retries")
	f.Add("progress: 9.9.9 s, 4.5.0 tps, lat 1.216 ms stddev 0.958, 99999999999999999999 failed")
	f.Fuzz(func(t *testing.T, line string) {
		if p, ok, err := ParseProgress(line); ok && err == nil && (p.TPS < 0 || math.IsNaN(p.TPS)) {
			t.Errorf("%q: %v transactions per second", line, p.TPS)
		}
	})
}

func TestSummary(t *testing.T) {
	text, err := os.ReadFile("testdata/summary-15.txt")
	if err != nil {
		t.Fatal(err)
	}
	var got Summary
	adapter.Lines(bytes.NewReader(text), got.Line)
	want := Summary{Seen: true, Processed: 8672, Failed: 4, Skipped: 237, LatencyMean: 0.798, LatencyStddev: 0.417,
		LagMean: 0.161, LagMax: 2.424, TPS: 2890.431578}
	if got != want {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
}

func TestParseInit(t *testing.T) {
	got := ParseInit("done in 0.28 s (drop tables 0.00 s, create tables 0.01 s, client-side generate 0.12 s, vacuum 0.06 s, primary keys 0.09 s).")
	want := []InitPhase{{"drop tables", 0}, {"create tables", 0.01}, {"client-side generate", 0.12}, {"vacuum", 0.06}, {"primary keys", 0.09}}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%v, want %v", got, want)
	}
	if got := ParseInit("done"); got != nil {
		t.Errorf("%v from a line without phases", got)
	}
}

// A secret that libpq reads from the connection string alone is refused, and stands in no error.
func TestSecretIsRefused(t *testing.T) {
	if _, err := New(Config{DSN: "host=db sslpassword=hush"}, nil, slog.New(slog.DiscardHandler), nil); err == nil ||
		!strings.Contains(err.Error(), "sslpassword") || strings.Contains(err.Error(), "hush") {
		t.Errorf("a key's passphrase: %v", err)
	}
}
