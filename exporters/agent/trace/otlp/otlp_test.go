package otlp

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	pb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/plumbline/plumbline/exporters/agent/trace"
	"github.com/plumbline/plumbline/rules/layers"
	"github.com/plumbline/plumbline/tests/testkit"
)

func statement(server string) trace.Statement {
	return trace.Statement{
		TraceID: "000102030405060708090a0b0c0d0e0f", Server: server, Command: "commit", QueryID: "-7", Start: time.Unix(1000, 0), Seconds: 0.01, WakeupSeconds: 3e-5,
		Verdict: trace.Exact, Layers: map[string]float64{layers.CPU: 0.01},
		Steps: []trace.Step{
			{Depth: 0, Layer: layers.CPU, What: "statement", Seconds: 0.01},
			{Depth: 1, Layer: layers.FileSystem, What: "asleep in a sync", Offset: 0.001, Seconds: 0.008},
			{Depth: 2, Layer: layers.Queue, What: "write of 8192 bytes", Offset: 0.002, Seconds: 0.006},
			{Depth: 1, Layer: layers.FileSystem, What: "asleep in a sync", Offset: 0.0095, Seconds: 0.0005},
		},
	}
}

// start starts an exporter to a server, a fake one for OTLP.
func start(t *testing.T, handler http.HandlerFunc) *Exporter {
	t.Helper()
	s := httptest.NewServer(handler)
	t.Cleanup(s.Close)
	e, err := New(s.URL, "node1", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Start(context.Background()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return e
}

func received(t *testing.T, r *http.Request) *collector.ExportTraceServiceRequest {
	body, err := io.ReadAll(r.Body)
	if err == nil && r.Header.Get("Content-Encoding") == "gzip" {
		var z *gzip.Reader
		if z, err = gzip.NewReader(bytes.NewReader(body)); err == nil {
			body, err = io.ReadAll(z)
		}
	}
	var request collector.ExportTraceServiceRequest
	if err == nil {
		err = proto.Unmarshal(body, &request)
	}
	if err != nil {
		t.Error(err)
	}
	return &request
}

// A trace arrives with its steps below each other, at their times, and under its server's name.
func TestExport(t *testing.T) {
	got := make(chan *pb.ResourceSpans, 1)
	e := start(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/v1/traces" {
			t.Errorf("sent to %s", r.URL.Path)
		}
		got <- received(t, r).ResourceSpans[0]
	})
	e.Export(statement("bad\xffname"))
	var spans *pb.ResourceSpans
	select {
	case spans = <-got:
	case <-time.After(testkit.DefaultTimeout):
		t.Fatal("nothing was sent")
	}
	if a := spans.Resource.Attributes; a[0].Value.GetStringValue() != "bad\uFFFDname" || a[1].Value.GetStringValue() != "node1" {
		t.Errorf("resource %v", a)
	}
	all := spans.ScopeSpans[0].Spans
	if len(all) != 4 {
		t.Fatalf("%d spans, want 4", len(all))
	}
	for i, parent := range []int{-1, 0, 1, 0} {
		s := all[i]
		if hex.EncodeToString(s.TraceId) != "000102030405060708090a0b0c0d0e0f" || len(s.SpanId) != 8 {
			t.Errorf("span %d: trace %x, span %x", i, s.TraceId, s.SpanId)
		}
		if parent < 0 && len(s.ParentSpanId) != 0 || parent >= 0 && !bytes.Equal(s.ParentSpanId, all[parent].SpanId) {
			t.Errorf("span %d is below %x", i, s.ParentSpanId)
		}
	}
	if s := all[2]; s.StartTimeUnixNano != 1000_002_000_000 || s.EndTimeUnixNano != 1000_008_000_000 || s.Name != layers.Queue {
		t.Errorf("%s from %d to %d", s.Name, s.StartTimeUnixNano, s.EndTimeUnixNano)
	}
	if all[0].Name != "commit" {
		t.Errorf("the statement's span is %s", all[0].Name)
	}
	wakeup, query := -1.0, ""
	for _, a := range all[0].Attributes {
		if a.Key == "plumbline.wakeup_seconds" {
			wakeup = a.Value.GetDoubleValue()
		}
		if a.Key == "plumbline.queryid" {
			query = a.Value.GetStringValue()
		}
	}
	if wakeup != 3e-5 || query != "-7" {
		t.Errorf("the wake-up before the statement took %v s, its query is %q", wakeup, query)
	}
	testkit.Eventually(t, testkit.DefaultTimeout, func() error { return counts(e, 1, 0, 0) })
}

func counts(e *Exporter, sent, failed, overflowed uint64) error {
	s, f, c := e.Counts()
	if s != sent || f != failed || c != overflowed {
		return fmt.Errorf("%d sent, %d failed, %d without room; want %d, %d and %d", s, f, c, sent, failed, overflowed)
	}
	return nil
}

