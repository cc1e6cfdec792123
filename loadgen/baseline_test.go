package main

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/plumbline/plumbline/loadgen/adapter"
	"github.com/plumbline/plumbline/loadgen/baseline"
	"github.com/plumbline/plumbline/loadgen/driver"
	"github.com/plumbline/plumbline/loadgen/internal/testdb"
)

// pinned is the command line of a baseline of two classes, one of which is no fit one, and the files that it writes.
func pinned(t *testing.T) baselineRun {
	t.Helper()
	folder := t.TempDir()
	targets := filepath.Join(folder, "targets.yaml")
	text := "targets:\n  - {storageclass: bad, dsn: '" + testdb.StartStaller(t).DSN() + "'}\n  - {storageclass: good, dsn: '" + testdb.StartStaller(t).DSN() + "'}\n"
	if err := os.WriteFile(targets, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	window, err := baseline.ParseWindow("bad=backup 00:00-24:00 UTC", 3)
	if err != nil {
		t.Fatal(err)
	}
	return baselineRun{targets: targets, over: 5 * time.Second, file: filepath.Join(folder, "baseline.rules.yaml"), record: filepath.Join(folder, "baseline.json"),
		config: baseline.Config{Precision: 1, Expected: []baseline.Window{window}, Driver: driver.Config{Profile: "simple-ping", Scale: 1, Rate: 100,
			Arrivals: driver.Poisson, Connections: 2, Timeout: 10 * time.Second, Queue: 10000}}}
}

// Of a baseline with one class that is no fit one all is recorded, nothing is pinned, and the class is named.
func TestBaselineKeepsItsRecord(t *testing.T) {
	t.Parallel()
	r := pinned(t)
	err := r.run(t.Context(), slog.New(slog.DiscardHandler))
	if err == nil || !strings.Contains(err.Error(), "nothing is pinned: storage class bad: 100 %") {
		t.Errorf("it gave %v", err)
	}
	record, err := baseline.ReadRecord(r.record)
	if err != nil {
		t.Fatal(err)
	}
	if c := record.Classes; len(c) != 2 || c[0].Spoilt == "" || c[1].Result.Completed == 0 {
		t.Errorf("recorded is %+v", c)
	}
	if _, err := os.Stat(r.file); err == nil {
		t.Error("it was pinned")
	}
}

// A pin may measure longer than --max-duration is by default, as the charts' value baseline.duration may be any: such a
// command line gets as far as the database, which is not there.
func TestBaselineDurations(t *testing.T) {
	for arguments, reaches := range map[string]bool{
		"--duration=24h":                    true,
		"--duration=24h --over=2h":          true,
		"--duration=30m --max-duration=40m": true,
		"--duration=30m --max-duration=20m": false,
	} {
		p := newProgram()
		line := append(strings.Fields(arguments), "--storageclass=fast", "--dsn=host="+t.TempDir(), "--output="+filepath.Join(t.TempDir(), "baseline.rules.yaml"))
		if _, err := p.Flags.Parse(append([]string{"baseline"}, line...)); err != nil {
			t.Fatal(err)
		}
		var unreached *adapter.ConnectionError
		if err := p.chosen(t.Context(), slog.New(slog.DiscardHandler)); errors.As(err, &unreached) != reaches || err == nil {
			t.Errorf("%s: %v, want that the database is reached for: %t", arguments, err, reaches)
		}
	}
}

// Where a baseline could not be written is an error before it is measured.
func TestBaselineOutputsAreChecked(t *testing.T) {
	r := pinned(t)
	r.over = 24 * time.Hour
	nowhere := filepath.Join(t.TempDir(), "no")
	r.record, r.file = filepath.Join(nowhere, "baseline.json"), filepath.Join(nowhere, "baseline.rules.yaml")
	if err := r.run(t.Context(), slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), r.record) || !strings.Contains(err.Error(), r.file) {
		t.Errorf("it gave %v", err)
	}
}

// The record of a run that was interrupted, which lacks a class, takes no whole one's place.
func TestBaselinePartialRecord(t *testing.T) {
	r := baselineRun{record: filepath.Join(t.TempDir(), "baseline.json")}
	yesterday := []baseline.Baseline{{StorageClass: "a"}, {StorageClass: "b"}}
	if err := r.keepRecord(yesterday, 2, time.Now()); err != nil {
		t.Fatal(err)
	}
	partial := r.record + ".partial"
	err := r.keepRecord(yesterday[1:], 2, time.Now())
	if err == nil || !strings.Contains(err.Error(), "1 of 2 classes") || !strings.Contains(err.Error(), partial) {
		t.Errorf("it gave %v", err)
	}
	for path, want := range map[string]int{r.record: 2, partial: 1} {
		if record, err := baseline.ReadRecord(path); err != nil || len(record.Classes) != want {
			t.Errorf("%s: %+v (%v), want %d classes", path, record, err, want)
		} else if words, lacks := record.Lacks(); lacks != (want == 1) || lacks && words != "1 of 2 classes were measured to the end" {
			t.Errorf("%s: it lacks classes: %v, %s", path, lacks, words)
		}
	}
	// The next run reports it, and has its place.
	var log strings.Builder
	setAside(r.record, describeRecord, slog.New(slog.NewTextHandler(&log, nil)))
	if text := log.String(); !strings.Contains(text, partial+".1") || !strings.Contains(text, "1 of 2 classes") {
		t.Errorf("the log is %s", text)
	}
	if _, err := os.Stat(partial); err == nil {
		t.Error("it is there still")
	}
	if record, err := baseline.ReadRecord(partial + ".1"); err != nil || len(record.Classes) != 1 {
		t.Errorf("kept is %+v (%v)", record, err)
	}
}
