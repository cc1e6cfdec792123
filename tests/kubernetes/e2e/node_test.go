//go:build e2e

package e2e

import (
	"bytes"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io/fs"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"text/template"
	"time"

	"github.com/plumbline/plumbline/tests/testkit"
)

// Addresses within the network namespaces of the nodes.
const (
	nodeAddress = "192.0.2.1"
	podNetwork  = "10.85.0.0/16"
	services    = "10.86.0.0/16"
)

// node is a Kubernetes node, with its control plane unless it is a worker of another one. Of a cluster whose nodes are all workers
// (startCluster), it is the control plane alone.
type node struct {
	t      *testing.T
	Folder string
	// Name is the node's, and Address its own.
	Name, Address string
	// Pods is the network of its pods, and ControlPlane the address of the API server and of DNS.
	Pods, ControlPlane string
	// Cgroup is the name of the cgroup that all of the node's pods are in.
	Cgroup string
	// kubelet is its process.
	kubelet *os.Process
	// workers are the nodes that it is the control plane of, beside itself.
	workers []*worker
	// prometheus is the address of Prometheus' pod, once it is known.
	prometheus string
	// reported are the files of build/e2e that this run has begun.
	reported map[string]bool
}

// startNode starts everything and waits until the node is ready.
func startNode(t *testing.T) *node {
	t.Helper()
	n := &node{t: t, Folder: os.Getenv(folderVariable), Name: "node-1", Address: nodeAddress, Pods: podNetwork, ControlPlane: nodeAddress, reported: map[string]bool{}}
	n.Cgroup = filepath.Base(n.Folder)
	n.prepare()
	n.buildShims()
	n.mounts()
	n.bridge()
	n.cgroups()
	n.startControlPlane()
	n.startKubelet()
	n.kubectl("wait", "--for=condition=Ready", "node/node-1", "--timeout=3m")
	n.serveNames()
	t.Cleanup(n.explain)
	return n
}

// prepare makes the node's folders and configuration files.
func (n *node) prepare() {
	n.t.Helper()
	for _, dir := range []string{"bin", "etc", "cni", "kubelet", "pods", "plugins", "volumes", "held", "disk", "log", "longhorn"} {
		n.must(os.MkdirAll(n.path(dir), 0o755))
	}
	kubernetes, err := filepath.EvalSymlinks(testkit.Tool(n.t, "kubernetes"))
	n.must(err)
	for _, part := range []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy", "kubelet", "kubectl"} {
		n.must(os.Symlink(kubernetes, n.path("bin", part)))
	}
	for name, text := range configs {
		n.write(name, text)
	}
}

func (n *node) startControlPlane() {
	n.t.Helper()
	n.secrets()
	store := "http://127.0.0.1:2379"
	n.start(testkit.Tool(n.t, "etcd"), "--data-dir="+n.path("etcd"), "--unsafe-no-fsync", "--log-level=error")
	n.start(n.path("bin", "kube-apiserver"), "--etcd-servers="+store, "--cert-dir="+n.path("etc"), "--bind-address=0.0.0.0",
		"--advertise-address="+n.Address, "--secure-port=6443", "--authorization-mode=Node,RBAC",
		"--token-auth-file="+n.path("etc", "tokens.csv"), "--service-account-issuer=https://plumbline.e2e",
		"--service-account-key-file="+n.path("etc", "accounts.key"), "--service-account-signing-key-file="+n.path("etc", "accounts.key"),
		"--service-cluster-ip-range="+services, "--allow-privileged=true", "--kubelet-preferred-address-types=InternalIP",
		"--kubelet-client-certificate="+n.path("etc", "kubelet-client.crt"), "--kubelet-client-key="+n.path("etc", "accounts.key"))
	testkit.Eventually(n.t, 3*time.Minute, func() error { _, err := n.try("get", "--raw=/readyz"); return err })
	kubeconfig := "--kubeconfig=" + n.path("etc", "kubeconfig")
	n.start(n.path("bin", "kube-controller-manager"), kubeconfig, "--service-account-private-key-file="+n.path("etc", "accounts.key"),
		"--root-ca-file="+n.path("etc", "apiserver.crt"), "--leader-elect=false")
	n.start(n.path("bin", "kube-scheduler"), kubeconfig, "--leader-elect=false")
}

