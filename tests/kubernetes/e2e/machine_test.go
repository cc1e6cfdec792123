//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"syscall"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/plumbline/plumbline/loadgen/matrix"
	"github.com/plumbline/plumbline/tests/testkit"
)

// limited is a PostgreSQL whose pod may use three tenths of a CPU.
const limited = `
apiVersion: v1
kind: Namespace
metadata: {name: limited}
---
apiVersion: postgresql.cnpg.io/v1
kind: Cluster
metadata: {name: limited, namespace: limited}
spec:
  instances: 1
  imageName: ` + postgresqlImage + `
  storage: {size: 1Gi, storageClass: ` + control + `}
  resources: {requests: {cpu: 50m, memory: 256Mi}, limits: {cpu: 300m, memory: 1Gi}}
  stopDelay: 10
  smartShutdownTimeout: 5
  postgresql: {parameters: {shared_buffers: 64MB, max_wal_size: 512MB, checkpoint_timeout: 30s}}
  bootstrap: {initdb: {database: app, owner: app}}
`

// besideMachine asks what Kubernetes costs a database: the same PostgreSQL on the node itself, in a pod, and in a pod with a limit of
// CPU, on the same disk and with the same settings, by a matrix from the node. That the limited one is slower is surely seen, and it
// is the waiting for a CPU.
func (n *node) besideMachine() {
	n.t.Helper()
	n.apply(limited)
	defer n.kubectl("delete", "namespace", "limited", "--timeout=5m")
	machine := n.machineServer(5433)
	defer machine.Signal(syscall.SIGINT)
	n.kubectl("wait", "--for=condition=Ready", "cluster/limited", "--namespace=limited", "--timeout=8m")
	targets := []matrix.Target{
		{StorageClass: "machine", Local: true, Replicas: 1, DSN: fmt.Sprintf("host=%s port=5433 user=postgres dbname=bench", nodeAddress)},
		{StorageClass: "kubernetes", Replicas: 1, DSN: n.dsn("db-"+control, "postgresql-"+control)},
		{StorageClass: "limited", Replicas: 1, DSN: n.dsn("limited", "limited")},
	}
	text, err := yaml.Marshal(map[string]any{"targets": targets})
	n.must(err)
	file, out := n.path("etc", "targets.yaml"), n.path("etc", "machine.json")
	n.must(os.WriteFile(file, text, 0o600))
	for _, server := range []string{`address="` + nodeAddress + `"`, `server="limited/limited-1"`} {
		testkit.Eventually(n.t, patience, n.some(`server:address:info{`+server+`}`))
	}
	args := []string{"matrix", "cnpg-local-ssd", "--targets=" + file, "--scale=0.02", "--min-duration=16s", "--max-warmup=4s", "--repeat=4",
		"--step=pgbench select-only 10 clients", "--step=pgbench simple-update 1 client", "--prometheus=http://" + n.prometheus + ":9090",
		"--pgbench.path=" + postgresqlHome() + "/bin/pgbench", "--output=" + out, "--html=" + filepath.Join(testkit.Root(), "build", "e2e", "machine.html")}
	cmd := exec.Command(filepath.Join(testkit.Root(), "build", "linux", runtime.GOARCH, "loadgen"), args...)
	if output, err := cmd.CombinedOutput(); err != nil {
		n.t.Fatalf("loadgen %v: %v\n%s", args, err, output)
	}
	report, err := matrix.Read(out)
	n.must(err)
	for _, row := range report.Rows {
		if row.Result == nil {
			n.t.Fatalf("round %d of %s on %s failed: %s", row.Round, row.Step, row.StorageClass, row.Error)
		}
		layers := ""
		if row.Layers != nil {
			for _, p := range row.Layers.Parts {
				layers += fmt.Sprintf(", %s %.3f", p.Name, 1e3*p.Seconds)
			}
			layers = fmt.Sprintf("; a %s %.3f ms%s", row.Layers.Of, 1e3*row.Layers.Mean, layers)
		}
		line := fmt.Sprintf("%s, round %d, %s: %.0f/s, mean %.2f ms; limit %s (%s)%s", row.Step, row.Round, row.StorageClass, row.Result.Rate, 1e3*row.Result.Service.Mean, row.Limit.What, row.Limit.Because, layers)
		n.t.Log(line)
		n.report("machine.txt", line+"\n")
	}
	for _, c := range report.Classes {
		line := fmt.Sprintf("%s: %s; %s; limits %v", c.StorageClass, c.Verdict, c.Words, c.Limits)
		n.t.Log(line)
		n.report("machine.txt", line+"\n")
		if c.StorageClass == "limited" && (c.Verdict != "surely slower" || c.Limits["CPU of the database's node"] < 6) {
			n.t.Errorf("a pod of three tenths of a CPU: %s", line)
		}
	}
	// No run is without its own server's layers but where the machine had no CPU left.
	for _, row := range report.Rows {
		if row.Layers == nil && !slices.Contains([]string{"CPU of the generator's machine", "CPU of the generator"}, row.Limit.What) {
			n.t.Errorf("%s, round %d, %s has no layers: %s", row.Step, row.Round, row.StorageClass, row.Limit.Because)
		}
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
		return exec.Command(postgresqlHome()+"/bin/createdb", "-h", nodeAddress, "-p", strconv.Itoa(port), "-U", "postgres", "bench").Run()
	})
	return process
}
