package try_test

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/plumbline/plumbline/tests/kubetest"
	"github.com/plumbline/plumbline/tests/testkit"
)

// address is the fake node's pods': one of documentation, as the API server proxies to no loopback address.
const address = "192.0.2.7"

var (
	// statuses are those of pods on nodes with a status of their own.
	statuses = map[string]string{"broken": "phase: Pending\ncontainerStatuses: [{name: agent, image: a, imageID: '', ready: false, restartCount: 0, state: {waiting: {reason: ErrImagePull, message: gone}}}]"}

	jobs = schema.GroupVersionResource{Group: "batch", Version: "v1", Resource: "jobs"}
	pods = schema.GroupVersionResource{Version: "v1", Resource: "pods"}
)

// addressOf is that of a fake node's pods.
func addressOf(node string) string {
	if node == "there" {
		return "192.0.2.8"
	}
	return address
}

// objects reads objects of YAML.
func objects(t *testing.T, text string) (all []*unstructured.Unstructured) {
	t.Helper()
	for part := range strings.SplitSeq(text, "---\n") {
		o := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(part), &o.Object); err != nil {
			t.Fatalf("%v in %s", err, part)
		}
		all = append(all, o)
	}
	return all
}

// fakeNode is a stand-in for the controller of Jobs and for a kubelet: the API server is real, a node is not. It makes
// the pod of each Job with this status, which run may complete.
func fakeNode(t *testing.T, s *kubetest.Server, status string, run func(*unstructured.Unstructured)) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var wait sync.WaitGroup
	t.Cleanup(func() { cancel(); wait.Wait() })
	one := func(job unstructured.Unstructured) error {
		template, _, err := unstructured.NestedMap(job.Object, "spec", "template")
		if err != nil {
			return err
		}
		pod := &unstructured.Unstructured{Object: template}
		pod.SetAPIVersion("v1")
		pod.SetKind("Pod")
		pod.SetName(job.GetName() + "-pod")
		pod, err = s.Client.Resource(pods).Namespace(job.GetNamespace()).Create(ctx, pod, metav1.CreateOptions{})
		if err != nil {
			return err
		}
		if run != nil {
			run(pod)
		}
		node, _, _ := unstructured.NestedString(pod.Object, "spec", "nodeName")
		var state map[string]any
		is := cmp.Or(statuses[node], status)
		if pod.GetLabels()[full] != "" {
			is = "{phase: Failed, reason: OutOfcpu, message: Node has no room}"
		}
		if err := yaml.Unmarshal([]byte(strings.ReplaceAll(is, address, addressOf(node))), &state); err != nil {
			return err
		}
		pod.Object["status"] = state
		_, err = s.Client.Resource(pods).Namespace(job.GetNamespace()).UpdateStatus(ctx, pod, metav1.UpdateOptions{})
		return err
	}
	wait.Go(func() {
		for done := map[string]bool{}; ctx.Err() == nil; {
			list, err := s.Client.Resource(jobs).List(ctx, metav1.ListOptions{})
			if err != nil {
				continue // the end of the test
			}
			for _, job := range list.Items {
				if name := job.GetName(); !done[name] {
					done[name] = true
					if err := one(job); err != nil && ctx.Err() == nil {
						t.Errorf("the stand-in for a node: %v", err)
					}
				}
			}
			select {
			case <-ctx.Done():
			case <-time.After(50 * time.Millisecond):
			}
		}
	})
}

// full marks a pod for which the stand-in for a node has no room.
const full = "full"

const running = `
phase: Running
podIP: ` + address + `
podIPs: [{ip: ` + address + `}]
containerStatuses:
  - {name: agent, image: a, imageID: a, ready: true, restartCount: 0, state: {running: {}}}
  - {name: blockio, image: b, imageID: b, ready: true, restartCount: 0, state: {running: {}}}
`

