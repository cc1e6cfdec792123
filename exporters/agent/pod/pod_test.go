package pod

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"

	"github.com/plumbline/plumbline/exporters/agent/untrusted"
	"github.com/plumbline/plumbline/exporters/exporterkit/kube"
	"github.com/plumbline/plumbline/tests/testkit"
)

// Processes in the kubelet's cgroups are counted if their pod cannot be read or is not known.
func TestStrays(t *testing.T) {
	tr := newTree(t)
	for pid, line := range map[int]string{
		1: "0::/init.scope",
		2: "0::/kubepods.slice/kubepods-pod" + underscore + ".slice/cri-containerd-" + number + ".scope",
		3: "0::/system.slice/containerd.service/" + colon("burstable"),
		4: "0::/kubepods.slice/kubepods-pod" + strings.ReplaceAll(otherUID, "-", "_") + ".slice/crio-" + number + ".scope",
		5: "0::/kubepods/besteffort/of-another-form/" + number,
		6: "0::/system.slice/kubelet.service",
		8: "0::/init.scope\nof another form",
		7: "5:pids:/kubepods-new\n4:cpu:/kubepods/pod" + anyUID + "/" + number,
	} {
		tr.write(fmt.Sprint(pid, "/cgroup"), line+"\n")
	}
	n := newNode(t, tr.proc)
	n.readLogs = func(string) (map[string]Pod, error) {
		return map[string]Pod{anyUID: {Namespace: "db", Name: "pg-0"}}, nil
	}
	if unread, unknown, lines := n.Strays([]int{1, 2, 3, 4, 5, 6, 7, 8}); unread != 1 || unknown != 1 || lines != 1 {
		t.Errorf("%d processes in cgroups that are not understood, %d in unknown pods, %d lines; want 1 each", unread, unknown, lines)
	}
}

// Without cgroups of pods (--cgroups-per-qos=false) a container that a pod of the node has is that pod's, by the runtime's number, where root
// made its cgroup.
func TestPodsWithoutCgroups(t *testing.T) {
	other := strings.Repeat("cd", 32)
	for name, at := range map[string]string{
		"docker without systemd":  "/docker/" + number,
		"docker":                  "/system.slice/docker-" + number + ".scope",
		"CRI-O":                   "/system.slice/crio-" + number + ".scope",
		"containerd":              "/" + number,
		"containerd's namespace":  "/k8s.io/" + number,
		"a cgroup within":         "/k8s.io/" + number + "/init",
		"a node in a container":   "/docker/" + other + "/system.slice/cri-containerd-" + number + ".scope",
		"from a cgroup namespace": "/../../system.slice/crio-" + number + ".scope",
	} {
		t.Run(name, func(t *testing.T) {
			tr := newTree(t)
			tr.write("1/root/sys/fs/cgroup/cgroup.controllers", "")
			tr.write("7/cgroup", "0::"+at+"\n")
			tr.cgroup(strings.TrimPrefix(at, "/../.."), 7)
			tr.write("8/cgroup", "0::"+at+"\n") // not listed there
			n := newNode(t, tr.proc)
			if unread, _, _ := n.Strays([]int{7, 8}); unread != 0 {
				t.Errorf("%d processes of a node without pods count", unread)
			}
			status := map[string]any{"containerStatuses": []any{map[string]any{"name": "postgres", "containerID": "cri-o://" + other}}}
			u := &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"namespace": "db", "name": "pg-0", "uid": anyUID}, "status": status}}
			n.objects.Put("pods", u)
			if !strings.Contains(at, other) {
				if id, err := n.Of(7); id != (ID{}) || err != nil || n.Walk().Named(7) {
					t.Errorf("the container of no pod: %+v, %v", id, err)
				}
				if unread, unknown, _ := n.Strays([]int{7, 8}); unread != 2 || unknown != 0 {
					t.Errorf("%d processes in containers of no known pod, %d in unknown pods; want 2 and 0", unread, unknown)
				}
			}
			status["containerStatuses"].([]any)[0].(map[string]any)["containerID"] = "cri-o://" + number
			n.objects.Put("pods", u)
			want := ID{anyUID, number}
			if id, err := n.Of(7); id != want || err != nil {
				t.Errorf("%+v, %v; want %+v", id, err, want)
			}
			if id, ok := n.InGroup(at); id != want || !ok {
				t.Errorf("by the path %+v, %v", id, ok)
			}
			if _, ok := (*Node)(nil).InGroup(at); ok || NewWalk(tr.proc).Named(7) {
				t.Error("without the API it is a pod's")
			}
			if first, err := n.Walk().First(7); !first || err != nil || !n.Walk().Named(7) {
				t.Errorf("the first of its container: %v, %v", first, err)
			}
			if id, err := n.Of(8); id != (ID{}) || !errors.Is(err, ErrUntrusted) {
				t.Errorf("what is not in it is in %+v, %v", id, err)
			}
			if unread, unknown, _ := n.Strays([]int{7, 8}); unread != 0 || unknown != 0 {
				t.Errorf("%d processes in containers of no known pod, %d in unknown pods; want none", unread, unknown)
			}
			if os.Geteuid() == 0 {
				above, _, _ := strings.Cut(strings.TrimPrefix(at, "/../.."), number)
				tr.chown(filepath.Dir(above+"x"), "")
				if id, err := n.Of(7); id != (ID{}) || !errors.Is(err, ErrUntrusted) {
					t.Errorf("below a cgroup of a user's: %+v, %v", id, err)
				}
			}
		})
	}
}

