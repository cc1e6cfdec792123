// Package kubetest runs a real Kubernetes API server, with etcd under it and nothing else,
// for tests that must see how objects come and go.
package kubetest

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/plumbline/plumbline/tests/freeport"
	"github.com/plumbline/plumbline/tests/testkit"
)

const token = "kubetest"

// Server is a running API server.
type Server struct {
	// Config connects to it with every right.
	Config *rest.Config
	// Client is a client for any kind of object.
	Client dynamic.Interface

	t     testing.TB
	store string // etcd's address
}

// Start starts an API server that ends with the test. It needs etcd and kube-apiserver.
func Start(t testing.TB) *Server {
	t.Helper()
	etcd, apiserver := testkit.Tool(t, "etcd"), testkit.Tool(t, "kube-apiserver")
	dir := t.TempDir()
	ports := freePorts(t, 3)
	store := fmt.Sprintf("http://127.0.0.1:%d", ports[0])
	peer := fmt.Sprintf("http://127.0.0.1:%d", ports[1])
	start(t, etcd, "--data-dir="+filepath.Join(dir, "etcd"), "--listen-client-urls="+store, "--advertise-client-urls="+store,
		"--listen-peer-urls="+peer, "--initial-advertise-peer-urls="+peer, "--initial-cluster=default="+peer,
		"--unsafe-no-fsync", "--log-level=error")
	key := filepath.Join(dir, "service-account.key")
	writeKey(t, key)
	tokens := filepath.Join(dir, "tokens.csv")
	if err := os.WriteFile(tokens, []byte(token+`,admin,admin,"system:masters"`+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	start(t, apiserver, "--etcd-servers="+store, "--cert-dir="+filepath.Join(dir, "certs"), "--bind-address=127.0.0.1",
		// An address of documentation: without one the server wants a default route, which a namespace of its own has
		// not.
		"--advertise-address=192.0.2.1",
		fmt.Sprintf("--secure-port=%d", ports[2]), "--authorization-mode=RBAC", "--token-auth-file="+tokens,
		"--service-account-issuer=https://kubetest", "--service-account-key-file="+key, "--service-account-signing-key-file="+key,
		"--service-cluster-ip-range=10.0.0.0/24", "--disable-admission-plugins=ServiceAccount")
	s := &Server{t: t, store: store, Config: &rest.Config{
		Host: fmt.Sprintf("https://127.0.0.1:%d", ports[2]), BearerToken: token,
		TLSClientConfig: rest.TLSClientConfig{Insecure: true}, QPS: 1000, Burst: 1000,
	}}
	client, err := rest.HTTPClientFor(s.Config)
	if err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, testkit.DefaultTimeout, func() error {
		response, err := client.Get(s.Config.Host + "/readyz")
		if err != nil {
			return err
		}
		defer response.Body.Close()
		if response.StatusCode != 200 {
			return errors.New(response.Status)
		}
		return nil
	})
	if s.Client, err = dynamic.NewForConfig(s.Config); err != nil {
		t.Fatal(err)
	}
	return s
}

// In returns the same server for a test within the one that started it.
func (s *Server) In(t testing.TB) *Server {
	within := *s
	within.t = t
	return &within
}

func freePorts(t testing.TB, n int) []int {
	t.Helper()
	var ports []int
	for range n {
		port, err := freeport.Find()
		if err != nil {
			t.Fatal(err)
		}
		ports = append(ports, port)
	}
	return ports
}

func start(t testing.TB, program string, args ...string) {
	t.Helper()
	cmd := exec.Command(program, args...)
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
		if t.Failed() {
			t.Logf("last words of %s:\n%s", program, output.Bytes()[max(0, output.Len()-3000):])
		}
	})
}

func writeKey(t testing.TB, path string) {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	block := &pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)}
	if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
		t.Fatal(err)
	}
}

// Read returns the objects in a YAML file.
func Read(t testing.TB, path string) []*unstructured.Unstructured {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	decoder := yaml.NewYAMLOrJSONDecoder(f, 4096)
	var objects []*unstructured.Unstructured
	for {
		o := &unstructured.Unstructured{}
		err := decoder.Decode(o)
		if errors.Is(err, io.EOF) {
			return objects
		}
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		if len(o.Object) > 0 {
			objects = append(objects, o)
		}
	}
}

// ApplyCRDs makes or changes custom resource definitions and waits until they are served.
func (s *Server) ApplyCRDs(crds ...*unstructured.Unstructured) {
	s.t.Helper()
	client := s.Client.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
	ctx := context.Background()
	for _, crd := range crds {
		if _, err := client.Apply(ctx, crd.GetName(), crd, metav1.ApplyOptions{FieldManager: "kubetest", Force: true}); err != nil {
			s.t.Fatalf("%s: %v", crd.GetName(), err)
		}
	}
	for _, crd := range crds {
		testkit.Eventually(s.t, testkit.DefaultTimeout, func() error {
			o, err := client.Get(ctx, crd.GetName(), metav1.GetOptions{})
			if err != nil {
				return err
			}
			conditions, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
			for _, c := range conditions {
				if m := c.(map[string]any); m["type"] == "Established" && m["status"] == "True" {
					return nil
				}
			}
			return fmt.Errorf("%s is not established", crd.GetName())
		})
	}
}

// Namespace makes a namespace if there is none of that name.
func (s *Server) Namespace(name string) {
	s.t.Helper()
	o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": name}}}
	_, err := s.Client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}).Create(context.Background(), o, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		s.t.Fatal(err)
	}
}

// Apply makes or changes objects, and their status if they have one.
func (s *Server) Apply(objects ...*unstructured.Unstructured) {
	s.t.Helper()
	for _, o := range objects {
		client := s.resource(o)
		var applied *unstructured.Unstructured
		// A definition is established a little before every request to it is answered.
		testkit.Eventually(s.t, testkit.DefaultTimeout, func() (err error) {
			applied, err = client.Apply(context.Background(), o.GetName(), o, metav1.ApplyOptions{FieldManager: "kubetest", Force: true})
			if err != nil && !apierrors.IsNotFound(err) {
				s.t.Fatalf("%s %s: %v", o.GetKind(), o.GetName(), err)
			}
			return err
		})
		if status, ok := o.Object["status"]; ok {
			applied.Object["status"] = status
			_, err := client.UpdateStatus(context.Background(), applied, metav1.UpdateOptions{})
			if err != nil && !apierrors.IsNotFound(err) {
				s.t.Fatalf("%s %s: status: %v", o.GetKind(), o.GetName(), err)
			}
		}
	}
}

// Delete removes objects.
func (s *Server) Delete(objects ...*unstructured.Unstructured) {
	s.t.Helper()
	for _, o := range objects {
		if err := s.resource(o).Delete(context.Background(), o.GetName(), metav1.DeleteOptions{}); err != nil {
			s.t.Fatalf("%s %s: %v", o.GetKind(), o.GetName(), err)
		}
	}
}

// resource is the client for an object's kind; the plural is guessed as English has it.
func (s *Server) resource(o *unstructured.Unstructured) dynamic.ResourceInterface {
	plural, _ := meta.UnsafeGuessKindToResource(o.GroupVersionKind())
	if o.GetNamespace() == "" {
		return s.Client.Resource(plural)
	}
	return s.Client.Resource(plural).Namespace(o.GetNamespace())
}
