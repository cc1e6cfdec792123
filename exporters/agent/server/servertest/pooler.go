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

	"github.com/plumbline/plumbline/tests/testkit"
)

// StartPooler starts pgbouncer before a server and stops it when the test ends. It has fewer connections to the server
// than its clients, which get one for a statement or a transaction, by mode. port is where they connect.
func StartPooler(t testing.TB, pg *Postgres, mode string) (port int) {
	t.Helper()
	program := testkit.Tool(t, "pgbouncer")
	who := owner(t)
	port = freePort(t)
	config := filepath.Join(workDir(t, "pooler", who), "ini")
	// It queries nothing on its own account but to pass on its clients' settings (SET application_name).
	text := fmt.Sprintf(`[databases]
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
	if err := os.WriteFile(config, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, config)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: who}
	start(t, cmd, config+".log", syscall.SIGINT)
	testkit.Eventually(t, testkit.Patience, func() error {
		c, err := net.Dial("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err == nil {
			c.Close()
		}
		return err
	})
	return port
}
