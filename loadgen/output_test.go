package main

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/plumbline/plumbline/loadgen/matrix"
)

// failing is a matrix of which every run fails, as its classes have nothing that it needs, its targets and what it
// logs.
func failing(t *testing.T) (r *matrix.Runner, targets string, log *strings.Builder) {
	t.Helper()
	targets, log = filepath.Join(t.TempDir(), "targets.yaml"), &strings.Builder{}
	if err := os.WriteFile(targets, []byte("targets:\n  - {storageclass: a}\n  - {storageclass: b}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	return &matrix.Runner{ProcFS: "/proc", Scale: 0.01, MaxClients: 1, Least: time.Second, Log: slog.New(slog.NewTextHandler(log, nil))}, targets, log
}

// A matrix of which all runs fail is a failure; its result is written all the same.
func TestMatrixOfFailures(t *testing.T) {
	r, targets, _ := failing(t)
	folder := t.TempDir()
	out, page := filepath.Join(folder, "today.json"), filepath.Join(folder, "today.html")
	err := runMatrix(t.Context(), r, "wal", targets, out, page)
	if err == nil || !strings.Contains(err.Error(), "2 of 2 runs failed; the first, fio wal 8k on a: the target has no directory") {
		t.Errorf("it gave %v", err)
	}
	if report, err := matrix.Read(out); err != nil || len(report.Rows) != 2 {
		t.Errorf("its JSON: %v", err)
	} else if _, _, interrupted := report.Interrupted(); interrupted {
		t.Errorf("its JSON is of an interrupted one: %s", report.Source)
	}
	if text, err := os.ReadFile(page); err != nil || !strings.Contains(string(text), "the target has no directory") {
		t.Errorf("its page: %v", err)
	}
}

// Where a result could not be written is an error before the first run.
func TestMatrixOutputsAreChecked(t *testing.T) {
	nowhere := filepath.Join(t.TempDir(), "no", "today.html")
	r, targets, log := failing(t)
	err := runMatrix(t.Context(), r, "wal", targets, "", nowhere)
	if err == nil || !strings.Contains(err.Error(), nowhere) || strings.Contains(log.String(), "running") {
		t.Errorf("it gave %v\n%s", err, log)
	}
}

// folderless takes a folder away when something is logged.
type folderless struct {
	slog.Handler
	folder string
}

func (f *folderless) Enabled(context.Context, slog.Level) bool { return true }

func (f *folderless) Handle(context.Context, slog.Record) error { return os.RemoveAll(f.folder) }

// What cannot be written at the end keeps nothing else from being.
func TestMatrixWritesWhatItCan(t *testing.T) {
	r, targets, _ := failing(t)
	gone := filepath.Join(t.TempDir(), "gone")
	if err := os.Mkdir(gone, 0o755); err != nil {
		t.Fatal(err)
	}
	out, page := filepath.Join(gone, "today.json"), filepath.Join(t.TempDir(), "today.html")
	r.Log = slog.New(&folderless{slog.DiscardHandler, gone})
	err := runMatrix(t.Context(), r, "wal", targets, out, page)
	if err == nil || !strings.Contains(err.Error(), out+" cannot be written") || !strings.Contains(err.Error(), "2 of 2 runs failed") {
		t.Errorf("it gave %v", err)
	}
	if _, err := os.Stat(page); err != nil {
		t.Error(err)
	}
}
