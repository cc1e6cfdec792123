package k6

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/plumbline/plumbline/loadgen/adapter"
	"github.com/plumbline/plumbline/loadgen/internal/testdb"
	"github.com/plumbline/plumbline/loadgen/internal/testload"
	"github.com/plumbline/plumbline/loadgen/metrics"
	"github.com/plumbline/plumbline/tests/testkit"
)

func TestTranscript(t *testing.T) {
	text, err := os.ReadFile("testdata/output-1.8.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	var got []Point
	adapter.Lines(strings.NewReader(string(text)), func(line string) {
		p, ok, err := ParsePoint(line)
		if err != nil {
			t.Errorf("%q: %v", line, err)
		}
		if ok {
			got = append(got, p)
		}
	})
	want := []Point{{Done: true, Duration: 12585461}, {Done: true, Duration: 7500 * time.Microsecond, Failed: metrics.Connection}, {Dropped: 3}}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	for _, line := range []string{"", "[]x", `{"metric":"iteration_duration","type":"Point","data":{"value":-1,"tags":{"scenario":"load"}}}`,
		`{"metric":"dropped_iterations","type":"Point","data":{"value":0.5,"tags":{"scenario":"load"}}}`} {
		if p, _, err := ParsePoint(line); err == nil {
			t.Errorf("%q was taken as %+v", line, p)
		}
	}
	var s Summary
	s.Line("running (000d00h00m06.0s), 0/3 VUs, 120 complete and 0 interrupted iterations")
	if s != (Summary{true, 120}) {
		t.Errorf("%+v", s)
	}
}

func FuzzParsePoint(f *testing.F) {
	text, err := os.ReadFile("testdata/output-1.8.jsonl")
	if err != nil {
		f.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		f.Add(line)
	}
	f.Fuzz(func(t *testing.T, line string) {
		if p, ok, err := ParsePoint(line); err == nil && ok && (p.Duration < 0 || p.Done && p.Dropped > 0) {
			t.Errorf("%q: %+v", line, p)
		}
	})
}

// The count equals k6's own; k6's own remote writes arrive; a killed k6 is started again and no
// count goes back; a server that restarts is errors.
func TestLive(t *testing.T) {
	db := testdb.StartPostgres(t)
	var written atomic.Uint64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost && r.Header.Get("X-Prometheus-Remote-Write-Version") != "" {
			written.Add(1)
		}
	}))
	defer server.Close()
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	load := metrics.NewSet(prometheus.NewRegistry()).Load(metrics.Labels{Tool: "k6"}, metrics.Options{NoResponse: true})
	supervisor := &adapter.Supervisor{Load: load, Log: log, Rate: 50}
	work := t.TempDir()
	tool, err := New(Config{Path: testkit.Tool(t, "k6"), Engine: "postgres", DSN: db.DSN(), Query: "select 1", Rate: 50, VUs: 3,
		RemoteWrite: server.URL, WorkDir: work}, load, log, supervisor.Up)
	if err != nil {
		t.Fatal(err)
	}
	var ended adapter.Ended
	stop := testload.Start(t, func(ctx context.Context) { ended = tool.Once(ctx) })
	testload.Measure(t, load, 300) // some seconds: k6 writes every five
	stop()
	got, own := load.Tally(), tool.Total()
	t.Logf("counted %d iterations, k6 %d", got.Completed, own.Completed)
	if !own.Seen || got.Completed != own.Completed || got.Lost != 0 || got.ParseErrors != 0 || got.Response.Count() != 0 {
		t.Errorf("counted %d, lost %d, parse errors %d; k6 reports %+v (%v)", got.Completed, got.Lost, got.ParseErrors, own, ended.Err)
	}
	if written.Load() == 0 {
		t.Error("k6 wrote nothing to the remote-write address")
	}
	if left, err := os.ReadDir(work); err != nil || len(left) > 0 {
		t.Errorf("left in the work folder: %v, %v", left, err)
	}

	stop = testload.Start(t, func(ctx context.Context) { supervisor.Run(ctx, tool.Once) })
	testload.Await(t, load, got.Completed+50)
	before := load.Tally().Completed
	if err := syscall.Kill(tool.PID(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	testload.Await(t, load, before+50)
	if n := load.Tally().Restarts[metrics.Killed]; n != 1 {
		t.Errorf("%d restarts after a kill", n)
	}
	db.Stop()
	testload.Until(t, load, "10 connection errors", func(m metrics.Tally) bool { return m.Errors[metrics.Connection] >= 10 })
	db.Start()
	testload.Await(t, load, load.Tally().Completed+50)
	stop()
}
