package main

import (
	"cmp"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/plumbline/plumbline/manifests/kubectl-plumbline/answer"
	"github.com/plumbline/plumbline/rules"
	"github.com/plumbline/plumbline/rules/histograms"
	"github.com/plumbline/plumbline/rules/why/whytest"
	"github.com/plumbline/plumbline/tests/schematest"
	"github.com/plumbline/plumbline/tests/testkit"
)

// stage is an agent with one database server, and the Prometheus that scrapes it. What is set is missing.
type stage struct {
	noTarget, noNative, noHonor, noRules bool
	// classic is rules that read classic histograms.
	classic                     bool
	noFeature, noServer, idle   bool
	noPhases, noVolume, noClaim bool
	another                     bool // a server that runs no statement
	strangers                   bool // things that the agent does not identify
}

// exporter serves the agent's series, a statement more at each scrape.
func (s stage) exporter(t *testing.T) string {
	t.Helper()
	registry := prometheus.NewRegistry()
	gauge := func(name string, value float64, labels prometheus.Labels) {
		g := prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: name, ConstLabels: labels})
		g.Set(value)
		registry.MustRegister(g)
	}
	if s.noFeature {
		gauge("plumbline_feature_available", 0, prometheus.Labels{"feature": "statements"})
	} else {
		gauge("plumbline_feature_available", 1, prometheus.Labels{"feature": "statements"})
	}
	server := prometheus.Labels{"server": "shop/shop-1", "db_system": "postgresql"}
	with := func(labels prometheus.Labels, more ...string) prometheus.Labels {
		all := prometheus.Labels{}
		for k, v := range labels {
			all[k] = v
		}
		for i := 0; i < len(more); i += 2 {
			all[more[i]] = more[i+1]
		}
		return all
	}
	if !s.noServer {
		gauge("plumbline_server_info", 1, with(server, "node", "n", "namespace", "shop", "pod", "shop-1"))
	}
	for reason, n := range map[string]float64{"postgresql": 2, "mysql": 0, "new": 1} {
		if !s.strangers {
			n = 0
		}
		gauge("plumbline_unidentified_objects", n, prometheus.Labels{"node": "n", "kind": "listener", "reason": reason})
	}
	if s.another {
		gauge("plumbline_server_info", 1, prometheus.Labels{"server": "books/books-0", "db_system": "mysql", "node": "n", "namespace": "books", "pod": "books-0"})
	}
	durations := prometheus.NewHistogram(prometheus.HistogramOpts{Name: "plumbline_query_duration_seconds", Help: "durations",
		ConstLabels: with(server, "node", "n", "command", "commit"), Buckets: []float64{0.01, 0.1}, NativeHistogramBucketFactor: 1.1})
	registry.MustRegister(durations)
	phases := prometheus.NewCounter(prometheus.CounterOpts{Name: "plumbline_query_phase_seconds_total", Help: "phases",
		ConstLabels: with(server, "node", "n", "command", "commit", "phase", "sync")})
	if !s.noPhases {
		registry.MustRegister(phases)
	}
	volume, claim := "pvc-1", "data-shop-1"
	if s.noVolume {
		volume = ""
	}
	if s.noClaim {
		claim = ""
	}
	gauge("plumbline_server_volume_info", 1, with(server, "node", "n", "device", "sdb", "volume", volume, "purpose", "data"))
	gauge("plumbline_volume_info", 1, prometheus.Labels{"node": "n", "device": "sdb", "volume": "pvc-1", "namespace": "shop", "persistentvolumeclaim": claim,
		"storageclass": "fast", "backend": "longhorn-v1", "pod": "shop-1"})
	handler := promhttp.HandlerFor(registry, promhttp.HandlerOpts{})
	e := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !s.idle {
			durations.Observe(0.005)
			phases.Add(0.005)
		}
		handler.ServeHTTP(w, r)
	}))
	t.Cleanup(e.Close)
	return strings.TrimPrefix(e.URL, "http://")
}

