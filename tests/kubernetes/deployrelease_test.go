package kubernetes_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/plumbline/plumbline/tests/kubetest"
	"github.com/plumbline/plumbline/tests/testkit"
)

var clusters = schema.GroupVersionResource{Group: "postgresql.cnpg.io", Version: "v1", Resource: "clusters"}

// released fails unless an object has this label release; "" is none.
func (d *deployment) released(resource schema.GroupVersionResource, namespace, name, want string) {
	d.t.Helper()
	o := d.get(resource, namespace, name)
	if o == nil {
		d.t.Errorf("no %s %s/%s", resource.Resource, namespace, name)
		return
	}
	if got := o.GetLabels()["release"]; got != want {
		d.t.Errorf("%s %s/%s has the label release %q, want %q", resource.Resource, namespace, name, got, want)
	}
}

// warned returns what status says, and fails unless it warns of what no Prometheus takes, or does not.
func (d *deployment) warned(want bool) string {
	d.t.Helper()
	text, err := d.deploy(nil, "status")
	if err != nil {
		d.t.Fatalf("status: %v\n%s", err, text)
	}
	if got := strings.Contains(text, "WARNING: no Prometheus on this cluster takes these"); got != want {
		d.t.Errorf("status warns: %v, want %v:\n%s", got, want, text)
	}
	return text
}

// TestDeployRelease runs up beside the Prometheus of a kube-prometheus-stack, which takes only what has its release's label: without RELEASE status
// warns and says by what it selects; with it monitors and rules have the label, and nothing else has.
func TestDeployRelease(t *testing.T) {
	t.Parallel()
	d := newDeployment(t)
	stack := func(namespaces string) {
		t.Helper()
		d.Apply(parse(t, fmt.Sprintf(`{apiVersion: monitoring.coreos.com/v1, kind: Prometheus, metadata: {name: stack, namespace: monitoring}, spec: {
  podMonitorSelector: {matchLabels: {release: stack}}, %s
  ruleSelector: {matchExpressions: [{key: release, operator: In, values: [stack, other]}]}, ruleNamespaceSelector: {}}}`, namespaces)))
	}
	d.up(manifests("deploy"))
	d.warned(false) // nothing of the operator's is there to take it
	d.Namespace("monitoring")
	stack("podMonitorNamespaceSelector: {},")
	// Also where not all runs.
	says(t, d.up(manifests("deploy")), "WARNING: no Prometheus on this cluster takes these", "monitoring/stack takes those with release=stack\n")
	says(t, d.warned(true), "podmonitors: 2 of 2, such as plumbline-node/plumbline-agent\n", "monitoring/stack takes those with release=stack\n", "prometheusrules: ",
		"monitoring/stack takes those with release in (stack,other)\n", "Run up with RELEASE")

	d.up(manifests("deploy"), "RELEASE=stack")
	d.recorded("release", "stack")
	d.warned(false)
	d.released(podMonitors, "plumbline-node", "plumbline-agent", "stack")
	d.released(prometheusRules, "plumbline", "plumbline-stall", "stack")
	d.released(daemonSets, "plumbline-node", "plumbline-agent", "")
	says(t, d.up(manifests("deploy")), "RELEASE=stack, as recorded by the last up")
	d.released(podMonitors, "plumbline-node", "plumbline-agent", "stack")

	// Without a selector for namespaces it looks into its own alone.
	stack("")
	text := d.warned(true)
	says(t, text, "podmonitors: 2 of 2", "monitoring/stack takes those with release=stack, in its own namespace\n", "Where they have it, that Prometheus wants other labels or namespaces")
	if strings.Contains(text, "prometheusrules: ") {
		t.Errorf("rules that are taken are warned of:\n%s", text)
	}

	d.up(manifests("deploy"), "RELEASE=none")
	d.released(podMonitors, "plumbline-node", "plumbline-agent", "")
	d.released(prometheusRules, "plumbline", "plumbline-stall", "")
	d.refused([]string{"REGISTRY=registry.example.org/plumbline", "RELEASE=a b"}, "up", "RELEASE is a b: give the name of a release")
}