// shop is a claim on a folder of the node, in use by a pod.
const shop = `
apiVersion: v1
kind: Node
metadata: {name: here}
---
apiVersion: v1
kind: PersistentVolume
metadata: {name: pv-1}
spec: {capacity: {storage: 1Gi}, accessModes: [ReadWriteOnce], storageClassName: standard, claimRef: {namespace: shop, name: data}, hostPath: {path: /var/tmp/shop-files}}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data, namespace: shop}
spec: {accessModes: [ReadWriteOnce], storageClassName: standard, volumeName: pv-1, resources: {requests: {storage: 1Gi}}}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: idle, namespace: shop}
spec: {accessModes: [ReadWriteOnce], storageClassName: standard, volumeName: pv-1, resources: {requests: {storage: 1Gi}}}
---
apiVersion: v1
kind: Pod
metadata: {name: db, namespace: shop}
spec:
  nodeName: here
  containers: [{name: db, image: db}]
  volumes: [{name: data, persistentVolumeClaim: {claimName: data}}]
status: {phase: Running}
`

// shopping starts an API server with the shop, and returns the kubeconfig of a user with every right.
func shopping(t *testing.T) (s *kubetest.Server, kubeconfig string) {
	t.Helper()
	s = kubetest.Start(t)
	for _, name := range []string{"shop", "kube-system"} {
		s.Namespace(name)
	}
	s.Apply(objects(t, shop)...)
	return s, s.Kubeconfig(s.Config.BearerToken)
}

// noJob fails if a Job is left.
func noJob(t *testing.T, s *kubetest.Server) {
	t.Helper()
	list, err := s.Client.Resource(jobs).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, job := range list.Items {
		if job.GetDeletionTimestamp() == nil {
			t.Errorf("Job %s is left", job.GetName())
		}
	}
}

// busyShop is the shop with a database at work, and what runs the programs of a pod on its node.
func busyShop(t *testing.T) (s *kubetest.Server, kubeconfig string, run func(pod *unstructured.Unstructured)) {
	t.Helper()
	s, kubeconfig = shopping(t)
	dir := programs(t)
	busy(t, database(t, "/var/tmp", "shop"), 1, "select 1")
	return s, kubeconfig, runs(t, dir)
}

// The claim's node is measured through the API server's proxy by the programs that the Job names, and the Job is gone.
// Programs and API server are real, the node is not.
func TestClaim(t *testing.T) {
	s, kubeconfig, run := busyShop(t)
	var secrets []any
	var requests []string
	fakeNode(t, s, running, func(pod *unstructured.Unstructured) {
		secrets, _, _ = unstructured.NestedSlice(pod.Object, "spec", "imagePullSecrets")
		requests = append(requests, requestsOf(t, pod))
		run(pod)
	})
	cmd, out, errs := plumbline(t, "try", "data", "--namespace=shop", "--kubeconfig="+kubeconfig, "--registry=registry.example.org", "--pull-secret=ours", "--pull-secret=theirs",
		"--for=10s", "--output=json")
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	noJob(t, s)
	if got := fmt.Sprint(secrets); got != "[map[name:ours] map[name:theirs]]" {
		t.Errorf("the pod's images are pulled with %s", got)
	}
	if want := []string{chartRequests(t)}; !slices.Equal(requests, want) {
		t.Errorf("the pods request %q, want the chart's %q", requests, want)
	}
	f := only(t, out.Bytes())
	if f.Name != "shop/data" || f.Target.Node != "here" || f.Target.Server != "shop" || f.Target.Volume != "pv-1" || f.Target.StorageClass != "standard" ||
		f.Statement == nil || *f.Statement.Count < 20 {
		t.Errorf("%+v", f)
	}
	if text := errs.String(); !strings.Contains(text, "Made Job plumbline-try-") || !strings.Contains(text, "Removed Job plumbline-try-") {
		t.Errorf("what was made and removed is not reported")
	}

	// What was measured is worth no less where the Job cannot be removed.
	kubeconfig = through(t, s, func(r *http.Request) bool { return r.Method == http.MethodDelete }, nil)
	cmd, out, errs = plumbline(t, "try", "data", "--namespace=shop", "--kubeconfig="+kubeconfig, "--registry=registry.example.org", "--for=10s", "--output=json")
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	if f := only(t, out.Bytes()); f.Target.Server != "shop" {
		t.Errorf("%+v", f)
	}
	if text := errs.String(); !strings.Contains(text, "it ends by itself, or: kubectl delete job plumbline-try-") {
		t.Errorf("what is left is not reported")
	}
}