// prometheus starts a real one with the project's rules, and returns its address.
func (s stage) prometheus(t *testing.T) string {
	t.Helper()
	program := testkit.Tool(t, "prometheus")
	folder := t.TempDir()
	kind := histograms.Kind("")
	if s.classic {
		kind = histograms.Classic
	}
	files, err := rules.Files(kind)
	if err != nil {
		t.Fatal(err)
	}
	if !s.noRules {
		if err := os.WriteFile(filepath.Join(folder, "query.rules.yaml"), files["query.rules.yaml"], 0o644); err != nil {
			t.Fatal(err)
		}
	}
	targets := fmt.Sprintf("[%q]", s.exporter(t))
	if s.noTarget {
		targets = "[]"
	}
	config := filepath.Join(folder, "prometheus.yml")
	text := fmt.Sprintf(`global: {scrape_interval: 500ms, scrape_timeout: 500ms, evaluation_interval: 500ms}
rule_files: [%q]
scrape_configs:
  - {job_name: agent, honor_labels: %t, scrape_native_histograms: %t, static_configs: [{targets: %s, labels: {namespace: plumbline}}]}
`, filepath.Join(folder, "*.rules.yaml"), !s.noHonor, !s.noNative, targets)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	address := testkit.FreeAddress(t)
	log, err := os.Create(filepath.Join(folder, "log"))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, "--config.file="+config, "--storage.tsdb.path="+filepath.Join(folder, "data"), "--web.listen-address="+address)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		log.Close()
		if t.Failed() {
			output, _ := os.ReadFile(log.Name())
			t.Logf("prometheus: %.3000s", output)
		}
	})
	return "http://" + address
}

// verify queries once, or until the wait is over.
func verify(t *testing.T, url string, wait time.Duration) (string, error) {
	t.Helper()
	var out strings.Builder
	c := &cluster{o: options{url: url, window: time.Minute, wait: wait}, now: time.Now}
	r, err := c.queryVerify(t.Context())
	if err != nil {
		return "", err
	}
	schematest.Valid(t, schematest.Compile(t, answer.Schema), r.document)
	if r.document.(*answer.Verification).Whole != (r.no == nil) {
		t.Errorf("%+v, and %v", r.document, r.no)
	}
	err = cmp.Or(r.text(&out, nil), r.no)
	return out.String(), err
}

