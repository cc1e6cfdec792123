// Package objects measures the memory of the programs that follow a cluster's objects, on a real API server with as
// many as the largest clusters have.
package objects

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/plumbline/plumbline/tests/kubetest"
	"github.com/plumbline/plumbline/tests/testkit"
)

var (
	objects  = flag.Int("objects", 100_000, "PersistentVolumes, and as many replicas of Longhorn and of cStor")
	nodes    = flag.Int("nodes", 5000, "nodes that they are on")
	programs = flag.String("programs", "", "folder of programs to measure beside those of this checkout, such as an older version's, without a limit")
)

const (
	replicasPerVolume = 3
	scrapes           = 3
	limit             = 30 * time.Minute
	padding           = 1000 // unread bytes of an object
)

// BenchmarkMemory starts each program alone, and reports the most memory that it had until all objects are known and
// some scrapes are answered.
func BenchmarkMemory(b *testing.B) {
	server := kubetest.Start(b)
	fill(b, server)
	kubeconfig := server.Kubeconfig("kubetest")
	folders := map[string]string{"this": build(b)}
	if *programs != "" {
		folders["other"] = *programs
	}
	volumes := *objects / replicasPerVolume
	for _, m := range []struct {
		name, program, limit string
		mebibytes            int
		arguments            []string
		known                string // a line of its metrics once all is known
	}{
		{"agent on a node", "plumbline-agent", "100MiB", 128, []string{"--node=node-1", "--no-collector.query", "--no-collector.replica", "--no-collector.nvme",
			"--no-collector.iscsi", "--no-collector.device", "--collector.volume"}, fmt.Sprintf(`plumbline_kubernetes_objects{resource="persistentvolumes"} %d`, *objects)},
		{"longhorn_exporter on a node", "longhorn_exporter", "100MiB", 128, []string{"--kubernetes.node=node-1", "--no-collector.volume", "--no-collector.node"},
			`plumbline_kubernetes_synced{resource="replicas"} 1`},
		{"longhorn_exporter of a cluster", "longhorn_exporter", "400MiB", 512, []string{"--no-collector.engine", "--no-collector.replica"},
			fmt.Sprintf(`plumbline_kubernetes_objects{resource="volumes"} %d`, volumes)},
		{"openebs_exporter, localpv", "openebs_exporter", "400MiB", 512, nil, fmt.Sprintf(`plumbline_kubernetes_objects{resource="persistentvolumes"} %d`, *objects)},
		{"openebs_exporter, cstor", "openebs_exporter", "400MiB", 512, []string{"--no-collector.localpv", "--collector.cstor"},
			fmt.Sprintf(`plumbline_kubernetes_objects{resource="cstorvolumereplicas"} %d`, *objects)},
	} {
		for of, folder := range folders {
			b.Run(m.name+"/"+of, func(b *testing.B) {
				for b.Loop() {
					memory := "off" // what another version would need, were it not killed
					if of == "this" {
						memory = m.limit
					}
					most, took := measure(b, filepath.Join(folder, m.program), memory, append(m.arguments, "--kubernetes", "--kubernetes.kubeconfig="+kubeconfig), m.known)
					b.ReportMetric(most, "MiB")
					b.ReportMetric(took, "s-scrape")
					if of == "this" && most > float64(m.mebibytes) {
						b.Errorf("%.0f MiB, over %d", most, m.mebibytes)
					}
				}
			})
		}
	}
}

// build builds this checkout's programs.
func build(b *testing.B) string {
	b.Helper()
	folder := b.TempDir()
	for program, source := range map[string]string{"plumbline-agent": "./exporters/agent", "longhorn_exporter": "./exporters/longhorn", "openebs_exporter": "./exporters/openebs"} {
		cmd := exec.Command("go", "build", "-o", filepath.Join(folder, program), source)
		cmd.Dir = testkit.Root()
		if output, err := cmd.CombinedOutput(); err != nil {
			b.Fatalf("%s: %v\n%s", source, err, output)
		}
	}
	return folder
}

// measure runs a program until it knows its objects and has answered some scrapes, and returns the most memory it had,
// in MiB, and the time of the last scrape.
func measure(b *testing.B, program, memory string, arguments []string, known string) (most, took float64) {
	b.Helper()
	address := testkit.FreeAddress(b)
	cmd := exec.Command(program, append(arguments, "--web.listen-address="+address, "--log.level=error")...)
	cmd.Env = append(os.Environ(), "GOMEMLIMIT="+memory)
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	defer func() {
		cmd.Process.Kill()
		cmd.Wait()
	}()
	for left := scrapes; left > 0; {
		testkit.Eventually(b, limit, func() error {
			began := time.Now()
			found, err := scrape(b.Context(), address, known)
			if err != nil || !found {
				return fmt.Errorf("no %s: %v", known, err)
			}
			took = time.Since(began).Seconds()
			return nil
		})
		left--
	}
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", cmd.Process.Pid))
	if err != nil {
		b.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kib, err := strconv.ParseFloat(strings.Fields(rest)[0], 64)
			if err != nil {
				b.Fatal(err)
			}
			return kib / 1024, took
		}
	}
	b.Fatal("no VmHWM")
	return 0, 0
}

// scrape reads all metrics, and reports whether a line is among them.
func scrape(ctx context.Context, address, line string) (found bool, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/metrics", nil)
	if err != nil {
		return false, err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return false, err
	}
	defer answer.Body.Close()
	lines := bufio.NewScanner(answer.Body)
	for lines.Scan() {
		found = found || lines.Text() == line
	}
	return found, lines.Err()
}