// What the other end refuses is counted, and the next one is sent all the same.
func TestRefused(t *testing.T) {
	refuse := make(chan bool, 2)
	e := start(t, func(w http.ResponseWriter, r *http.Request) {
		if <-refuse {
			w.WriteHeader(http.StatusBadRequest)
		}
	})
	refuse <- true
	e.Export(statement("s"))
	testkit.Eventually(t, testkit.DefaultTimeout, func() error { return counts(e, 0, 1, 0) })
	refuse <- false
	e.Export(statement("s"))
	testkit.Eventually(t, testkit.DefaultTimeout, func() error { return counts(e, 1, 1, 0) })
}

// An endpoint that hangs blocks no caller: traces without room are counted, and Close ends it.
func TestHung(t *testing.T) {
	begun, release := make(chan bool, 1), make(chan bool)
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		begun <- true
		<-release
	}))
	defer s.Close()
	defer close(release)
	e, err := New(s.URL, "node1", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Start(context.Background()); err != nil {
		t.Fatal(err)
	}
	e.Export(statement("s"))
	select {
	case <-begun:
	case <-time.After(testkit.DefaultTimeout):
		t.Fatal("nothing was sent")
	}
	for range maxWaiting + 7 {
		e.Export(statement("s"))
	}
	if err := counts(e, 0, 0, 7); err != nil {
		t.Error(err)
	}
	if err := e.Close(); err != nil {
		t.Error(err)
	}
}

// ofSpans is a statement of one server with so many spans.
func ofSpans(server string, n int) trace.Statement {
	s := statement(server)
	for len(s.Steps) < n {
		s.Steps = append(s.Steps, trace.Step{Depth: 1, Layer: layers.FileSystem, What: "asleep in a read"})
	}
	return s
}

// held returns an exporter to a server that holds its first request until release is called, and then calls answer.
func held(t *testing.T, answer func(w http.ResponseWriter, traces, spans int)) (e *Exporter, release func()) {
	t.Helper()
	begun, going := make(chan bool, 1000), make(chan bool)
	e = start(t, func(w http.ResponseWriter, r *http.Request) {
		request := received(t, r)
		begun <- true
		<-going
		spans := 0
		for _, r := range request.ResourceSpans {
			spans += len(r.ScopeSpans[0].Spans)
		}
		answer(w, len(request.ResourceSpans), spans)
	})
	e.Export(statement("first"))
	select {
	case <-begun:
	case <-time.After(testkit.DefaultTimeout):
		t.Fatal("nothing was sent")
	}
	return e, func() { close(going) }
}

// One trace that is too large for the collector takes no other one along.
func TestTooLarge(t *testing.T) {
	for name, status := range map[string]int{"too large": http.StatusRequestEntityTooLarge, "bad request": http.StatusBadRequest} {
		t.Run(name, func(t *testing.T) {
			e, release := held(t, func(w http.ResponseWriter, _, spans int) {
				if spans > 500 {
					w.WriteHeader(status)
				}
			})
			for i := range 20 {
				n := 10
				if i == 7 {
					n = 1000
				}
				e.Export(ofSpans(fmt.Sprint(i), n))
			}
			release()
			testkit.Eventually(t, testkit.DefaultTimeout, func() error { return counts(e, 1+19, 1, 0) })
		})
	}
}

// No request has more spans than a collector takes, and what waits has no more than there is memory for.
func TestSpanBounds(t *testing.T) {
	const each = 2000
	sizes := make(chan int, 1000)
	e, release := held(t, func(_ http.ResponseWriter, _, spans int) { sizes <- spans })
	const fit = maxWaitingSpans / each
	for range fit + 5 {
		e.Export(ofSpans("large", each))
	}
	e.Export(ofSpans("huge", 3*batchSpans)) // no room for it, either
	if err := counts(e, 0, 0, 6); err != nil {
		t.Error(err)
	}
	release()
	testkit.Eventually(t, testkit.DefaultTimeout, func() error { return counts(e, 1+fit, 0, 6) })
	e.Export(ofSpans("huge", 3*batchSpans))
	testkit.Eventually(t, testkit.DefaultTimeout, func() error { return counts(e, 1+fit+1, 0, 6) })
	total, largest := 0, 0
	for range len(sizes) {
		n := <-sizes
		total += n
		if n != 3*batchSpans {
			largest = max(largest, n)
		}
	}
	if want := 4 + fit*each + 3*batchSpans; total != want || largest > batchSpans || largest < 2*each {
		t.Errorf("%d spans were sent, want %d; up to %d at once", total, want, largest)
	}
	if n := e.waitingSpans.Load(); n != 0 {
		t.Errorf("%d spans are thought to wait", n)
	}
}

// Only whole addresses are taken.
func TestAddresses(t *testing.T) {
	for address, good := range map[string]bool{
		"http://tempo:4318": true, "https://tempo:4318/v1/traces": true, "tempo:4318": false, "": false, "grpc://tempo:4317": false, "http://": false,
	} {
		if _, err := New(address, "n", slog.New(slog.DiscardHandler)); (err == nil) != good {
			t.Errorf("%q: %v", address, err)
		}
	}
}
