package main

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/plumbline/plumbline/rules/why"
	"github.com/plumbline/plumbline/rules/why/whytest"
	"github.com/plumbline/plumbline/tests/testkit"
)

// called is a service of the label operated-prometheus=true, as NAMESPACE/SERVICE:PORT, and what answers behind it.
type called struct {
	where   string
	handler http.Handler
}

// fake is a cluster with a fake API server, which has services and proxies to them.
func fake(t *testing.T, services ...called) (c *cluster, notes *bytes.Buffer) {
	t.Helper()
	mux := http.NewServeMux()
	var items []string
	for _, s := range services {
		namespace, rest, _ := strings.Cut(s.where, "/")
		name, port, _ := strings.Cut(rest, ":")
		items = append(items, fmt.Sprintf(`{"metadata":{"name":%q,"namespace":%q},"spec":{"ports":[{"name":"web","port":%s}]}}`, name, namespace, port))
		proxy := fmt.Sprintf("/api/v1/namespaces/%s/services/%s:%s/proxy", namespace, name, port)
		mux.Handle(proxy+"/", http.StripPrefix(proxy, s.handler))
	}
	mux.HandleFunc("GET /api/v1/services", func(w http.ResponseWriter, r *http.Request) {
		if r.FormValue("labelSelector") == "operated-prometheus=true" {
			fmt.Fprintf(w, `{"items":[%s]}`, strings.Join(items, ","))
			return
		}
		fmt.Fprint(w, `{"items":[]}`)
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	base, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	notes = &bytes.Buffer{}
	return &cluster{o: options{target: "class/r3", window: 20 * time.Second}, base: base, client: server.Client(), notes: notes, now: func() time.Time { return whytest.End }}, notes
}

// runWhy runs why on the fake's class r3.
func (c *cluster) runWhy(t *testing.T) (string, error) {
	t.Helper()
	var out strings.Builder
	err := c.why(t.Context(), &out, why.PlainPrinter(&out))
	return out.String(), err
}

func lab() http.Handler   { return whytest.Healthy().Record().Handler(nil) }
func empty() http.Handler { return whytest.NewRecording().Handler(nil) }

// The plugin prints which service it queries, and why; one that poses as Prometheus in another namespace is not chosen.
func TestChosen(t *testing.T) {
	const label = "operated-prometheus=true"
	for name, c := range map[string]struct {
		services []called
		verify   bool
		chosen   string   // "" if it is refused
		want     []string // of the note, or of the refusal
	}{
		"one":                    {[]called{{"monitoring/p:9090", lab()}}, false, "monitoring/p:9090", []string{label, "--prometheus"}},
		"two in a namespace":     {[]called{{"monitoring/p:9090", lab()}, {"monitoring/operated:9090", lab()}}, false, "monitoring/p:9090", []string{label}},
		"another without series": {[]called{{"evil/p:9090", empty()}, {"monitoring/p:9090", lab()}}, false, "monitoring/p:9090", []string{"evil/p:9090: it has none"}},
		"one that poses":         {[]called{{"evil/p:9090", lab()}, {"monitoring/p:9090", lab()}}, false, "", []string{"evil/p:9090 (label " + label, "monitoring/p:9090 (label", "--prometheus=NAMESPACE/SERVICE:PORT"}},
		"none with series":       {[]called{{"a/p:9090", empty()}}, false, "", []string{"a/p:9090: it has none", "--prometheus="}},
		"verify takes a silent":  {[]called{{"a/p:9090", empty()}}, true, "a/p:9090", []string{label}},
		"verify of two silent":   {[]called{{"a/p:9090", empty()}, {"b/p:9090", empty()}}, true, "", []string{"a/p:9090 (label", "b/p:9090 (label", "--prometheus="}},
	} {
		t.Run(name, func(t *testing.T) {
			f, notes := fake(t, c.services...)
			f.silent = c.verify
			_, err := f.findPrometheus(t.Context())
			output := notes.String()
			if err != nil {
				output = err.Error()
			}
			if (err == nil) != (c.chosen != "") || err == nil && (f.chosen != c.chosen || !strings.Contains(output, "Prometheus is "+c.chosen)) {
				t.Errorf("the Prometheus is %q, want %q: %v", f.chosen, c.chosen, err)
			}
			for _, want := range c.want {
				if !strings.Contains(output, want) {
					t.Errorf("%q is not reported: %s", want, output)
				}
			}
		})
	}
	f, notes := fake(t, called{"evil/p:9090", lab()}, called{"monitoring/p:9090", lab()})
	f.o.prometheus = "monitoring/p:9090"
	if out, err := f.runWhy(t); err != nil || !strings.Contains(out, "r3 commits") || !strings.Contains(notes.String(), "monitoring/p:9090, as --prometheus") {
		t.Errorf("the one that is named: %v\n%s%s", err, notes, out)
	}
	f.o.url = "http://127.0.0.1:9"
	if _, err := f.findPrometheus(t.Context()); err == nil || !strings.Contains(err.Error(), "PLUMBLINE_PROMETHEUS") {
		t.Errorf("named twice: %v", err)
	}
	f.o.prometheusFlag = true
	f.o.prefer()
	if _, err := f.findPrometheus(t.Context()); err != nil || f.chosen != "monitoring/p:9090" {
		t.Errorf("named on the command line, another by the environment: %s, %v", f.chosen, err)
	}
}

// What a peer answers does not reach a terminal as it is, and has no lines of its own: neither in an answer nor in an
// error.
func TestHostileWords(t *testing.T) {
	const words = `\u001b[2J\u001b]0;owned\u0007\nkubectl-plumbline: all is well\u202e`
	refuses := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusBadRequest)
		fmt.Fprintf(w, `{"status":"error","errorType":"bad_data","error":"%s"}`, words)
	})
	r := whytest.Healthy().Record()
	r.Gauge(`ALERTS{alertname="`+words+`",alertstate="firing",severity="`+words+`",part_of="plumbline"}`, 1)
	alerts := r.Handler(map[string]map[string]string{"\x1b[2J\x1b]0;owned\x07\nkubectl-plumbline: all is well\u202e": {"summary": "\x1b[2J\nx", "runbook_url": "/rules/runbooks/"}})
	for name, handler := range map[string]http.Handler{"errors": refuses, "alerts": alerts} {
		for _, named := range []bool{false, true} {
			for command, do := range map[string]func(c *cluster, out *strings.Builder) error{
				"why":    func(c *cluster, out *strings.Builder) error { return c.why(t.Context(), out, why.PlainPrinter(out)) },
				"verify": func(c *cluster, out *strings.Builder) error { return c.verify(t.Context(), out) },
				"firing": func(c *cluster, out *strings.Builder) error {
					p, err := c.findPrometheus(t.Context())
					if err != nil {
						return err
					}
					all, err := c.firing(t.Context(), p)
					printAlerts(out, all, c.now())
					return err
				},
			} {
				c, notes := fake(t, called{"a/p:9090", handler})
				if named {
					c.o.prometheus = "a/p:9090"
				}
				var out, errors strings.Builder
				err := do(c, &out)
				if err != nil {
					printError(&errors, err)
				}
				for what, text := range map[string]string{"notes": notes.String(), "out": out.String(), "errors": errors.String()} {
					if strings.ContainsAny(text, "\x1b\x07\u202e") || strings.Contains(text, "\nkubectl-plumbline: all is well") {
						t.Errorf("%s, %s, named %t: in %s: %q", name, command, named, what, text)
					}
				}
				if name == "errors" && err == nil && !strings.Contains(out.String(), "Which alerts fire is not known: ") {
					t.Errorf("%s: no error", command)
				}
			}
		}
	}
}

