package pod

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/plumbline/plumbline/exporters/agent/untrusted"
	"github.com/plumbline/plumbline/exporters/exporterkit/kube"
	"github.com/plumbline/plumbline/tests/kubetest"
	"github.com/plumbline/plumbline/tests/testkit"
)

// pods are as the operator, the controllers and the kubelet make them.
var podsYAML = `
- apiVersion: v1
  kind: Pod
  metadata:
    name: pg-1
    namespace: db
    labels: {cnpg.io/cluster: pg}
    ownerReferences: [{apiVersion: postgresql.cnpg.io/v1, kind: Cluster, name: pg, uid: u1, controller: true}]
  spec: {nodeName: n1, hostname: pg-1, containers: [{name: postgres, image: i, env: [{name: PASSWORD, value: secret}]}]}
  status: {podIP: 10.244.0.5, podIPs: [{ip: 10.244.0.5}, {ip: "fd00::5"}], containerStatuses: [{name: postgres, containerID: "containerd://` + number + `", image: i, imageID: i, ready: true, restartCount: 0}]}
- apiVersion: v1
  kind: Pod
  metadata:
    name: shop-5d9c-x1
    namespace: db
    labels: {pod-template-hash: 5d9c}
    ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet, name: shop-5d9c, uid: u2, controller: true}]
  spec: {nodeName: n1, hostNetwork: true, containers: [{name: a, image: i}]}
- apiVersion: v1
  kind: Pod
  metadata:
    name: nobodys
    namespace: other
    ownerReferences: [{apiVersion: v1, kind: ConfigMap, name: no-controller, uid: u3}]
  spec: {nodeName: n1, containers: [{name: a, image: i}]}
- apiVersion: v1
  kind: Pod
  metadata: {name: pg-1, namespace: other}
  spec: {nodeName: n1, containers: [{name: a, image: i}]}
- apiVersion: v1
  kind: Pod
  metadata: {name: pg-2, namespace: db}
  spec: {nodeName: n2, containers: [{name: a, image: i}]}
- apiVersion: v1
  kind: Pod
  metadata: {name: static-n1, namespace: db, annotations: {kubernetes.io/config.mirror: ` + staticUID + `}}
  spec: {nodeName: n1, containers: [{name: a, image: i}]}
`

// TestPods has a real API server: away at the start, there, away again. Names are the same all the while; what only it
// knows comes when it does, and stays when it goes.
func TestPods(t *testing.T) {
	server := kubetest.Start(t)
	server.Namespace("db")
	server.Namespace("other")
	var raw []map[string]any
	if err := yaml.Unmarshal([]byte(podsYAML), &raw); err != nil {
		t.Fatal(err)
	}
	uids := map[string]string{}
	for _, o := range raw {
		u := &unstructured.Unstructured{Object: o}
		server.Apply(u)
		got, err := server.Client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "pods"}).Namespace(u.GetNamespace()).
			Get(context.Background(), u.GetName(), metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		uids[u.GetNamespace()+"/"+u.GetName()] = string(got.GetUID())
	}
	g := &kubetest.Gate{To: strings.TrimPrefix(server.Config.Host, "https://"), At: testkit.FreeAddress(t)}
	config := rest.CopyConfig(server.Config)
	config.Host = "https://" + g.At
	objects, err := kube.New(config, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	tr := newTree(t)
	logs := tr.folder("1/root/var/log/pods")
	node := NewNode(tr.proc, "n1", objects, untrusted.NewCalls(time.Second, 8))
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	if err := objects.Run(ctx); err != nil {
		t.Fatal(err)
	}
	all := []string{staticUID, "unknown"}
	for _, uid := range uids {
		all = append(all, uid)
	}
	if got := node.Find(all); len(got) != 0 {
		t.Errorf("with nothing that names them: %+v", got)
	}
	// The kubelet has made the folder of its logs before the pod's first container runs.
	for _, name := range []string{"db_pg-1_" + uids["db/pg-1"], "db_static-n1_" + staticUID, "Bad_name_" + otherUID, "db_x_y_" + otherUID, "db_" + otherUID} {
		tr.folder("1/root/var/log/pods/" + name)
	}
	want := map[string]Pod{
		uids["db/pg-1"]: {Namespace: "db", Name: "pg-1", Hostname: "pg-1"},
		staticUID:       {Namespace: "db", Name: "static-n1", Hostname: "static-n1"},
	}
	found := func(what string, want map[string]Pod) {
		t.Helper()
		testkit.Eventually(t, testkit.DefaultTimeout, func() error {
			if got := node.Find(append(all, otherUID)); !reflect.DeepEqual(got, want) {
				return fmt.Errorf("%s: %+v, want %+v", what, got, want)
			}
			return nil
		})
	}
	found("by the folders of logs", want)
	if err := os.Chmod(logs, 0o777); err != nil {
		t.Fatal(err)
	}
	found("by folders that anybody may make", map[string]Pod{})

	g.Open(t)
	want = map[string]Pod{
		uids["db/pg-1"]: {Namespace: "db", Name: "pg-1", Hostname: "pg-1", OwnerKind: "Cluster", Owner: "pg", IPs: []string{"10.244.0.5", "fd00::5"},
			Complete: true, containers: map[string]string{number: "postgres"}},
		uids["db/shop-5d9c-x1"]: {Namespace: "db", Name: "shop-5d9c-x1", Hostname: "n1", OwnerKind: "Deployment", Owner: "shop", Complete: true, containers: map[string]string{}},
		uids["other/nobodys"]:   {Namespace: "other", Name: "nobodys", Hostname: "nobodys", Complete: true, containers: map[string]string{}},
		uids["other/pg-1"]:      {Namespace: "other", Name: "pg-1", Hostname: "pg-1", Complete: true, containers: map[string]string{}},
		staticUID:               {Namespace: "db", Name: "static-n1", Hostname: "static-n1", Complete: true, containers: map[string]string{}},
	}
	is := func() error {
		if got := node.Find(all); !reflect.DeepEqual(got, want) {
			return fmt.Errorf("%+v\nwant %+v", got, want)
		}
		return nil
	}
	testkit.Eventually(t, testkit.DefaultTimeout, is)
	// A pod that claims to be another's copy is not.
	server.Apply(&unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Pod",
		"metadata": map[string]any{"name": "evil", "namespace": "other", "annotations": map[string]any{mirrorOf: uids["db/pg-1"]}},
		"spec":     map[string]any{"nodeName": "n1", "containers": []any{map[string]any{"name": "a", "image": "i"}}}}})
	testkit.Eventually(t, testkit.DefaultTimeout, func() error {
		for _, o := range kube.All[*object](objects, resource) {
			if o.Name == "evil" {
				return nil
			}
		}
		return errors.New("it is not seen")
	})
	for range 20 {
		if err := is(); err != nil {
			t.Fatalf("beside a pod that claims to be another one: %v", err)
		}
	}
	for _, o := range kube.All[*object](objects, resource) {
		if text := fmt.Sprintf("%+v", o); strings.Contains(text, "secret") {
			t.Errorf("kept: %s", text)
		}
	}
	g.Shut()
	if err := os.RemoveAll(filepath.Join(tr.proc, "1/root/var")); err != nil {
		t.Fatal(err)
	}
	errorsBefore := objects.Requests()
	testkit.Eventually(t, testkit.DefaultTimeout, func() error { // it has tried, in vain
		if objects.Requests() < errorsBefore+2 {
			return fmt.Errorf("%d requests", objects.Requests())
		}
		return nil
	})
	if err := is(); err != nil {
		t.Errorf("while the API server is away: %v", err)
	}
}

