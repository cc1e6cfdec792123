package kubernetes_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/plumbline/plumbline/tests/kubetest"
	"github.com/plumbline/plumbline/tests/testkit"
)

// deployment runs the script deploy against an API server without a kubelet: objects come and go, no
// pod runs, so `up` ends at its time-out after all is applied.
type deployment struct {
	*kubetest.Server
	t          *testing.T
	kubeconfig string
	path       string
}

func newDeployment(t *testing.T) *deployment {
	s := cluster(t)
	bin := filepath.Dir(testkit.Tool(t, "kubectl"))
	testkit.Tool(t, "helm")
	return &deployment{Server: s, t: t, kubeconfig: s.Kubeconfig(s.Config.BearerToken), path: bin}
}

// run runs a program of build/bin, or the script, with these variables.
func (d *deployment) run(environment []string, program string, arguments ...string) (string, error) {
	cmd := exec.Command(program, arguments...)
	home := d.t.TempDir()
	cmd.Env = append(os.Environ(), "KUBECONFIG="+d.kubeconfig, "PATH="+d.path+":"+os.Getenv("PATH"), "TIMEOUT=1s", "WAIT=false",
		"HELM_CACHE_HOME="+home, "HELM_CONFIG_HOME="+home, "HELM_DATA_HOME="+home, "HOME="+home)
	cmd.Env = append(cmd.Env, environment...)
	text, err := cmd.CombinedOutput()
	return string(text), err
}

func (d *deployment) deploy(environment []string, command string) (string, error) {
	return d.run(environment, manifests("deploy"), command)
}

// refused fails unless the script says this and exits with an error.
func (d *deployment) refused(environment []string, command, want string) {
	d.t.Helper()
	text, err := d.deploy(environment, command)
	if err == nil || !strings.Contains(text, want) {
		d.t.Errorf("deploy %s with %v: %v, want %q:\n%s", command, environment, err, want, text)
	}
}

func (d *deployment) get(resource schema.GroupVersionResource, namespace, name string) *unstructured.Unstructured {
	d.t.Helper()
	o, err := d.Client.Resource(resource).Namespace(namespace).Get(context.Background(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		d.t.Fatal(err)
	}
	return o
}

var (
	storageClasses = schema.GroupVersionResource{Group: "storage.k8s.io", Version: "v1", Resource: "storageclasses"}
	daemonSets     = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "daemonsets"}
	namespaceKind  = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}
	configMaps     = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	secrets        = schema.GroupVersionResource{Version: "v1", Resource: "secrets"}
)

func parse(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	file := filepath.Join(t.TempDir(), "object.yaml")
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return kubetest.Read(t, file)[0]
}

