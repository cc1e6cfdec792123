package baseline

import (
	"context"
	"log/slog"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/plumbline/plumbline/loadgen/driver"
	"github.com/plumbline/plumbline/loadgen/internal/golden"
	"github.com/plumbline/plumbline/loadgen/internal/testdb"
	"github.com/plumbline/plumbline/loadgen/matrix"
	"github.com/plumbline/plumbline/loadgen/metrics"
	"github.com/plumbline/plumbline/loadgen/result"
	"github.com/plumbline/plumbline/tests/testkit"
)

func config(rate float64) Config {
	return Config{Least: time.Second, Most: 20 * time.Second, Precision: 0.3, Driver: driver.Config{Profile: "simple-ping", Scale: 1, Rate: rate,
		Arrivals: driver.Poisson, Connections: 2, Timeout: 10 * time.Second, Queue: 10000, Warmup: 200 * time.Millisecond}}
}

// A run on two classes ends as soon as both are precise, and the rules it writes are good ones.
func TestMeasureAndWrite(t *testing.T) {
	t.Parallel()
	db := testdb.StartPostgres(t)
	targets := []matrix.Target{{StorageClass: "local", Engine: "postgres", DSN: db.DSN(), Replicas: 1}, {StorageClass: "r3", Engine: "postgres", DSN: db.DSN(), Replicas: 3}}
	c := config(300)
	c.Force = true // a busy machine may hold the generator up
	// Where one in twenty of the statements is held up, the 95th percentile is anything for a while. How precise is
	// precise is TestPrecise's.
	c.Precision, c.Most = 1, 5*time.Minute
	found, err := Measure(t.Context(), c, targets, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "baseline.rules.yaml")
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := WriteRules(file, found, "a version", time.Now()); err != nil {
		t.Fatal(err)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	for _, b := range found {
		if !b.Precise || b.Result.Completed < 200 || b.Result.Seconds >= c.Most.Seconds() {
			t.Errorf("%s: precise %v after %d transactions in %.1f s", b.StorageClass, b.Precise, b.Result.Completed, b.Result.Seconds)
		}
	}
	if out, err := exec.Command(testkit.Tool(t, "promtool"), "check", "rules", "--lint=all", "--lint-fatal", path).CombinedOutput(); err != nil {
		t.Errorf("promtool: %v\n%s", err, out)
	}
}

// A run in the times that are known to be slow pins nothing, nor does one whose windows are of no
// class that is measured.
func TestExpectedRunIsRefused(t *testing.T) {
	t.Parallel()
	c := config(100)
	c.Expected = []Window{{Name: "backup", Weekday: everyDay, From: 0, To: 24 * 60, Ratio: 3}}
	targets := []matrix.Target{{StorageClass: "r3", Engine: "postgres", DSN: testdb.StartStaller(t).DSN()}}
	if _, err := Measure(t.Context(), c, targets, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "100 % of the run") {
		t.Errorf("a run within an expected window gave %v", err)
	}
	c.Expected[0].StorageClass = "r4"
	if _, err := Measure(t.Context(), c, targets, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "r4 is not among the targets") {
		t.Errorf("a window of a class that is not measured gave %v", err)
	}
}

// The error of a run that is no fit baseline names its class. It costs neither its own figures nor another's.
func TestSpoiltRunCostsItselfAlone(t *testing.T) {
	t.Parallel()
	c := config(100)
	c.Least, c.Most = 5*time.Second, 5*time.Second
	c.Expected = []Window{{StorageClass: "bad", Name: "backup", Weekday: everyDay, From: 0, To: 24 * 60, Ratio: 3}}
	targets := []matrix.Target{{StorageClass: "bad", Engine: "postgres", DSN: testdb.StartStaller(t).DSN()}, {StorageClass: "good", Engine: "postgres", DSN: testdb.StartStaller(t).DSN()}}
	found, err := Measure(t.Context(), c, targets, slog.New(slog.DiscardHandler))
	if err == nil || !strings.Contains(err.Error(), "storage class bad: 100 % of the run") || !strings.Contains(err.Error(), "no fit baseline") {
		t.Errorf("it gave %v", err)
	}
	if len(found) != 2 {
		t.Fatalf("%d of two classes were measured", len(found))
	}
	for i, b := range found {
		if b.StorageClass != targets[i].StorageClass || b.Result.Completed == 0 || b.Result.Seconds < 1 {
			t.Errorf("%s: %d transactions in %.1f s", b.StorageClass, b.Result.Completed, b.Result.Seconds)
		}
	}
	if !strings.Contains(found[0].Spoilt, "100 % of the run") || strings.Contains(found[1].Spoilt, "%") {
		t.Errorf("spoilt: %q, %q", found[0].Spoilt, found[1].Spoilt)
	}
}

// A class that cannot be reached fails before the others are measured, also where the profile needs no tables.
func TestUnreachedEndsAll(t *testing.T) {
	t.Parallel()
	c := config(100)
	c.Least, c.Most = time.Hour, time.Hour
	targets := []matrix.Target{{StorageClass: "good", Engine: "postgres", DSN: testdb.StartStaller(t).DSN()},
		{StorageClass: "bad", Engine: "postgres", DSN: "host=" + t.TempDir() + " user=nobody dbname=none"}}
	for _, profile := range []string{"kv-select", "simple-ping"} {
		c.Driver.Profile = profile
		ctx, cancel := context.WithTimeout(t.Context(), testkit.DefaultTimeout)
		found, err := Measure(ctx, c, targets, slog.New(slog.DiscardHandler))
		cancel()
		if err == nil || !strings.Contains(err.Error(), "storage class bad: connecting") || len(found) != 0 {
			t.Errorf("%s: %d were measured, and it gave %v", profile, len(found), err)
		}
	}
}

// A run that takes as long as it may is judged by all of it.
func TestLongestRunIsPrecise(t *testing.T) {
	t.Parallel()
	c := config(300)
	c.Least, c.Most = 5*time.Second, 5*time.Second
	c.Force = true     // a busy machine may hold the generator up
	c.Precision = 1000 // any two hundred transactions have it
	c.Driver.Warmup = 0
	targets := []matrix.Target{{StorageClass: "local", Engine: "postgres", DSN: testdb.StartStaller(t).DSN()}}
	found, err := Measure(t.Context(), c, targets, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if b := found[0]; !b.Precise || b.Result.Completed < 200 {
		t.Errorf("of %d transactions in %.1f s it is precise: %v", b.Result.Completed, b.Result.Seconds, b.Precise)
	}
}

// A run with failures pins nothing.
func TestSpoiltRunIsRefused(t *testing.T) {
	t.Parallel()
	server := testdb.StartStaller(t)
	c := config(100)
	c.Driver.Timeout = 100 * time.Millisecond
	stalls := make(chan struct{})
	go func() {
		for server.Answered() < 50 { // until the load is under way
			time.Sleep(5 * time.Millisecond)
		}
		server.Stall(time.Second)
		close(stalls)
	}()
	registry := prometheus.NewRegistry()
	load := metrics.NewSet(registry).Load(metrics.Labels{}, metrics.Options{})
	if precise(load.Tally(), 1) {
		t.Error("nothing measured is called precise")
	}
	c.Least, c.Most = 10*time.Second, 10*time.Second
	c.Driver.Warmup = 0
	_, err := Measure(t.Context(), c, []matrix.Target{{StorageClass: "local", Engine: "postgres", DSN: server.DSN()}}, slog.New(slog.DiscardHandler))
	<-stalls
	if err == nil || !strings.Contains(err.Error(), "local") || !strings.Contains(err.Error(), "no fit baseline") {
		t.Errorf("a run in which transactions failed gave %v", err)
	}
}

func TestPrecise(t *testing.T) {
	load := metrics.NewSet(prometheus.NewRegistry()).Load(metrics.Labels{}, metrics.Options{})
	for i := range 100 {
		load.Completed(time.Duration(i+1)*time.Millisecond, 0)
	}
	if precise(load.Tally(), 0.05) {
		t.Error("100 samples over two decades are no 5 % precision")
	}
	for i := range 100_000 {
		load.Completed(time.Duration(i%100+1)*time.Millisecond, 0)
	}
	if !precise(load.Tally(), 0.05) {
		t.Error("100,000 samples are")
	}
}

// Prometheus takes the pins of classes and databases whose names meet: it refuses a file in which two groups have the
// same name.
func TestNamesThatMeet(t *testing.T) {
	t.Parallel()
	var baselines []Baseline
	for _, names := range [][2]string{{"longhorn", "r3-shop"}, {"longhorn-r3", "shop"}, {"a", "b c"}, {"a b", "c"}, {"a b c", ""}, {"a", `"b" c`}, {`a "b`, `c"`}} {
		baselines = append(baselines, Baseline{StorageClass: names[0], Database: names[1], Result: result.Result{Tool: "canary", Profile: "tpcb-like", TargetRate: 10}})
	}
	var text strings.Builder
	if err := WriteRules(&text, baselines, "loadgen 1", time.Now()); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "baseline.rules.yaml")
	if err := os.WriteFile(path, []byte(text.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(testkit.Tool(t, "promtool"), "check", "rules", path).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// LeastRate is that of the rules.
func TestLeastRate(t *testing.T) {
	text, err := os.ReadFile("../../rules/canary.rules.yaml")
	if err != nil {
		t.Fatal(err)
	}
	least := math.Inf(1)
	for _, m := range regexp.MustCompile(`loadgen:responses:rate30m\) \* 1800 >= (\d+)\)`).FindAllStringSubmatch(string(text), -1) {
		n, err := strconv.ParseFloat(m[1], 64)
		if err != nil {
			t.Fatal(err)
		}
		least = min(least, n/1800)
	}
	if least != LeastRate {
		t.Errorf("the rules judge from %v transactions per second on, LeastRate is %v", least, LeastRate)
	}
}

func TestRulesGolden(t *testing.T) {
	r := result.Result{Tool: "canary", Profile: "wal-commit", TargetRate: 10, Seconds: 600, Completed: 6000,
		Response: result.Latency{Quantiles: []result.Quantile{{Q: 0.5, Value: 0.001, Low: 0.0009, High: 0.0011}, {Q: 0.95, Value: 0.0045, Low: 0.0042, High: 0.0049}}},
		Service:  result.Latency{Quantiles: []result.Quantile{{Q: 0.95, Value: 0.004, Low: 0.0039, High: 0.0041}}}}
	var text strings.Builder
	window, err := ParseWindow("nightly backup 02:00-02:30 UTC", 3)
	if err != nil {
		t.Fatal(err)
	}
	err = WriteRules(&text, []Baseline{
		{StorageClass: "longhorn-r3", Replicas: 3, Result: r, Spoilt: "the generator was saturated"},
		{StorageClass: "longhorn-r1", Replicas: 1, Result: r, Precise: true, Hours: &Hours{Max: 1.12, Slow: 0.05}, Expected: []Window{window}},
	}, "loadgen 1", time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC))
	if err != nil {
		t.Fatal(err)
	}
	golden.Compare(t, "testdata/baseline.rules.yaml", text.String())
}