// A static pod whose manifest has a UID of its own is known by its copy, if the folder of its logs has the copy's name.
// Nothing is taken from other pods that claim to be its copy, or another pod's.
func TestStaticPodWithItsOwnUID(t *testing.T) {
	objects, err := kube.New(&rest.Config{Host: "http://127.0.0.1:1"}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	tr := newTree(t)
	node := NewNode(tr.proc, "n1", objects, untrusted.NewCalls(time.Minute, 8))
	const real, copied, evil, unlogged = "aaaaaaaa-2222-3333-4444-555555555555", "bbbbbbbb-2222-3333-4444-555555555555",
		"cccccccc-2222-3333-4444-555555555555", "dddddddd-2222-3333-4444-555555555555"
	put := func(namespace, name, uid, mirrored, ip string) {
		metadata := map[string]any{"namespace": namespace, "name": name, "uid": uid}
		if mirrored != "" {
			metadata["annotations"] = map[string]any{mirrorOf: mirrored}
		}
		objects.Put(resource, &unstructured.Unstructured{Object: map[string]any{
			"metadata": metadata, "spec": map[string]any{"nodeName": "n1"}, "status": map[string]any{"podIPs": []any{map[string]any{"ip": ip}}},
		}})
	}
	put("db", "pg-n1", copied, anyUID, "10.0.0.1")
	put("db", "real", real, "", "10.0.0.2")
	put("other", "evil-a", evil, anyUID, "10.0.0.3")
	put("other", "evil-b", "e", real, "10.0.0.4")
	put("other", "evil-c", "f", unlogged, "10.0.0.5")
	tr.folder("1/root/var/log/pods/db_pg-n1_" + anyUID)
	pod := func(namespace, name, ip string) Pod {
		return Pod{Namespace: namespace, Name: name, Hostname: name, Complete: true, IPs: []string{ip}, containers: map[string]string{}}
	}
	want := map[string]Pod{
		anyUID: pod("db", "pg-n1", "10.0.0.1"), copied: pod("db", "pg-n1", "10.0.0.1"), real: pod("db", "real", "10.0.0.2"), evil: pod("other", "evil-a", "10.0.0.3"),
	}
	if got := node.Find([]string{anyUID, copied, real, evil, unlogged}); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v\nwant %+v", got, want)
	}
}
