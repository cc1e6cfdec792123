package main

import (
	"crypto/tls"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/plumbline/plumbline/rules/why"
	"github.com/plumbline/plumbline/rules/why/whytest"
)

// refusing is a cluster with a fake API server that answers these paths, "" as not found, and refuses all others to its
// user, and a Prometheus that is known by its own address.
func refusing(t *testing.T, answers map[string]string) *cluster {
	t.Helper()
	prometheus := httptest.NewServer(lab())
	t.Cleanup(prometheus.Close)
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch answer, ok := answers[r.URL.Path]; {
		case !ok:
			w.WriteHeader(http.StatusForbidden)
			fmt.Fprintf(w, `{"kind":"Status","message":"%s is forbidden\u001b[2J"}`, r.URL.Path)
		case answer == "":
			http.NotFound(w, r)
		default:
			fmt.Fprint(w, answer)
		}
	}))
	t.Cleanup(api.Close)
	base, err := url.Parse(api.URL)
	if err != nil {
		t.Fatal(err)
	}
	return &cluster{o: options{url: prometheus.URL, window: 20 * time.Second}, base: base, client: api.Client(), now: func() time.Time { return whytest.End }}
}

// expect fails unless a text has all of these words and none of the others, and no control characters.
func expect(t *testing.T, text string, want, not []string) {
	t.Helper()
	for _, w := range want {
		if !strings.Contains(text, w) {
			t.Errorf("%q is missing:\n%s", w, text)
		}
	}
	for _, n := range append(not, "\x1b") {
		if strings.Contains(text, n) {
			t.Errorf("%q is printed:\n%s", n, text)
		}
	}
}

// A supported node of another cluster than the one Prometheus has.
const elsewhere = `{"items":[{"metadata":{"name":"elsewhere"},"status":{"nodeInfo":{"kernelVersion":"6.12.0","architecture":"amd64","operatingSystem":"linux"}}}]}`

// A user without the right to list nodes, or whose kubectl points at another cluster, has all that Prometheus knows,
// and no node is called silent. Nor is one on which no agent is started.
func TestStatusOfUnknownNodes(t *testing.T) {
	for name, c := range map[string]struct {
		answers   map[string]string
		want, not []string
	}{
		"no right": {nil, []string{"reports: 1. Which nodes there are is unknown", "403", "/api/v1/nodes is forbidden"}, []string{"Missing:"}},
		"no machine": {map[string]string{"/api/v1/nodes": `{"items":[{"metadata":{"name":"n"},"status":{"nodeInfo":{"operatingSystem":"linux"}}},
			{"metadata":{"name":"fargate","labels":{"eks.amazonaws.com/compute-type":"fargate"}},"status":{"nodeInfo":{"operatingSystem":"linux"}}}]}`},
			[]string{"reports from 1 of 1 Linux nodes"}, []string{"Missing:"}},
		"another cluster": {map[string]string{"/api/v1/nodes": elsewhere}, []string{"reports: 1. None is of kubectl's cluster", "--context"}, []string{"Missing:", "of 1 Linux nodes"}},
	} {
		t.Run(name, func(t *testing.T) {
			var out strings.Builder
			if err := refusing(t, c.answers).status(t.Context(), &out, why.PlainPrinter(&out)); err != nil {
				t.Fatal(err)
			}
			expect(t, out.String(), append(c.want, "No alert of Plumbline fires.", "r3 commits take"), c.not)
		})
	}
}

