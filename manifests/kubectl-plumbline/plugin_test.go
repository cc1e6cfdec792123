package main

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/plumbline/plumbline/loadgen/predict/input"
	"github.com/plumbline/plumbline/rules/why"
	"github.com/plumbline/plumbline/rules/why/whytest"
	"github.com/plumbline/plumbline/tests/kubetest"
	"github.com/plumbline/plumbline/tests/testkit"
)

// object makes an object of an API.
func object(apiVersion, kind, namespace, name string, more map[string]any) *unstructured.Unstructured {
	metadata := map[string]any{"name": name}
	if namespace != "" {
		metadata["namespace"] = namespace
	}
	o := map[string]any{"apiVersion": apiVersion, "kind": kind, "metadata": metadata}
	for k, v := range more {
		if m, ok := v.(map[string]any); ok && k == "metadata" {
			for a, b := range m {
				metadata[a] = b
			}
			continue
		}
		o[k] = v
	}
	return &unstructured.Unstructured{Object: o}
}

func machine(name, kernel, arch, system string) *unstructured.Unstructured {
	return object("v1", "Node", "", name, map[string]any{"status": map[string]any{
		"conditions": []any{map[string]any{"type": "Ready", "status": "True"}},
		"nodeInfo": map[string]any{"kernelVersion": kernel, "osImage": "An OS", "architecture": arch, "operatingSystem": system, "containerRuntimeVersion": "containerd://2.1",
			"machineID": "m", "systemUUID": "u", "bootID": "b", "kubeletVersion": "v1.36.0", "kubeProxyVersion": "v1.36.0"},
	}})
}

// address is one of the machine's that is not loopback: no endpoint may be.
func address(t *testing.T) string {
	t.Helper()
	all, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range all {
		if ip, ok := a.(*net.IPNet); ok && ip.IP.To4() != nil && !ip.IP.IsLoopback() && !ip.IP.IsLinkLocalUnicast() {
			return ip.IP.String()
		}
	}
	testkit.Skip(t, "the machine has no address but loopback, which no endpoint may have")
	return ""
}

// serve serves a recorded lab on the machine's own address, and returns its port.
func serve(t *testing.T, at string, r *whytest.Recording) int64 {
	t.Helper()
	l, err := net.Listen("tcp", net.JoinHostPort(at, "0"))
	if err != nil {
		t.Fatal(err)
	}
	server := &httptest.Server{Listener: l, Config: &http.Server{Handler: r.Handler(map[string]map[string]string{
		"ReplicaStuck": {"summary": "Replica r3-2 does not answer.", "runbook_url": "https://example.org/rules/runbooks/stall.md#replicastuck"},
		"Watchdog":     {"summary": "An alert that always fires.", "runbook_url": "https://example.org/watchdog"},
	})}}
	server.Start()
	t.Cleanup(server.Close)
	return int64(l.Addr().(*net.TCPAddr).Port)
}

// withQueries adds two queries of server r3, and the text of one.
func withQueries(r *whytest.Recording) {
	for id, phase := range map[string]string{"-81": "sync", "82": "cpu"} {
		of := `server="r3",node="n",db_system="postgresql",queryid="` + id + `"`
		r.Counter(`plumbline_query_id_statements_total{`+of+`}`, 10)
		r.Counter(`plumbline_query_id_phase_seconds_total{`+of+`,phase="`+phase+`"}`, 0.1)
	}
	r.Gauge(`query:text:info{server="r3",queryid="-81",query="commit"}`, 1)
}

