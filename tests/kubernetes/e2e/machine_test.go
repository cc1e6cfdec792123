//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/plumbline/plumbline/loadgen/matrix"
	"github.com/plumbline/plumbline/tests/testkit"
)

// pods are two PostgreSQL with the machine's settings: one's pod may use all CPUs, the other one's three tenths of one.
const pods = `
apiVersion: v1
kind: Namespace
metadata: {name: machine}
---
` + podOf + `
metadata: {name: free, namespace: machine}
---
` + podOf + `
  resources: {requests: {cpu: 50m, memory: 256Mi}, limits: {cpu: 300m, memory: 1Gi}}
metadata: {name: limited, namespace: machine}
`

const podOf = `apiVersion: postgresql.cnpg.io/v1
kind: Cluster
spec:
  instances: 1
  imageName: ` + postgresqlImage + `
  storage: {size: 1Gi, storageClass: ` + control + `}
  stopDelay: 10
  smartShutdownTimeout: 5
  # With no CPU left a probe takes long, and a pod that is not ready has no address.
  probes:
    readiness: {timeoutSeconds: 30, failureThreshold: 10}
    liveness: {timeoutSeconds: 30, failureThreshold: 10}
  postgresql: {parameters: {shared_buffers: 64MB, max_wal_size: 512MB, checkpoint_timeout: 30s}}
  bootstrap: {initdb: {database: app, owner: app, dataChecksums: true}}`

// besideMachine measures what Kubernetes costs a database: the same PostgreSQL on the node itself, in a pod, the same over
// encrypted connections, which is what a client gets there by default, and in a pod with a limit of CPU, on the same
// disk, by a matrix from the node. That the limited one is slower is surely seen, and that it waits for a CPU.
func (n *node) besideMachine() {
	n.t.Helper()
	// The node's own server and pgbench get their part of the CPUs.
	n.preferPods(false)
	defer n.preferPods(true)
	n.apply(pods)
	machine := n.machineServer(5433)
	defer func() {
		n.must(machine.Signal(syscall.SIGINT))
		n.kubectl("delete", "namespace", "machine", "--timeout=5m")
		testkit.Eventually(n.t, defaultTimeout, n.none(`plumbline_server_info{server=~"machine.*"}`))
	}()
	n.kubectl("wait", "--for=condition=Ready", "cluster/free", "cluster/limited", "--namespace=machine", "--timeout=8m")
	targets := map[string]any{"targets": []map[string]any{
		{"storageclass": "machine", "local": true, "dsn": fmt.Sprintf("host=%s port=5433 user=postgres dbname=app", nodeAddress)},
		{"storageclass": "pod", "dsn": n.dsn("machine", "free") + "?sslmode=disable"},
		{"storageclass": "encrypted", "dsn": n.dsn("machine", "free") + "?sslmode=require"},
		{"storageclass": "limited", "dsn": n.dsn("machine", "limited") + "?sslmode=disable"},
	}}
	text, err := yaml.Marshal(targets)
	n.must(err)
	file, out := n.path("etc", "targets.yaml"), n.path("etc", "machine.json")
	n.must(os.WriteFile(file, text, 0o600))
	for _, server := range []string{`address="` + nodeAddress + `", port="5433"`, `server="machine/free-1"`, `server="machine/limited-1"`} {
		testkit.Eventually(n.t, defaultTimeout, n.some(`server:address:info{`+server+`}`))
	}
	// From memory: the disk has no part in it.
	const selects = "pgbench select-only 10 clients"
	args := []string{"matrix", "cnpg-local-ssd", "--targets=" + file, "--scale=0.02", "--min-duration=15s", "--max-warmup=2s", "--repeat=4",
		"--step=" + selects, "--prometheus=http://" + n.prometheus + ":9090",
		"--pgbench.path=" + postgresqlHome() + "/bin/pgbench", "--output=" + out, "--html=" + filepath.Join(testkit.Root(), "build", "e2e", "machine.html")}
	cmd := exec.Command(filepath.Join(testkit.Root(), "build", "linux", runtime.GOARCH, "loadgen"), args...)
	if output, err := cmd.CombinedOutput(); err != nil {
		n.t.Fatalf("loadgen %v: %v\n%s", args, err, output)
	}
	report, err := matrix.Read(out)
	n.must(err)
	waits, missing := 0, 0
	for _, row := range report.Rows {
		if row.Result == nil {
			n.t.Fatalf("round %d of %s on %s failed: %s", row.Round, row.Step, row.StorageClass, row.Error)
		}
		if row.Layers == nil {
			// With no CPU left, a scrape may fail.
			missing++
			n.keepLine("machine.txt", "%s, round %d, %s has no layers: %s", row.Step, row.Round, row.StorageClass, row.NoLayers)
			continue
		}
		layers := fmt.Sprintf("a %s %.3f ms", row.Layers.Of, 1e3*row.Layers.Mean)
		for _, p := range row.Layers.Parts {
			layers += fmt.Sprintf(", %s %.3f", p.Name, 1e3*p.Seconds)
			if p.Name == "runqueue" && row.StorageClass == "limited" && p.Seconds > row.Layers.Mean/2 {
				waits++
			}
		}
		if row.Layers.Of != "statement" {
			n.t.Errorf("%s on %s has the layers of a %s", row.Step, row.StorageClass, row.Layers.Of)
		}
		n.keepLine("machine.txt", "%s, round %d, %s: %.0f/s, mean %.2f ms; limit %s (%s); %s", row.Step, row.Round, row.StorageClass, row.Result.Rate,
			1e3*row.Result.Service.Mean, row.Limit.What, row.Limit.Because, layers)
	}
	for _, c := range report.Classes {
		n.keepLine("machine.txt", "%s: %s; %s; limits %v", c.StorageClass, c.Verdict, c.Words, c.Limits)
		if c.StorageClass == "limited" && c.Verdict != "surely slower" {
			n.t.Errorf("a pod of three tenths of a CPU is %s", c.Verdict)
		}
	}
	if missing > len(report.Rows)/8 {
		n.t.Errorf("%d of %d runs have no layers", missing, len(report.Rows))
	}
	if waits < 3 {
		n.t.Errorf("a select in a pod of three tenths of a CPU waits for a CPU for most of its time in %d of 4 runs", waits)
	}
}

