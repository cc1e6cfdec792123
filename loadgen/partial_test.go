package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/prometheus/client_golang/api"
	promv1 "github.com/prometheus/client_golang/api/prometheus/v1"

	"github.com/plumbline/plumbline/loadgen/matrix"
)

// runLog calls began before the matrix' run of a number, from 1, and keeps what else is logged.
type runLog struct {
	slog.Handler
	runs  int
	began func(run int)
}

func (l *runLog) Handle(ctx context.Context, r slog.Record) error {
	if r.Message == "running" {
		l.runs++
		l.began(l.runs)
	}
	return l.Handler.Handle(ctx, r)
}

// rows is how many runs a matrix' file has, and of how many; no number if it is none.
func rows(path string) string {
	r, err := matrix.Read(path)
	if err != nil {
		return "none"
	}
	if done, planned, ok := r.Interrupted(); ok {
		return fmt.Sprintf("%d of %d", done, planned)
	}
	return fmt.Sprint(len(r.Rows))
}

// What there is of a matrix is kept beside its file after each run, in the same form; the file has what was there until
// all of the new one is.
func TestMatrixPartial(t *testing.T) {
	r, targets, log := failing(t)
	out := filepath.Join(t.TempDir(), "today.json")
	partial := out + ".partial"
	there := func(path, want string) {
		t.Helper()
		if got := rows(path); got != want {
			t.Errorf("%s has %s runs, want %s", filepath.Base(path), got, want)
		}
	}
	text := slog.NewTextHandler(log, nil)
	seen := 0
	r.Log = slog.New(&runLog{text, 0, func(run int) {
		seen = run
		there(out, "none")
		there(partial, []string{"none", "1 of 2"}[run-1])
	}})
	if err := runMatrix(t.Context(), r, "wal", targets, out, ""); err == nil || seen != 2 {
		t.Fatalf("%d runs: %v", seen, err)
	}
	there(out, "2")
	if _, err := os.Stat(partial); !errors.Is(err, os.ErrNotExist) || strings.Contains(log.String(), "earlier run") {
		t.Errorf("the partial one: %v\n%s", err, log)
	}

	// Interrupted, the whole one stays.
	ctx, cancel := context.WithCancel(t.Context())
	r.Log = slog.New(&runLog{text, 0, func(run int) {
		if run == 2 {
			cancel()
		}
	}})
	err := runMatrix(ctx, r, "wal", targets, out, "")
	if !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), partial) {
		t.Errorf("it gave %v", err)
	}
	there(out, "2")
	there(partial, "1 of 2")

	// The next one logs what it finds, keeps it, and is not kept from its own; also of what is no result.
	for _, c := range []struct{ found, logged, second string }{
		{"", "matrix wal, begun at ", "none"},
		{"{", "it is cut: the JSON has no end", "1 of 2"},
	} {
		if c.found != "" {
			if err := os.WriteFile(partial, []byte(c.found), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		log.Reset()
		r.Log = slog.New(&runLog{text, 0, func(run int) { there(partial, []string{"none", "1 of 2"}[run-1]) }})
		if err := runMatrix(t.Context(), r, "wal", targets, out, ""); err == nil || !strings.Contains(err.Error(), "2 of 2 runs failed") {
			t.Errorf("it gave %v", err)
		}
		if !strings.Contains(log.String(), "an earlier run did not come to its end") || !strings.Contains(log.String(), partial+".1") || !strings.Contains(log.String(), c.logged) {
			t.Errorf("the log is\n%s", log)
		}
		there(partial+".2", c.second)
		if c.found == "" {
			there(partial+".1", "1 of 2")
		}
	}
}

// Where no partial file can be, the file itself has what there is.
func TestMatrixWithoutRoomForAPartial(t *testing.T) {
	r, targets, log := failing(t)
	out := filepath.Join(t.TempDir(), "today.json")
	if err := os.MkdirAll(filepath.Join(out+".partial.5", "full"), 0o755); err != nil {
		t.Fatal(err)
	}
	for n := range 5 {
		name := out + ".partial"
		if n > 0 {
			name += fmt.Sprintf(".%d", n)
		}
		if err := os.Mkdir(name, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	r.Log = slog.New(&runLog{slog.NewTextHandler(log, nil), 0, func(run int) {
		if want := []string{"none", "1 of 2"}[run-1]; rows(out) != want {
			t.Errorf("before run %d it has %s, want %s", run, rows(out), want)
		}
	}})
	if err := runMatrix(t.Context(), r, "wal", targets, out, ""); err == nil || !strings.Contains(err.Error(), "2 of 2 runs failed") || strings.Contains(err.Error(), "partial") {
		t.Errorf("it gave %v", err)
	}
	if got := rows(out); got != "2" || !strings.Contains(log.String(), "cannot be set aside") {
		t.Errorf("it has %s\n%s", got, log)
	}
}

// At its start a matrix queries Prometheus once: whether it is there, and which clusters it has.
func TestMatrixQueriesOnce(t *testing.T) {
	var requests, before atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		requests.Add(1)
		fmt.Fprint(w, `{"status":"success","data":{"resultType":"vector","result":[]}}`)
	}))
	defer server.Close()
	client, err := api.NewClient(api.Config{Address: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	r, targets, log := failing(t)
	r.Prometheus = promv1.NewAPI(client)
	r.Log = slog.New(&runLog{slog.NewTextHandler(log, nil), 0, func(run int) {
		if run == 1 {
			before.Store(requests.Load())
		}
	}})
	if err := runMatrix(t.Context(), r, "wal", targets, "", ""); err == nil || before.Load() != 1 {
		t.Errorf("%d requests before the first run (%v)\n%s", before.Load(), err, log)
	}
	server.Close()
	log.Reset()
	if err := runMatrix(t.Context(), r, "wal", targets, "", ""); err == nil || !strings.Contains(log.String(), "--prometheus: as long as that is so") {
		t.Errorf("of one that is gone: %v\n%s", err, log)
	}
}
