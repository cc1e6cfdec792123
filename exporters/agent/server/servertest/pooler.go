package servertest

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"github.com/plumbline/plumbline/tests/freeport"
	"github.com/plumbline/plumbline/tests/testkit"
)

// StartPooler starts pgbouncer before a server and stops it when the test ends. It has fewer connections to the server
// than its clients, which get one for a statement or a transaction, by mode. port is where they connect.
func StartPooler(t testing.TB, pg *Postgres, mode string) (port int) {
	t.Helper()
	// It queries nothing on its own account but to pass on its clients' settings (SET application_name).
	return startPooler(t, "pgbouncer", nil, func(port int, _ string) string {
		return fmt.Sprintf(`[databases]
postgres = host=127.0.0.1 port=%d dbname=postgres user=postgres
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %d
unix_socket_dir =
auth_type = any
pool_mode = %s
default_pool_size = 4
server_check_query =
server_reset_query =
ignore_startup_parameters = extra_float_digits
`, pg.Port, port, mode)
	})
}

// StartPgpool starts Pgpool-II before a server and stops it when the test ends: a process for each client, which keeps
// its connection to the server for the next client. port is where clients connect.
func StartPgpool(t testing.TB, pg *Postgres) (port int) {
	t.Helper()
	return startPooler(t, "pgpool", []string{"-n", "-f"}, func(port int, dir string) string {
		return fmt.Sprintf(`backend_clustering_mode = raw
backend_hostname0 = '127.0.0.1'
backend_port0 = %d
backend_flag0 = 'ALWAYS_PRIMARY|DISALLOW_TO_FAILOVER'
listen_addresses = '127.0.0.1'
port = %d
socket_dir = '%[3]s'
pcp_socket_dir = '%[3]s'
pcp_listen_addresses = '127.0.0.1'
pcp_port = %[4]d
pid_file_name = '%[3]s/pid'
logdir = '%[3]s'
num_init_children = 24
max_pool = 1
sr_check_period = 0
`, pg.Port, port, dir, freePort(t))
	})
}

// startPooler starts a pooler with its configuration, which configure returns for the port where clients connect and a
// folder for its files.
func startPooler(t testing.TB, name string, options []string, configure func(port int, dir string) string) (port int) {
	t.Helper()
	program := testkit.Tool(t, name)
	who := owner(t)
	port = freePort(t)
	dir := workDir(t, "pooler", who)
	config := filepath.Join(dir, "ini")
	if err := os.WriteFile(config, []byte(configure(port, dir)), 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, append(options, config)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: who}
	start(t, cmd, config+".log", syscall.SIGINT)
	testkit.Eventually(t, testkit.DefaultTimeout, func() error { return freeport.Listening(net.JoinHostPort("127.0.0.1", strconv.Itoa(port))) })
	return port
}
