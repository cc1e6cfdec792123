package soak

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/plumbline/plumbline/loadgen/internal/testdb"
	"github.com/plumbline/plumbline/loadgen/matrix"
	"github.com/plumbline/plumbline/tests/testkit"
)

func writePlan(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "plan.yaml")
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

const good = `
duration: 72h
canary: {profile: wal-commit, rate: 5}
phases:
  - {name: burst, at: 1h, for: 10m, every: 6h, profile: tpcb-like, rate: 100, connections: 8}
faults:
  - {name: replica killed, at: 2h, for: 5m, do: [kill-replica], undo: [start-replica]}
targets:
  - {storageclass: local, dsn: host=/run}
`

func TestReadPlan(t *testing.T) {
	p, err := ReadPlan(writePlan(t, good), 0)
	if err != nil {
		t.Fatal(err)
	}
	if p.Duration != 72*time.Hour || p.Interval != 10*time.Second || p.Phases[0].Load != (Load{"tpcb-like", 100, 8, 1}) || p.Canary.Connections != 4 {
		t.Errorf("%+v", p)
	}
	if p, err = ReadPlan(writePlan(t, good), time.Hour); err != nil || p.Duration != time.Hour {
		t.Errorf("a duration of an hour instead: %+v, %v", p, err)
	}
	for _, c := range []struct{ old, new, want string }{
		{"duration: 72h", "duration: 0s", "duration"},
		{"duration: 72h", "duration: soon", "line 2"},
		{"profile: wal-commit", "profile: tpc-z", "canary: unknown profile"},
		{"every: 6h", "every: 1m", "phase burst"},
		{"rate: 100", "rate: -1", "phase burst"},
		{"name: burst", "name: canary", "name of its own"},
		{"do: [kill-replica], ", "", "fault replica killed"},
		{"storageclass: local, ", "", "storageclass"},
		{"canary:", "canaries:", "canaries"},
		{"dsn: host=/run", "engine: mariadb, dsn: host=/run", `storageclass local: unknown engine "mariadb"`},
		{"dsn: host=/run", "dsn: host=/run port=soon", "storageclass local: dsn: connection string"},
		{"dsn: host=/run", "engine: mysql, dsn: host=/run", "storageclass local: dsn: connection string"},
		{"dsn: host=/run", "dsn_file: gone", "storageclass local: dsn_file: open /"},
		{"targets:", "targets:\n  - {storageclass: a, local: true}\n  - {storageclass: b, local: true}", "only one target can be local"},
		{"targets:", "targets:\n  - {storageclass: local}", "storageclass local is there twice"},
		{"rate: 5", "rate: 5, scale: 1000000", "canary: rate, connections, scale"},
	} {
		path := writePlan(t, strings.Replace(good, c.old, c.new, 1))
		if _, err := ReadPlan(path, 0); err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: error %v, want one with the file's name and %q", c.new, err, c.want)
		}
	}
}

// What the duration leaves out or cuts short is reported.
func TestUnfit(t *testing.T) {
	p, err := ReadPlan(writePlan(t, good), 0)
	if err != nil {
		t.Fatal(err)
	}
	const phaseOut, faultOut = "phase burst, at 1h0m0s, is left out", "fault replica killed, at 2h0m0s, is left out"
	for _, c := range []struct {
		duration time.Duration
		want     []string
	}{
		{72 * time.Hour, nil},
		{2*time.Hour + 5*time.Minute, nil},
		{2*time.Hour + 4*time.Minute, []string{"fault replica killed, at 2h0m0s, ends with the soak, after 4m0s instead of 5m0s"}},
		{2 * time.Hour, []string{faultOut}},
		{time.Hour + 90*time.Second, []string{"phase burst, at 1h0m0s, ends with the soak, after 1m30s instead of 10m0s", faultOut}},
		{time.Hour, []string{phaseOut, faultOut}},
	} {
		p.Duration = c.duration
		if got := p.unfit(); !slices.Equal(got, c.want) {
			t.Errorf("in %s: %q, want %q", c.duration, got, c.want)
		}
		var log strings.Builder
		s, err := Open(t.TempDir(), *p, prometheus.NewRegistry(), slog.New(slog.NewTextHandler(&log, nil)))
		if err != nil {
			t.Fatal(err)
		}
		if err := s.store.close(); err != nil {
			t.Error(err)
		}
		if n := strings.Count(log.String(), "level=WARN"); n != len(c.want) {
			t.Errorf("in %s there are %d warnings, want %d:\n%s", c.duration, n, len(c.want), &log)
		}
	}
}

