package inspect

import (
	"bytes"
	"context"
	"fmt"
	"image/png"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/plumbline/plumbline/tests/testkit"
)

func start(t *testing.T) *Browser {
	t.Helper()
	if _, err := Program(); err != nil {
		testkit.Skip(t, err.Error())
	}
	b, stop, err := Start(context.Background(), t.TempDir(), "check the exporter")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	return b
}

const deadline = testkit.DefaultTimeout

func TestInspect(t *testing.T) {
	server := httptest.NewServer(http.FileServer(http.Dir("testdata")))
	t.Cleanup(server.Close)
	b := start(t)
	for page, want := range map[string][]Finding{
		"good.html": nil,
		"bad.html": {
			{"Refused", "error", "bad_data: parse error"},
			{"Empty", "empty", "No data"},
			{"Threshold", "-∞", "-∞+"},
			{"Not a number", "NaN", "NaN ms"},
			{"Ellipsis", "cut", "longhorn-r3-replica-3"},
			{"Too low", "cut", "half a line"},
			{"To the right", "outside", "4.5 ms"},
			{"Drawn", "-∞", "-∞"},
			{"Drawn", "cut", "longhorn-r3"},
			{"Drawn", "covered", "10 ms and 20 ms"},
			{"Own words", "empty", "check the exporter"},
		},
	} {
		t.Run(page, func(t *testing.T) {
			found, picture, err := b.Open(server.URL+"/"+page, View{Width: 800}, deadline)
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range found {
				if !slices.Contains(want, f) {
					t.Errorf("found, and it is well: %+v", f)
				}
				if Remedies[f.What] == "" {
					t.Errorf("no remedy is given for %q", f.What)
				}
			}
			for _, f := range want {
				if !slices.Contains(found, f) {
					t.Errorf("not found: %+v", f)
				}
			}
			if size, err := png.DecodeConfig(bytes.NewReader(picture)); err != nil || size.Width != 800 || size.Height < 600 {
				t.Errorf("the picture is %+v, %v", size, err)
			}
		})
	}
}

// A page that does not load is reported with what it waits for, and one whose data source returns an error is found.
func TestRequests(t *testing.T) {
	hang := make(chan struct{})
	mux := http.NewServeMux()
	mux.HandleFunc("/api/ds/query", func(w http.ResponseWriter, r *http.Request) {
		if r.URL.RawQuery == "hang" {
			<-hang
		}
		http.Error(w, "no", http.StatusBadRequest)
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = w.Write([]byte(`<div data-panelid="1"><h2>A panel</h2></div><script>fetch("/api/ds/query?` + r.URL.Query().Get("how") + `")</script>`))
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	t.Cleanup(func() { close(hang) })
	b := start(t)
	found, _, err := b.Open(server.URL+"/?how=refuse", View{Width: 800}, deadline)
	if err != nil || len(found) != 1 || found[0].What != "query" {
		t.Errorf("found %+v, %v", found, err)
	}
	timeout := 5 * time.Second
	testkit.Eventually(t, testkit.DefaultTimeout, func() error {
		_, _, err := b.Open(server.URL+"/?how=hang", View{Width: 800}, timeout)
		timeout *= 2 // on a busy machine it has not begun yet
		if err == nil || !strings.Contains(err.Error(), "/api/ds/query?hang") {
			return fmt.Errorf("a page that hangs: %w", err)
		}
		return nil
	})
}
