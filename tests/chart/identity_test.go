package chart

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/plumbline/plumbline/exporters/agent/server/servertest"
	"github.com/plumbline/plumbline/tests/kubetest"
	"github.com/plumbline/plumbline/tests/testkit"
)

// identity has the agent, with its own rights only, name real PostgreSQL servers in cgroups as the kubelet makes them:
// while the API server is away, when it comes, when it goes again, over a restart; beside it an impostor with a cgroup
// of his own.
func identity(t *testing.T, s *kubetest.Server) {
	testkit.NeedRoot(t)
	testkit.NeedBPF(t)
	s.Namespace("plumbline")
	s.Namespace("db")
	_, must := helm(t, s, "plumbline")
	must("install", "plumbline", chart(t), "--set="+registry, "--set=rules.enabled=false", "--set=dashboards.enabled=false")
	t.Cleanup(func() { must("uninstall", "plumbline") })
	number := strings.Repeat("ab", 32)
	s.Apply(&unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Pod",
		"metadata": map[string]any{"name": "pg-1", "namespace": "db", "ownerReferences": []any{map[string]any{
			"apiVersion": "postgresql.cnpg.io/v1", "kind": "Cluster", "name": "pg", "uid": "u", "controller": true}}},
		"spec": map[string]any{"nodeName": "n1", "containers": []any{map[string]any{"name": "postgres", "image": "i"}}},
		"status": map[string]any{"podIP": "10.244.0.5", "podIPs": []any{map[string]any{"ip": "10.244.0.5"}}, "containerStatuses": []any{map[string]any{
			"name": "postgres", "containerID": "containerd://" + number, "image": "i", "imageID": "i", "ready": true, "restartCount": int64(0)}}},
	}})
	pod, err := s.Client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "pods"}).Namespace("db").Get(context.Background(), "pg-1", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	uid := string(pod.GetUID())
	group := newCgroups(t)
	kubelets := group.make("kubepods", "pod"+uid, number)
	impostors := group.make("user", "kubepods", "pod"+uid, number)
	if err := os.Chown(filepath.Join(group.top, "user"), 1000, 1000); err != nil {
		t.Fatal(err)
	}
	pg := group.postgres(kubelets, map[string]string{"listen_addresses": "0.0.0.0", "cluster_name": "its own"})
	group.postgres(impostors, map[string]string{"cluster_name": "db/pg-1"})

	token := s.Token("plumbline", "plumbline-agent")
	g := &kubetest.Gate{To: strings.TrimPrefix(s.Config.Host, "https://"), At: testkit.FreeAddress(t)}
	through := *s
	through.Config = rest.CopyConfig(s.Config)
	through.Config.Host = "https://" + g.At
	e := startExporter(t, account{program: "plumbline-agent",
		args: []string{"--kubernetes", "--node=n1", "--no-collector.replica", "--no-collector.device", "--query.scan-interval=1s"}}, through.Kubeconfig(token))

	// Away: nothing is exported under a name that could be another's, and nothing is lost.
	testkit.Eventually(t, testkit.DefaultTimeout, func() error { // it answers when it has scanned all servers
		_, err := e.scrape()
		return err
	})
	const statements = 50
	pg.Bench(t, "select 1;\n", fmt.Sprintf("-t%d", statements))
	testkit.Eventually(t, testkit.DefaultTimeout, func() error {
		return e.is("uid:"+uid, statements, map[string]string{"owner": "", "pod": ""})
	})
	testkit.Eventually(t, testkit.DefaultTimeout, func() error {
		return e.is("host:db/pg-1", 0, map[string]string{"owner": "", "pod": "", "namespace": ""})
	})
	for _, name := range []string{"plumbline_server_pods_untrusted", "plumbline_server_names_provisional"} {
		if err := e.atLeast(name, 1); err != nil {
			t.Error(err)
		}
	}

	known := map[string]string{"namespace": "db", "pod": "pg-1", "container": "postgres", "owner_kind": "Cluster", "owner": "pg", "node": "n1"}
	g.Open(t)
	testkit.Eventually(t, testkit.DefaultTimeout, func() error { return e.is("db/pg-1", statements, known) })
	families, err := e.scrape()
	if err != nil {
		t.Fatal(err)
	}
	if value(families["plumbline_server_address_info"], "server", "db/pg-1", "address", "10.244.0.5", "port", fmt.Sprint(pg.Port)) == nil {
		t.Errorf("addresses: %v", families["plumbline_server_address_info"])
	}
	for name, f := range families {
		if value(f, "server", "uid:"+uid) != nil {
			t.Errorf("%s is exported under the provisional name, too", name)
		}
	}

	// Away again, and a restart meanwhile.
	g.Shut()
	if err := pg.Stop(); err != nil {
		t.Fatal(err)
	}
	again := group.postgres(kubelets, map[string]string{"listen_addresses": "0.0.0.0"})
	testkit.Eventually(t, testkit.DefaultTimeout, func() error { return e.is("db/pg-1", 0, map[string]string{"data_directory": again.Data}) })
	again.Bench(t, "select 1;\n", fmt.Sprintf("-t%d", statements))
	testkit.Eventually(t, testkit.DefaultTimeout, func() error { return e.is("db/pg-1", 2*statements, nil) })
	g.Open(t)
	testkit.Eventually(t, testkit.DefaultTimeout, func() error { return e.is("db/pg-1", 2*statements, known) })
}

