package kubernetes_test

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// The labels that tell whose an object is.
const (
	plumblines = "app.kubernetes.io/part-of: plumbline"
	deploys    = plumblines + ", app.kubernetes.io/managed-by: plumbline-deploy"
)

// TestDeployGoesByWhatItMade has objects with Plumbline's label that deploy did not make: up does not take them over, and down
// neither deletes them nor the namespace they are in.
func TestDeployGoesByWhatItMade(t *testing.T) {
	t.Parallel()
	d := newDeployment(t)
	registry := "REGISTRY=registry.example.org/plumbline"
	helms := parse(t, "{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: plumbline-node, labels: {"+plumblines+", app.kubernetes.io/managed-by: Helm}}, value: 7}")
	d.Apply(helms)
	d.refused([]string{registry}, "up", "PriorityClass plumbline-node")
	d.Delete(helms)
	// Of a user's own kustomization: StorageClasses are used as they are.
	d.Apply(parse(t, "{apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {name: longhorn-r1, labels: {"+plumblines+"}}, provisioner: driver.longhorn.io, reclaimPolicy: Retain}"))
	says(t, d.up(manifests("deploy"), "CLASSES=longhorn-r1 longhorn-r3"), "StorageClass longhorn-r1 is there already and not ours")

	d.Apply(parse(t, "{apiVersion: v1, kind: ConfigMap, metadata: {name: soak, namespace: plumbline, labels: {"+plumblines+"}}}"))
	// A Secret is an account's by its type, whatever its name is.
	d.Apply(parse(t, "{apiVersion: v1, kind: Secret, metadata: {name: default-tls, namespace: plumbline-node}, stringData: {key: mine}}"))
	d.Apply(parse(t, "{apiVersion: v1, kind: Secret, metadata: {name: builder-dockercfg-x7k2p, namespace: plumbline-node}, type: kubernetes.io/dockercfg, stringData: {.dockercfg: \"{}\"}}"))
	text, err := d.deploy(nil, "down")
	if err != nil {
		t.Fatalf("down: %v\n%s", err, text)
	}
	says(t, text, "namespace plumbline stays, with:\nConfigMap/soak\n", "namespace plumbline-node stays, with:\nSecret/default-tls\n")
	if strings.Contains(text, "builder-dockercfg") {
		t.Errorf("an account's Secret keeps a namespace:\n%s", text)
	}
	d.has(true, secrets, "plumbline-node", "default-tls")
	d.has(true, configMaps, "plumbline", "soak")
	if d.get(namespaceKind, "", "plumbline").GetDeletionTimestamp() != nil {
		t.Error("the namespace plumbline is deleted, with what deploy did not make")
	}
	d.has(true, storageClasses, "", "longhorn-r1")
	d.has(false, storageClasses, "", "longhorn-r3")
	d.has(false, daemonSets, "plumbline-node", "plumbline-agent")
	d.has(false, priorityClasses, "", "plumbline-node")
}

// TestDeployDeletesWhatItRecorded has copies of an object of deploy's under other names, which kept its labels: neither an up
// that removes the original nor down deletes them.
func TestDeployDeletesWhatItRecorded(t *testing.T) {
	t.Parallel()
	d := newDeployment(t)
	deploy := checkout(t)
	d.up(deploy)
	d.Apply(parse(t, "{apiVersion: monitoring.coreos.com/v1, kind: PrometheusRule, metadata: {name: copy, namespace: plumbline, labels: {"+deploys+"}}, spec: {groups: []}}"))
	d.Apply(parse(t, "{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: copy, labels: {"+deploys+"}}, value: 7}"))
	// A name that would be two words of a list.
	d.Apply(parse(t, "{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: \"plumbline-stall v1\", namespace: plumbline, labels: {"+deploys+"}}}"))
	kept := func() {
		t.Helper()
		d.has(true, prometheusRules, "plumbline", "copy")
		d.has(true, priorityClasses, "", "copy")
	}
	change(t, deploy, "base/rules/stall.yaml", "name: plumbline-stall", "name: plumbline-standstill")
	says(t, d.up(deploy), "Removed, as it is no longer part of what is deployed:\n")
	d.has(false, prometheusRules, "plumbline", "plumbline-stall")
	d.has(true, prometheusRules, "plumbline", "plumbline-standstill")
	kept()
	// So that both namespaces stay.
	d.Apply(parse(t, "{apiVersion: v1, kind: ConfigMap, metadata: {name: notes, namespace: plumbline-node}}"))
	text, err := d.run(nil, deploy, "down")
	if err != nil {
		t.Fatalf("down: %v\n%s", err, text)
	}
	says(t, text, "namespace plumbline stays, with:\n", "PrometheusRule/copy\n", `Role/"plumbline-stall`)
	kept()
	d.has(false, prometheusRules, "plumbline", "plumbline-standstill")

	// Without a record nothing tells the copies from what up made.
	text = d.up(deploy)
	says(t, text, "delete them:\nPriorityClass /copy\nPrometheusRule plumbline/copy\n")
	kept()
	if text := d.up(deploy); strings.Contains(text, "/copy") {
		t.Errorf("named again by an up that has a record:\n%s", text)
	}
	kept()
}

// TestDeployTakesWhatIsHandedOver has objects under names that up needs and that are not in its record: the labels tell that they
// are its own.
func TestDeployTakesWhatIsHandedOver(t *testing.T) {
	t.Parallel()
	d := newDeployment(t)
	d.up(manifests("deploy"))
	role := "{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: plumbline-openebs-exporter, labels: {"
	d.Apply(parse(t, role+"}}}"))
	d.refused([]string{"REGISTRY=registry.example.org/plumbline", "ENGINES=openebs"}, "up", "ClusterRole plumbline-openebs-exporter")
	d.Apply(parse(t, role+deploys+"}}}"))
	// As after an up that ended between making a namespace and recording it.
	listed := func() string {
		t.Helper()
		text, _, _ := unstructured.NestedString(d.get(configMaps, "plumbline", "plumbline-deploy").Object, "data", "objects")
		return text
	}
	patch, err := json.Marshal(map[string]any{"data": map[string]string{"objects": strings.ReplaceAll(listed(), "Namespace /plumbline-node\n", "")}})
	if err != nil {
		t.Fatal(err)
	}
	if text, err := d.run(nil, filepath.Join(d.path, "kubectl"), "patch", "configmap", "plumbline-deploy", "--namespace=plumbline", "--patch="+string(patch)); err != nil {
		t.Fatal(text)
	}
	if strings.Contains(listed(), "Namespace /plumbline-node\n") {
		t.Fatal("the namespace is still in the record")
	}
	d.up(manifests("deploy"), "ENGINES=openebs")
	says(t, listed(), "ClusterRole /plumbline-openebs-exporter\n", "Namespace /plumbline-node\n")
}
