package kubernetes_test

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/plumbline/plumbline/loadgen/matrix"
	"github.com/plumbline/plumbline/loadgen/soak"
)

var jobs = schema.GroupVersionResource{Group: "batch", Version: "v1", Resource: "jobs"}

// TestDeployLoads has deploy make a matrix and a soak over several classes: each with its database's address, its copies, and
// the control as the one that others are compared with; the matrix with a volume of each.
func TestDeployLoads(t *testing.T) {
	t.Parallel()
	d := newDeployment(t)
	registry := "REGISTRY=registry.example.org/plumbline"
	deploy := func(arguments ...string) (string, error) {
		return d.run([]string{registry, "REPEAT=4", "SIZE=9Gi", "PROMETHEUS=http://prometheus-operated.monitoring:9090", "CLUSTER=eu-1", "RELEASE=stack"}, manifests("deploy"), arguments...)
	}
	d.Namespace("plumbline")
	for class, parameters := range map[string]string{
		"local-path":  "provisioner: rancher.io/local-path",
		"longhorn-r3": `provisioner: driver.longhorn.io, parameters: {numberOfReplicas: "3"}`,
		"ceph-block":  "provisioner: rook-ceph.rbd.csi.ceph.com, parameters: {pool: replicapool}",
		"kadalu":      "provisioner: kadalu, parameters: {storage_type: Replica2}",
		"disk":        `metadata: {name: disk, annotations: {plumbline.io/control: "true"}}, provisioner: example.org/disk`,
	} {
		metadata := fmt.Sprintf("metadata: {name: %s}, ", class)
		if strings.HasPrefix(parameters, "metadata") {
			metadata = ""
		}
		d.Apply(parse(t, "{apiVersion: storage.k8s.io/v1, kind: StorageClass, "+metadata+parameters+"}"))
		d.Namespace("db-" + class)
		d.Apply(parse(t, fmt.Sprintf("{apiVersion: v1, kind: Secret, metadata: {name: postgresql-%[1]s-app, namespace: db-%[1]s}, stringData: {uri: \"postgresql://app:it's%%2Fsecret@postgresql-%[1]s-rw:5432/app\"}}", class)))
	}
	for want, arguments := range map[string][]string{
		"name the experiment and the classes":  {"matrix", "wal"},
		"an experiment's name is small":        {"matrix", "wal; rm -r", "local-path"},
		"db-longhorn-r1 has no PostgreSQL yet": {"matrix", "wal", "longhorn-r1"},
	} {
		if text, err := deploy(arguments...); err == nil || !strings.Contains(text, want) {
			t.Errorf("%q: %v, want %q:\n%s", arguments, err, want, text)
		}
	}
	classes := []string{"longhorn-r3", "local-path", "ceph-block", "kadalu", "disk"}
	if text, err := deploy(append([]string{"matrix", "wal"}, classes...)...); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	want := []matrix.Target{
		{StorageClass: "longhorn-r3", Replicas: 3}, {StorageClass: "local-path", Replicas: 1, Local: true}, {StorageClass: "ceph-block"}, {StorageClass: "kadalu", Replicas: 2}, {StorageClass: "disk", Replicas: 1},
	}
	for i := range want {
		class := want[i].StorageClass
		want[i].Engine, want[i].DSN = "postgres", fmt.Sprintf("postgresql://app:it's%%2Fsecret@postgresql-%s-rw.db-%[1]s:5432/app", class)
	}
	file := filepath.Join(t.TempDir(), "plan.yaml")
	secret := func(name, key string) {
		t.Helper()
		var s corev1.Secret
		convert(t, d.get(secrets, "plumbline", name), &s)
		write(t, file, string(s.Data[key]))
	}
	secret("targets-wal", "targets.yaml")
	got, err := matrix.ReadTargets(file)
	if err != nil {
		t.Fatal(err)
	}
	with := slices.Clone(want)
	for i := range with {
		with[i].Directory = "/data/" + with[i].StorageClass
	}
	if !slices.Equal(got, with) {
		t.Errorf("targets\n%+v\nwant\n%+v", got, with)
	}
	var job batchv1.Job
	convert(t, d.get(jobs, "plumbline", "matrix-wal"), &job)
	pod := job.Spec.Template.Spec
	args := []string{"matrix", "wal", "--targets=/targets/targets.yaml", "--output=/dev/stdout", "--repeat=4", "--pod=$(NAMESPACE)/$(POD)", "--prometheus=http://prometheus-operated.monitoring:9090", "--cluster=eu-1"}
	if !slices.Equal(pod.Containers[0].Args, args) || !strings.HasPrefix(pod.Containers[0].Image, "registry.example.org/plumbline/loadgen-tools:0.") {
		t.Errorf("args %q of %s", pod.Containers[0].Args, pod.Containers[0].Image)
	}
	mounted := map[string]string{}
	for _, m := range pod.Containers[0].VolumeMounts {
		mounted[m.Name] = m.MountPath
	}
	for _, v := range pod.Volumes {
		switch {
		case v.Name == "targets" && v.Secret.SecretName == "targets-wal", v.Name == "tmp":
		case v.Ephemeral == nil:
			t.Errorf("volume %+v", v)
		default:
			claim := v.Ephemeral.VolumeClaimTemplate.Spec
			if *claim.StorageClassName != v.Name || mounted[v.Name] != "/data/"+v.Name || claim.Resources.Requests.Storage().String() != "9Gi" {
				t.Errorf("volume %s: claim %+v at %s", v.Name, claim, mounted[v.Name])
			}
		}
	}
	if len(pod.Volumes) != 2+len(classes) {
		t.Errorf("%d volumes", len(pod.Volumes))
	}
	if text, err := deploy("matrix", "wal", "local-path"); err == nil || !strings.Contains(text, "there is a job matrix-wal already") {
		t.Errorf("again: %v\n%s", err, text)
	}

	if text, err := deploy(append([]string{"soak"}, classes...)...); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	secret("soak", "plan.yaml")
	plan, err := soak.ReadPlan(file, 0)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(plan.Targets, want) {
		t.Errorf("the soak's targets\n%+v\nwant\n%+v", plan.Targets, want)
	}
	d.released(podMonitors, "plumbline", "soak", "stack")
}

func convert(t *testing.T, from *unstructured.Unstructured, to any) {
	t.Helper()
	if from == nil {
		t.Fatal("it is not there")
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(from.Object, to); err != nil {
		t.Fatal(err)
	}
}