// machineServer starts a PostgreSQL on the node itself, beside the volumes of the control's class.
func (n *node) machineServer(port int) *os.Process {
	n.t.Helper()
	owner, err := user.Lookup("postgres")
	n.must(err)
	uid, err := strconv.Atoi(owner.Uid)
	n.must(err)
	gid, err := strconv.Atoi(owner.Gid)
	n.must(err)
	data := n.path("volumes", "machine")
	n.must(os.Mkdir(data, 0o700))
	n.must(os.Chown(data, uid, gid))
	n.must(os.Chmod(n.Folder, 0o711)) // or it does not come to its data
	as := func(program string, args ...string) []string {
		return append([]string{"--reuid=postgres", "--regid=postgres", "--clear-groups", postgresqlHome() + "/bin/" + program}, args...)
	}
	setpriv := testkit.Tool(n.t, "setpriv")
	n.run(setpriv, as("initdb", "-D", data, "--auth=trust", "--data-checksums", "--no-locale", "--encoding=UTF8")...)
	hba, err := os.OpenFile(filepath.Join(data, "pg_hba.conf"), os.O_APPEND|os.O_WRONLY, 0)
	n.must(err)
	_, err = fmt.Fprintf(hba, "host all all %s/24 trust\n", nodeAddress)
	n.must(err)
	n.must(hba.Close())
	process := n.start(setpriv, as("postgres", "-D", data, "-c", "cluster_name=machine", "-c", "listen_addresses="+nodeAddress, "-c", fmt.Sprint("port=", port), "-c", "unix_socket_directories=",
		"-c", "shared_buffers=64MB", "-c", "max_wal_size=512MB", "-c", "checkpoint_timeout=30s")...)
	testkit.Eventually(n.t, time.Minute, func() error {
		return exec.Command(postgresqlHome()+"/bin/createdb", "-h", nodeAddress, "-p", strconv.Itoa(port), "-U", "postgres", "app").Run()
	})
	return process
}