// A pod for whose requests the node has no room gives way to one without any.
func TestNoRoom(t *testing.T) {
	s, kubeconfig, run := busyShop(t)
	var requests []string
	fakeNode(t, s, running, func(pod *unstructured.Unstructured) {
		requests = append(requests, requestsOf(t, pod))
		if len(requests) == 1 {
			labels := pod.GetLabels()
			labels[full] = "true"
			pod.SetLabels(labels)
			return
		}
		run(pod)
	})
	cmd, out, errs := plumbline(t, "try", "data", "--namespace=shop", "--kubeconfig="+kubeconfig, "--registry=registry.example.org", "--for=10s", "--output=json")
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	noJob(t, s)
	if f := only(t, out.Bytes()); f.Target.Server != "shop" {
		t.Errorf("%+v", f)
	}
	if want := []string{chartRequests(t), "0 0, 0 0"}; !slices.Equal(requests, want) {
		t.Errorf("the pods request %q, want %q", requests, want)
	}
	if text := errs.String(); !strings.Contains(text, "Node here: the node did not keep the pod: OutOfcpu: Node has no room. Another pod requests no CPU") ||
		strings.Count(text, "Made Job") != 2 || strings.Count(text, "Removed Job") != 2 {
		t.Errorf("that the node has no room is not reported")
	}
}

// chartRequests returns the same of the chart's agent and blockio.
func chartRequests(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(testkit.Root(), "manifests", "chart", "values.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var values map[string]any
	if err := yaml.Unmarshal(text, &values); err != nil {
		t.Fatal(err)
	}
	return requestsOf(t, &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"containers": []any{values["agent"], values["blockio"]}}}})
}

// requestsOf returns the CPU and memory that each container of a pod requests.
func requestsOf(t *testing.T, pod *unstructured.Unstructured) string {
	t.Helper()
	var spec struct {
		Containers []struct {
			Resources struct{ Requests struct{ CPU, Memory string } }
		}
	}
	text, err := json.Marshal(pod.Object["spec"])
	if err := errors.Join(err, json.Unmarshal(text, &spec)); err != nil {
		t.Error(err)
	}
	var all []string
	for _, c := range spec.Containers {
		all = append(all, c.Resources.Requests.CPU+" "+c.Resources.Requests.Memory)
	}
	return strings.Join(all, ", ")
}

// runs returns what runs the programs of a pod at its node's address.
func runs(t *testing.T, dir string) func(pod *unstructured.Unstructured) {
	t.Helper()
	for _, node := range []string{"here", "there"} {
		if text, err := exec.Command(testkit.Tool(t, "ip"), "address", "replace", addressOf(node)+"/32", "dev", "lo").CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
	}
	return func(pod *unstructured.Unstructured) {
		node, _, _ := unstructured.NestedString(pod.Object, "spec", "nodeName")
		if statuses[node] != "" {
			return
		}
		address := addressOf(node)
		volumes := filepath.Join(t.TempDir(), "volumes.yaml")
		if err := os.WriteFile(volumes, []byte(pod.GetAnnotations()["plumbline.io/volumes"]), 0o600); err != nil {
			t.Error(err)
		}
		args, environment := agentOf(t, pod)
		for i, arg := range args {
			args[i] = strings.ReplaceAll(arg, "/etc/plumbline/volumes.yaml", volumes)
		}
		for _, line := range [][]string{
			append([]string{"plumbline-agent", "--web.listen-address=" + address + ":9437"}, args...),
			{"ebpf_exporter", "--web.listen-address=" + address + ":9435", "--config.names=blkio", "--config.dir=" + filepath.Join(dir, "blockio")},
		} {
			cmd := exec.Command(filepath.Join(dir, line[0]), line[1:]...)
			cmd.Env = append(os.Environ(), environment...)
			if err := cmd.Start(); err != nil {
				t.Error(err)
				return
			}
			t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
		}
	}
}

