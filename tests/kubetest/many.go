package kubetest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Fill writes the objects 0 to n-1 to the API server's storage, which is much faster than one request for each.
func (s *Server) Fill(n int, object func(i int) *unstructured.Unstructured) {
	s.t.Helper()
	type put struct {
		Key   []byte `json:"key"`
		Value []byte `json:"value"`
	}
	type operation struct {
		Put put `json:"request_put"`
	}
	const most = 100 // etcd takes 128 in one transaction
	var operations []operation
	for i := range n {
		o := object(i)
		o.SetUID("00000000-0000-4000-8000-000000000000")
		plural, _ := meta.UnsafeGuessKindToResource(o.GroupVersionKind())
		key := []string{"/registry", plural.Group, plural.Resource, o.GetNamespace(), o.GetName()}
		operations = append(operations, operation{put{[]byte(strings.ReplaceAll(strings.ReplaceAll(strings.Join(key, "/"), "//", "/"), "//", "/")), mustJSON(o)}})
		if len(operations) < most && i < n-1 {
			continue
		}
		text, err := json.Marshal(map[string]any{"success": operations})
		if err != nil {
			s.t.Fatal(err)
		}
		answer, err := http.Post(s.store+"/v3/kv/txn", "application/json", bytes.NewReader(text))
		if err != nil {
			s.t.Fatal(err)
		}
		message, _ := io.ReadAll(answer.Body)
		answer.Body.Close()
		if answer.StatusCode != http.StatusOK {
			s.t.Fatalf("etcd: %s: %s", answer.Status, message)
		}
		operations = operations[:0]
	}
}

// Volume is PersistentVolume number i, bound to the claim claim-i in the namespace db, of about 2 KB as a cluster has
// them: its driver's attributes, and who has written which of its fields.
func Volume(i int, spec map[string]any) *unstructured.Unstructured {
	attributes := map[string]any{}
	for a := range 8 {
		attributes[fmt.Sprintf("storage.example.org/attribute-%d", a)] = strings.Repeat("v", 40)
	}
	o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "PersistentVolume",
		"metadata": map[string]any{"name": Name(i), "annotations": map[string]any{
			"pv.kubernetes.io/provisioned-by": "csi.example.org", "example.org/notes": strings.Repeat("n", 700)}},
		"spec": map[string]any{"storageClassName": "replicated", "capacity": map[string]any{"storage": "10Gi"}, "accessModes": []any{"ReadWriteOnce"},
			"claimRef": map[string]any{"namespace": "db", "name": fmt.Sprintf("claim-%d", i), "uid": fmt.Sprintf("00000000-0000-4000-8000-%012d", i)}}}}
	for field, value := range spec {
		o.Object["spec"].(map[string]any)[field] = value
	}
	if csi, ok := spec["csi"].(map[string]any); ok {
		csi["volumeAttributes"] = attributes
	}
	return o
}

// Name is a volume's, of the usual form.
func Name(i int) string { return fmt.Sprintf("pvc-5c0f61f5-7a63-4b4e-9b7a-%012d", i) }

// Definition is a stand-in for the published definition of a kind: it takes any field, in each of the versions, of
// which the last is stored.
func Definition(group, kind string, versions ...string) *unstructured.Unstructured {
	plural := strings.ToLower(kind) + "s"
	var served []any
	for i, version := range versions {
		served = append(served, map[string]any{"name": version, "served": true, "storage": i == len(versions)-1,
			"schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}}})
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": plural + "." + group},
		"spec": map[string]any{
			"group": group, "scope": "Namespaced",
			"names":    map[string]any{"plural": plural, "singular": strings.ToLower(kind), "kind": kind, "listKind": kind + "List"},
			"versions": served,
		},
	}}
}
