package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/plumbline/plumbline/tests/testkit"
)

// A service that answers with a redirect gets neither the user's token for an address of its own, nor another object of
// the API server with the user's rights.
func TestRedirect(t *testing.T) {
	var mu sync.Mutex
	var requests []string
	seen := func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		requests = append(requests, r.URL.Path+" with "+r.Header.Get("Authorization"))
		fmt.Fprint(w, `{}`)
	}
	elsewhere := httptest.NewServer(http.HandlerFunc(seen))
	defer elsewhere.Close()
	for name, to := range map[string]string{"another host": elsewhere.URL + "/stolen", "another object": "/api/v1/namespaces/shop/secrets/db"} {
		for _, named := range []string{"", "evil/p:9090"} {
			mux := http.NewServeMux()
			mux.HandleFunc("/api/v1/namespaces/evil/services/p:9090/proxy/", func(w http.ResponseWriter, r *http.Request) {
				http.Redirect(w, r, to, http.StatusTemporaryRedirect)
			})
			mux.HandleFunc("/api/v1/namespaces/shop/secrets/db", seen)
			mux.HandleFunc("/api/v1/services", func(w http.ResponseWriter, _ *http.Request) {
				fmt.Fprint(w, `{"items":[{"metadata":{"name":"p","namespace":"evil"},"spec":{"ports":[{"name":"web","port":9090}]}}]}`)
			})
			server := httptest.NewServer(mux)
			defer server.Close()
			c, err := newCluster(&rest.Config{Host: server.URL, BearerToken: "secret"}, options{target: "class/r3", window: time.Minute, prometheus: named})
			if err != nil {
				t.Fatal(err)
			}
			c.notes = nil
			if _, err := c.runWhy(t); err == nil || !strings.Contains(err.Error(), "redirect") {
				t.Errorf("%s: %v", name, err)
			}
			if mu.Lock(); len(requests) > 0 {
				t.Errorf("%s: the redirect was followed: %q", name, requests)
			}
			requests = nil
			mu.Unlock()
		}
	}
}

// An answer without an end is given up, and does not fill the memory.
func TestEndless(t *testing.T) {
	endless := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, `{"status":"success","data":{"resultType":"vector","result":[`)
		for line := strings.Repeat(" ", 1<<20); r.Context().Err() == nil; {
			if _, err := fmt.Fprint(w, line); err != nil {
				return
			}
		}
	})
	c, _ := fake(t, called{"a/p:9090", endless})
	c.candidateTimeout, c.mostAnswer = testkit.DefaultTimeout, 8<<20
	if _, err := c.runWhy(t); err == nil || !strings.Contains(err.Error(), "more than 8388608 bytes") {
		t.Errorf("by its label: %v", err)
	}
	c.o.prometheus = "a/p:9090"
	if _, err := c.runWhy(t); err == nil || !strings.Contains(err.Error(), "more than 8388608 bytes") {
		t.Errorf("by its name: %v", err)
	}
}
