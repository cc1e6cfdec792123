package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/plumbline/plumbline/rules/why"
	"github.com/plumbline/plumbline/rules/why/whytest"
)

// Where the agent is not reporting, the command that status gives finds its pods in whatever namespace it was
// installed.
func TestWhereThePodsAre(t *testing.T) {
	c := central(t)
	c.o.cluster, c.o.clusterNamed = "eu", true
	var out strings.Builder
	if err := c.status(t.Context(), &out, why.PlainPrinter(&out)); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), "Missing: only-there. ") || !strings.Contains(out.String(), "--all-namespaces --selector app.kubernetes.io/part-of=plumbline") {
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
	if err := c.status(t.Context(), &out, why.PlainPrinter(&out)); err != nil {
		t.Fatal(err)
	}
	if output := out.String(); !strings.Contains(output, "Which alerts fire is not known: ") || !strings.Contains(output, "r3 commits take") || strings.Contains(output, "\x1b") {
		t.Errorf("%q", output)
	}
}

// Of each severity the newest alert is first, each with how long it fires and, once, its runbook.
func TestAlertsNewestFirst(t *testing.T) {
	alert := func(name, severity string, minutes int) string {
		return fmt.Sprintf(`{"state":"firing","value":"1","activeAt":%q,"labels":{"alertname":%q,"severity":%q,"part_of":"plumbline","volume":"v%[4]d"},"annotations":{"summary":"It is %[2]s.","runbook_url":"https://example.org/%[2]s"}}`,
			whytest.End.Add(-time.Duration(minutes)*time.Minute).Format(time.RFC3339), name, severity, minutes)
	}
	c, _ := fake(t, called{"a/p:9090", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/api/v1/alerts" {
			fmt.Fprintf(w, `{"status":"success","data":{"alerts":[%s]}}`, strings.Join([]string{
				alert("PoolAlmostFull", "warning", 1), alert("StatementStuck", "critical", 9), alert("DeviceStalled", "critical", 6), alert("DeviceStalled", "critical", 7)}, ","))
			return
		}
		lab().ServeHTTP(w, r)
	})})
	p, err := c.findPrometheus(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	all, err := c.firing(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	printAlerts(&out, all, whytest.End)
	const want = `Firing:
  critical DeviceStalled (6m0s): It is DeviceStalled.
           https://example.org/DeviceStalled
  critical StatementStuck (9m0s): It is StatementStuck.
           https://example.org/StatementStuck
  warning  PoolAlmostFull (1m0s): It is PoolAlmostFull.
           https://example.org/PoolAlmostFull
`
	if out.String() != want {
		t.Errorf("%s\nwant\n%s", &out, want)
	}
}