// What check may not read is reported as not known, all else is reported; a missing operator is a note.
func TestCheckWithFewRights(t *testing.T) {
	const version, operator, classes = "/version", "/apis/monitoring.coreos.com/v1", "/apis/storage.k8s.io/v1/storageclasses"
	const kubernetes = `{"gitVersion":"v1.36.0"}`
	for name, c := range map[string]struct {
		answers   map[string]string
		err       string
		want, not []string
	}{
		"few rights": {map[string]string{version: kubernetes}, "not known: nodes",
			[]string{"Nodes: not known: ", "Kubernetes: v1.36.0 will do.", "Prometheus operator: not known: ", "Storage classes: not known: ", "/sys/kernel/btf"}, []string{"nodes work"}},
		"no operator": {map[string]string{version: kubernetes, "/api/v1/nodes": elsewhere, operator: "", classes: `{}`}, "",
			[]string{"1 of 1 nodes work", "Prometheus operator: not there", "prometheus.operator=false", "Storage classes: there are none."}, []string{"not known"}},
		"half an operator": {map[string]string{version: kubernetes, "/api/v1/nodes": elsewhere, operator: `{"resources":[{"kind":"PodMonitor"}]}`}, "",
			[]string{"Prometheus operator: it has no PrometheusRule, ServiceMonitor; ", "prometheus.operator=false"}, nil},
		"old, and few rights": {map[string]string{version: `{"gitVersion":"v1.20.0"}`}, "not fit: Kubernetes; not known: nodes", []string{"v1.20.0 is older than"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			var out strings.Builder
			err := refusing(t, c.answers).check(t.Context(), &out)
			if (err == nil) != (c.err == "") || err != nil && err.Error() != c.err {
				t.Errorf("error %v, want %q", err, c.err)
			}
			expect(t, out.String(), c.want, c.not)
		})
	}
}

// For a user who may not read a claim or a pod, the plugin reads it from Prometheus.
func TestWhyWithFewRights(t *testing.T) {
	for target, want := range map[string]string{"data-r3": "lab/data-r3 commits take", "pod/r3-pg": "commits take"} {
		c := refusing(t, nil)
		c.o.target, c.o.namespace = target, "lab"
		if out, err := c.runWhy(t); err != nil || !strings.Contains(out, want) {
			t.Errorf("%s: %v\n%s", target, err, out)
		}
	}
}

// What an API server does not return, as it does not answer, does not know the user or fails, Prometheus returns at its
// own address. That an object does not exist, or has no claim, is an answer.
func TestWhyWithoutAnswers(t *testing.T) {
	const claim, pod = "/api/v1/namespaces/lab/persistentvolumeclaims/data-r3", "/api/v1/namespaces/lab/pods/r3-pg"
	for name, code := range map[string]int{"no login": http.StatusUnauthorized, "failing": http.StatusServiceUnavailable, "no answer": 0} {
		api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if code == 0 {
				panic(http.ErrAbortHandler) // ends the connection
			}
			w.WriteHeader(code)
		}))
		t.Cleanup(api.Close)
		base, err := url.Parse(api.URL)
		if err != nil {
			t.Fatal(err)
		}
		for target, want := range map[string]string{"data-r3": "lab/data-r3 commits take", "pod/r3-pg": "commits take"} {
			c := refusing(t, nil)
			c.base, c.client = base, api.Client()
			c.o.target, c.o.namespace = target, "lab"
			if out, err := c.runWhy(t); err != nil || !strings.Contains(out, want) {
				t.Errorf("%s: %s: %v\n%s", name, target, err, out)
			}
		}
	}
	for target, want := range map[string]string{"data-r3": "404", "pod/r3-pg": "pod lab/r3-pg mounts no claim"} {
		c := refusing(t, map[string]string{claim: "", pod: `{}`})
		c.o.target, c.o.namespace = target, "lab"
		if out, err := c.runWhy(t); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q\n%s", target, err, want, out)
		}
	}
}

// A claim and a pod of a cluster that is named are read from Prometheus: kubectl's cluster may be another one, which
// has no such claim, and another pod of this name.
func TestWhyOfAnotherCluster(t *testing.T) {
	for target, want := range map[string]string{"data-r3": "lab/data-r3 commits take", "pod/r3-pg": "commits take"} {
		c := central(t)
		other := refusing(t, map[string]string{
			"/api/v1/namespaces/lab/pods/r3-pg": `{"spec":{"volumes":[{"persistentVolumeClaim":{"claimName":"elsewhere"}}]}}`, "/api/v1/namespaces/lab/persistentvolumeclaims/data-r3": ""})
		c.base, c.client = other.base, other.client
		c.o.target, c.o.namespace, c.o.cluster, c.o.clusterNamed = target, "lab", "eu", true
		if out, err := c.runWhy(t); err != nil || !strings.Contains(out, want) {
			t.Errorf("%s: %v\n%s", target, err, out)
		}
	}
}