// longhorn is a claim on a Longhorn volume with replicas on three nodes, of which one cannot run the programs, and one
// without a place yet.
const longhorn = `
apiVersion: v1
kind: Node
metadata: {name: there}
---
apiVersion: v1
kind: Node
metadata: {name: broken}
---
apiVersion: v1
kind: PersistentVolume
metadata: {name: pv-2}
spec: {capacity: {storage: 1Gi}, accessModes: [ReadWriteOnce], storageClassName: r3, claimRef: {namespace: shop, name: long}, csi: {driver: driver.longhorn.io, volumeHandle: lh-2}}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: long, namespace: shop}
spec: {accessModes: [ReadWriteOnce], storageClassName: r3, volumeName: pv-2, resources: {requests: {storage: 1Gi}}}
---
apiVersion: v1
kind: Pod
metadata: {name: longdb, namespace: shop}
spec:
  nodeName: here
  containers: [{name: db, image: db}]
  volumes: [{name: data, persistentVolumeClaim: {claimName: long}}]
status: {phase: Running}
`

// With --break-down the nodes of the volume's replicas are measured, too; one that cannot be is named, and the answer is
// given all the same.
func TestBreakDown(t *testing.T) {
	s, kubeconfig := shopping(t)
	dir := programs(t)
	s.ApplyCRDs(kubetest.Definition("longhorn.io", "Replica", "v1beta2"))
	s.Namespace("longhorn-system")
	s.Apply(objects(t, longhorn)...)
	for name, node := range map[string]string{"lh-2-r-1": "here", "lh-2-r-2": "there", "lh-2-r-3": "broken", "lh-2-r-4": "", "lh-9-r-1": "elsewhere"} {
		s.Apply(&unstructured.Unstructured{Object: map[string]any{"apiVersion": "longhorn.io/v1beta2", "kind": "Replica",
			"metadata": map[string]any{"name": name, "namespace": "longhorn-system", "labels": map[string]any{"longhornvolume": name[:4]}},
			"spec":     map[string]any{"nodeID": node}}})
	}
	// As k0s has it.
	kubelet := filepath.Join("/var/tmp", fmt.Sprint("plumbline-kubelet-", os.Getpid()))
	pod, err := s.Client.Resource(pods).Namespace("shop").Get(t.Context(), "longdb", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	mount := kubelet + "/pods/" + string(pod.GetUID()) + "/volumes/kubernetes.io~csi/pv-2/mount"
	files, err := os.MkdirTemp("/var/tmp", "long-") // a socket's path must be short
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(files, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{"mkdir -p " + mount, "mount --bind " + files + " " + mount} {
		if text, err := exec.Command("sh", "-c", line).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", line, err, text)
		}
	}
	t.Cleanup(func() {
		if text, err := exec.Command("umount", "--lazy", mount).CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, text)
		}
		os.RemoveAll(kubelet)
		os.RemoveAll(files)
	})
	busy(t, database(t, files, "long"), 1, "select 1")
	fakeNode(t, s, running, runs(t, dir))

	record := filepath.Join(t.TempDir(), "record.om")
	cmd, out, errs := plumbline(t, "try", "long", "--break-down", "--namespace=shop", "--kubeconfig="+kubeconfig, "--registry=registry.example.org", "--for=10s", "--output=json", "--record="+record)
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	noJob(t, s)
	if f := only(t, out.Bytes()); f.Name != "shop/long" || f.Target.Node != "here" || f.Target.Volume != "lh-2" || f.Target.Backend != "longhorn-v1" {
		t.Errorf("%+v", f)
	}
	text, err := os.ReadFile(record)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`up{instance="here",job="plumbline-agent",node="here"} 1`, `up{instance="there",job="plumbline-blockio",node="there"} 1`} {
		if !strings.Contains(string(text), want) {
			t.Errorf("%s is not in the record", want)
		}
	}
	if strings.Contains(string(text), `node="broken"`) || strings.Contains(string(text), "elsewhere") {
		t.Error("nodes are in the record that were not measured")
	}
	notes := errs.String()
	for _, want := range []string{"measures on node here", "measures on node there", "Node broken, which has a replica, is not measured: the image of container agent cannot be pulled: ErrImagePull: gone"} {
		if !strings.Contains(notes, want) {
			t.Errorf("%q is not reported", want)
		}
	}
	if made, removed := strings.Count(notes, "Made Job"), strings.Count(notes, "Removed Job"); made != 3 || removed != 3 {
		t.Errorf("%d Jobs made, %d removed", made, removed)
	}

	// Of another driver the nodes are not known, which is noted; a node has no volume.
	cmd, _, errs = plumbline(t, "try", "data", "--break-down", "--namespace=shop", "--kubeconfig="+kubeconfig, "--registry=registry.example.org", "--tag=none", "--for=10s", "--pod-namespace=none")
	if err := cmd.Run(); err == nil || !strings.Contains(errs.String(), "knows those of the CSI driver driver.longhorn.io alone") {
		t.Errorf("%v", err)
	}
	cmd, _, errs = plumbline(t, "try", "node/here", "--break-down", "--registry=registry.example.org")
	if err := cmd.Run(); err == nil || !strings.Contains(errs.String(), "want CLAIM or pod/POD") {
		t.Errorf("%v", err)
	}
}