// A service that never responds times out on its own, and does not keep the others from being queried, however many
// there are.
func TestHanging(t *testing.T) {
	hangs := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	each := 200 * time.Millisecond
	var services []called
	for i := range 2 * atOnce {
		services = append(services, called{fmt.Sprintf("evil/p-%d:9090", i), hangs})
	}
	services = append(services, called{"monitoring/p:9090", lab()})
	testkit.Eventually(t, testkit.DefaultTimeout, func() error {
		timeout := each
		each *= 2 // on a busy machine the one that answers is late, too
		c, notes := fake(t, services...)
		c.candidateTimeout = timeout
		began := time.Now()
		out, err := c.runWhy(t)
		if took := time.Since(began); took > 20*timeout {
			return fmt.Errorf("it took %v, %d services of %v each", took, len(services), timeout)
		}
		if err != nil || !strings.Contains(out, "r3 commits") || c.chosen != "monitoring/p:9090" {
			return fmt.Errorf("the Prometheus is %s: %w\n%s", c.chosen, err, out)
		}
		if want := fmt.Sprintf("evil/p-0:9090: no answer within %v", timeout); !strings.Contains(notes.String(), want) {
			return fmt.Errorf("%q is not reported: %s", want, notes)
		}
		return nil
	})

	c, _ := fake(t, called{"a/p:9090", hangs})
	c.candidateTimeout = 200 * time.Millisecond
	if _, err := c.runWhy(t); err == nil || !strings.Contains(err.Error(), "a/p:9090: no answer within 200ms") || !strings.Contains(err.Error(), "--prometheus=") {
		t.Errorf("only one that hangs: %v", err)
	}
}
