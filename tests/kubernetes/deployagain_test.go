package kubernetes_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/plumbline/plumbline/tests/testkit"
)

var (
	deployments     = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}
	roleBindings    = schema.GroupVersionResource{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "rolebindings"}
	clusterRoles    = schema.GroupVersionResource{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterroles"}
	priorityClasses = schema.GroupVersionResource{Group: "scheduling.k8s.io", Version: "v1", Resource: "priorityclasses"}
	podMonitors     = schema.GroupVersionResource{Group: "monitoring.coreos.com", Version: "v1", Resource: "podmonitors"}
	prometheusRules = schema.GroupVersionResource{Group: "monitoring.coreos.com", Version: "v1", Resource: "prometheusrules"}
)

// checkout copies what deploy works with, so that a test can change it as another version would, and returns its deploy.
func checkout(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	if err := os.CopyFS(filepath.Join(root, "manifests", "kubernetes"), os.DirFS(manifests(""))); err != nil {
		t.Fatal(err)
	}
	chart, err := os.ReadFile(filepath.Join(testkit.Root(), "manifests", "chart", "Chart.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(root, "manifests", "chart", "Chart.yaml"), string(chart))
	return filepath.Join(root, "manifests", "kubernetes", "deploy")
}

// change replaces a text in a file beside a checkout's deploy.
func change(t *testing.T, deploy, name, from, to string) {
	t.Helper()
	file := filepath.Join(filepath.Dir(deploy), name)
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), from) {
		t.Fatalf("%s has no %q", name, from)
	}
	if err := os.WriteFile(file, []byte(strings.ReplaceAll(string(text), from, to)), 0o755); err != nil {
		t.Fatal(err)
	}
}

// up runs a checkout's deploy up until all is applied.
func (d *deployment) up(deploy string, environment ...string) string {
	d.t.Helper()
	text, err := d.run(append(environment, "REGISTRY=registry.example.org/plumbline"), deploy, "up")
	if err == nil || !strings.Contains(text, "not everything in plumbline-node runs") {
		d.t.Fatalf("up without a kubelet, with %v: %v\n%s", environment, err, text)
	}
	return text
}

// has fails unless an object is there, or is not.
func (d *deployment) has(want bool, resource schema.GroupVersionResource, namespace, name string) {
	d.t.Helper()
	if got := d.get(resource, namespace, name) != nil; got != want {
		d.t.Errorf("%s %s/%s is there: %v, want %v", resource.Resource, namespace, name, got, want)
	}
}

// container returns the first container of a workload.
func (d *deployment) container(resource schema.GroupVersionResource, namespace, name string) map[string]any {
	d.t.Helper()
	o := d.get(resource, namespace, name)
	if o == nil {
		d.t.Fatalf("no %s %s/%s", resource.Resource, namespace, name)
	}
	containers, _, _ := unstructured.NestedSlice(o.Object, "spec", "template", "spec", "containers")
	return containers[0].(map[string]any)
}

// settings fails unless the agent follows statements and its monitor drops metrics, or does not.
func (d *deployment) settings(want bool) {
	d.t.Helper()
	if got := slices.Contains(d.container(daemonSets, "plumbline-node", "plumbline-agent")["args"].([]any), "--collector.trace"); got != want {
		d.t.Errorf("the agent follows statements: %v, want %v", got, want)
	}
	endpoints, _, _ := unstructured.NestedSlice(d.get(podMonitors, "plumbline-node", "plumbline-agent").Object, "spec", "podMetricsEndpoints")
	if _, got := endpoints[0].(map[string]any)["metricRelabelings"]; got != want {
		d.t.Errorf("the monitor drops metrics: %v, want %v", got, want)
	}
}

// says fails unless a text has all of these.
func says(t *testing.T, text string, want ...string) {
	t.Helper()
	for _, w := range want {
		if !strings.Contains(text, w) {
			t.Errorf("not said: %q:\n%s", w, text)
		}
	}
}