// through returns the kubeconfig of a user with every right who reaches the API server through a proxy. This fails for some
// requests, or loses the answers to others.
func through(t *testing.T, s *kubetest.Server, fails, loses func(*http.Request) bool) (kubeconfig string) {
	t.Helper()
	to, err := url.Parse(s.Config.Host)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(to)
	proxy.Transport = &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	proxy.ModifyResponse = func(answer *http.Response) error {
		if loses != nil && loses(answer.Request) {
			return errors.New("lost")
		}
		return nil
	}
	proxy.ErrorLog = log.New(t.Output(), "", 0)
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if fails != nil && fails(r) {
			http.Error(w, "out of order", http.StatusServiceUnavailable)
			return
		}
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	proxied := s.In(t)
	proxied.Config = rest.CopyConfig(s.Config)
	proxied.Config.Host = server.URL
	return proxied.Kubeconfig(s.Config.BearerToken)
}

// A Job whose making was not answered is removed, too.
func TestAnswerLost(t *testing.T) {
	s, _ := shopping(t)
	kubeconfig := through(t, s, nil, func(r *http.Request) bool {
		return r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/jobs")
	})
	cmd, _, errs := plumbline(t, "try", "node/here", "--kubeconfig="+kubeconfig, "--registry=registry.example.org")
	if err := cmd.Run(); err == nil || cmd.ProcessState.ExitCode() != 1 {
		t.Errorf("%v", err)
	}
	if text := errs.String(); !strings.Contains(text, "502") {
		t.Errorf("the error is not reported")
	}
	noJob(t, s)
}

// agentOf returns the arguments and the environment of a pod's agent.
func agentOf(t *testing.T, pod *unstructured.Unstructured) (args, environment []string) {
	text, err := json.Marshal(pod.Object["spec"])
	if err != nil {
		t.Error(err)
	}
	var spec struct {
		Containers []struct {
			Args []string
			Env  []struct{ Name, Value string }
		}
	}
	if err := json.Unmarshal(text, &spec); err != nil || len(spec.Containers) != 2 {
		t.Errorf("%v: %s", err, text)
		return nil, nil
	}
	for _, e := range spec.Containers[0].Env {
		environment = append(environment, e.Name+"="+e.Value)
	}
	return spec.Containers[0].Args, environment
}

