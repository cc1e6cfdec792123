package export

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/plumbline/plumbline/loadgen/baseline"
	"github.com/plumbline/plumbline/loadgen/internal/golden"
	"github.com/plumbline/plumbline/loadgen/matrix"
	"github.com/plumbline/plumbline/loadgen/result"
)

var began = time.Date(2026, 11, 1, 3, 0, 0, 0, time.UTC)

func save(t *testing.T, folder, name string, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(folder, name)
	if err := os.WriteFile(path, text, 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// night is a night's matrix: a step on two classes, of which r3 takes a tenth longer from night 20 on.
func night(random *rand.Rand, n int) *matrix.Report {
	r := &matrix.Report{Matrix: "wal", Scale: 1, Repeat: 4, Began: began.AddDate(0, 0, n)}
	for round := 1; round <= 4; round++ {
		for _, class := range []string{"local", "longhorn r3"} {
			seconds := map[string]float64{"local": 0.001, "longhorn r3": 0.004}[class]
			if class != "local" && n >= 20 {
				seconds *= 1.1
			}
			r.Rows = append(r.Rows, matrix.Row{Step: "fio wal 8k", StorageClass: class, Round: round,
				Result: &result.Result{Rate: 1 / seconds * math.Exp(0.02*random.NormFloat64())}})
		}
	}
	return r
}

func record(at time.Time, seconds float64, intervals int) *baseline.Record {
	c := baseline.RecordClass{StorageClass: "r3", Database: "db/shop", Result: result.Result{Profile: "tpcb-like", TargetRate: 10}}
	for range intervals {
		c.Intervals = append(c.Intervals, baseline.Piece{Count: 100, P50: seconds, P95: 2 * seconds})
	}
	return &baseline.Record{Kind: baseline.RecordKind, Measured: at, Interval: 10, Classes: []baseline.RecordClass{c}}
}

func content(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// What is written is what Otava reads according to its documentation; results need not come in order, and one
// in which a class failed has no row for it.
func TestOtava(t *testing.T) {
	in, out := t.TempDir(), filepath.Join(t.TempDir(), "otava")
	second := record(began.AddDate(0, 0, 1), 0.0022, 6)
	failed := record(began.AddDate(0, 0, 2), 0, 6)
	if err := Otava(out, []string{save(t, in, "b.json", second), save(t, in, "c.json", failed), save(t, in, "a, first.json", record(began, 0.002, 5))}); err != nil {
		t.Fatal(err)
	}
	absolute := filepath.Join(out, "baseline.r3-db-shop.csv")
	golden.Compare(t, "testdata/otava.yaml", strings.ReplaceAll(content(t, filepath.Join(out, "otava.yaml")), absolute, "/FOLDER/baseline.r3-db-shop.csv"))
	golden.Compare(t, "testdata/baseline.r3-db-shop.csv", content(t, absolute))
}

// A month of nights: a file for each step on a class, a row a night, its level what compare judges by.
func TestOtavaMatrices(t *testing.T) {
	random := rand.New(rand.NewPCG(4, 4))
	in := t.TempDir()
	out := os.Getenv("OTAVA_FOLDER") // for a look at it with Otava itself
	if out == "" {
		out = t.TempDir()
	}
	var results []string
	for n := range 40 {
		results = append(results, save(t, in, fmt.Sprintf("wal-%02d.json", n), night(random, n)))
	}
	if err := Otava(out, results); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(content(t, filepath.Join(out, "matrix.fio-wal-8k-on-longhorn-r3.csv"))), "\n")
	if len(lines) != 41 || lines[0] != "time,run,values,time-of-an-operation_seconds" {
		t.Fatalf("%d lines, the first %q", len(lines), lines[0])
	}
	level := func(line string) (v float64) {
		fields := strings.Split(line, ",")
		if len(fields) != 4 || fields[2] != "4" {
			t.Fatalf("line %q", line)
		}
		if _, err := fmt.Sscan(fields[3], &v); err != nil {
			t.Fatal(err)
		}
		return v
	}
	if before, after := level(lines[1]), level(lines[40]); math.Abs(before/0.004-1) > 0.05 || math.Abs(after/0.0044-1) > 0.05 {
		t.Errorf("levels %v and %v, want 4 ms and 4.4 ms", before, after)
	}
	if !strings.HasPrefix(lines[40], "2026-12-10 03:00:00 +0000,wal-39.json,") {
		t.Errorf("last line %q", lines[40])
	}
}

// A result that cannot be taken is named, and keeps none of the others from being written.
func TestOtavaTakesTheGoodOnes(t *testing.T) {
	in, out := t.TempDir(), t.TempDir()
	bad := filepath.Join(in, "bad.json")
	if err := os.WriteFile(bad, []byte("{\n  \"kind\": \"baseline\",\n  \"classes\": 3\n}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	text := filepath.Join(in, "notes.txt")
	if err := os.WriteFile(text, []byte("notes\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	good := []string{save(t, in, "1.json", record(began, 0.002, 5)), save(t, in, "2.json", record(began.AddDate(0, 0, 1), 0.002, 5))}
	err := Otava(out, []string{bad, good[0], filepath.Join(in, "none.json"), good[1], text})
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{bad + ": line 3, column 14: classes is a JSON number; want an array", "none.json", text + ": line 1, column 2: invalid character 'o' in literal null"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("no %q in %v", want, err)
		}
	}
	files, _ := filepath.Glob(filepath.Join(out, "*.csv"))
	if len(files) != 1 {
		t.Fatalf("files %v", files)
	}
	if table, err := os.ReadFile(files[0]); err != nil || strings.Count(string(table), "\n") != 3 {
		t.Errorf("%v\n%s", err, table)
	}
	if _, err := os.Stat(filepath.Join(out, "otava.yaml")); err != nil {
		t.Error(err)
	}
}

func TestOtavaRefuses(t *testing.T) {
	in := t.TempDir()
	first := save(t, in, "first.json", record(began, 0.002, 5))
	faster := record(began.AddDate(0, 0, 1), 0.002, 5)
	faster.Classes[0].Result.TargetRate = 20
	twins := record(began, 0.002, 5)
	twins.Classes = append(twins.Classes, twins.Classes[0])
	twins.Classes[1].Database = "db shop"
	for want, results := range map[string][]string{
		"no results":                     nil,
		"is it one result twice":         {first, first},
		"not of the same thing":          {first, save(t, in, "faster.json", faster)},
		"would both be called":           {save(t, in, "twins.json", twins)},
		"the time of the measurement":    {save(t, in, "timeless.json", record(time.Time{}, 0.002, 5))},
		"no such file":                   {filepath.Join(in, "none.json")},
		"not a matrix's result (loadgen": {save(t, in, "other.json", map[string]int{"a": 1})},
	} {
		if err := Otava(t.TempDir(), results); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q: %v", want, err)
		}
	}
}
