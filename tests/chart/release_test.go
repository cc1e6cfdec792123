package chart

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/plumbline/plumbline/tests/kubetest"
)

// kinds are what a release makes, by resource.
var kinds = map[string]schema.GroupVersionResource{
	"DaemonSet":          {Group: "apps", Version: "v1", Resource: "daemonsets"},
	"Deployment":         {Group: "apps", Version: "v1", Resource: "deployments"},
	"ServiceAccount":     {Version: "v1", Resource: "serviceaccounts"},
	"ConfigMap":          {Version: "v1", Resource: "configmaps"},
	"ClusterRole":        {Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterroles"},
	"ClusterRoleBinding": {Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterrolebindings"},
	"NetworkPolicy":      {Group: "networking.k8s.io", Version: "v1", Resource: "networkpolicies"},
	"PodMonitor":         {Group: "monitoring.coreos.com", Version: "v1", Resource: "podmonitors"},
	"PrometheusRule":     {Group: "monitoring.coreos.com", Version: "v1", Resource: "prometheusrules"},
	"Role":               {Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "roles"},
	"RoleBinding":        {Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "rolebindings"},
	"CronJob":            {Group: "batch", Version: "v1", Resource: "cronjobs"},
	"PriorityClass":      {Group: "scheduling.k8s.io", Version: "v1", Resource: "priorityclasses"},
}

// ours are the objects on the server with the chart's label, as KIND/NAME.
func ours(t *testing.T, s *kubetest.Server) []string {
	t.Helper()
	var names []string
	for kind, resource := range kinds {
		list, err := s.Client.Resource(resource).List(context.Background(), metav1.ListOptions{LabelSelector: "app.kubernetes.io/part-of=plumbline"})
		if err != nil {
			t.Fatalf("%s: %v", kind, err)
		}
		for _, o := range list.Items {
			if o.GetDeletionTimestamp() == nil {
				names = append(names, kind+"/"+o.GetName())
			}
		}
	}
	slices.Sort(names)
	return names
}

// advised returns the arguments of the upgrades that notes recommend, for this chart and a Prometheus of the release
// stack.
func advised(t *testing.T, notes string) (commands [][]string) {
	words := strings.NewReplacer("CHART", chart(t), "RELEASE", "stack")
	for line := range strings.Lines(notes) {
		if command, ok := strings.CutPrefix(strings.TrimSpace(line), "helm "); ok && strings.HasPrefix(command, "upgrade ") {
			commands = append(commands, strings.Fields(words.Replace(command)))
		}
	}
	return commands
}

// release installs the chart on a real API server, upgrades it, rolls it back and uninstalls it: nothing of it is left,
// and what was there before is untouched. No kubelet runs, so no pod does.
func release(t *testing.T, s *kubetest.Server) {
	s.Namespace("plumbline")
	s.Namespace("longhorn-system")
	run, must := helm(t, s, "plumbline")

	// Another's object of a name that the chart uses: refused, and neither changed nor deleted.
	foreign := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap",
		"metadata": map[string]any{"name": "plumbline-dashboard-overview", "namespace": "plumbline"}, "data": map[string]any{"mine": "yes"}}}
	s.Apply(foreign)
	configMaps := s.Client.Resource(kinds["ConfigMap"]).Namespace("plumbline")
	text, err := run("install", "plumbline", chart(t), "--set="+registry)
	if err == nil || !strings.Contains(text, "plumbline-dashboard-overview") {
		t.Fatalf("installed over another's ConfigMap: %s", text)
	}
	kept, err := configMaps.Get(context.Background(), foreign.GetName(), metav1.GetOptions{})
	if err != nil || kept.Object["data"].(map[string]any)["mine"] != "yes" {
		t.Fatalf("another's ConfigMap: %v %v", kept, err)
	}
	if err := configMaps.Delete(context.Background(), foreign.GetName(), metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if text, err := run("uninstall", "plumbline", "--ignore-not-found"); err != nil {
		t.Fatal(text)
	}

	text = must("install", "plumbline", chart(t), "--set="+registry)
	for _, want := range []string{"What to look at", "pod-security.kubernetes.io/enforce=privileged", "No canary is configured"} {
		if !strings.Contains(text, want) {
			t.Errorf("the notes lack %q:\n%s", want, text)
		}
	}
	installed := ours(t, s)
	if len(installed) < 30 {
		t.Errorf("only %d objects: %v", len(installed), installed)
	}

	// The upgrade that the notes advise, as they write it, changes that and takes off nothing.
	advice := advised(t, text)
	if len(advice) != 1 {
		t.Fatalf("the notes advise the upgrades %q, want one, to the release's label:\n%s", advice, text)
	}
	must(advice[0]...)
	if got := ours(t, s); !slices.Equal(got, installed) {
		t.Errorf("after the upgrade that the notes advise: %v, at first: %v", got, installed)
	}
	monitor, err := s.Client.Resource(kinds["PodMonitor"]).Namespace("plumbline").Get(context.Background(), "plumbline-agent", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if monitor.GetLabels()["release"] != "stack" {
		t.Errorf("after the upgrade that the notes advise the agent's monitor has the labels %v", monitor.GetLabels())
	}

	must("upgrade", "plumbline", chart(t), "--set="+registry, "--set=longhorn.enabled=true", "--set=image.tag=0.9.9", "--set=blockio.enabled=false")
	upgraded := ours(t, s)
	if slices.Contains(upgraded, "DaemonSet/plumbline-blockio") || !slices.Contains(upgraded, "DaemonSet/longhorn-node-exporter") {
		t.Errorf("after the upgrade: %v", upgraded)
	}
	agent, err := s.Client.Resource(kinds["DaemonSet"]).Namespace("plumbline").Get(context.Background(), "plumbline-agent", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	containers, _, _ := unstructured.NestedSlice(agent.Object, "spec", "template", "spec", "containers")
	if image := containers[0].(map[string]any)["image"]; image != "registry.example.org/plumbline/agent:0.9.9" {
		t.Errorf("after the upgrade the agent's image is %v", image)
	}

	must("rollback", "plumbline", "1")
	if got := ours(t, s); !slices.Equal(got, installed) {
		t.Errorf("after the rollback: %v, at first: %v", got, installed)
	}

	must("uninstall", "plumbline")
	if left := ours(t, s); len(left) != 0 {
		t.Errorf("left after uninstall: %v", left)
	}
	for _, n := range []string{"plumbline", "longhorn-system"} {
		if _, err := s.Client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}).Get(context.Background(), n, metav1.GetOptions{}); err != nil {
			t.Errorf("namespace %s: %v", n, err)
		}
	}
}

// TestPackage makes the archive that a release ships: a release's Secret holds it, with its rules and dashboards for
// every kind of histograms.
func TestPackage(t *testing.T) {
	dir := t.TempDir()
	if text, err := kubetest.Helm(t, nil, "package", chart(t), "--destination="+dir); err != nil {
		t.Fatal(text)
	}
	archives, _ := filepath.Glob(filepath.Join(dir, "*.tgz"))
	if len(archives) != 1 {
		t.Fatalf("archives: %v", archives)
	}
	info, err := os.Stat(archives[0])
	if err != nil || info.Size() > 900_000 {
		t.Errorf("the archive has %d bytes: a release's Secret holds it, and may have 1 MiB: %v", info.Size(), err)
	}
	text, err := kubetest.Helm(t, nil, "template", "plumbline", archives[0], "--set="+registry)
	if err != nil {
		t.Fatal(text)
	}
	if from, _, _ := template(t, registry); strings.Count(text, "kind: PrometheusRule") != count(from)["PrometheusRule"] || count(from)["PrometheusRule"] == 0 {
		t.Error("the archive has other rules than the checkout")
	}
}
