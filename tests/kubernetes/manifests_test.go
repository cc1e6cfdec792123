// Package kubernetes_test proves the manifests on a real API server.
package kubernetes_test

import (
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"

	"github.com/plumbline/plumbline/tests/kubetest"
	"github.com/plumbline/plumbline/tests/testkit"
)

func manifests(elements ...string) string {
	return filepath.Join(append([]string{testkit.Root(), "manifests", "kubernetes"}, elements...)...)
}

// render builds a kustomization as `kubectl apply -k` would.
func render(dir string) ([]*unstructured.Unstructured, error) {
	resources, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), dir)
	if err != nil {
		return nil, err
	}
	var objects []*unstructured.Unstructured
	for _, r := range resources.Resources() {
		text, err := r.MarshalJSON()
		if err != nil {
			return nil, err
		}
		o := &unstructured.Unstructured{}
		if err := o.UnmarshalJSON(text); err != nil {
			return nil, err
		}
		objects = append(objects, o)
	}
	return objects, nil
}

// overlay builds a kustomization that switches components on, as a user's own would.
func overlay(t *testing.T, resources, components []string) []*unstructured.Unstructured {
	t.Helper()
	// Kustomize knows no absolute paths, and follows links first.
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	text := "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\n"
	list := func(name string, paths []string) {
		if len(paths) > 0 {
			text += name + ":\n"
		}
		for _, p := range paths {
			relative, err := filepath.Rel(dir, p)
			if err != nil {
				t.Fatal(err)
			}
			text += "  - " + relative + "\n"
		}
	}
	list("resources", resources)
	list("components", components)
	if err := os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	objects, err := render(dir)
	if err != nil {
		t.Fatal(err)
	}
	return objects
}