// The plugin on a real API server, with the rights that the help lists and no more: Prometheus is found and queried
// through the proxy.
func TestPlugin(t *testing.T) {
	s := kubetest.Start(t)
	at := address(t)
	lab := whytest.Healthy()
	lab.Trip["r3-2"], lab.Device["r3"], lab.Commit["r3"]["sync"] = 11, 14, 15
	lab.More = func(r *whytest.Recording) {
		r.Gauge(`ALERTS{alertname="ReplicaStuck",alertstate="firing",severity="critical",part_of="plumbline",volume="v-r3"}`, 1)
		r.Gauge(`ALERTS{alertname="Watchdog",alertstate="firing",severity="none"}`, 1)
		withQueries(r)
	}
	port := serve(t, at, lab.Record())
	for _, namespace := range []string{"lab", "monitoring"} {
		s.Namespace(namespace)
	}
	claim := object("v1", "PersistentVolumeClaim", "lab", "data-r3", map[string]any{"spec": map[string]any{
		"accessModes": []any{"ReadWriteOnce"}, "volumeName": "v-r3", "resources": map[string]any{"requests": map[string]any{"storage": "1Gi"}}}})
	unbound := object("v1", "PersistentVolumeClaim", "lab", "data-new", map[string]any{"spec": map[string]any{
		"accessModes": []any{"ReadWriteOnce"}, "resources": map[string]any{"requests": map[string]any{"storage": "1Gi"}}}})
	pod := object("v1", "Pod", "lab", "r3-pg", map[string]any{"spec": map[string]any{
		"containers": []any{map[string]any{"name": "pg", "image": "pg"}},
		"volumes":    []any{map[string]any{"name": "data", "persistentVolumeClaim": map[string]any{"claimName": "data-r3"}}}}})
	s.Apply(machine("n", "6.12.57-talos", "amd64", "linux"), machine("old", "5.4.0-200-generic", "amd64", "linux"), machine("older", "6.1.0-50-amd64", "arm64", "linux"),
		machine("power", "6.12.0", "ppc64le", "linux"), machine("win", "10.0.20348", "amd64", "windows"), claim, unbound, pod,
		object("storage.k8s.io/v1", "StorageClass", "", "longhorn-r3", map[string]any{"provisioner": "driver.longhorn.io"}),
		object("v1", "Service", "monitoring", "prometheus-operated", map[string]any{
			"metadata": map[string]any{"labels": map[string]any{"operated-prometheus": "true"}},
			"spec":     map[string]any{"clusterIP": "None", "ports": []any{map[string]any{"name": "web", "port": int64(9090), "targetPort": port}}}}),
		// The API server proxies to pods that are there and have the address.
		object("v1", "Pod", "monitoring", "prometheus-0", map[string]any{
			"spec":   map[string]any{"containers": []any{map[string]any{"name": "prometheus", "image": "prometheus"}}},
			"status": map[string]any{"podIP": at, "podIPs": []any{map[string]any{"ip": at}}}}),
		object("v1", "Endpoints", "monitoring", "prometheus-operated", map[string]any{"subsets": []any{map[string]any{
			"addresses": []any{map[string]any{"ip": at, "targetRef": map[string]any{"kind": "Pod", "namespace": "monitoring", "name": "prometheus-0"}}}, "ports": []any{map[string]any{"name": "web", "port": port}}}}}),
		object("v1", "ServiceAccount", "lab", "reader", nil),
		object("rbac.authorization.k8s.io/v1", "ClusterRole", "", "reader", map[string]any{"rules": []any{
			map[string]any{"apiGroups": []any{""}, "resources": []any{"nodes", "services"}, "verbs": []any{"list"}},
			map[string]any{"apiGroups": []any{""}, "resources": []any{"services/proxy", "persistentvolumeclaims", "pods"}, "verbs": []any{"get"}},
			map[string]any{"apiGroups": []any{"storage.k8s.io"}, "resources": []any{"storageclasses"}, "verbs": []any{"list"}}}}),
		object("rbac.authorization.k8s.io/v1", "ClusterRoleBinding", "", "reader", map[string]any{
			"roleRef":  map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "reader"},
			"subjects": []any{map[string]any{"kind": "ServiceAccount", "name": "reader", "namespace": "lab"}}}))
	kubeconfig := s.Kubeconfig(s.Token("lab", "reader"))

	do := func(o options, f func(context.Context, *cluster, *strings.Builder) error) (string, error) {
		o.kubeconfig, o.window = kubeconfig, 20*time.Second
		var out strings.Builder
		err := run(o, func(c *cluster) error {
			c.now = func() time.Time { return whytest.End }
			return f(t.Context(), c, &out)
		})
		return out.String(), err
	}
	check := func(ctx context.Context, c *cluster, out *strings.Builder) error { return c.check(ctx, out) }
	whyOf := func(ctx context.Context, c *cluster, out *strings.Builder) error {
		return c.why(ctx, out, why.PlainPrinter(out))
	}
	statusOf := func(ctx context.Context, c *cluster, out *strings.Builder) error {
		return c.status(ctx, out, why.PlainPrinter(out))
	}
	topOf := func(ctx context.Context, c *cluster, out *strings.Builder) error {
		return c.top(ctx, out, why.PlainPrinter(out))
	}
	verifyOf := func(ctx context.Context, c *cluster, out *strings.Builder) error { return c.verify(ctx, out) }
	predictOf := func(ctx context.Context, c *cluster, out *strings.Builder) error { return c.predict(ctx, out) }
	to := func(class string) input.Question { return input.Question{Class: class, Windows: 4} }
	// The role is known to the API server a little after it is made, and what may not be read is no error to most
	// commands.
	testkit.Eventually(t, testkit.DefaultTimeout, func() error {
		_, err := do(options{}, func(ctx context.Context, c *cluster, _ *strings.Builder) error {
			_, err := c.nodes(ctx)
			return err
		})
		return err
	})
	const words = "replica r3-2 stands out: a write takes 11 ms there and 1.5 on the others"
	for name, c := range map[string]struct {
		o    options
		do   func(context.Context, *cluster, *strings.Builder) error
		fail string
		want []string
		not  []string
	}{
		"check": {options{}, check, "not fit: 2 nodes", []string{"1 of 4 nodes work, 1 in part, 2 do not", "5.4.0-200-generic", "architecture ppc64le",
			"not Linux", "Prometheus operator: not there", "longhorn-r3              Longhorn: engine and each replica", "BTF"}, nil},
		"status": {options{}, statusOf, "", []string{"reports from 1 of 4 Linux nodes", "critical ReplicaStuck (0s): Replica r3-2 does not answer. https://example.org/rules/runbooks/stall.md#replicastuck", words}, []string{"Watchdog"}},
		"claim":  {options{target: "data-r3", namespace: "lab"}, whyOf, "", []string{"lab/data-r3 commits take 7.3 times local's: of 16 ms, 15 wait for sync", words, "ReplicaStuck (critical)", "round trip"}, nil},
		"pod":    {options{target: "pod/r3-pg", namespace: "lab"}, whyOf, "", []string{words}, nil},
		"volume": {options{target: "volume/v-r3"}, whyOf, "", []string{"v-r3 commits take 7.3 times local's", words}, nil},
		"class":  {options{target: "class/r3"}, whyOf, "", []string{words}, nil},
		"named":  {options{target: "server/r3", prometheus: "monitoring/prometheus-operated:9090"}, whyOf, "", []string{words}, nil},

		"top":           {options{target: "data-r3", namespace: "lab", top: topOptions{by: "sync", limit: 1}}, topOf, "", []string{"1 of 2.", "-81", "commit", "s sync"}, []string{"82"}},
		"top of none":   {options{target: "class/r1"}, topOf, "no query is known", []string{"Server r1: no query has time"}, nil},
		"top of a pod":  {options{target: "pod/r3-pg", namespace: "lab"}, topOf, "", []string{"-81", "82"}, nil},
		"top of nobody": {options{target: "class/gold"}, topOf, "nothing is known of it", nil, nil},

		"verify": {options{}, verifyOf, "broken at: agent", []string{"in Prometheus at monitoring/prometheus-operated:9090", "Prometheus has no series of the agent"}, nil},

		"predict": {options{target: "server/r1", predict: to("r3")}, predictOf, "", []string{"r1, from r1 to r3", "commit median", "there ("}, nil},
		"predict what is not measured": {options{target: "class/r1", predict: to("gold")}, predictOf, "no prediction",
			[]string{"no prediction. Nothing was measured of class gold."}, []string{" ms"}},
		"predict to nowhere": {options{target: "data-r3", namespace: "lab"}, predictOf, "name a target", nil, nil},

		"claim without a volume":  {options{target: "data-new", namespace: "lab"}, whyOf, "has no volume yet", nil, nil},
		"no such claim":           {options{target: "data-r4", namespace: "lab"}, whyOf, `"data-r4" not found`, nil, nil},
		"no such pod":             {options{target: "pod/x", namespace: "lab"}, whyOf, `"x" not found`, nil, nil},
		"no such kind":            {options{target: "tape/x"}, whyOf, "want claim, pod, volume, server or class", nil, nil},
		"Prometheus named badly":  {options{target: "class/r3", prometheus: "prometheus:9090"}, whyOf, "want NAMESPACE/SERVICE:PORT", nil, nil},
		"Prometheus is not there": {options{target: "class/r3", prometheus: "lab/prometheus:9090"}, whyOf, "404", nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			out, err := do(c.o, c.do)
			if (err == nil) != (c.fail == "") || err != nil && !strings.Contains(strings.Join(strings.Fields(err.Error()), " "), c.fail) {
				t.Errorf("error %v; want %q", err, c.fail)
			}
			t.Log(out)
			flat := strings.Join(strings.Fields(out), " ")
			for _, want := range c.want {
				if !strings.Contains(flat, strings.Join(strings.Fields(want), " ")) {
					t.Errorf("%q is missing:\n%s", want, out)
				}
			}
			for _, not := range c.not {
				if strings.Contains(flat, not) {
					t.Errorf("%q is printed:\n%s", not, out)
				}
			}
		})
	}
}