// TestDeployAgain runs up several times, as upgrades do: what a call does not give is as before, what it gives wins, and what
// is no longer part of it goes, but for what others made, whatever its labels.
func TestDeployAgain(t *testing.T) {
	t.Parallel()
	d := newDeployment(t)
	deploy := checkout(t)
	d.Namespace("longhorn-system")
	d.Namespace("elsewhere")
	d.up(deploy, "ENGINES=longhorn openebs openebs/cstor", "TRACE=on", "METRICS=read", "TAG=1.0")
	d.settings(true)
	d.has(true, prometheusRules, "plumbline", "plumbline-stall")

	// Of the user's own kustomization; of nobody's label; a copy of one of ours in a namespace that is not.
	d.Apply(parse(t, "{apiVersion: monitoring.coreos.com/v1, kind: PrometheusRule, metadata: {name: theirs, namespace: plumbline, labels: {app.kubernetes.io/part-of: plumbline}}, spec: {groups: []}}"))
	d.Apply(parse(t, "{apiVersion: v1, kind: ConfigMap, metadata: {name: notes, namespace: plumbline}, data: {mine: \"here\"}}"))
	d.Apply(parse(t, "{apiVersion: v1, kind: ConfigMap, metadata: {name: notes, namespace: elsewhere, labels: {app.kubernetes.io/part-of: plumbline, app.kubernetes.io/managed-by: plumbline-deploy}}}"))
	others := func() {
		t.Helper()
		d.has(true, prometheusRules, "plumbline", "theirs")
		d.has(true, configMaps, "plumbline", "notes")
		d.has(true, configMaps, "elsewhere", "notes")
		d.has(true, configMaps, "plumbline", "plumbline-deploy")
		d.has(true, daemonSets, "plumbline-node", "plumbline-agent")
	}

	change(t, deploy, "base/rules/stall.yaml", "name: plumbline-stall", "name: plumbline-standstill")
	text := d.up(deploy, "TAG=2.0")
	says(t, text, "ENGINES=longhorn openebs openebs/cstor, as recorded by the last up", "TRACE=on, as recorded", "METRICS=read, as recorded")
	for _, name := range []string{"longhorn-exporter", "openebs-exporter"} {
		if image := d.container(deployments, "plumbline", name)["image"].(string); !strings.HasSuffix(image, ":2.0") {
			t.Errorf("%s is %s after an upgrade to 2.0", name, image)
		}
	}
	d.settings(true)
	d.has(false, prometheusRules, "plumbline", "plumbline-stall")
	d.has(true, prometheusRules, "plumbline", "plumbline-standstill")
	others()

	d.up(deploy, "ENGINES=openebs", "TRACE=off", "METRICS=all")
	d.settings(false)
	d.has(false, deployments, "plumbline", "longhorn-exporter")
	d.has(false, daemonSets, "plumbline-node", "longhorn-node-exporter")
	d.has(false, roleBindings, "longhorn-system", "plumbline-longhorn-exporter")
	d.has(true, deployments, "plumbline", "openebs-exporter")
	others()
	if text := d.up(deploy); strings.Contains(text, "longhorn-exporter") || !strings.Contains(text, "TRACE=off, as recorded") {
		t.Errorf("up without longhorn and TRACE:\n%s", text)
	}
	d.up(deploy, "ENGINES=none")
	d.has(false, clusterRoles, "", "plumbline-openebs-exporter")
	d.has(false, deployments, "plumbline", "openebs-exporter")
	others()
	for want, environment := range map[string]string{"TRACE is yes: give on or off": "TRACE=yes", "METRICS is some: give read or all": "METRICS=some", "no engine ../base": "ENGINES=../base"} {
		d.refused([]string{"REGISTRY=registry.example.org/plumbline", environment}, "up", want)
	}

	// A checkout that calls something else than the one that up was run from.
	change(t, deploy, "base/priorityclass.yaml", "name: plumbline-node", "name: something-else")
	d.has(true, priorityClasses, "", "plumbline-node")
	if text, err := d.run(nil, deploy, "down"); err != nil {
		t.Fatalf("down: %v\n%s", err, text)
	}
	d.has(false, priorityClasses, "", "plumbline-node")
	d.has(true, configMaps, "elsewhere", "notes")
}