// TestDeployIsSafe has objects of others on the cluster under every name that deploy uses, and checks
// that none is changed by up or removed by down, while what up made goes.
func TestDeployIsSafe(t *testing.T) {
	t.Parallel()
	d := newDeployment(t)
	registry := "REGISTRY=registry.example.org/plumbline"
	d.refused(nil, "up", "REGISTRY is empty")
	d.refused([]string{registry, "TAG=latest"}, "up", "TAG is latest")
	d.refused(nil, "down", "no record of an installation")

	// A namespace of the same name, of somebody else: its pods' level would change.
	d.Apply(parse(t, "{apiVersion: v1, kind: Namespace, metadata: {name: plumbline}}"))
	d.refused([]string{registry}, "up", "Namespace plumbline")
	if n := d.get(namespaceKind, "", "plumbline"); len(n.GetLabels()) != 1 { // the API server's own
		t.Errorf("the other's namespace has labels now: %v", n.GetLabels())
	}
	if d.get(namespaceKind, "", "plumbline-node") != nil {
		t.Error("something was applied although up refused")
	}
	d.Apply(parse(t, "{apiVersion: v1, kind: Namespace, metadata: {name: plumbline, labels: {"+deploys+"}}}"))

	// A release of the name that STACK names.
	other := filepath.Join(t.TempDir(), "other")
	write(t, filepath.Join(other, "Chart.yaml"), "{apiVersion: v2, name: other, version: 1.0.0}")
	write(t, filepath.Join(other, "templates", "c.yaml"), "{apiVersion: v1, kind: ConfigMap, metadata: {name: other}, data: {retention: {{ .Values.retention | quote }}}}")
	if text, err := d.run(nil, filepath.Join(d.path, "helm"), "install", "monitoring", other, "--namespace=monitoring", "--create-namespace", "--set=retention=1y"); err != nil {
		t.Fatal(text)
	}
	d.refused([]string{registry, "STACK=monitoring", "CHART=" + other}, "up", "was not installed by this script")
	if retention, _, _ := unstructured.NestedString(d.get(configMaps, "monitoring", "other").Object, "data", "retention"); retention != "1y" {
		t.Errorf("the other's release says retention %q", retention)
	}
	releases, err := d.Client.Resource(secrets).Namespace("monitoring").List(context.Background(), metav1.ListOptions{LabelSelector: "owner=helm"})
	if err != nil || len(releases.Items) != 1 {
		t.Errorf("the other's release has %d revisions: %v", len(releases.Items), err)
	}

	// A StorageClass that its provisioner brought, as k3s does.
	d.Apply(parse(t, "{apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {name: local-path}, provisioner: rancher.io/local-path, reclaimPolicy: Retain, volumeBindingMode: WaitForFirstConsumer}"))
	text, err := d.deploy([]string{registry, "ENGINES=openebs", "CLASSES=local-path longhorn-r1 longhorn-r3"}, "up")
	if err == nil || !strings.Contains(text, "not everything in plumbline-node runs") {
		t.Fatalf("up without a kubelet: %v\n%s", err, text)
	}
	if !strings.Contains(text, "StorageClass local-path is there already and not ours") {
		t.Errorf("up says nothing of local-path:\n%s", text)
	}
	agent := d.get(daemonSets, "plumbline-node", "plumbline-agent")
	if agent == nil {
		t.Fatalf("no agent:\n%s", text)
	}
	containers, _, _ := unstructured.NestedSlice(agent.Object, "spec", "template", "spec", "containers")
	if image := containers[0].(map[string]any)["image"].(string); !strings.HasPrefix(image, "registry.example.org/plumbline/agent:0.") {
		t.Errorf("the agent's image is %s", image)
	}
	if d.get(storageClasses, "", "longhorn-r1") == nil || d.get(storageClasses, "", "longhorn-r3") == nil {
		t.Error("no StorageClass longhorn-r1 or longhorn-r3")
	}
	// Up again is no obstacle, and forgets nothing that is not repeated.
	if text, _ := d.deploy([]string{registry}, "up"); !strings.Contains(text, "not everything in plumbline-node runs") {
		t.Errorf("up again:\n%s", text)
	}

	// Others' things beside ours; a volume on a class of ours.
	d.Apply(parse(t, "{apiVersion: v1, kind: ConfigMap, metadata: {name: notes, namespace: plumbline-node}, data: {mine: \"here\"}}"))
	d.Apply(parse(t, `{apiVersion: v1, kind: PersistentVolume, metadata: {name: data}, spec: {storageClassName: longhorn-r3, capacity: {storage: 1Gi},
  accessModes: [ReadWriteOnce], hostPath: {path: /data}}}`))
	text, err = d.deploy(nil, "down")
	if err != nil {
		t.Fatalf("down: %v\n%s", err, text)
	}
	for _, want := range []string{"StorageClass longhorn-r3 stays: volumes use it", "namespace plumbline-node stays, with:\nConfigMap/notes"} {
		if !strings.Contains(text, want) {
			t.Errorf("down does not say %q:\n%s", want, text)
		}
	}
	if class := d.get(storageClasses, "", "local-path"); class == nil || class.Object["reclaimPolicy"] != "Retain" || len(class.GetLabels()) != 0 {
		t.Errorf("the other's StorageClass: %v", class)
	}
	if d.get(storageClasses, "", "longhorn-r3") == nil || d.get(storageClasses, "", "longhorn-r1") != nil {
		t.Error("longhorn-r3 is in use and must stay, longhorn-r1 must go")
	}
	if d.get(configMaps, "plumbline-node", "notes") == nil || d.get(namespaceKind, "", "plumbline-node").GetDeletionTimestamp() != nil {
		t.Error("the other's ConfigMap or its namespace is gone")
	}
	if d.get(namespaceKind, "", "plumbline").GetDeletionTimestamp() == nil {
		t.Error("the namespace plumbline stays")
	}
	if d.get(daemonSets, "plumbline-node", "plumbline-agent") != nil || d.get(configMaps, "plumbline", "plumbline-deploy") != nil {
		t.Error("the agent or the record is still there")
	}
	if d.get(configMaps, "monitoring", "other") == nil {
		t.Error("the other's release is gone")
	}
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}
