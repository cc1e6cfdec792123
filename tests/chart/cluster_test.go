package chart

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/plumbline/plumbline/tests/kubetest"
	"github.com/plumbline/plumbline/tests/testkit"
)

// crds are the modules whose custom resources the chart uses.
var crds = []string{"prometheus-operator", "longhorn-manager"}

// TestCluster has what needs an API server, one for all: it starts for several seconds. Each part leaves it as it found
// it, but for namespaces.
func TestCluster(t *testing.T) {
	s := kubetest.Start(t)
	for _, folder := range crds {
		s.ApplyCRDs(kubetest.ModuleCRDs(t, folder)...)
	}
	for _, part := range []struct {
		name string
		run  func(*testing.T, *kubetest.Server)
	}{{"objects", objects}, {"wrong", wrong}, {"levels", levels}, {"release", release}, {"pins", pins}, {"older", older}, {"verify", verify},
		{"accounts", accounts}, {"events", events}, {"identity", identity}} {
		t.Run(part.name, func(t *testing.T) { part.run(t, s.In(t)) })
	}
}

// helm returns what runs Helm on a server in a namespace, and the same where it must not fail.
func helm(t *testing.T, s *kubetest.Server, namespace string) (run func(...string) (string, error), must func(...string) string) {
	kubeconfig := []string{"KUBECONFIG=" + s.Kubeconfig(s.Config.BearerToken)}
	run = func(arguments ...string) (string, error) {
		return kubetest.Helm(t, kubeconfig, append(arguments, "--namespace="+namespace)...)
	}
	must = func(arguments ...string) string {
		t.Helper()
		text, err := run(arguments...)
		if err != nil {
			t.Fatalf("helm %s: %v\n%s", arguments[0], err, text)
		}
		return text
	}
	return run, must
}

// objects renders the matrix and has the server check each object strictly: no unknown field, no wrong value. Most are
// the same for most values, and checked once.
func objects(t *testing.T, s *kubetest.Server) {
	checked := map[string]bool{}
	for name, values := range matrix {
		seen := map[string]bool{}
		for _, o := range render(t, values...) {
			id := o.GetKind() + " " + o.GetNamespace() + "/" + o.GetName()
			if seen[id] {
				t.Errorf("%s: %s is there twice", name, id)
			}
			seen[id] = true
			if o.GetKind() == "Namespace" || o.GetKind() == "StorageClass" {
				t.Errorf("%s: %s: the chart makes none", name, id)
			}
			if o.GetLabels()["app.kubernetes.io/part-of"] != "plumbline" {
				t.Errorf("%s: %s has no label part-of", name, id)
			}
			text, err := o.MarshalJSON()
			if err != nil {
				t.Fatal(err)
			}
			if checked[string(text)] || o.GetKind() == "SecurityContextConstraints" { // a kind of OpenShift's own API server
				continue
			}
			checked[string(text)] = true
			if o.GetNamespace() != "" {
				s.Namespace(o.GetNamespace())
			}
			if err := s.DryRun(o); err != nil {
				t.Errorf("%s: %s: %v", name, id, err)
			}
		}
	}
}

// wrong spoils objects in turn; the server must refuse each, and name the field.
func wrong(t *testing.T, s *kubetest.Server) {
	s.Namespace("plumbline")
	all := render(t, matrix["baselines"]...)
	for _, c := range []struct {
		name, kind, object string
		value              any
		path               []string
		want               string
	}{
		{"field with a typing error", "DaemonSet", "plumbline-agent", "x", []string{"spec", "template", "spec", "serviceAcountName"}, "field not declared in schema"},
		{"unknown field of a monitor", "PodMonitor", "plumbline-agent", true, []string{"spec", "honourLabels"}, "field not declared in schema"},
		{"port of no number", "PodMonitor", "plumbline-agent", []any{map[string]any{"portNumber": int64(70000)}}, []string{"spec", "podMetricsEndpoints"}, "portNumber"},
		{"relative host path", "DaemonSet", "plumbline-agent", []any{map[string]any{"name": "proc", "hostPath": map[string]any{"path": "../proc"}}}, []string{"spec", "template", "spec", "volumes"}, "must not contain '..'"},
		{"schedule of no cron", "CronJob", "baseline-shop", "daily", []string{"spec", "schedule"}, "schedule"},
		{"duration in words", "PrometheusRule", "plumbline-stall", []any{map[string]any{"name": "x", "rules": []any{map[string]any{"alert": "X", "expr": "1", "for": "5 minutes"}}}},
			[]string{"spec", "groups"}, "spec.groups[0].rules[0].for"},
	} {
		o := find(t, all, c.kind, c.object).DeepCopy()
		if err := unstructured.SetNestedField(o.Object, c.value, c.path...); err != nil {
			t.Fatal(err)
		}
		if err := s.DryRun(o); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: the server answers %v", c.name, err)
		}
	}
}

