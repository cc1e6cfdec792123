package collector

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/plumbline/plumbline/tests/testkit"
	"github.com/plumbline/plumbline/tests/testkit/exposition"
)

// rises waits until one of the counters whose lines begin so is above 0.
func rises(t *testing.T, gather func() string, counters ...string) {
	t.Helper()
	testkit.Eventually(t, testkit.DefaultTimeout, func() error {
		for line := range strings.Lines(gather()) {
			for _, c := range counters {
				if strings.HasPrefix(line, c+" ") && !strings.HasSuffix(line, " 0\n") {
					return nil
				}
			}
		}
		return fmt.Errorf("none of %q rises", counters)
	})
}

// Names that are none are shown as far as they can be, and cost no other series.
func TestHostileNames(t *testing.T) {
	f := startMayastor(t, mayastorAnswers(t, true, "127.0.0.1:1"))
	name := "a\nb\x00" + strings.Repeat("é", 1<<16)
	f.set(func() {
		volume(f, 0)["spec"].(map[string]any)["uuid"] = name
		replica(f, 0)["node"] = name
		f.answers["/nodes"] = append(f.answers["/nodes"].([]any), map[string]any{"id": name, "state": map[string]any{"status": name, "grpcEndpoint": name}})
	})
	registry := mayastorRegistry(t, f, "mayastor")
	await(t, registry, `plumbline_volume_desired_replicas{backend="mayastor",volume="pvc-vol-b"}`, "plumbline_volume_desired_replicas{backend=\"mayastor\",volume=\"pvc-a\uFFFDb\uFFFDéé",
		`plumbline_scrape_collector_dropped_series_total{collector="mayastor"} 0`)
	for line := range strings.Lines(exposition.Text(t, registry)) {
		if len(line) > 2000 {
			t.Errorf("a line of %d bytes: %.100s", len(line), line)
		}
	}
}

// A server cannot send the exporter elsewhere.
func TestNoRedirect(t *testing.T) {
	var requests atomic.Int32
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { requests.Add(1) }))
	defer other.Close()
	server := httptest.NewServer(http.RedirectHandler(other.URL, http.StatusFound))
	defer server.Close()
	registry := mayastorRegistry(t, &fakeMayastor{url: server.URL}, "mayastor")
	rises(t, func() string { return exposition.Text(t, registry) }, `plumbline_openebs_mayastor_errors_total{reason="status"}`)
	if n := requests.Load(); n > 0 {
		t.Errorf("the other server got %d requests", n)
	}
}

// A server that answers byte by byte, never ends, or breaks off is given up and counted; scrapes go on.
func TestSlowServers(t *testing.T) {
	for name, serve := range map[string]http.HandlerFunc{
		"one byte": func(w http.ResponseWriter, r *http.Request) {
			for r.Context().Err() == nil {
				fmt.Fprint(w, " ")
				w.(http.Flusher).Flush()
				time.Sleep(20 * time.Millisecond)
			}
		},
		"endless": func(w http.ResponseWriter, r *http.Request) {
			block := []byte(strings.Repeat("[", 1<<16))
			for r.Context().Err() == nil {
				if _, err := w.Write(block); err != nil {
					return
				}
			}
		},
		"breaks off": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "1000")
			fmt.Fprint(w, "{")
		},
		"long header": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X", strings.Repeat("x", 1<<20))
		},
		"deep": func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, strings.Repeat("[", 1<<20)) },
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(serve)
			t.Cleanup(func() { server.CloseClientConnections(); server.Close() })
			registry := registryWithTimeout(t, &fakeMayastor{url: server.URL}, time.Second, "mayastor")
			const counter = "plumbline_openebs_mayastor_errors_total"
			rises(t, func() string { return exposition.Text(t, registry) }, counter+`{reason="timeout"}`, counter+`{reason="answer"}`, counter+`{reason="unavailable"}`)
			await(t, registry, "plumbline_openebs_mayastor_up 0", `plumbline_scrape_collector_success{collector="mayastor"} 0`,
				`plumbline_scrape_collector_timeouts_total{collector="mayastor"} 0`)
		})
	}
}

type endless struct{}

func (endless) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// Of an answer without an end only so much is read.
func TestAnswerIsBounded(t *testing.T) {
	c := newRESTClient("http://api")
	c.http.Transport = roundTrip(func(r *http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(endless{}), Request: r, Header: http.Header{}}, nil
	})
	var v any
	if err := c.get(t.Context(), "/pools", nil, &v); err == nil || reasonOf(err) != "answer" || !strings.Contains(err.Error(), "more than") {
		t.Errorf("error %v", err)
	}
}

// Pages that never end are given up although each is a new one.
func TestPagesWithoutEnd(t *testing.T) {
	var pages atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		entries := strings.TrimSuffix(strings.Repeat("1,", 5000), ",")
		fmt.Fprintf(w, `{"entries":[%s],"next_token":%d}`, entries, pages.Add(1))
	}))
	defer server.Close()
	ctx, cancel := context.WithTimeout(t.Context(), testkit.DefaultTimeout)
	defer cancel()
	good, bad, err := newRESTClient(server.URL).volumes(ctx)
	if err == nil || reasonOf(err) != "answer" || len(good)+len(bad) > 0 {
		t.Errorf("%d volumes, %d bad ones, %v", len(good), len(bad), err)
	}
}

// An io-engine's lists and numbers are bounded.
func TestHostileIOEngine(t *testing.T) {
	var children, nexuses []byte
	for range maxReplicas + 1 {
		children = protowire.AppendBytes(protowire.AppendTag(children, 5, protowire.BytesType), message(1, "uri"))
	}
	for range maxNexuses + 1 {
		nexuses = protowire.AppendBytes(protowire.AppendTag(nexuses, 1, protowire.BytesType), nil)
	}
	for name, raw := range map[string][]byte{"children": message(1, children), "nexuses": nexuses} {
		if list, err := parseNexusList(raw); err == nil || grpcReason(err) != "answer" {
			t.Errorf("%s: %d nexuses, %v", name, len(list), err)
		}
	}
	for _, raw := range [][]byte{message(1, -1, 2, 1, 5, 512), message(1, 100, 8, -1, 5, 512), message(1, 1<<40, 5, 1<<40)} {
		if s, err := parseRebuildStats(raw); err == nil {
			t.Errorf("taken: %+v", s)
		}
	}
	seen := map[string]bool{}
	for n := range uint64(10000) {
		seen[childReason(child{stateReason: n})] = true
	}
	if len(seen) > maxReason+2 {
		t.Errorf("%d reasons", len(seen))
	}
}
