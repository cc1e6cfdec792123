package kube

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/plumbline/plumbline/tests/testkit"
)

// watchEnds is the change with which the server ends a watch.
const watchEnds = "end"

// server is not an API server: it serves some versions of one kind, of the group example.org, and streams its lists if
// streams is set.
type server struct {
	*httptest.Server

	mu       sync.Mutex
	versions []string
	things   []string
	streams  bool
	// expire answers the first second page with 410 Gone.
	expire bool
	// short ends watches at once.
	short   bool
	changes chan string
	// ended is how many watches have ended.
	ended    int
	requests []string
}

func startServer(t *testing.T, s *server) *Objects {
	t.Helper()
	s.changes = make(chan string)
	s.Server = httptest.NewServer(s)
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	c, err := New(&rest.Config{Host: s.URL}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func status(w http.ResponseWriter, code int, reason string) {
	w.WriteHeader(code)
	fmt.Fprintf(w, `{"kind":"Status","status":"Failure","reason":%q,"code":%d,"message":"%s of example.org"}`, reason, code, strings.ToLower(reason))
}

func object(name string) string {
	return fmt.Sprintf(`{"metadata":{"name":%q,"resourceVersion":"7","annotations":{"large":%q}}}`, name, strings.Repeat("x", 2000))
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q := r.URL.Query()
	s.requests = append(s.requests, r.URL.String())
	path := strings.Split(strings.TrimPrefix(r.URL.Path, "/"), "/")
	w.Header().Set("Content-Type", "application/json")
	switch {
	case len(path) == 2: // the group
		var versions []any
		for _, v := range s.versions {
			versions = append(versions, map[string]string{"groupVersion": "example.org/" + v, "version": v})
		}
		json.NewEncoder(w).Encode(map[string]any{"kind": "APIGroup", "versions": versions})
	case len(path) == 3: // a version
		json.NewEncoder(w).Encode(map[string]any{"kind": "APIResourceList", "resources": []any{map[string]any{"name": "things"}}})
	case !slices.Contains(s.versions, path[2]):
		status(w, http.StatusNotFound, "NotFound")
	case q.Get("sendInitialEvents") == "true" && !s.streams:
		status(w, http.StatusUnprocessableEntity, "Invalid")
	case q.Get("watch") == "true":
		if q.Get("sendInitialEvents") == "true" {
			for _, name := range s.things {
				fmt.Fprintf(w, `{"type":"ADDED","object":%s}`+"\n", object(name))
			}
			fmt.Fprint(w, `{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"8","annotations":{"k8s.io/initial-events-end":"true"}}}}`+"\n")
		}
		w.(http.Flusher).Flush()
		if s.short {
			return
		}
		s.mu.Unlock()
		defer func() {
			s.mu.Lock()
			s.ended++
		}()
		for {
			select {
			case change, more := <-s.changes:
				if !more || change == watchEnds {
					return
				}
				fmt.Fprintln(w, change)
				w.(http.Flusher).Flush()
			case <-r.Context().Done():
				return
			}
		}
	default:
		page, next := s.things, ""
		if from := q.Get("continue"); from != "" {
			if s.expire {
				s.expire = false
				status(w, http.StatusGone, "Expired")
				return
			}
			page = page[slices.Index(page, from):]
		}
		const most = 2 // of any page; a server may send less than the limit
		if q.Get("limit") != "" && len(page) > most {
			page, next = page[:most], page[most]
		}
		var items []string
		for _, name := range page {
			items = append(items, object(name))
		}
		fmt.Fprintf(w, `{"apiVersion":"v1","items":[%s],"kind":"ThingList","metadata":{"resourceVersion":"7","continue":%q}}`, strings.Join(items, ","), next)
	}
}

func things(versions ...string) Kind {
	return Kind{Group: "example.org", Versions: versions, Resource: "things"}
}

// have waits until the things of these names are known, and no others.
func have(t *testing.T, c *Objects, want ...string) {
	t.Helper()
	testkit.Eventually(t, testkit.DefaultTimeout, func() error {
		var got []string
		for name := range All[*thing](c, "things") {
			got = append(got, name)
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			return fmt.Errorf("known are %q, want %q", got, want)
		}
		return nil
	})
}

// A list is streamed where the API server can, and else comes page by page, from the start again if it expired
// meanwhile. Then changes are followed, from where they were if a watch ends.
func TestListsAndChanges(t *testing.T) {
	for name, s := range map[string]*server{"streamed": {streams: true}, "paged": {}, "expired": {expire: true}} {
		t.Run(name, func(t *testing.T) {
			s.versions, s.things = []string{"v1"}, []string{"a", "b", "c", "d", "e"}
			c := startServer(t, s)
			Follow[thing](c, things("v1"), func(o *thing) Object {
				if o.Name == "b" {
					return nil
				}
				return o
			})
			if err := c.Run(t.Context()); err != nil || !c.Synced(t.Context(), "things") {
				t.Fatal("not listed", err)
			}
			have(t, c, "a", "c", "d", "e")
			s.changes <- `{"type":"ADDED","object":{"metadata":{"name":"f","resourceVersion":"9"}}}`
			s.changes <- `{"type":"DELETED","object":{"metadata":{"name":"c","resourceVersion":"10"}}}`
			s.changes <- `{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"11"}}}`
			have(t, c, "a", "d", "e", "f")
			// The watch ends behind the bookmark, which a broken connection may lose. Objects that it received now would be lost.
			s.changes <- watchEnds
			testkit.Eventually(t, testkit.DefaultTimeout, func() error {
				s.mu.Lock()
				defer s.mu.Unlock()
				if s.ended == 0 {
					return errors.New("the watch goes on")
				}
				return nil
			})
			s.changes <- `{"type":"DELETED","object":{"metadata":{"name":"a","resourceVersion":"12"}}}`
			have(t, c, "d", "e", "f")
			// It has forgotten that: what it has now is listed.
			s.mu.Lock()
			s.things = []string{"e", "g"}
			s.mu.Unlock()
			s.changes <- `{"type":"ERROR","object":{"kind":"Status","status":"Failure","reason":"Expired","code":410}}`
			have(t, c, "e", "g")
			s.mu.Lock()
			defer s.mu.Unlock()
			last := 0
			for i, request := range s.requests {
				streamed := strings.Contains(request, "sendInitialEvents")
				if !strings.Contains(request, "watch=true") && !strings.Contains(request, "limit=") || streamed && i > 0 && !s.streams {
					t.Errorf("the request is %s", request)
				}
				if strings.Contains(request, "resourceVersion=11") {
					last = i
				}
			}
			if last == 0 {
				t.Errorf("no watch goes on from the last bookmark: %q", s.requests)
			}
		})
	}
}

// Of the versions that are known the first that is served is followed; of one that is unknown the error names it and
// what to do.
func TestVersions(t *testing.T) {
	for name, test := range map[string]struct {
		served []string
		want   string // in the error
		reason string
	}{
		"the newest":      {[]string{"v1beta2", "v1beta3"}, "", ""},
		"an older one":    {[]string{"v1beta2"}, "", ""},
		"unknown":         {[]string{"v1", "v2"}, "serves version v1, v2, and this program knows v1beta3, v1beta2; use a version of this program", "version"},
		"none, as of yet": {nil, "never listed: notfound", "missing"},
	} {
		t.Run(name, func(t *testing.T) {
			s := &server{versions: test.served, things: []string{"a"}}
			c := startServer(t, s)
			Follow[thing](c, things("v1beta3", "v1beta2"), nil)
			if err := c.Run(t.Context()); err != nil || !c.Settled(t.Context(), "things") {
				t.Fatal("not settled", err)
			}
			if test.want == "" {
				have(t, c, "a")
			}
			err := c.Err("things")
			if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want %q", err, test.want)
			}
			c.mu.Lock()
			counted := c.kinds["things"].errors[test.reason]
			c.mu.Unlock()
			if test.reason != "" && counted == 0 {
				t.Errorf("it is not counted as %s", test.reason)
			}
			// Then what is served is changed.
			s.mu.Lock()
			s.versions = []string{"v1beta2"}
			s.mu.Unlock()
			s.CloseClientConnections()
			have(t, c, "a")
			testkit.Eventually(t, testkit.DefaultTimeout, func() error { return c.Err("things") })
		})
	}
}

// An optional kind whose versions are all unknown is no absent one.
func TestOptionalKindOfUnknownVersion(t *testing.T) {
	c := startServer(t, &server{versions: []string{"v9"}})
	kind := things("v1")
	kind.Optional = true
	Follow[thing](c, kind, nil)
	if err := c.Run(t.Context()); err != nil || !c.Settled(t.Context(), "things") {
		t.Fatal("not settled", err)
	}
	if err := c.Err(); err == nil || !strings.Contains(err.Error(), "v9") {
		t.Errorf("error %v", err)
	}
}

// Above the bound objects are left out, counted and an error; those that are known stay, and room is used again.
func TestTooManyObjects(t *testing.T) {
	s := &server{versions: []string{"v1"}, things: []string{"a", "b", "c", "d", "e"}, streams: true}
	c := startServer(t, s)
	c.limit = 3
	Follow[thing](c, things("v1"), nil)
	if err := c.Run(t.Context()); err != nil || !c.Synced(t.Context(), "things") {
		t.Fatal("not listed", err)
	}
	have(t, c, "a", "b", "c")
	if err := c.Err("things"); err == nil || !strings.Contains(err.Error(), "too many: 3 are kept") {
		t.Errorf("error %v", err)
	}
	c.mu.Lock()
	if n := c.kinds["things"].leftOut; n != 2 {
		t.Errorf("%d are counted, want 2", n)
	}
	c.mu.Unlock()
	s.changes <- `{"type":"DELETED","object":{"metadata":{"name":"b","resourceVersion":"10"}}}`
	s.changes <- `{"type":"MODIFIED","object":{"metadata":{"name":"d","resourceVersion":"11"}}}`
	have(t, c, "a", "c", "d")
}

// What is selected can change: objects that the new selection lacks are forgotten, and none are known without one.
func TestSelect(t *testing.T) {
	s := &server{versions: []string{"v1"}, things: []string{"a"}, streams: true}
	c := startServer(t, s)
	kind := things("v1")
	kind.Idle = true
	Follow[thing](c, kind, nil)
	now := &clock{t: time.Now()}
	c.now = now.now
	if err := c.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	// Without a selection nothing is followed, and nothing of it is old, at the first time and later.
	idle := func() {
		t.Helper()
		if !c.Synced(t.Context(), "things") {
			t.Fatal("not settled")
		}
		now.pass(time.Hour)
		if err := c.Err(); err != nil {
			t.Errorf("after an hour without a selection: %v", err)
		}
	}
	idle()
	have(t, c)
	c.Select("things", "of in (x)")
	if !c.Synced(t.Context(), "things") {
		t.Fatal("not listed")
	}
	have(t, c, "a")
	s.mu.Lock()
	s.things = []string{"b"}
	s.mu.Unlock()
	c.Select("things", "of in (x,y)")
	have(t, c, "b")
	c.Select("things", "")
	have(t, c)
	idle()
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, want := range []string{"labelSelector=of+in+%28x%29", "labelSelector=of+in+%28x%2Cy%29"} {
		if len(s.requests) != 2 || !strings.Contains(s.requests[i], want) {
			t.Errorf("the requests are %q, want %s", s.requests, want)
		}
	}
}

// Watches that end at once are failures, after which there is a pause; what is known stays.
func TestShortWatches(t *testing.T) {
	s := &server{versions: []string{"v1"}, things: []string{"a"}, short: true}
	c := startServer(t, s)
	Follow[thing](c, things("v1"), nil)
	began := time.Now()
	if err := c.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, testkit.DefaultTimeout, func() error {
		c.mu.Lock()
		defer c.mu.Unlock()
		if n := c.kinds["things"].errors["other"]; n < 2 {
			return fmt.Errorf("%d failures are counted", n)
		}
		return nil
	})
	have(t, c, "a")
	s.mu.Lock()
	defer s.mu.Unlock()
	took := time.Since(began)
	// A list that is streamed, one that is not, and few watches, each with a pause after it.
	if n := len(s.requests); n > 6+int(took/backoff().Duration) {
		t.Errorf("%d requests in %v: %q", n, took, s.requests)
	}
}
