//go:build e2e

package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/plumbline/plumbline/tests/rig"
	"github.com/plumbline/plumbline/tests/testkit"
)

// The control plane's address where all nodes are workers, and the variable that gives a worker's process its node, as JSON.
const (
	controlPlane   = "192.0.2.254"
	workerVariable = "PLUMBLINE_E2E_WORKER"
)

// worker is a node whose control plane is elsewhere: the test's own program in namespaces of its own, so that it sees its own
// processes, mounts and network only. It is on a bridge with the others.
type worker struct {
	Name, Address, Pods string
	// Folder is its own, which it sees in the place of Parent, the control plane's.
	Folder, Parent string
	// Routes are the networks of the others' pods, by the others' addresses.
	Routes map[string]string
	// link is its end of the cable on the bridge.
	link string
	// disk is where its replicas are: a loop device whose requests can be held back. All workers' are such, as a loop
	// device is slower than the machine's disk.
	disk *rig.SlowDisk
}

// startCluster starts a control plane and as many workers, and waits until they are ready.
func startCluster(t *testing.T, workers int) *node {
	t.Helper()
	n := &node{t: t, Folder: os.Getenv(folderVariable), Name: "control-plane", Address: controlPlane, ControlPlane: controlPlane, reported: map[string]bool{}}
	n.prepare()
	n.buildShims()
	n.run("mount", "--make-rprivate", "/")
	n.bridge()
	n.startControlPlane()
	n.serveNames()
	all := map[string]string{}
	for i := range workers {
		w := &worker{Name: fmt.Sprint("node-", i+1), Address: fmt.Sprint("192.0.2.", i+1), Pods: fmt.Sprintf("10.85.%d.0/24", i+1), Parent: n.Folder, Routes: map[string]string{},
			link: fmt.Sprint("to-node-", i+1)}
		w.Folder = n.path(w.Name)
		all[w.Address] = w.Pods
		n.workers = append(n.workers, w)
		n.run("ip", "route", "add", w.Pods, "via", w.Address, "dev", "node0")
	}
	// By the first one's kube-proxy.
	n.run("ip", "route", "add", services, "via", n.workers[0].Address, "dev", "node0")
	for _, w := range n.workers {
		for address, pods := range all {
			if address != w.Address {
				w.Routes[address] = pods
			}
		}
		n.diskOf(w)
		n.startWorker(w)
	}
	for _, w := range n.workers {
		n.kubectl("wait", "--for=create", "node/"+w.Name, "--timeout=3m")
		n.kubectl("wait", "--for=condition=Ready", "node/"+w.Name, "--timeout=3m")
	}
	t.Cleanup(n.explain)
	return n
}

// diskOf makes the disk of a worker's replicas.
func (n *node) diskOf(w *worker) {
	n.t.Helper()
	backing, at := n.path("disk", w.Name), filepath.Join(w.Folder, "longhorn")
	for _, folder := range []string{backing, at} {
		n.must(os.MkdirAll(folder, 0o755))
	}
	w.disk = n.slowDiskAt(backing, at, 16<<30)
}

// startWorker starts a worker's process and connects it.
func (n *node) startWorker(w *worker) {
	n.t.Helper()
	text, err := json.Marshal(w)
	n.must(err)
	cmd := exec.Command("unshare", apart("-test.run=^TestWorker$", "-test.timeout=0")...)
	cmd.Env = append(os.Environ(), workerVariable+"="+string(text))
	log, err := os.Create(n.path("log", w.Name))
	n.must(err)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	end, err := cmd.StdinPipe() // it ends when this does
	n.must(err)
	n.must(cmd.Start())
	n.t.Cleanup(func() {
		end.Close()
		ended := make(chan struct{})
		go func() {
			cmd.Wait()
			close(ended)
		}()
		select {
		case <-ended:
		case <-time.After(time.Minute):
			cmd.Process.Kill()
			<-ended
		}
		if text, _ := os.ReadFile(log.Name()); n.t.Failed() {
			n.t.Logf("last words of %s:\n%s", w.Name, text[max(0, len(text)-6000):])
		}
	})
	own, err := os.Readlink("/proc/self/ns/net")
	n.must(err)
	testkit.Eventually(n.t, time.Minute, func() error {
		theirs, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/net", cmd.Process.Pid))
		if err == nil && theirs == own {
			err = fmt.Errorf("%s has no network of its own", w.Name)
		}
		return err
	})
	n.run("ip", "link", "add", w.link, "type", "veth", "peer", "name", "node0", "netns", fmt.Sprint(cmd.Process.Pid))
	n.run("ip", "link", "set", w.link, "master", "node0", "up")
}