// The Job's containers have the chart's capabilities, and no others; the programs on a host, too.
func TestCapabilities(t *testing.T) {
	found := func(file, pattern string) (all []string) {
		text, err := os.ReadFile(filepath.Join(testkit.Root(), "manifests", file))
		if err != nil {
			t.Fatal(err)
		}
		for _, match := range regexp.MustCompile(pattern).FindAllStringSubmatch(string(text), -1) {
			all = append(all, match[1])
		}
		return all
	}
	const ofChart = `(?m)^ +- ([A-Z_]+) #`
	var want []string
	for _, name := range []string{"agent", "blockio"} {
		want = append(want, strings.Join(found("chart/templates/"+name+".yaml", ofChart), ", "))
	}
	if got := found("kubectl-plumbline/try_job.yaml", `add: \[(.+)\]`); !slices.Equal(got, want) || want[1] != "BPF, PERFMON" {
		t.Errorf("%q, the chart has %q", got, want)
	}
	// The programs on a host have the same: the agent's are its own and the exporter's.
	own := found("kubectl-plumbline/try/host_linux.go", `unix\.CAP_([A-Z_]+)`)
	if agent := strings.Split(want[0], ", "); !slices.Equal(slices.Sorted(slices.Values(own)), slices.Sorted(slices.Values(agent))) || strings.Join(own[:2], ", ") != want[1] {
		t.Errorf("on a host %q, the chart has %q", own, want)
	}
}

// maker is an account that may make Jobs, but neither reach their pods nor delete them.
const maker = `
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: maker, namespace: shop}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: maker}
rules:
  - {apiGroups: [""], resources: [pods, nodes, persistentvolumes, persistentvolumeclaims], verbs: [get, list]}
  - {apiGroups: [batch], resources: [jobs], verbs: [create, delete]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: maker}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: maker}
subjects: [{kind: ServiceAccount, name: maker, namespace: shop}]
`

