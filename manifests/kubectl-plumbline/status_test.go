package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"

	"github.com/plumbline/plumbline/rules/why"
)

// Where the agent is not reporting, the command that status gives finds its pods in whatever namespace it was
// installed.
func TestWhereThePodsAre(t *testing.T) {
	c := central(t)
	c.o.cluster, c.o.clusterNamed = "eu", true
	var out strings.Builder
	if err := c.status(t.Context(), &out, why.PlainPen(&out)); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), "Not on only-there: ") || !strings.Contains(out.String(), "--all-namespaces --selector app.kubernetes.io/part-of=plumbline") {
		t.Error(out.String())
	}
}

// A store that cannot report which alerts fire, as one without rules of its own, is still queried for all else.
func TestNoAlerts(t *testing.T) {
	c, _ := fake(t, called{"a/p:9090", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/api/v1/alerts" {
			http.Error(w, "unsupported path\x1b[2J", http.StatusNotFound)
			return
		}
		lab().ServeHTTP(w, r)
	})})
	nodes := http.NewServeMux()
	nodes.HandleFunc("GET /api/v1/nodes", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"items":[]}`) })
	nodes.Handle("/", httputil.NewSingleHostReverseProxy(c.base))
	server := httptest.NewServer(nodes)
	defer server.Close()
	c.base, _ = url.Parse(server.URL)
	var out strings.Builder
	if err := c.status(t.Context(), &out, why.PlainPen(&out)); err != nil {
		t.Fatal(err)
	}
	if said := out.String(); !strings.Contains(said, "Which alerts fire is not known: ") || !strings.Contains(said, "r3 commits take") || strings.Contains(said, "\x1b") {
		t.Errorf("%q", said)
	}
}