// startKubelet starts what a node runs, and waits until the API server knows the node.
func (n *node) startKubelet() {
	n.t.Helper()
	n.start("containerd", "--config="+n.path("etc", "containerd.toml"))
	testkit.Eventually(n.t, time.Minute, func() error { return exec.Command("ctr", "--address="+n.path("containerd.sock"), "version").Run() })
	n.kubelet = n.start(n.path("bin", "kubelet"), "--kubeconfig="+n.path("etc", "kubeconfig"), "--config="+n.path("etc", "kubelet.yaml"), "--root-dir="+n.path("kubelet"),
		"--node-ip="+n.Address, "--hostname-override="+n.Name)
	n.kubectl("wait", "--for=create", "node/"+n.Name, "--timeout=3m")
	n.start(n.path("bin", "kube-proxy"), "--config="+n.path("etc", "proxy.yaml"))
}

// lingerVariable names a file: a run that failed keeps its node until that file is there.
const lingerVariable = "PLUMBLINE_E2E_LINGER"

// linger keeps the node of a run that failed for somebody to look at, if that was requested.
func (n *node) linger() {
	file := os.Getenv(lingerVariable)
	if file == "" || !n.t.Failed() {
		return
	}
	fmt.Printf("failed; the node stays until %s is there. Look at it by: nsenter -t $(pgrep -n -f %s/bin/kubelet) -n -m -p -u %s --kubeconfig=%s get pods -A\n",
		file, n.Folder, n.path("bin", "kubectl"), n.path("etc", "kubeconfig"))
	testkit.Await(time.Hour, func() error { _, err := os.Stat(file); return err })
}

// explain shows the pods and the ends of their logs if the test failed.
func (n *node) explain() {
	if !n.t.Failed() {
		return
	}
	pods, err := n.try("get", "pods", "--all-namespaces", "--output=wide")
	n.t.Log(pods, err)
	for _, folder := range n.nodeFolders() {
		logs, _ := filepath.Glob(filepath.Join(folder, "pods", "*", "*", "*.log"))
		for _, log := range logs {
			if text, err := os.ReadFile(log); err == nil {
				n.t.Logf("%s:\n%s", strings.TrimPrefix(log, n.Folder), text[max(0, len(text)-1000):])
			}
		}
	}
}

func (n *node) path(elements ...string) string {
	return filepath.Join(append([]string{n.Folder}, elements...)...)
}

func (n *node) must(err error) {
	n.t.Helper()
	if err != nil {
		n.t.Fatal(err)
	}
}

// mounts hides the machine's own state from what writes to fixed places.
func (n *node) mounts() {
	n.t.Helper()
	n.run("mount", "--make-rprivate", "/")
	for _, dir := range []string{"/run", "/var/log"} {
		n.run("mount", "-t", "tmpfs", "tmpfs", dir)
	}
	for _, dir := range []string{"/etc", "/var/lib", "/usr"} {
		over := n.path("overlay", strings.ReplaceAll(dir, "/", "_"))
		n.must(os.MkdirAll(over+"/upper", 0o755))
		n.must(os.MkdirAll(over+"/work", 0o755))
		n.run("mount", "-t", "overlay", "overlay", "-o", fmt.Sprintf("lowerdir=%s,upperdir=%s/upper,workdir=%s/work", dir, over, over), dir)
	}
	n.must(os.MkdirAll("/run/lock", 0o755))
	n.longhornHost()
	// As systemd leaves them: containerd refuses mountPropagation of what is not shared.
	n.run("mount", "--make-rshared", "/")
}

// bridge makes the link node0, on which pods' and workers' are, and its network.
func (n *node) bridge() {
	n.t.Helper()
	n.run("ip", "link", "add", "node0", "type", "bridge")
	n.network("dev", "node0")
}

// network gives the namespace an address of its own, on the link node0, and a default route, which kubelet and
// kube-apiserver look for.
func (n *node) network(route ...string) {
	n.t.Helper()
	n.run("ip", "link", "set", "lo", "up")
	n.run("ip", "address", "add", n.Address+"/24", "dev", "node0")
	n.run("ip", "link", "set", "node0", "up")
	n.run("ip", append([]string{"route", "add", "default"}, route...)...)
	n.must(os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0o644))
	n.run("hostname", n.Name)
}