// What stands in the way is one sentence with what to do, and no Job is left, whatever it was.
func TestNodeRefuses(t *testing.T) {
	s, kubeconfig := shopping(t)
	s.Namespace("limited")
	s.Apply(objects(t, `
apiVersion: v1
kind: LimitRange
metadata: {name: most, namespace: limited}
spec: {limits: [{type: Container, max: {memory: 100Mi}}]}
---
apiVersion: v1
kind: Namespace
metadata: {name: strict, labels: {pod-security.kubernetes.io/enforce: restricted}}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: reader, namespace: shop}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: reader}
rules: [{apiGroups: [""], resources: [pods, nodes, persistentvolumes, persistentvolumeclaims], verbs: [get, list]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: reader}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: reader}
subjects: [{kind: ServiceAccount, name: reader, namespace: shop}]
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: nobody, namespace: shop}
`+maker)...)
	of := func(account string) string { return s.Kubeconfig(s.Token("shop", account)) }
	waiting := func(state string) string {
		return fmt.Sprintf("phase: Pending\ncontainerStatuses: [{name: agent, image: a, imageID: '', ready: false, restartCount: 0, state: %s}]", state)
	}
	for _, c := range []struct {
		name, target, status, want string
		code                       int
		flags                      []string
	}{
		{"no registry", "node/here", "", "--registry is empty", 2, []string{"--registry="}},
		{"wrong kind", "server/x", "", "want CLAIM, pod/POD or node/NODE", 2, nil},
		{"no node", "node/elsewhere", "", `nodes "elsewhere" not found`, 1, nil},
		{"no claim", "none", "", "no running pod uses claim shop/none", 1, nil},
		{"idle claim", "idle", "", "no running pod uses claim shop/idle", 1, nil},
		{"no pod", "pod/none", "", `pods "none" not found`, 1, nil},
		{"no right to read", "data", "", "403 to GET /api/v1/namespaces/shop/pods", 1, []string{"--kubeconfig=" + of("nobody")}},
		{"no right to make", "data", "", "it needs the rights to create and delete jobs", 1, []string{"--kubeconfig=" + of("reader")}},
		{"no right to the proxy", "data", running, "it needs the rights to create and delete jobs, to list pods and to get pods/proxy in namespace kube-system: plumbline-agent: reading it is refused: status 403", 1, []string{"--kubeconfig=" + of("maker")}},
		{"limits", "pod/db", "", "namespace limited does not take the pod", 1, []string{"--pod-namespace=limited"}},
		{"wrong pull secret", "pod/db", "", "--pull-secret: a/b: want the name of a Secret", 2, []string{"--pull-secret=a/b"}},
		{"PodSecurity", "pod/db", "", "PodSecurity of namespace strict refuses", 1, []string{"--pod-namespace=strict"}},
		{"no image", "data", waiting(`{waiting: {reason: ErrImagePull, message: "not there"}}`), "the image of container agent cannot be pulled: ErrImagePull: not there", 1, nil},
		{"program fails", "data", waiting(`{terminated: {exitCode: 1, reason: Error, containerID: x}}`), "container agent ended with exit code 1: Error", 1, nil},
		{"evicted", "data", "{phase: Failed, reason: Evicted, message: The node was low on memory}", "the node did not keep the pod: Evicted: The node was low on memory", 1, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.status != "" {
				fakeNode(t, s.In(t), c.status, nil)
			}
			line := append([]string{"try", c.target, "--namespace=shop"}, c.flags...)
			for _, usual := range []string{"--kubeconfig=" + kubeconfig, "--registry=registry.example.org"} {
				name, _, _ := strings.Cut(usual, "=")
				if !slices.ContainsFunc(c.flags, func(flag string) bool { return strings.HasPrefix(flag, name) }) {
					line = append(line, usual)
				}
			}
			cmd, out, errs := plumbline(t, line...)
			var exit *exec.ExitError
			if err := cmd.Run(); err != nil && !errors.As(err, &exit) {
				t.Fatal(err)
			}
			lines := strings.Split(strings.TrimSpace(errs.String()), "\n")
			if last := lines[len(lines)-1]; !strings.Contains(last, c.want) || cmd.ProcessState.ExitCode() != c.code || out.String() != "" {
				t.Errorf("exit code %d, want %d, with %q in the last line", cmd.ProcessState.ExitCode(), c.code, c.want)
			}
			noJob(t, s)
		})
	}
}

// An interrupt removes the Job, and one that outlives its maker ends by itself.
func TestNodeInterrupted(t *testing.T) {
	s, kubeconfig := shopping(t)
	start := func(t *testing.T) (*exec.Cmd, unstructured.Unstructured) {
		cmd, _, _ := plumbline(t, "try", "node/here", "--kubeconfig="+kubeconfig, "--registry=registry.example.org", "--for=30s")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		var job unstructured.Unstructured
		testkit.Eventually(t, testkit.DefaultTimeout, func() error {
			list, err := s.Client.Resource(jobs).List(t.Context(), metav1.ListOptions{})
			if err != nil || len(list.Items) != 1 {
				return fmt.Errorf("no Job yet: %v", err)
			}
			job = list.Items[0]
			return nil
		})
		return cmd, job
	}
	cmd, _ := start(t)
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err == nil || cmd.ProcessState.ExitCode() != 1 {
		t.Errorf("interrupted before it measured: %v", err)
	}
	noJob(t, s)

	cmd, job := start(t)
	if err := cmd.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // it was killed
	text, err := json.Marshal(job.Object["spec"])
	if err != nil {
		t.Fatal(err)
	}
	var spec struct{ ActiveDeadlineSeconds, TTLSecondsAfterFinished, BackoffLimit *int }
	if err := json.Unmarshal(text, &spec); err != nil || spec.ActiveDeadlineSeconds == nil || *spec.ActiveDeadlineSeconds != 330 ||
		spec.TTLSecondsAfterFinished == nil || *spec.TTLSecondsAfterFinished > 60 || spec.BackoffLimit == nil || *spec.BackoffLimit != 0 {
		t.Errorf("the Job goes on for too long: %v: %s", err, text)
	}
}