// Without a kubeconfig only Prometheus is queried, if its own address is known.
func TestNoCluster(t *testing.T) {
	prometheus := httptest.NewServer(lab())
	defer prometheus.Close()
	o := options{kubeconfig: filepath.Join(t.TempDir(), "none"), window: 20 * time.Second}
	var out strings.Builder
	status := func(c *cluster) error {
		c.now, c.notes = func() time.Time { return whytest.End }, nil
		return c.status(t.Context(), &out, why.PlainPrinter(&out))
	}
	if err := run(o, status); err == nil || !strings.HasPrefix(err.Error(), "no cluster: ") {
		t.Errorf("without a cluster and an address: %v", err)
	}
	o.url = prometheus.URL
	if err := run(o, status); err != nil {
		t.Fatal(err)
	}
	expect(t, out.String(), []string{"Which nodes there are is unknown", "no cluster: ", "r3 commits take"}, nil)
	t.Setenv("KUBECONFIG", o.kubeconfig)
	o.kubeconfig = ""
	if err := run(o, status); err != nil {
		t.Fatal(err)
	}
	expect(t, out.String(), []string{"no cluster: no kubeconfig"}, nil)

	// No kubeconfig names a namespace, which is reported.
	o.target = "data-r3"
	for namespace, want := range map[string]string{"": "The namespace is default", "lab": ""} {
		var notes strings.Builder
		o.namespace = namespace
		err := run(o, func(c *cluster) error {
			c.now, c.notes = func() time.Time { return whytest.End }, &notes
			_, err := c.runWhy(t)
			return err
		})
		if (err == nil) != (namespace == "lab") {
			t.Errorf("in namespace %q: %v", namespace, err)
		}
		if noted := strings.Contains(notes.String(), "The namespace is"); noted != (want != "") || !strings.Contains(notes.String(), want) {
			t.Errorf("in namespace %q it prints %q, want %q", namespace, notes.String(), want)
		}
	}
}

// A kubeconfig that is wrong, or lacks what is named, is an error, also where Prometheus' own address is known.
func TestWrongKubeconfig(t *testing.T) {
	const right = `{apiVersion: v1, kind: Config, clusters: [{name: a, cluster: {server: "https://127.0.0.1:1"}}], contexts: [{name: a, context: {cluster: a}}], current-context: a}`
	for name, c := range map[string]struct{ text, context, want string }{
		"no such context":          {right, "typo", `"typo" does not exist`},
		"no kubeconfig, a context": {"", "typo", "no such file"},
		"no YAML":                  {"clusters: [", "", "error loading config file"},
		"no certificate":           {strings.Replace(right, "{server:", "{certificate-authority: /nowhere/ca.crt, server:", 1), "", "unable to read certificate-authority"},
	} {
		t.Run(name, func(t *testing.T) {
			o := options{kubeconfig: filepath.Join(t.TempDir(), "kubeconfig"), context: c.context, url: "http://127.0.0.1:9"}
			if c.text != "" {
				if err := os.WriteFile(o.kubeconfig, []byte(c.text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if err := run(o, func(*cluster) error { return nil }); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}

// A certificate that is refused for its time leads to the clock.
func TestClockIsOff(t *testing.T) {
	server := httptest.NewTLSServer(http.NotFoundHandler())
	defer server.Close()
	for when, years := range map[string]int{"far ahead": 200, "far behind": -200} {
		c, err := newCluster(&rest.Config{Host: server.URL}, options{})
		if err != nil {
			t.Fatal(err)
		}
		trusted := server.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs
		c.client = &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: trusted, Time: func() time.Time { return time.Now().AddDate(years, 0, 0) }}}}
		if err := c.get(t.Context(), "/version", nil, &struct{}{}); err == nil || !strings.Contains(err.Error(), "or set the clock of this machine") {
			t.Errorf("%s: %v", when, err)
		}
	}
}