// TestDeployTakers has others of the operator's objects than a Prometheus: an agent counts for monitors only, a ruler for rules only, and one whose
// selector is none is named and hides nothing.
func TestDeployTakers(t *testing.T) {
	t.Parallel()
	d := newDeployment(t)
	d.up(manifests("deploy"))
	d.Namespace("monitoring")
	taker := func(kind, version, name, spec string) *unstructured.Unstructured {
		t.Helper()
		o := parse(t, fmt.Sprintf("{apiVersion: monitoring.coreos.com/%s, kind: %s, metadata: {name: %s, namespace: monitoring}, spec: {%s}}", version, kind, name, spec))
		d.Apply(o)
		return o
	}
	agent := taker("PrometheusAgent", "v1alpha1", "agent", "podMonitorSelector: {matchLabels: {release: stack}}, podMonitorNamespaceSelector: {}")
	text := d.warned(true)
	says(t, text, "podmonitors: 2 of 2", "monitoring/agent takes those with release=stack\n")
	if strings.Contains(text, "prometheusrules: ") {
		t.Errorf("rules are warned of, where nothing on the cluster evaluates any:\n%s", text)
	}
	taker("ThanosRuler", "v1", "ruler", "ruleSelector: {matchLabels: {release: stack}}, ruleNamespaceSelector: {}")
	text = d.warned(true)
	says(t, text, "podmonitors: 2 of 2", "prometheusrules: ")
	for _, who := range []string{"monitoring/agent takes", "monitoring/ruler takes"} {
		if n := strings.Count(text, who); n != 1 {
			t.Errorf("%q is said %d times, want once:\n%s", who, n, text)
		}
	}
	taker("Prometheus", "v1", "odd", "podMonitorSelector: {matchExpressions: [{key: release, operator: Among, values: [stack]}]}, podMonitorNamespaceSelector: {}")
	says(t, d.warned(true), "podmonitors: 2 of 2", "monitoring/agent takes those with release=stack\n", "monitoring/odd takes those with release Among (stack), which cannot be looked up: ",
		"monitoring/ruler takes")
	// Of what the one that is left takes nothing is known.
	d.Delete(agent)
	text = d.warned(true)
	says(t, text, "Whether a Prometheus takes the podmonitors is not known: monitoring/odd: ", "prometheusrules: ")
	if strings.Contains(text, "podmonitors: ") {
		t.Errorf("monitors are warned of, which may be taken:\n%s", text)
	}
}

// TestRenderRelease renders all engines with a release: each monitor and rule has its label, whether it has others or not, and nothing else has.
func TestRenderRelease(t *testing.T) {
	d := &deployment{t: t, path: filepath.Dir(testkit.Tool(t, "kubectl"))}
	text, err := d.deploy([]string{"RELEASE=stack", "ENGINES=longhorn openebs openebs/cstor openebs/mayastor openebs/jiva"}, "render")
	if err != nil {
		t.Fatalf("render: %v\n%s", err, text)
	}
	file := filepath.Join(t.TempDir(), "rendered.yaml")
	write(t, file, text)
	seen := map[string]bool{}
	for _, o := range kubetest.Read(t, file) {
		want := ""
		if slices.Contains([]string{"PodMonitor", "ServiceMonitor", "PrometheusRule"}, o.GetKind()) {
			want = "stack"
		}
		if got := o.GetLabels()["release"]; got != want {
			t.Errorf("%s %s has the label release %q, want %q", o.GetKind(), o.GetName(), got, want)
		}
		if o.GetLabels()["app.kubernetes.io/managed-by"] != "plumbline-deploy" {
			t.Errorf("%s %s has the labels %v", o.GetKind(), o.GetName(), o.GetLabels())
		}
		seen[o.GetKind()+" "+o.GetName()] = true
	}
	for _, want := range []string{"PodMonitor plumbline-agent", "PodMonitor mayastor", "PodMonitor cstor-volume", "PodMonitor openebs-exporter", "PrometheusRule plumbline-stall", "DaemonSet plumbline-agent"} {
		if !seen[want] {
			t.Errorf("%s is not rendered", want)
		}
	}
}

// TestDeployDatabases has deploy make the databases of a class for a kube-prometheus-stack: its Prometheus takes their monitors, also those that
// CloudNativePG makes. Who may not read what up recorded has to name the release.
func TestDeployDatabases(t *testing.T) {
	t.Parallel()
	d := newDeployment(t)
	d.Apply(parse(t, "{apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {name: local-path}, provisioner: rancher.io/local-path}"))
	bin := t.TempDir()
	wrapper := "#!/bin/sh\ncase \"$*\" in \"get configmap plumbline-deploy\"*) echo forbidden >&2; exit 1 ;; esac\nexec " + filepath.Join(d.path, "kubectl") + " \"$@\"\n"
	if err := os.WriteFile(filepath.Join(bin, "kubectl"), []byte(wrapper), 0o755); err != nil {
		t.Fatal(err)
	}
	databases := func(environment ...string) (string, error) {
		environment = append(environment, "REGISTRY=registry.example.org/plumbline", "PATH="+bin+":"+d.path+":"+os.Getenv("PATH"))
		return d.run(environment, manifests("deploy"), "databases", "local-path")
	}
	text, err := databases()
	if err == nil {
		t.Error("databases without the right to read the record, and without a release, ends well")
	}
	says(t, text, "cannot read what the last up recorded", "give RELEASE")
	if text, err := databases("RELEASE=stack"); err != nil {
		t.Fatalf("databases: %v\n%s", err, text)
	}
	for _, name := range []string{"load", "mysql"} {
		d.released(podMonitors, "db-local-path", name, "stack")
	}
	d.released(prometheusRules, "db-local-path", "plumbline-baseline-mysql", "stack")
	for _, name := range []string{"postgresql-local-path", "postgresqlsync-local-path"} {
		d.released(clusters, "db-local-path", name, "")
		if o := d.get(clusters, "db-local-path", name); o != nil {
			if got, _, _ := unstructured.NestedString(o.Object, "spec", "inheritedMetadata", "labels", "release"); got != "stack" {
				t.Errorf("%s's monitor inherits the label release %q, want stack", name, got)
			}
		}
	}
}