// TestDeployAfterUnmarked runs up on what an earlier version made, which neither marked its objects nor recorded more than
// engines: those of engines that are not named any more go, and what only may be its own is named and stays.
func TestDeployAfterUnmarked(t *testing.T) {
	t.Parallel()
	d := newDeployment(t)
	d.Namespace("longhorn-system")
	earlier := checkout(t)
	change(t, earlier, "deploy", "plumbline, app.kubernetes.io/managed-by: plumbline-deploy}", "plumbline}")
	change(t, earlier, "base/rules/stall.yaml", "name: plumbline-stall", "name: plumbline-standstill")
	d.up(earlier, "ENGINES=longhorn", "CLASSES=longhorn-r1 longhorn-r3")
	if text, err := d.run(nil, filepath.Join(d.path, "kubectl"), "patch", "configmap", "plumbline-deploy", "--namespace=plumbline", "--type=json",
		`--patch=[{"op":"remove","path":"/data/trace"},{"op":"remove","path":"/data/metrics"},{"op":"remove","path":"/data/namespaces"},{"op":"remove","path":"/data/objects"}]`); err != nil {
		t.Fatal(text)
	}
	// One that fails on the way does not forget what there is to remove.
	if text, err := d.run(nil, filepath.Join(d.path, "kubectl"), "patch", "configmap", "plumbline-controls", "--namespace=plumbline-node",
		"--field-manager=kubectl-edit", `--patch={"data":{"classes":"disk"}}`); err != nil {
		t.Fatal(text)
	}
	text, err := d.deploy([]string{"REGISTRY=registry.example.org/plumbline", "ENGINES=none"}, "up")
	if err == nil {
		t.Error("up over an edited object ends well")
	}
	says(t, text, "TRACE=off, as the last up recorded none", "ConfigMap plumbline-node/plumbline-controls")
	d.has(true, deployments, "plumbline", "longhorn-exporter")
	// Nor does a version without a list of objects in between.
	if text, err := d.run(nil, filepath.Join(d.path, "kubectl"), "patch", "configmap", "plumbline-deploy", "--namespace=plumbline", "--type=json",
		`--patch=[{"op":"remove","path":"/data/objects"}]`); err != nil {
		t.Fatal(text)
	}
	text = d.up(manifests("deploy"), "FORCE=on")
	says(t, text, "ENGINES=none, as recorded by the last up", "delete them:\nPrometheusRule plumbline/plumbline-standstill\n")
	if strings.Contains(text, "ConfigMap plumbline/plumbline-deploy") {
		t.Errorf("the record is named as one to delete:\n%s", text)
	}
	d.has(true, prometheusRules, "plumbline", "plumbline-standstill")
	d.has(false, deployments, "plumbline", "longhorn-exporter")
	d.has(false, roleBindings, "longhorn-system", "plumbline-longhorn-exporter")
	if text := d.up(manifests("deploy")); strings.Contains(text, "standstill") {
		t.Errorf("named again by an up after one that marks what it makes:\n%s", text)
	}
	// What was not applied again is marked, too; what somebody else made since is not deploy's.
	if by := d.get(storageClasses, "", "longhorn-r1").GetLabels()["app.kubernetes.io/managed-by"]; by != "plumbline-deploy" {
		t.Errorf("longhorn-r1 is managed by %q", by)
	}
	if text, err := d.run(nil, filepath.Join(d.path, "kubectl"), "label", "storageclass", "longhorn-r3", "app.kubernetes.io/managed-by-", "app.kubernetes.io/part-of-"); err != nil {
		t.Fatal(text)
	}
	text, err = d.deploy(nil, "down")
	if err != nil {
		t.Fatalf("down: %v\n%s", err, text)
	}
	says(t, text, "StorageClass longhorn-r3 stays: it does not carry this script's labels")
	d.has(false, storageClasses, "", "longhorn-r1")
	d.has(true, storageClasses, "", "longhorn-r3")
}