// atLeast checks a gauge that other servers of this machine count in, too.
func (e exporter) atLeast(name string, least float64) error {
	families, err := e.scrape()
	if err != nil {
		return err
	}
	if got := value(families[name]); got == nil || *got < least {
		return fmt.Errorf("%s is %v, want at least %v", name, families[name], least)
	}
	return nil
}

// is returns an error unless a server has a name, the expected selects, and labels.
func (e exporter) is(server string, selects uint64, info map[string]string) error {
	families, err := e.scrape()
	if err != nil {
		return err
	}
	var found *dto.Metric
	for _, m := range families["plumbline_server_info"].GetMetric() {
		if labelsOf(m)["server"] == server {
			found = m
		}
	}
	if found == nil {
		return fmt.Errorf("no server %s: %v", server, families["plumbline_server_info"])
	}
	for name, want := range info {
		if got := labelsOf(found)[name]; got != want {
			return fmt.Errorf("%s has %s %q, want %q", server, name, got, want)
		}
	}
	got := uint64(0)
	for _, m := range families["plumbline_query_duration_seconds"].GetMetric() {
		if l := labelsOf(m); l["server"] == server && l["command"] == "select" {
			got += m.GetHistogram().GetSampleCount()
		}
	}
	// pgbench runs a few queries of its own at its start.
	if got < selects || selects > 0 && got > selects+20 {
		return fmt.Errorf("%s has %d selects, want %d", server, got, selects)
	}
	return nil
}

func labelsOf(m *dto.Metric) map[string]string {
	l := map[string]string{}
	for _, p := range m.GetLabel() {
		l[p.GetName()] = p.GetValue()
	}
	return l
}

// cgroups makes cgroups below one of the test's own.
type cgroups struct {
	t         *testing.T
	base, top string
	home      string // where the test itself is
	made      []string
}

func newCgroups(t *testing.T) *cgroups {
	t.Helper()
	text, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		t.Fatal(err)
	}
	c := &cgroups{t: t}
	for line := range strings.Lines(string(text)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		base := "/sys/fs/cgroup"
		if parts[1] == "pids" {
			base = "/sys/fs/cgroup/pids"
		} else if parts[1] != "" {
			continue
		}
		if _, err := os.Stat(filepath.Join(base, "cgroup.procs")); err == nil && c.base != "/sys/fs/cgroup/pids" {
			c.base, c.home = base, filepath.Join(base, parts[2])
		}
	}
	if c.base == "" {
		testkit.Skip(t, "no cgroups")
	}
	c.top = filepath.Join(c.base, fmt.Sprintf("plumbline-identity-%d", os.Getpid()))
	t.Cleanup(func() {
		for i := len(c.made) - 1; i >= 0; i-- {
			testkit.Eventually(t, testkit.DefaultTimeout, func() error { return os.Remove(c.made[i]) })
		}
	})
	return c
}

// make makes a cgroup and those above it.
func (c *cgroups) make(parts ...string) string {
	c.t.Helper()
	at := c.top
	for _, part := range append([]string{""}, parts...) {
		at = filepath.Join(at, part)
		if _, err := os.Stat(at); err == nil {
			continue
		}
		if err := os.Mkdir(at, 0o755); err != nil {
			c.t.Fatal(err)
		}
		c.made = append(c.made, at)
	}
	return at
}

// postgres starts a server in a cgroup, where it is from its first moment on.
func (c *cgroups) postgres(cgroup string, settings map[string]string) *servertest.Postgres {
	c.t.Helper()
	enter := func(cgroup string) {
		if err := os.WriteFile(filepath.Join(cgroup, "cgroup.procs"), fmt.Append(nil, os.Getpid()), 0o644); err != nil {
			c.t.Fatal(err)
		}
	}
	enter(cgroup)
	defer enter(c.home)
	return servertest.StartPostgres(c.t, settings, nil)
}