// TestWorker is a worker's process: it does nothing unless startWorker runs it.
func TestWorker(t *testing.T) {
	text := os.Getenv(workerVariable)
	if text == "" {
		return
	}
	var w worker
	if err := json.Unmarshal([]byte(text), &w); err != nil {
		t.Fatal(err)
	}
	// Its folder has the same path on all nodes: the kubelet's is in the manifests of CSI drivers.
	n := &node{t: t, Folder: w.Parent, Name: w.Name, Address: w.Address, Pods: w.Pods, ControlPlane: controlPlane, Cgroup: filepath.Base(w.Parent) + "-" + w.Name}
	for _, file := range []string{"etc/kubeconfig", "etc/kubelet-client.crt", "bin/iscsiadm", "bin/longhorn-bridge"} {
		own := filepath.Join(w.Folder, file)
		n.must(os.MkdirAll(filepath.Dir(own), 0o755))
		n.run("cp", filepath.Join(w.Parent, file), own)
	}
	n.run("mount", "--make-rprivate", "/")
	n.run("mount", "--rbind", w.Folder, w.Parent) // with its disk
	n.prepare()
	n.mounts()
	testkit.Eventually(t, time.Minute, func() error { return exec.Command("ip", "link", "show", "node0").Run() })
	n.network("via", controlPlane)
	for address, pods := range w.Routes {
		n.run("ip", "route", "add", pods, "via", address)
	}
	n.cgroups()
	n.startKubelet()
	_, _ = io.Copy(io.Discard, os.Stdin)
	n.endPods()
}

// OneNode reports whether there are no workers beside this node.
func (n *node) OneNode() bool { return len(n.workers) == 0 }

// nodeFolders are the folders of all nodes with pods.
func (n *node) nodeFolders() []string {
	if n.OneNode() {
		return []string{n.Folder}
	}
	var all []string
	for _, w := range n.workers {
		all = append(all, w.Folder)
	}
	return all
}

// workerOf is the worker that a pod is on.
func (n *node) workerOf(namespace, pod string) *worker {
	n.t.Helper()
	name := n.kubectl("get", "pod/"+pod, "--namespace="+namespace, "--output=jsonpath={.spec.nodeName}")
	for _, w := range n.workers {
		if w.Name == name {
			return w
		}
	}
	n.t.Fatalf("pod %s/%s is on node %q", namespace, pod, name)
	return nil
}

// schedule lets pods be placed on these workers alone, or on all if none is named.
func (n *node) schedule(names ...string) {
	n.t.Helper()
	for _, w := range n.workers {
		do := "cordon"
		if len(names) == 0 || slices.Contains(names, w.Name) {
			do = "uncordon"
		}
		n.kubectl(do, w.Name)
	}
}

// cut takes a worker's cable out, until the returned function is called.
func (n *node) cut(w *worker) (mend func()) {
	n.t.Helper()
	n.run("ip", "link", "set", w.link, "down")
	return func() { n.run("ip", "link", "set", w.link, "up") }
}

// throttle has everything to a worker go at four megabits a second, until the returned function is called.
func (n *node) throttle(w *worker) (mend func()) {
	n.t.Helper()
	n.run("tc", "qdisc", "add", "dev", w.link, "root", "tbf", "rate", "4mbit", "burst", "16kb", "latency", "1s")
	return func() { n.run("tc", "qdisc", "del", "dev", w.link, "root") }
}
