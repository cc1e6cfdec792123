package kubetest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Token returns a token of a service account that exists, as a pod of it would be given.
func (s *Server) Token(namespace, account string) string {
	s.t.Helper()
	request := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "metadata": map[string]any{"name": account},
		"spec": map[string]any{},
	}}
	accounts := s.Client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "serviceaccounts"}).Namespace(namespace)
	answer, err := accounts.Create(context.Background(), request, metav1.CreateOptions{}, "token")
	if err != nil {
		s.t.Fatalf("token of %s/%s: %v", namespace, account, err)
	}
	token, _, _ := unstructured.NestedString(answer.Object, "status", "token")
	return token
}

// Kubeconfig writes a file that connects as the holder of a token, and returns its path.
func (s *Server) Kubeconfig(token string) string {
	s.t.Helper()
	path := filepath.Join(s.t.TempDir(), "kubeconfig")
	text := fmt.Sprintf(`apiVersion: v1
kind: Config
clusters: [{name: kubetest, cluster: {server: %q, insecure-skip-tls-verify: true}}]
users: [{name: holder, user: {token: %q}}]
contexts: [{name: kubetest, context: {cluster: kubetest, user: holder}}]
current-context: kubetest
`, s.Config.Host, token)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
	return path
}

// DryRun checks with the server that it would accept an object, every field of it known and valid, and changes nothing.
// The object's namespace must exist.
func (s *Server) DryRun(o *unstructured.Unstructured) error {
	_, err := s.resource(o).Patch(context.Background(), o.GetName(), "application/apply-patch+yaml", mustJSON(o),
		metav1.PatchOptions{FieldManager: "kubetest", Force: new(true), DryRun: []string{metav1.DryRunAll}, FieldValidation: metav1.FieldValidationStrict})
	return err
}

func mustJSON(o *unstructured.Unstructured) []byte {
	text, err := o.MarshalJSON()
	if err != nil {
		panic(err) // of maps, strings and numbers
	}
	return text
}