// cgroups makes the cgroup of all pods, in every hierarchy if the machine has the old ones.
func (n *node) cgroups() {
	n.t.Helper()
	if unified() {
		n.must(os.MkdirAll("/sys/fs/cgroup/"+n.Cgroup, 0o755))
	} else {
		hierarchies, err := os.ReadDir("/sys/fs/cgroup")
		n.must(err)
		for _, h := range hierarchies {
			if info, err := os.Stat("/sys/fs/cgroup/" + h.Name()); err == nil && info.IsDir() {
				n.must(os.MkdirAll(filepath.Join("/sys/fs/cgroup", h.Name(), n.Cgroup), 0o755))
			}
		}
	}
	n.preferPods(true)
}

func unified() bool {
	_, err := os.Stat("/sys/fs/cgroup/cgroup.controllers")
	return err == nil
}

// preferPods has the pods go before whatever else this machine does, as a canary that waits for a CPU measures nothing; or has
// them share the CPUs as on a node: what else runs, the node's own programs, gets its part of them.
func (n *node) preferPods(first bool) {
	n.t.Helper()
	file, weight := filepath.Join("/sys/fs/cgroup/cpu", n.Cgroup, "cpu.shares"), 1024*runtime.NumCPU()
	if first {
		weight = 100000
	}
	if unified() {
		// The same two on the newer scale, where 100 is everybody's.
		file, weight = filepath.Join("/sys/fs/cgroup", n.Cgroup, "cpu.weight"), weight/10
	}
	err := os.WriteFile(file, []byte(strconv.Itoa(weight)), 0o644)
	if !unified() {
		n.must(err)
	} else if err != nil {
		n.t.Logf("the pods share the CPUs with other work: %v", err)
	}
}

// secrets makes the administrator's token and the key of the service accounts' tokens.
func (n *node) secrets() {
	n.t.Helper()
	token := rand.Text()
	n.must(os.WriteFile(n.path("etc", "tokens.csv"), []byte(token+`,admin,admin,"system:masters"`+"\n"), 0o600))
	n.must(os.WriteFile(n.path("etc", "kubeconfig"), []byte(fmt.Sprintf(`apiVersion: v1
kind: Config
clusters: [{name: node, cluster: {server: "https://%s:6443", insecure-skip-tls-verify: true}}]
users: [{name: admin, user: {token: %q}}]
contexts: [{name: node, context: {cluster: node, user: admin}}]
current-context: node
`, n.ControlPlane, token)), 0o600))
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	n.must(err)
	block := pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})
	n.must(os.WriteFile(n.path("etc", "accounts.key"), block, 0o600))
	// By this one the kubelet knows the API server, which fetches logs and runs commands there for others.
	certificate := x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "kube-apiserver", Organization: []string{"system:masters"}},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour), IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
	signed, err := x509.CreateCertificate(rand.Reader, &certificate, &certificate, &key.PublicKey, key)
	n.must(err)
	n.must(os.WriteFile(n.path("etc", "kubelet-client.crt"), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: signed}), 0o600))
}

// write fills in a file's template.
func (n *node) write(name, text string) {
	n.t.Helper()
	var b bytes.Buffer
	n.must(template.Must(template.New(name).Parse(text)).Execute(&b, n))
	n.must(os.WriteFile(n.path(name), b.Bytes(), 0o644))
}

// start runs a part of the node until the end; its log is shown if the test fails.
func (n *node) start(program string, args ...string) *os.Process {
	n.t.Helper()
	name := filepath.Base(program)
	log, err := os.Create(n.path("log", name))
	n.must(err)
	cmd := exec.Command(program, args...)
	cmd.Env = append(os.Environ(), "PATH=/usr/lib/cni:"+os.Getenv("PATH"))
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		n.t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	n.t.Cleanup(func() {
		cmd.Process.Kill()
		<-done
		if n.t.Failed() {
			text, _ := os.ReadFile(log.Name())
			n.t.Logf("last words of %s:\n%s", name, text[max(0, len(text)-3000):])
		}
	})
	return cmd.Process
}