func TestPhaseWindows(t *testing.T) {
	h := time.Hour
	repeated, single := Phase{At: h, For: h, Every: 6 * h}, Phase{At: h, For: h}
	for _, c := range []struct {
		p        Phase
		elapsed  time.Duration
		from, to time.Duration
		ok       bool
	}{
		{repeated, 0, h, 2 * h, true},
		{repeated, h + h/2, h, 2 * h, true}, // under way: the rest of it
		{repeated, 2 * h, 7 * h, 8 * h, true},
		{repeated, 7*h + h/2, 7 * h, 8 * h, true},
		{repeated, 19*h + h/2, 19 * h, 19*h + h*3/4, true}, // cut off by the end
		{repeated, 20 * h, 0, 0, false},
		{single, 2 * h, 0, 0, false},
	} {
		from, to, ok := c.p.window(c.elapsed, 19*h+h*3/4)
		if ok != c.ok || ok && (from != c.from || to != c.to) {
			t.Errorf("after %v: %v to %v, %v; want %v to %v, %v", c.elapsed, from, to, ok, c.from, c.to, c.ok)
		}
	}
}

// start runs a soak until it ends or stop is called.
func start(t *testing.T, folder string, plan Plan) (stop func()) {
	t.Helper()
	s, err := Open(folder, plan, prometheus.NewRegistry(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	stopped := false
	stop = func() {
		cancel()
		if !stopped {
			stopped = true
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	}
	t.Cleanup(stop)
	return stop
}

func read(t *testing.T, folder string) *Data {
	t.Helper()
	d, err := Read(folder)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func events(d *Data, kind, name, what string) (n int) {
	for _, e := range d.Events {
		if e.Kind == kind && e.Name == name && e.What == what {
			n++
		}
	}
	return n
}

// A soak that is interrupted in the middle of a phase goes on with the same clock: the phase is
// taken up, a fault is mended and not done twice, and what was measured is kept.
func TestInterruptedSoakGoesOn(t *testing.T) {
	t.Parallel()
	db := testdb.StartPostgres(t)
	folder, tally := t.TempDir(), filepath.Join(t.TempDir(), "tally")
	plan := Plan{Duration: time.Hour, Interval: 100 * time.Millisecond, Canary: Load{"simple-ping", 50, 2, 1},
		Phases:  []Phase{{Name: "burst", For: 30 * time.Minute, Load: Load{"kv-select", 100, 2, 1}}},
		Faults:  []Fault{{Name: "killed", For: time.Minute, Do: []string{"sh", "-c", "echo do >> " + tally}, Undo: []string{"sh", "-c", "echo undo >> " + tally}}},
		Targets: []matrix.Target{{StorageClass: "local", Engine: "postgres", DSN: db.DSN()}}}
	enough := func(more int) {
		t.Helper()
		testkit.Eventually(t, testkit.DefaultTimeout, func() error {
			counts := map[string]int{}
			for _, s := range read(t, folder).Samples {
				if s.Completed > 0 {
					counts[s.Load]++
				}
			}
			if counts["canary"] < more || counts["burst"] < more {
				return fmt.Errorf("samples %v, waiting for %d of each", counts, more)
			}
			return nil
		})
	}
	stop := start(t, folder, plan)
	enough(5)
	stop()
	first := read(t, folder)
	if events(first, PhaseEvent, "burst", Begin) != 1 || events(first, FaultEvent, "killed", Begin) != 1 || events(first, FaultEvent, "killed", End) != 1 {
		t.Errorf("events %+v", first.Events)
	}

	// A kill leaves half a line; it must cost only itself.
	file, err := os.OpenFile(filepath.Join(folder, samplesFile), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := file.WriteString(`{"time":"2026-11-2`); err != nil {
		t.Fatal(err)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}

	stop = start(t, folder, plan)
	enough(len(first.Samples) + 3)
	stop()
	d := read(t, folder)
	if d.Torn != 1 || !d.Began.Equal(first.Began) || len(d.Samples) <= len(first.Samples) {
		t.Errorf("torn %d, began %v and %v, samples %d and %d", d.Torn, first.Began, d.Began, len(first.Samples), len(d.Samples))
	}
	if n := events(d, SoakEvent, "soak", Begin); n != 2 {
		t.Errorf("%d starts, want 2", n)
	}
	if n := events(d, PhaseEvent, "burst", Begin); n != 2 {
		t.Errorf("the phase was taken up %d times, want 2", n)
	}
	done, err := os.ReadFile(tally)
	if err != nil || string(done) != "do\nundo\n" {
		t.Errorf("the fault's commands ran as %q, %v", done, err)
	}
	// What still waits when a load ends has a response time, as long as it waited, and is neither failed nor skipped.
	var offered, responses uint64
	for _, s := range d.Samples {
		if offered, responses = offered+s.Offered, responses+s.Response.Count(); s.Response.Count() < s.Completed+s.Failed+s.Skipped {
			t.Errorf("a sample of %d transactions has %d response times", s.Completed+s.Failed+s.Skipped, s.Response.Count())
		}
	}
	if responses > offered {
		t.Errorf("%d response times of %d transactions", responses, offered)
	}
	plan.Canary.Rate = 60
	if _, err := Open(folder, plan, prometheus.NewRegistry(), slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "another plan") {
		t.Errorf("a folder with a soak of another plan: %v", err)
	}
}

// A fault whose mending a killed soak owed is mended by the next; a server that never answers is
// not the end of the soak, which ends by itself when its time is over.
func TestOwedMendingAndDownServer(t *testing.T) {
	t.Parallel()
	folder, tally := t.TempDir(), filepath.Join(t.TempDir(), "tally")
	plan := Plan{Duration: 10 * time.Second, Interval: 100 * time.Millisecond, Canary: Load{"simple-ping", 50, 2, 1},
		Faults: []Fault{{Name: "slow disk", For: time.Second, Do: []string{"false"}, Undo: []string{"sh", "-c", "echo undo >> " + tally}},
			{Name: "broken", At: time.Second, Do: []string{"sh", "-c", "echo no such replica; exit 3"}}},
		Targets: []matrix.Target{{StorageClass: "gone", Engine: "postgres", DSN: "host=" + t.TempDir()}}}
	store, _, err := open(folder, plan, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if err := store.event(Event{time.Now(), FaultEvent, "slow disk", Begin, ""}); err != nil {
		t.Fatal(err)
	}
	if err := store.close(); err != nil {
		t.Fatal(err)
	}
	s, err := Open(folder, plan, prometheus.NewRegistry(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	d := read(t, folder)
	if done, err := os.ReadFile(tally); err != nil || string(done) != "undo\n" {
		t.Errorf("mended %q, %v", done, err)
	}
	var detail string
	for _, e := range d.Events {
		if e.Kind == FaultEvent && e.Name == "broken" && e.What == Failed {
			detail = e.Detail
		}
	}
	if !strings.Contains(detail, "no such replica") {
		t.Errorf("a fault's failure is recorded as %q", detail)
	}
	if last := d.Events[len(d.Events)-1]; last.Kind != SoakEvent || last.Detail != "over" {
		t.Errorf("the last event is %+v", last)
	}
}