// The chain in a real Prometheus with the project's rules: whole, it is waited for; with each thing missing once,
// that thing is named, and what to do.
func TestVerify(t *testing.T) {
	for name, c := range map[string]struct {
		stage  stage
		broken string
		want   []string
	}{
		"whole":   {stage{}, "", []string{"shop/shop-1 on node n", "volume pvc-1, claim shop/data-shop-1, class fast", "The chain is whole."}},
		"another": {stage{another: true}, "", []string{"found server books/books-0, shop/shop-1", "Not joined: books/books-0: no statement.", "The chain is whole."}},
		"strangers": {stage{strangers: true}, "", []string{"Not identified by agents: - listener new: 1 on n: this plugin is older than the agent",
			"listener postgresql: 2 on n: programs listen on PostgreSQL's port", "--query.server-name=ENGINE=NAME", "The chain is whole."}},
		"no server but strangers": {stage{noServer: true, strangers: true}, "server", []string{"listener postgresql: 2 on n:", "No database server is known"}},
		"no target":               {stage{noTarget: true}, "agent", []string{"Prometheus has no series of the agent", "prometheus.release=RELEASE"}},
		"no feature":              {stage{noFeature: true}, "kernel", []string{"found agent 1 scraped", "No node can measure statements", "--check"}},
		"no server":               {stage{noServer: true}, "server", []string{"on 1 of 1 nodes", "No database server is known"}},
		"idle":                    {stage{idle: true}, "statements", []string{"No statement of shop/shop-1 ended in the last 1m", "canaries"}},
		"no native":               {stage{noNative: true}, "statements", []string{"no native histograms", "scrape_native_histograms: true", "rules/classic"}},
		"classic":                 {stage{noNative: true, classic: true}, "", []string{"shop/shop-1 on node n", "The chain is whole."}},
		"no phases":               {stage{noPhases: true}, "phases", []string{"found statements shop/shop-1", "of shop/shop-1 there is no phase"}},
		"no volume":               {stage{noVolume: true}, "volume", []string{"found phases shop/shop-1", "The data of shop/shop-1 is on no volume"}},
		"no claim":                {stage{noClaim: true}, "claim", []string{"found volume shop/shop-1", "The volume of shop/shop-1 has no claim", "can-i list persistentvolumes"}},
		"renamed":                 {stage{noHonor: true}, "claim", []string{"exported_", "honor_labels: true"}},
		"no rules":                {stage{noRules: true}, "join", []string{"found claim shop/shop-1", "the rules that join it are not there", "plumbline-rules"}},
		"no Prometheus":           {stage{}, "Prometheus", []string{"prometheus.url", "network policy"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := "http://" + testkit.FreeAddress(t)
			if c.broken != "Prometheus" {
				url = c.stage.prometheus(t)
			}
			c.want = append(c.want, "in Prometheus at "+url)
			complete := func(out string) error {
				flat := strings.Join(strings.Fields(out), " ")
				for _, want := range c.want {
					if !strings.Contains(flat, want) {
						return fmt.Errorf("%q is missing:\n%s", want, out)
					}
				}
				return nil
			}
			if c.broken == "" {
				out, err := verify(t, url, testkit.DefaultTimeout)
				if err != nil || complete(out) != nil {
					t.Errorf("%v\n%v", err, complete(out))
				}
				return
			}
			// Links before the one that is missing come with the first scrapes.
			testkit.Eventually(t, testkit.DefaultTimeout, func() error {
				out, err := verify(t, url, 0)
				if err == nil {
					return fmt.Errorf("taken for whole:\n%s", out)
				}
				if !strings.HasSuffix(err.Error(), "broken at: "+c.broken) {
					return fmt.Errorf("%w; want %s\n%s", err, c.broken, out)
				}
				return complete(out)
			})
		})
	}
}

// A password in Prometheus' address is not printed, as many may read a pod's log.
func TestVerifyPassword(t *testing.T) {
	out, err := verify(t, "http://reader:secret@"+testkit.FreeAddress(t), 0)
	if err == nil || !strings.Contains(out, "reader") || strings.Contains(out+err.Error(), "secret") {
		t.Errorf("%v\n%s", err, out)
	}
}

// A Prometheus that scrapes nothing of Plumbline is found by its service nevertheless, and queried for the reason. The
// API server is a fake.
func TestVerifySilentPrometheus(t *testing.T) {
	empty := whytest.NewRecording().Handler(nil)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /api/v1/services", func(w http.ResponseWriter, r *http.Request) {
		items := ""
		if r.FormValue("labelSelector") == "operated-prometheus=true" {
			items = `{"metadata":{"name":"prometheus-operated","namespace":"monitoring"},"spec":{"ports":[{"name":"http-web","port":9090}]}}`
		}
		fmt.Fprintf(w, `{"items":[%s]}`, items)
	})
	const proxy = "/api/v1/namespaces/monitoring/services/prometheus-operated:9090/proxy"
	mux.Handle(proxy+"/", http.StripPrefix(proxy, empty))
	server := httptest.NewServer(mux)
	defer server.Close()
	base, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	c := &cluster{o: options{window: time.Minute}, base: base, client: server.Client(), now: time.Now}
	if err := c.verify(t.Context(), &out); err == nil || !strings.HasSuffix(err.Error(), "broken at: agent") || !strings.Contains(out.String(), "prometheus.release=RELEASE") ||
		!strings.Contains(out.String(), "at monitoring/prometheus-operated:9090,") {
		t.Errorf("%v\n%s", err, &out)
	}
}