// everything is each thing that can be applied, by name: all kustomizations, each component
// where it belongs.
func everything(t *testing.T) map[string][]*unstructured.Unstructured {
	t.Helper()
	all := map[string][]*unstructured.Unstructured{}
	err := filepath.WalkDir(manifests(), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.Name() != "kustomization.yaml" {
			return err
		}
		dir := filepath.Dir(path)
		name, _ := filepath.Rel(manifests(), dir)
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		switch parent := filepath.Base(filepath.Dir(dir)); {
		case name == "databases/class":
			return nil // every database has it
		case !strings.Contains(string(text), "kind: Component"):
			if all[name], err = render(dir); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		case parent == "storage-classes":
			all[name] = overlay(t, nil, []string{dir})
		case name == "optional/drop-unread":
			all[name] = overlay(t, []string{manifests("base")}, []string{dir})
			if n := dropping(all[name]); n != 2 {
				return fmt.Errorf("%s: %d monitors of base drop metrics, want 2", name, n)
			}
		case name == "optional/trace":
			all[name] = overlay(t, []string{manifests("base")}, []string{dir})
			if args := arguments(all[name], "plumbline-agent"); !slices.Contains(args, "--collector.trace") {
				return fmt.Errorf("%s: the agent's arguments are %q", name, args)
			}
		case name == "optional/trace/otlp":
			all[name] = overlay(t, []string{manifests("base")}, []string{filepath.Dir(dir), dir})
			if args := arguments(all[name], "plumbline-agent"); len(args) != 4 || !strings.HasPrefix(args[3], "--trace.otlp-endpoint=http") {
				return fmt.Errorf("%s: the agent's arguments are %q", name, args)
			}
		case parent == "openebs":
			all[name] = overlay(t, []string{manifests("engines", "openebs")}, []string{dir})
		default:
			return fmt.Errorf("%s: a component that is not tested", name)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// arguments are those of a workload's first container.
func arguments(objects []*unstructured.Unstructured, name string) []string {
	for _, o := range objects {
		containers, _, _ := unstructured.NestedSlice(o.Object, "spec", "template", "spec", "containers")
		if o.GetName() == name && len(containers) > 0 {
			args, _, _ := unstructured.NestedStringSlice(containers[0].(map[string]any), "args")
			return args
		}
	}
	return nil
}

// dropping counts the monitors whose endpoints all drop metrics; one with an endpoint that does not is left out.
func dropping(objects []*unstructured.Unstructured) (n int) {
	for _, o := range objects {
		endpoints, _, _ := unstructured.NestedSlice(o.Object, "spec", "podMetricsEndpoints")
		drop := len(endpoints) > 0
		for _, e := range endpoints {
			relabelings, _, _ := unstructured.NestedSlice(e.(map[string]any), "metricRelabelings")
			drop = drop && len(relabelings) == 1
		}
		if drop {
			n++
		}
	}
	return n
}

// cluster starts an API server with the definitions that the manifests use.
func cluster(t *testing.T) *kubetest.Server {
	t.Helper()
	s := kubetest.Start(t)
	s.ApplyCRDs(kubetest.ModuleCRDs(t, "prometheus-operator", "github.com/prometheus-operator/prometheus-operator", "example/prometheus-operator-crd/*.yaml")...)
	s.ApplyCRDs(kubetest.ModuleCRDs(t, "cloudnative-pg", "github.com/cloudnative-pg/cloudnative-pg", "config/crd/bases/*.yaml")...)
	s.ApplyCRDs(kubetest.ModuleCRDs(t, "longhorn-manager", "github.com/longhorn/longhorn-manager", "k8s/crds.yaml")...)
	return s
}

// namespaces makes the namespaces that objects are in, as the objects themselves have them.
func namespaces(s *kubetest.Server, objects []*unstructured.Unstructured) {
	for _, o := range objects {
		if o.GetKind() == "Namespace" {
			s.Apply(o)
		}
	}
	for _, o := range objects {
		if o.GetNamespace() != "" {
			s.Namespace(o.GetNamespace())
		}
	}
}

// clusterWide are the kinds without a namespace that the manifests use.
var clusterWide = []string{"Namespace", "PriorityClass", "ClusterRole", "ClusterRoleBinding", "StorageClass"}

// TestManifests applies everything with a strict dry run to a real API server.
func TestManifests(t *testing.T) {
	t.Parallel()
	all := everything(t)
	if len(all) < 40 {
		t.Errorf("only %d kustomizations found", len(all))
	}
	s := cluster(t)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		t.Run(name, func(t *testing.T) {
			if len(all[name]) == 0 && name != "base/dashboards" {
				t.Error("it makes nothing")
			}
			for _, o := range all[name] {
				// Parts of a database are given its namespace only as a whole.
				if o.GetNamespace() == "" && !slices.Contains(clusterWide, o.GetKind()) {
					o.SetNamespace("part")
				}
			}
			namespaces(s, all[name])
			seen := map[string]bool{}
			for _, o := range all[name] {
				id := fmt.Sprintf("%s %s/%s", o.GetKind(), o.GetNamespace(), o.GetName())
				if seen[id] {
					t.Errorf("%s is there twice", id)
				}
				seen[id] = true
				if err := s.DryRun(o); err != nil {
					t.Errorf("%s: %v", id, err)
				}
			}
			t.Logf("%d objects", len(all[name]))
		})
	}
	t.Run("wrong", func(t *testing.T) { wrong(t, s, all) })
	t.Run("pods", func(t *testing.T) { pods(t, s, all) })
	t.Run("stack", func(t *testing.T) { stack(t, s) })
}

// wrong spoils manifests in turn; each must be refused, and say why.
func wrong(t *testing.T, s *kubetest.Server, all map[string][]*unstructured.Unstructured) {
	rule := `{"apiVersion": "monitoring.coreos.com/v1", "kind": "PrometheusRule", "metadata": {"name": "x", "namespace": "plumbline"},
		"spec": {"groups": [{"name": "x", "rules": [{"alert": "X", "expr": "1", "for": "5 minutes"}]}]}}`
	var badFor unstructured.Unstructured
	if err := badFor.UnmarshalJSON([]byte(rule)); err != nil {
		t.Fatal(err)
	}
	if err := s.DryRun(&badFor); err == nil || !strings.Contains(err.Error(), "spec.groups[0].rules[0].for") {
		t.Errorf("a duration in words: %v", err)
	}
	for _, c := range []struct {
		name, from, kind, object string
		value                    any
		path                     []string
		want                     string
	}{
		{"field with a typing error", "base", "DaemonSet", "plumbline-agent", "x", []string{"spec", "template", "spec", "serviceAcountName"}, "field not declared in schema"},
		{"unknown field of a monitor", "base", "PodMonitor", "plumbline-agent", true, []string{"spec", "honourLabels"}, "field not declared in schema"},
		{"port of no number", "base", "PodMonitor", "plumbline-agent", []any{map[string]any{"portNumber": int64(70000)}}, []string{"spec", "podMetricsEndpoints"}, "portNumber"},
		{"no instances", "databases/local-path", "Cluster", "postgresql-local-path", int64(0), []string{"spec", "instances"}, "spec.instances"},
		{"schedule of no cron", "databases/local-path", "CronJob", "pgbench", "daily", []string{"spec", "schedule"}, "schedule"},
		{"relative host path", "base", "DaemonSet", "plumbline-agent", []any{map[string]any{"name": "proc", "hostPath": map[string]any{"path": "../proc"}}}, []string{"spec", "template", "spec", "volumes"}, "must not contain '..'"},
		{"quantity without a number", "databases/local-path", "ResourceQuota", "class", "many", []string{"spec", "hard", "pods"}, "quantit"},
		{"class of a wrong binding mode", "storage-classes/longhorn-r3", "StorageClass", "longhorn-r3", "Later", []string{"volumeBindingMode"}, "volumeBindingMode"},
	} {
		o := find(t, all[c.from], c.kind, c.object).DeepCopy()
		if err := unstructured.SetNestedField(o.Object, c.value, c.path...); err != nil {
			t.Fatal(err)
		}
		if err := s.DryRun(o); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: the server answers %v", c.name, err)
		}
	}
}

func find(t *testing.T, objects []*unstructured.Unstructured, kind, name string) *unstructured.Unstructured {
	t.Helper()
	for _, o := range objects {
		if o.GetKind() == kind && o.GetName() == name {
			return o
		}
	}
	t.Fatalf("no %s %s", kind, name)
	return nil
}