// endPods ends the kubelet, and whatever runs in the pods' cgroup: a container's mounts are copies of this machine's, and one that
// is left keeps the disk of the class held busy.
func (n *node) endPods() {
	n.kubelet.Kill()
	root := filepath.Join("/sys/fs/cgroup", n.Cgroup)
	if !unified() {
		root = filepath.Join("/sys/fs/cgroup/pids", n.Cgroup)
	}
	err := testkit.Await(time.Minute, func() error {
		var left []string
		// A cgroup goes with its last container, which is no error.
		_ = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err != nil || !d.IsDir() {
				return nil
			}
			text, _ := os.ReadFile(filepath.Join(path, "cgroup.procs"))
			left = append(left, strings.Fields(string(text))...)
			return nil
		})
		for _, one := range left {
			if pid, err := strconv.Atoi(one); err == nil {
				syscall.Kill(pid, syscall.SIGKILL)
			}
		}
		if len(left) > 0 {
			return fmt.Errorf("processes %s of pods go on", strings.Join(left, ", "))
		}
		return nil
	})
	if err != nil {
		n.t.Error(err)
	}
}

func (n *node) run(program string, args ...string) string {
	n.t.Helper()
	output, err := exec.Command(program, args...).CombinedOutput()
	if err != nil {
		n.t.Fatalf("%s %s: %v\n%s", program, strings.Join(args, " "), err, output)
	}
	return string(output)
}

func (n *node) kubectl(args ...string) string {
	n.t.Helper()
	output, err := n.try(args...)
	if err != nil {
		n.t.Fatal(err)
	}
	return output
}

func (n *node) try(args ...string) (string, error) {
	cmd := exec.Command(n.path("bin", "kubectl"), append([]string{"--kubeconfig=" + n.path("etc", "kubeconfig"), "--cache-dir=" + n.path("cache")}, args...)...)
	output, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("kubectl %s: %w\n%s", strings.Join(args, " "), err, output)
	}
	return string(output), nil
}

// apply applies YAML text.
func (n *node) apply(text string) {
	n.t.Helper()
	file, err := os.CreateTemp(n.path("etc"), "*.yaml")
	n.must(err)
	_, err = file.WriteString(text)
	n.must(err)
	n.must(file.Close())
	// A webhook of an operator that was starved of CPU, as by the scenario before, is away for a while.
	testkit.Eventually(n.t, defaultTimeout, func() error {
		_, err := n.try("apply", "--server-side", "-f", file.Name())
		if err != nil && !strings.Contains(err.Error(), "failed calling webhook") {
			n.t.Fatal(err)
		}
		return err
	})
}

// configs are the configuration files of the node's parts, as templates.
var configs = map[string]string{
	"etc/containerd.toml": `version = 2
root = "{{.Folder}}/containerd"
state = "/run/containerd"
oom_score = 0
disabled_plugins = ["io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.zfs", "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.aufs"]
[grpc]
  address = "{{.Folder}}/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "e2e/pause:latest"
  # Not every machine lets root lower a process's score.
  restrict_oom_score_adj = true
  disable_apparmor = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "{{.Folder}}/cni"
`,
	// Point to point: all traffic between pods is routed, and so passes the rules of kube-proxy.
	"cni/10-ptp.conflist": `{
  "cniVersion": "0.4.0", "name": "node",
  "plugins": [{"type": "ptp", "ipam": {"type": "host-local", "ranges": [[{"subnet": "{{.Pods}}"}]], "routes": [{"dst": "0.0.0.0/0"}]}}]
}
`,
	"etc/kubelet.yaml": `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
containerRuntimeEndpoint: unix://{{.Folder}}/containerd.sock
clusterDNS: [{{.ControlPlane}}]
clusterDomain: cluster.local
cgroupDriver: cgroupfs
cgroupRoot: /{{.Cgroup}}
failCgroupV1: false
failSwapOn: false
enforceNodeAllocatable: [none]
featureGates: {KubeletInUserNamespace: true}
authentication: {anonymous: {enabled: false}, webhook: {enabled: true}, x509: {clientCAFile: {{.Folder}}/etc/kubelet-client.crt}}
authorization: {mode: Webhook}
volumePluginDir: {{.Folder}}/plugins
podLogsDir: {{.Folder}}/pods
evictionHard: {memory.available: 100Mi, nodefs.available: 1%, imagefs.available: 1%, nodefs.inodesFree: 1%}
imageGCHighThresholdPercent: 100
syncFrequency: 10s
nodeStatusUpdateFrequency: 5s
`,
	"etc/proxy.yaml": `apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: nftables
bindAddress: 0.0.0.0
hostnameOverride: {{.Name}}
clusterCIDR: ` + podNetwork + `
clientConnection: {kubeconfig: "{{.Folder}}/etc/kubeconfig"}
conntrack: {maxPerCore: 0, min: 0}
`,
}
