package driver

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/plumbline/plumbline/loadgen/internal/testdb"
	"github.com/plumbline/plumbline/loadgen/metrics"
	"github.com/plumbline/plumbline/loadgen/stats"
	"github.com/plumbline/plumbline/tests/testkit"
)

// The reason for an open loop: a server that stalls for a second at 200/s holds up some 200
// transactions. The response time shows all of them, the service time only the few that were
// under way, and closed-loop pgbench beside it as few.
func TestStallIsSeen(t *testing.T) {
	attempt(t, func() error { return stallIsSeen(t) })
}

func stallIsSeen(t *testing.T) error {
	server := testdb.StartStaller(t)
	const stall = time.Second
	r := newRig(t, Config{DSN: server.DSN()})

	folder := t.TempDir()
	script := filepath.Join(folder, "ping.sql")
	if err := os.WriteFile(script, []byte("SELECT 1;\n\\sleep 20 ms\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	closed := exec.Command(testkit.Tool(t, "pgbench"), "-n", "-f", script, "-c", "4", "-T", "1000000", "-l", "--log-prefix="+folder+"/log", server.LibpqDSN())
	// It is sent when the thread ends that started pgbench.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	closed.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := closed.Start(); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, testkit.DefaultTimeout, func() error {
		if n := server.Answered(); n < 20 {
			return fmt.Errorf("%d answers; pgbench is not under way", n)
		}
		return nil
	})
	stop := r.start(t)
	r.await(t, "300 transactions", func(m metrics.Tally) bool { return m.Completed >= 300 })
	server.Stall(stall)
	r.await(t, "1000 transactions", func(m metrics.Tally) bool { return m.Completed >= 1000 })
	stop()
	_ = closed.Process.Signal(syscall.SIGALRM) // as its own timer: it ends in good order
	if err := closed.Wait(); err != nil {
		t.Fatal(err)
	}
	open := r.balance(t)
	closedLoop := pgbenchLatencies(t, folder)
	t.Logf("open loop: response p50 %v p99 %v, service p99 %v; closed-loop pgbench p99 %v, max %v of %d",
		open.Response.Quantile(0.5), open.Response.Quantile(0.99), open.Service.Quantile(0.99),
		closedLoop.Quantile(0.99), closedLoop.Max(), closedLoop.Count())

	if p99 := open.Response.Quantile(0.99); p99 < stall*3/4 || p99 > stall*3/2 {
		return fmt.Errorf("response p99 is %v, want about the stall of %v", p99, stall)
	}
	if slow := open.Response.Above(stall / 10); slow < 120 || slow > 260 {
		return fmt.Errorf("%d transactions waited over a tenth of the stall, want about 180", slow)
	}
	if slow := open.Service.Above(stall / 2); slow > 4 {
		return fmt.Errorf("%d service times show the stall, but only 4 transactions can have been under way", slow)
	}
	if p99 := open.Service.Quantile(0.99); p99 > stall/4 {
		return fmt.Errorf("service p99 is %v, moved by the stall", p99)
	}
	// A tenth of pgbench's own time was the stall, and it reports that nothing happened.
	if p99 := closedLoop.Quantile(0.99); closedLoop.Max() < stall*3/4 || p99 > stall/4 {
		return fmt.Errorf("closed-loop pgbench: max %v, p99 %v; it should hide the stall", closedLoop.Max(), p99)
	}
	return nil
}

func pgbenchLatencies(t *testing.T, folder string) *stats.Distribution {
	t.Helper()
	logs, err := filepath.Glob(folder + "/log.*")
	if err != nil || len(logs) != 1 {
		t.Fatalf("pgbench's logs: %v, %v", logs, err)
	}
	text, err := os.ReadFile(logs[0])
	if err != nil {
		t.Fatal(err)
	}
	var d stats.Distribution
	for line := range strings.Lines(string(text)) {
		us, err := strconv.Atoi(strings.Fields(line)[2])
		if err != nil {
			t.Fatal(err)
		}
		// The script's own pause is no latency.
		d.Observe(time.Duration(us)*time.Microsecond - 20*time.Millisecond)
	}
	return &d
}