// Kernels as distributions name them.
func TestJudgeNode(t *testing.T) {
	for kernel, want := range map[string]string{
		"6.18.44-fc-v669": works, "6.12.57-talos": works, "6.3.0": works, "6.1.0-50-amd64": works, "5.17.0": works, "5.15.0-1089-azure": partly,
		"5.14.0-570.el9.x86_64": partly, "4.18.0-553.el8_10.x86_64": doesNot, "5.10.225-linuxkit": doesNot, "custom": doesNot, "10.2": works,
	} {
		var n node
		n.Status.NodeInfo.KernelVersion, n.Status.NodeInfo.Architecture, n.Status.NodeInfo.OperatingSystem = kernel, "amd64", "linux"
		if have, why := n.judge(); have != want || want != works && why == "" {
			t.Errorf("kernel %s: %s (%s), want %s", kernel, have, why, want)
		}
	}
}

// Nodes that are no machines of their own are left out, whatever kernel they report.
func TestJudgeNoMachine(t *testing.T) {
	for _, c := range []struct{ label, value, want string }{
		{"eks.amazonaws.com/compute-type", "fargate", skipped}, {"type", "virtual-kubelet", skipped},
		{"eks.amazonaws.com/compute-type", "ec2", works}, {"type", "database", works},
	} {
		var n node
		n.Metadata.Labels = map[string]string{c.label: c.value}
		n.Status.NodeInfo.KernelVersion, n.Status.NodeInfo.Architecture, n.Status.NodeInfo.OperatingSystem = "6.12.57", "amd64", "linux"
		if have, why := n.judge(); have != c.want {
			t.Errorf("a node with %s=%s: %s (%s), want %s", c.label, c.value, have, why, c.want)
		}
	}
}
