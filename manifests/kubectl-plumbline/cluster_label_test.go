package main

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/plumbline/plumbline/loadgen/predict/input"
	"github.com/plumbline/plumbline/rules/why"
	"github.com/plumbline/plumbline/rules/why/whytest"
)

// central is a Prometheus with the series of two clusters of equal names, and an API server with the nodes of one of
// them.
func central(t *testing.T) *cluster {
	t.Helper()
	r := whytest.Clusters(map[string]float64{"eu": 5, "us\x1b[2J": 50})
	r.Gauge(`plumbline_volume_info{cluster="us\x1b[2J",node="only-there",volume="v"}`, 1)
	r.Gauge(`ALERTS{cluster="eu",alertname="CanarySlow",alertstate="firing",severity="warning",part_of="plumbline"}`, 1)
	r.Gauge(`ALERTS{cluster="us\x1b[2J",alertname="ReplicaStuck",alertstate="firing",severity="critical",part_of="plumbline"}`, 1)
	of := func(name string) map[string]string {
		return map[string]string{"summary": "It is " + name + ".", "runbook_url": "https://example.org/rules/runbooks/x.md"}
	}
	prometheus := httptest.NewServer(r.Handler(map[string]map[string]string{"CanarySlow": of("slow"), "ReplicaStuck": of("stuck")}))
	t.Cleanup(prometheus.Close)
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		var items []any
		for _, name := range []string{"n", "only-there"} {
			items = append(items, machine(name, "6.12.0", "amd64", "linux").Object)
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"items": items})
	}))
	t.Cleanup(api.Close)
	base, err := url.Parse(api.URL)
	if err != nil {
		t.Fatal(err)
	}
	return &cluster{o: options{url: prometheus.URL, window: 20 * time.Second}, base: base, client: api.Client(), now: func() time.Time { return whytest.End }}
}

// Over a store of several clusters, each command reports on the one that is named, and on none without a name.
func TestCluster(t *testing.T) {
	commands := map[string]func(context.Context, *cluster, *strings.Builder) error{
		"status": func(ctx context.Context, c *cluster, out *strings.Builder) error {
			return c.status(ctx, out, why.PlainPrinter(out))
		},
		"why": func(ctx context.Context, c *cluster, out *strings.Builder) error {
			c.o.target = "class/r3"
			return c.why(ctx, out, why.PlainPrinter(out))
		},
		"predict": func(ctx context.Context, c *cluster, out *strings.Builder) error {
			c.o.target, c.o.predict = "class/r3", input.Question{Class: "r1", Windows: 4}
			return c.predict(ctx, out)
		},
		"verify": func(ctx context.Context, c *cluster, out *strings.Builder) error { return c.verify(ctx, out) },
	}
	for command, c := range map[string]struct{ want, not []string }{
		"status":  {[]string{"reports from 1 of 2 Linux nodes", "CanarySlow", "r3 commits take 2.8 times"}, []string{"ReplicaStuck"}},
		"why":     {[]string{"r3 commits take 2.8 times local's: of 6.1 ms"}, []string{"servers"}},
		"predict": {[]string{"r3, from r3 to r1"}, nil},
		"verify":  {[]string{"The chain is whole.", "found    agent       1 scraped"}, []string{"MISSING"}},
	} {
		t.Run(command, func(t *testing.T) {
			var out strings.Builder
			one := central(t)
			one.o.cluster, one.o.clusterNamed = "eu", true
			if err := commands[command](t.Context(), one, &out); err != nil {
				t.Errorf("of one cluster: %v", err)
			}
			for _, want := range c.want {
				if !strings.Contains(out.String(), want) {
					t.Errorf("%q is missing:\n%s", want, &out)
				}
			}
			for _, not := range c.not {
				if strings.Contains(out.String(), not) {
					t.Errorf("%q is printed:\n%s", not, &out)
				}
			}
			wrong := central(t)
			wrong.o.cluster, wrong.o.clusterNamed = "eu-2", true
			for name, c := range map[string]*cluster{"not named": central(t), "named wrongly": wrong} {
				var out strings.Builder
				err := commands[command](t.Context(), c, &out)
				if err == nil {
					t.Fatalf("%s: no refusal:\n%s", name, &out)
				}
				output := out.String() + err.Error()
				if !strings.Contains(output, `"eu", "us?[2J"`) || !strings.Contains(output, "--cluster=NAME") || strings.Contains(output, "\x1b") {
					t.Errorf("%s: %q", name, output)
				}
			}
		})
	}
}