// fill makes the cluster's objects.
func fill(b *testing.B, server *kubetest.Server) {
	b.Helper()
	const namespace = "longhorn-system"
	server.Namespace(namespace)
	for _, kind := range []string{"Volume", "Engine", "Replica", "Node", "InstanceManager"} {
		server.ApplyCRDs(kubetest.Definition("longhorn.io", kind, "v1beta2"))
	}
	now := time.Now().UTC().Format(time.RFC3339)
	for _, kind := range []string{"CStorVolume", "CStorVolumeReplica", "CStorPoolInstance"} {
		server.ApplyCRDs(kubetest.Definition("cstor.openebs.io", kind, "v1"))
	}
	node := func(i int) string { return fmt.Sprintf("node-%d", i%*nodes) }
	object := func(version, kind, name string, labels, spec, status map[string]any) *unstructured.Unstructured {
		o := map[string]any{"apiVersion": version, "kind": kind, "spec": spec, "status": status, "metadata": map[string]any{"name": name, "namespace": namespace,
			"labels": labels, "annotations": map[string]any{"example.org/notes": strings.Repeat("n", padding)}}}
		return &unstructured.Unstructured{Object: o}
	}
	longhorn := func(kind, name string, labels, spec, status map[string]any) *unstructured.Unstructured {
		return object("longhorn.io/v1beta2", kind, name, labels, spec, status)
	}
	running := map[string]any{"currentState": "running", "ip": "10.42.0.7", "storageIP": "10.42.0.7", "port": int64(10000), "instanceManagerName": "im"}
	server.Fill(*objects, func(i int) *unstructured.Unstructured {
		if i%2 == 0 {
			return kubetest.Volume(i, map[string]any{"csi": map[string]any{"driver": "io.openebs.csi-mayastor", "volumeHandle": fmt.Sprintf("%012d", i)}})
		}
		o := kubetest.Volume(i, map[string]any{"local": map[string]any{"path": "/var/openebs/local/" + kubetest.Name(i)},
			"nodeAffinity": map[string]any{"required": map[string]any{"nodeSelectorTerms": []any{map[string]any{"matchExpressions": []any{
				map[string]any{"key": "kubernetes.io/hostname", "operator": "In", "values": []any{node(i)}}}}}}}})
		o.SetLabels(map[string]string{"openebs.io/cas-type": "local-hostpath"})
		return o
	})
	server.Fill(*objects, func(i int) *unstructured.Unstructured {
		volume := kubetest.Name(i / replicasPerVolume)
		return longhorn("Replica", fmt.Sprintf("%s-r-%08d", volume, i), map[string]any{"longhornnode": node(i), "longhornvolume": volume},
			map[string]any{"volumeName": volume, "nodeID": node(i), "diskPath": "/var/lib/longhorn/", "healthyAt": "2026-11-21T09:00:00Z", "dataEngine": "v1", "active": true,
				"dataDirectoryName": volume + "-0a1b2c3d", "image": "longhornio/longhorn-engine:v1.8.0", "volumeSize": "10737418240"}, running)
	})
	volumes := *objects / replicasPerVolume
	server.Fill(volumes, func(i int) *unstructured.Unstructured {
		return longhorn("Volume", kubetest.Name(i), nil, map[string]any{"numberOfReplicas": int64(replicasPerVolume), "frontend": "blockdev", "dataEngine": "v1"},
			map[string]any{"state": "attached", "robustness": "healthy", "currentNodeID": node(i), "conditions": []any{map[string]any{"type": "Scheduled", "status": "True"}},
				"kubernetesStatus": map[string]any{"pvName": kubetest.Name(i), "pvcName": fmt.Sprintf("claim-%d", i), "namespace": "db"}})
	})
	server.Fill(volumes, func(i int) *unstructured.Unstructured {
		status := map[string]any{"snapshots": map[string]any{"a": strings.Repeat("s", padding)}}
		for field, value := range running {
			status[field] = value
		}
		return longhorn("Engine", kubetest.Name(i)+"-e-0", map[string]any{"longhornnode": node(i), "longhornvolume": kubetest.Name(i)},
			map[string]any{"volumeName": kubetest.Name(i), "nodeID": node(i), "active": true, "dataEngine": "v1"}, status)
	})
	server.Fill(*nodes, func(i int) *unstructured.Unstructured {
		return longhorn("Node", node(i), nil, map[string]any{}, map[string]any{"diskStatus": map[string]any{
			"default": map[string]any{"diskUUID": "u", "diskPath": "/var/lib/longhorn/", "diskType": "filesystem", "scheduledReplica": map[string]any{"r": int64(1)}}}})
	})
	server.Fill(*nodes, func(i int) *unstructured.Unstructured {
		return longhorn("InstanceManager", "im-"+node(i), map[string]any{"longhorn.io/node": node(i)}, map[string]any{"nodeID": node(i), "type": "aio", "dataEngine": "v1"}, running)
	})
	server.Fill(*objects, func(i int) *unstructured.Unstructured {
		volume := kubetest.Name(i / replicasPerVolume)
		return object("cstor.openebs.io/v1", "CStorVolumeReplica", fmt.Sprintf("%s-pool-%d", volume, i%replicasPerVolume), map[string]any{"openebs.io/persistent-volume": volume,
			"cstorpoolinstance.openebs.io/name": "pool-" + node(i)}, map[string]any{"targetIP": "10.0.0.1"}, map[string]any{"phase": "Healthy", "lastUpdateTime": now})
	})
	server.Fill(volumes, func(i int) *unstructured.Unstructured {
		return object("cstor.openebs.io/v1", "CStorVolume", kubetest.Name(i), nil, map[string]any{"replicationFactor": int64(replicasPerVolume)},
			map[string]any{"phase": "Healthy", "lastUpdateTime": now, "replicaStatuses": []any{map[string]any{"mode": "Healthy"}}})
	})
}
