package query

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/plumbline/plumbline/exporters/agent/collector"
	"github.com/plumbline/plumbline/exporters/agent/query/querytest"
	"github.com/plumbline/plumbline/exporters/agent/server/servertest"
	"github.com/plumbline/plumbline/exporters/agent/untrusted"
	"github.com/plumbline/plumbline/exporters/agent/untrusted/untrustedtest"
	"github.com/plumbline/plumbline/tests/testkit"
)

// viewOf makes a procfs that shows a few processes only.
func viewOf(t *testing.T) string {
	t.Helper()
	procfs := t.TempDir()
	for _, name := range []string{"self", "1"} {
		if err := os.Symlink("/proc/"+name, filepath.Join(procfs, name)); err != nil {
			t.Fatal(err)
		}
	}
	return procfs
}

// A server whose data directory, program and mappings are on a file system that hangs is followed
// and counted. It holds up neither a scrape nor the discovery of another server.
func TestQueryHungFileSystem(t *testing.T) {
	testkit.NeedBPF(t)
	hung, release := untrustedtest.HungMount(t)
	first := servertest.StartPostgres(t, map[string]string{"cluster_name": "hung", "autovacuum": "off"}, nil)
	second := servertest.StartPostgres(t, map[string]string{"cluster_name": "second", "autovacuum": "off"}, nil)
	procfs := viewOf(t)
	dir := filepath.Join(procfs, strconv.Itoa(first.PID))
	problems := []error{os.Mkdir(dir, 0o755)}
	for _, name := range []string{"stat", "status", "cmdline", "fd", "ns", "net", "root", "mountinfo"} {
		problems = append(problems, os.Symlink(fmt.Sprintf("/proc/%d/%s", first.PID, name), filepath.Join(dir, name)))
	}
	for name, target := range map[string]string{"cwd": hung, "exe": filepath.Join(hung, "postgres"), "maps": filepath.Join(hung, "maps")} {
		problems = append(problems, os.Symlink(target, filepath.Join(dir, name)))
	}
	if err := errors.Join(problems...); err != nil {
		t.Fatal(err)
	}
	calls := untrusted.NewCalls(500*time.Millisecond, untrusted.DefaultHanging)
	c, err := New(collector.Options{Log: slog.New(slog.DiscardHandler), Node: "here", ProcFS: procfs, SysFS: "/sys", Calls: calls},
		Options{ScanInterval: 100 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(context.Background()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		release()
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	querytest.WaitForServer(t, c, "hung")
	// Those on data directory, program and mappings hang. On a busy machine others do so for a moment.
	hanging := func(want int) {
		t.Helper()
		testkit.Eventually(t, testkit.DefaultTimeout, func() error {
			if n := calls.Hanging(); n != want {
				return fmt.Errorf("%d calls hang, want %d", n, want)
			}
			return nil
		})
	}
	hanging(3)
	// The second server shows up while the first one hangs.
	if err := os.Symlink(fmt.Sprintf("/proc/%d", second.PID), filepath.Join(procfs, strconv.Itoa(second.PID))); err != nil {
		t.Fatal(err)
	}
	querytest.WaitForServer(t, c, "second")
	for name, pg := range map[string]*servertest.Postgres{"hung": first, "second": second} {
		got := querytest.During(t, c, name, 200, func() { pg.Bench(t, "select 1;\n", "-t", "200") })
		querytest.WantCounts(t, got, map[string]uint64{"select": 200})
	}
	hanging(3) // after many scans: each is made once
	// When the file system answers again (here: by errors), nothing hangs any more.
	release()
	hanging(0)
}