// levels has the server check the pod of each workload, as the kubelet's creation would: against its namespace's
// security level and its priority class. The programs on the nodes need the level "privileged"; all others are within
// "restricted".
func levels(t *testing.T, s *kubetest.Server) {
	for name, level := range map[string]string{"restricted": "restricted", "node": "privileged"} {
		s.Apply(&unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": name,
			"labels": map[string]any{"pod-security.kubernetes.io/enforce": level}}}})
	}
	all := render(t, slices.Concat(matrix["baselines"], matrix["every program"])...)
	class := find(t, all, "PriorityClass", "plumbline-node")
	s.Apply(class)
	t.Cleanup(func() { s.Delete(class) })
	tried := map[string]bool{}
	for _, o := range all {
		path, ok := podPaths[o.GetKind()]
		if !ok {
			continue
		}
		spec, _, err := unstructured.NestedMap(o.Object, path...)
		if err != nil {
			t.Fatal(err)
		}
		tried[o.GetKind()+"/"+o.GetName()] = true
		pod := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Pod", "spec": spec}}
		pod.SetName("the-pod-of-" + o.GetName())
		pod.SetNamespace("restricted")
		err = s.DryRun(pod)
		if o.GetKind() == "DaemonSet" {
			if err == nil || !strings.Contains(err.Error(), `violates PodSecurity "restricted`) {
				t.Errorf("%s in a restricted namespace: %v", o.GetName(), err)
			}
			pod.SetNamespace("node")
			err = s.DryRun(pod)
		}
		if err != nil {
			t.Errorf("%s %s: %v", o.GetKind(), o.GetName(), err)
		}
	}
	if len(tried) != 11 {
		t.Errorf("%d pods tried, want 11: %v", len(tried), slices.Sorted(maps.Keys(tried)))
	}
}

// older upgrades a release of a chart that has what the chart had of a canary at 0.2.0, before its templates were
// written by hand: the upgrade replaces none of the objects, and the canary's pin stays as its job wrote it.
func older(t *testing.T, s *kubetest.Server) {
	s.Namespace("plumbline")
	_, must := helm(t, s, "plumbline")
	old := t.TempDir()
	text := read(t, filepath.Join("testdata", "canary-0.2.0.yaml"))
	for name, content := range map[string]string{"Chart.yaml": "apiVersion: v2\nname: plumbline\nversion: 0.2.0\n", "templates/canary.yaml": text} {
		file := filepath.Join(old, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	values := sets([]string{registry, "rules.enabled=false", "dashboards.enabled=false", "baseline.enabled=true", "canaries[0].name=orders",
		"canaries[0].database=shop/orders", "canaries[0].storageclass=fast", "canaries[0].dsnSecret.name=orders"})
	must(append([]string{"install", "plumbline", old}, values...)...)
	if err := pinAs(t, s, "plumbline", "baseline-orders", "plumbline-baseline-orders"); err != nil {
		t.Fatal(err)
	}
	before := canaryObjects(t, s, text)
	must(append([]string{"upgrade", "plumbline", chart(t)}, values...)...)
	after := canaryObjects(t, s, text)
	for name, o := range before {
		if after[name].GetUID() != o.GetUID() {
			t.Errorf("the upgrade made %s anew", name)
		}
	}
	pin := after["PrometheusRule/plumbline-baseline-orders"]
	if groups, _, _ := unstructured.NestedSlice(pin.Object, "spec", "groups"); len(groups) != 1 || !strings.Contains(pin.GetAnnotations()["plumbline.io/measured"], "shop/orders") {
		t.Errorf("after the upgrade the pin is %v", pin.Object)
	}
	// The account of this version's job writes the same pin.
	if err := pinAs(t, s, "plumbline", "baseline-orders", "plumbline-baseline-orders"); err != nil {
		t.Error(err)
	}
	must("uninstall", "plumbline")
}

// canaryObjects are the objects of a text as they are on the server, by KIND/NAME.
func canaryObjects(t *testing.T, s *kubetest.Server, text string) map[string]*unstructured.Unstructured {
	t.Helper()
	all := map[string]*unstructured.Unstructured{}
	for _, o := range parse(t, text) {
		on, err := s.Client.Resource(kinds[o.GetKind()]).Namespace("plumbline").Get(t.Context(), o.GetName(), metav1.GetOptions{})
		if err != nil {
			t.Fatalf("%s %s: %v", o.GetKind(), o.GetName(), err)
		}
		all[o.GetKind()+"/"+o.GetName()] = on
	}
	return all
}

// TestRules has promtool check the rules as they come out of the objects, for each kind of histograms.
func TestRules(t *testing.T) {
	promtool := testkit.Tool(t, "promtool")
	for _, kind := range []string{"native", "either", "classic"} {
		var files []string
		for _, o := range render(t, registry, "prometheus.histograms="+kind, "rules.nodeAlerts=true") {
			if o.GetKind() == "PrometheusRule" {
				file := filepath.Join(t.TempDir(), o.GetName()+".yaml")
				text, err := yaml.Marshal(o.Object["spec"])
				if err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(file, text, 0o644); err != nil {
					t.Fatal(err)
				}
				files = append(files, file)
			}
		}
		if len(files) < 20 {
			t.Errorf("%s: %d objects of rules", kind, len(files))
		}
		if text, err := exec.Command(promtool, append([]string{"check", "rules"}, files...)...).CombinedOutput(); err != nil {
			t.Errorf("%s: %s", kind, text)
		}
	}
}

var runbookURL = regexp.MustCompile(`runbook_url: (\S+)`)

// TestRunbookURL: with rules.runbookURL every alert leads there, and without it every one to GitHub.
func TestRunbookURL(t *testing.T) {
	for folder, values := range map[string][]string{
		"https://github.com/plumbline/plumbline/blob/main/rules/runbooks/": nil,
		"https://wiki.example.org/runbooks/":                               {"rules.runbookURL=https://wiki.example.org/runbooks/"},
	} {
		_, text, err := template(t, append([]string{registry, "rules.nodeAlerts=true"}, values...)...)
		if err != nil {
			t.Fatal(text)
		}
		found := runbookURL.FindAllStringSubmatch(text, -1)
		for _, url := range found {
			if !strings.HasPrefix(url[1], folder) {
				t.Errorf("an alert has the runbook %q, not one below %s", url[1], folder)
			}
		}
		if alerts := strings.Count(text, "- alert: "); alerts < 40 || alerts != len(found) {
			t.Errorf("%d alerts, %d runbooks with %s", alerts, len(found), folder)
		}
	}
}