// newNode returns a Node whose API server never answers.
func newNode(t *testing.T, proc string) *Node {
	objects, err := kube.New(&rest.Config{Host: "http://127.0.0.1:1"}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return NewNode(proc, "n1", objects, untrusted.NewCalls(time.Minute, 8))
}

// The claims of pods are known, of running ones and others, those that are made for a pod among them, and nothing else
// of their volumes is kept.
func TestClaims(t *testing.T) {
	n := newNode(t, t.TempDir())
	if claims := n.Claims(); claims != nil {
		t.Errorf("before pods were listed the claims are known to be %v", claims)
	}
	for name, phase := range map[string]string{"pg-0": "Running", "pg-1": "Pending", "job": "Succeeded"} {
		u := &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"namespace": "db", "name": name, "uid": "uid-" + name}, "status": map[string]any{"phase": phase},
			"spec": map[string]any{"volumes": []any{
				map[string]any{"name": "data", "persistentVolumeClaim": map[string]any{"claimName": "data-" + name}},
				map[string]any{"name": "scratch", "ephemeral": map[string]any{"volumeClaimTemplate": map[string]any{}}},
				map[string]any{"name": "secret", "secret": map[string]any{"secretName": "s"}},
			}}}}
		n.objects.Put("pods", u)
	}
	for name, o := range kube.All[*object](n.objects, resource) {
		if len(o.Spec.Volumes) > 0 {
			t.Errorf("the volumes of %s are kept", name)
		}
	}
	if got := fmt.Sprint(n.Claims()); got != "map[db/data-job:false db/data-pg-0:true db/data-pg-1:false db/job-scratch:false db/pg-0-scratch:true db/pg-1-scratch:false]" {
		t.Errorf("the claims are %s", got)
	}
}

// The pods in the folders of logs stay while a read of the folders hangs. A late answer replaces them.
func TestFoldersAnswerLate(t *testing.T) {
	answer := make(chan map[string]Pod)
	n := &Node{calls: untrusted.NewCalls(20*time.Millisecond, 8), readLogs: func(string) (map[string]Pod, error) {
		pods := <-answer
		if pods == nil {
			return nil, errors.New("no such folder")
		}
		return pods, nil
	}}
	wantName := func(pods map[string]Pod, want string) {
		t.Helper()
		if pods != nil || want == "" {
			answer <- pods
		}
		testkit.Eventually(t, testkit.DefaultTimeout, func() error {
			n.mu.Lock()
			defer n.mu.Unlock()
			if got := n.logged["u1"].Name; got != want {
				return fmt.Errorf("the pod is called %q, want %q", got, want)
			}
			n.read = time.Time{} // the folders are read again
			return nil
		})
	}
	for _, name := range []string{"one", "two"} {
		before := n.logged["u1"].Name
		if got := n.fromFolders()["u1"].Name; got != before {
			t.Errorf("without an answer it is called %q, want %q", got, before)
		}
		wantName(map[string]Pod{"u1": {Name: name}}, name)
	}
	if got := n.fromFolders()["u1"].Name; got != "two" {
		t.Errorf("while they hang it is called %q", got)
	}
	wantName(nil, "") // nothing is there any more
}
