package kube

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/rest"

	"github.com/plumbline/plumbline/exporters/exporterkit"
	"github.com/plumbline/plumbline/tests/testkit"
)

type thing struct {
	Meta `json:"metadata"`
}

func (*thing) UnknownValue() string { return "" }

// api is not an API server: it lists no objects and has watches in which nothing happens, unless a resource is
// forbidden. It does not stream lists.
type api struct {
	*httptest.Server

	mu        sync.Mutex
	forbidden map[string]bool
	cut       chan struct{} // closed to end the watches
}

func startAPI(t *testing.T) *api {
	t.Helper()
	a := &api{forbidden: map[string]bool{}, cut: make(chan struct{})}
	a.Server = httptest.NewServer(a)
	t.Cleanup(func() {
		a.forbid()
		a.CloseClientConnections()
		a.Close()
	})
	return a
}

// forbid makes these resources the forbidden ones, and ends all watches.
func (a *api) forbid(resources ...string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	clear(a.forbidden)
	for _, resource := range resources {
		a.forbidden[resource] = true
	}
	close(a.cut)
	a.cut = make(chan struct{})
}

func (a *api) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	resource := r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]
	a.mu.Lock()
	forbidden, cut := a.forbidden[resource], a.cut
	a.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	switch {
	case forbidden:
		w.WriteHeader(http.StatusForbidden)
		fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403,"message":"you may not list %s"}`, resource)
	case r.URL.Query().Get("sendInitialEvents") != "":
		w.WriteHeader(http.StatusUnprocessableEntity)
		fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Invalid","code":422}`)
	case r.URL.Query().Get("watch") == "true":
		w.(http.Flusher).Flush()
		select {
		case <-cut:
		case <-r.Context().Done():
		}
	default:
		fmt.Fprint(w, `{"kind":"ThingList","apiVersion":"example.org/v1","metadata":{"resourceVersion":"1"},"items":[]}`)
	}
}

// clock is a time that only a test advances.
type clock struct {
	mu sync.Mutex
	t  time.Time
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.t
}

func (c *clock) pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.t = c.t.Add(d)
}

// followThings follows two kinds until the test ends.
func followThings(t *testing.T, a *api) (*Objects, *clock) {
	t.Helper()
	c, err := New(&rest.Config{Host: a.URL}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	now := &clock{t: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
	c.now = now.now
	for _, resource := range []string{"goods", "wares"} {
		Follow[thing](c, Kind{Group: "example.org", Versions: []string{"v1"}, Resource: resource}, nil)
	}
	if err := c.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	return c, now
}

// update is the error of one scrape.
func update(c exporterkit.Collector) error {
	ch := make(chan prometheus.Metric)
	go func() {
		for range ch {
		}
	}()
	defer close(ch)
	return c.Update(ch)
}

// names reports whether err names the kind with all of words, and not the kind that is well.
func names(err error, well string, words ...string) error {
	if err == nil {
		return fmt.Errorf("no error; want one with %q", words)
	}
	for _, word := range words {
		if !strings.Contains(err.Error(), word) {
			return fmt.Errorf("%q lacks %q", err, word)
		}
	}
	if strings.Contains(err.Error(), well) {
		return fmt.Errorf("%q names %s, which is well", err, well)
	}
	return nil
}

// A kind whose rights are withdrawn after it was listed is an error after minutes, until they are back.
func TestRightsAreWithdrawn(t *testing.T) {
	a := startAPI(t)
	c, now := followThings(t, a)
	if !c.Synced(t.Context(), "goods", "wares") {
		t.Fatal("not synced")
	}
	testkit.Eventually(t, testkit.DefaultTimeout, func() error {
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, k := range c.kinds {
			if k.health.watching.IsZero() {
				return fmt.Errorf("no watch of %s", k.Resource)
			}
		}
		return nil
	})
	now.pass(time.Hour) // in which nothing happens
	if err := update(c); err != nil {
		t.Fatalf("a quiet watch is an error: %v", err)
	}
	a.forbid("wares")
	testkit.Eventually(t, testkit.DefaultTimeout, func() error {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.kinds["wares"].errors["forbidden"] == 0 || c.kinds["goods"].health.watching.IsZero() {
			return fmt.Errorf("wares is not refused yet, or goods not watched again")
		}
		return nil
	})
	if err := update(c); err != nil {
		t.Errorf("one failure is an error at once: %v", err)
	}
	now.pass(staleAfter)
	if err := names(update(c), "goods", "wares.example.org", "2026-01-02T04:04:05Z", "you may not list wares", "grant"); err != nil {
		t.Error(err)
	}
	if err := c.Err("goods"); err != nil {
		t.Errorf("the other kind: %v", err)
	}
	a.forbid()
	testkit.Eventually(t, testkit.DefaultTimeout, func() error { return update(c) })
}

// A kind that was forbidden from the start is an error at once, and holds up no other.
func TestForbiddenFromTheStart(t *testing.T) {
	a := startAPI(t)
	a.forbid("wares")
	c, _ := followThings(t, a)
	if !c.Synced(t.Context(), "goods") || !c.Settled(t.Context(), "goods", "wares") {
		t.Fatal("one kind holds up all")
	}
	if err := names(update(c), "goods", "wares.example.org", "never listed", "you may not list wares"); err != nil {
		t.Error(err)
	}
}

// What is a sign that a kind is followed, and what is not.
func TestHealth(t *testing.T) {
	start := time.Unix(1_000_000, 0)
	at := func(minutes float64) time.Time { return start.Add(time.Duration(minutes * float64(time.Minute))) }
	listed := func() *health { return &health{began: start, good: start} }
	refusedAgain := func(h *health) {
		for minute := range 10 {
			h.failed(at(float64(minute)), "other", "connection refused")
		}
	}
	for name, test := range map[string]struct {
		h      *health
		synced bool
		happen func(*health)
		want   string
	}{
		"not begun":                  {&health{}, false, func(*health) {}, ""},
		"never answered":             {&health{began: start}, false, func(*health) {}, "never listed: no answer"},
		"never reached":              {&health{began: start}, false, refusedAgain, "never listed: connection refused"},
		"cut off":                    {listed(), true, refusedAgain, "not followed since"},
		"list hangs":                 {listed(), true, func(*health) {}, "no answer"},
		"watch is quiet":             {listed(), true, func(h *health) { h.opened(start) }, ""},
		"quiet after a failure":      {listed(), true, func(h *health) { h.failed(start, "other", "x"); h.opened(at(1)) }, ""},
		"quiet watch ended just now": {listed(), true, func(h *health) { h.opened(start); h.ended(at(9)) }, ""},
		"quiet watch failed just now": {listed(), true, func(h *health) {
			h.opened(start)
			h.failed(at(9), "other", "x")
			h.ended(at(9))
		}, ""},
		"watches fail at once": {listed(), true, func(h *health) {
			for minute := range 10 {
				h.opened(at(float64(minute)))
				h.failed(at(float64(minute)), "other", "too many requests")
				h.ended(at(float64(minute)))
			}
		}, "too many requests"},
		"listed again": {listed(), true, func(h *health) { refusedAgain(h); h.well(at(9)) }, ""},
	} {
		test.happen(test.h)
		err := test.h.err(at(10), test.synced)
		if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: error %v, want one with %q", name, err, test.want)
		}
	}
}
