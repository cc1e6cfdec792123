// Package tracertest runs the collectors trace and query together with a server, for tests of single statements' paths.
package tracertest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sys/unix"

	"github.com/plumbline/plumbline/exporters/agent/collector"
	"github.com/plumbline/plumbline/exporters/agent/collector/collectortest"
	"github.com/plumbline/plumbline/exporters/agent/query"
	"github.com/plumbline/plumbline/exporters/agent/query/querytest"
	"github.com/plumbline/plumbline/exporters/agent/server/servertest"
	"github.com/plumbline/plumbline/exporters/agent/trace"
	"github.com/plumbline/plumbline/exporters/agent/tracer"
	"github.com/plumbline/plumbline/rules/layers"
	"github.com/plumbline/plumbline/tests/rig"
	"github.com/plumbline/plumbline/tests/testkit"
)

// Traced are the collectors trace and query at work together.
type Traced struct {
	t       testing.TB
	Options collector.Options
	Tracer  *tracer.Collector
	Query   collector.Collector

	mu     sync.Mutex
	chains []*trace.Chain
}

// Start follows every statement that waits.
func Start(t testing.TB, o tracer.Options) *Traced {
	t.Helper()
	a := StartAlone(t, o)
	a.Query = collectortest.Start(t)(query.New(a.Options, query.Options{Top: 10}))
	return a
}

// StartAlone is Start on a node without a server.
func StartAlone(t testing.TB, o tracer.Options) *Traced {
	t.Helper()
	a := &Traced{t: t, Options: collectortest.Here()}
	a.Options.Tracing = &collector.Tracing{}
	o.Sink = a.take
	a.Tracer = collectortest.Start(t)(tracer.New(a.Options, o)).(*tracer.Collector)
	return a
}

func (a *Traced) take(c *trace.Chain) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.chains = append(a.chains, c)
}

// Of returns the chains of a server's statements of one command, without those of the first statements, of `after`.
func (a *Traced) Of(label string, after uint64) (all []*trace.Chain) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, c := range a.chains {
		if c.ServerName == label && c.Root.Start >= after {
			all = append(all, c)
		}
	}
	return all
}

// Settled waits until all statements that have ended are joined, and returns a server's chains since then.
func (a *Traced) Settled(label string, after uint64) []*trace.Chain {
	a.t.Helper()
	end := collector.Monotonic()
	testkit.Eventually(a.t, testkit.DefaultTimeout, func() error {
		if a.Tracer.Joined() < end+uint64(time.Second) {
			return errors.New("statements wait for their events")
		}
		return nil
	})
	return a.Of(label, after)
}

// Spans returns all spans of a chain.
func Spans(s *trace.Span) []*trace.Span {
	all := []*trace.Span{s}
	for _, below := range s.Below {
		all = append(all, Spans(below)...)
	}
	return all
}

// WantExact fails unless nearly all chains are exact: a task of the kernel that a commit waits for is not known when it
// is met first, and on a busy machine an interrupt may fall into another one.
func WantExact(t testing.TB, chains []*trace.Chain, least int) {
	t.Helper()
	found := map[trace.Verdict]int{}
	reasons := map[trace.Reason]int{}
	for _, c := range chains {
		found[c.Verdict()]++
		for _, r := range c.Reasons {
			reasons[r]++
		}
		var sum uint64
		for _, ns := range c.Root.Shares() {
			sum += ns
		}
		if sum != c.Duration() {
			t.Errorf("the layers of a statement add up to %d of %d ns", sum, c.Duration())
		}
	}
	t.Logf("%d chains: %v %v", len(chains), found, reasons)
	if len(chains) < least {
		t.Errorf("%d chains, want at least %d", len(chains), least)
	}
	allowed := 2 + len(chains)/100
	if len(collectortest.Platform(t).Missing("block_io_done")) > 0 {
		// Before Linux 6.2 the kernel refuses a task's storage now and then (bpf/README.md): 2 of 20 wake-ups were
		// unseen once.
		allowed += len(chains) / 10
	}
	// Another run of the same test writes to the same places of its own device.
	allowed += min(reasons[trace.TwoRequests], len(chains)/4)
	if len(chains)-found[trace.Exact] > allowed {
		t.Errorf("%d of %d chains are exact: %v", found[trace.Exact], len(chains), reasons)
	}
}

// DiskWrite is a write of a device that a chain waited for.
type DiskWrite struct {
	Offset, Size int64
	start        uint64
}

// WritesOf returns the writes with data that a chain waited for, of a device.
func WritesOf(c *trace.Chain, device string) map[DiskWrite]bool {
	found := map[DiskWrite]bool{}
	for _, s := range Spans(c.Root) {
		var w DiskWrite
		var on string
		if n, _ := fmt.Sscanf(s.What, "write of %d bytes at %d of %s", &w.Size, &w.Offset, &on); n == 3 && on == device && s.Layer == layers.Queue {
			w.start = s.End // a span may be cut at its beginning
			found[w] = true
		}
	}
	return found
}

// DeviceNumber is a block device's number as chains have it.
func DeviceNumber(t testing.TB, path string) string {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	n := info.Sys().(*syscall.Stat_t).Rdev
	return fmt.Sprintf("%d:%d", unix.Major(n), unix.Minor(n))
}

// Server starts a PostgreSQL server whose log is on a file system of its own, made on a device, and warms it up:
// from then on all tasks that its commits wait for are known.
func Server(t testing.TB, a *Traced, device string) (*servertest.Postgres, *pgx.Conn) {
	t.Helper()
	return ServerOn(t, a, "on", func(mount string) error { return rig.MountExt4(t, device, mount, "-J", "size=4") })
}

// ServerOn is Server with another file system. If filled is off, each new file of the log is empty.
func ServerOn(t testing.TB, a *Traced, filled string, mountAt func(string) error) (*servertest.Postgres, *pgx.Conn) {
	t.Helper()
	mount := filepath.Join(t.TempDir(), "log")
	if err := os.Mkdir(mount, 0o755); err != nil {
		t.Fatal(err)
	}
	collectortest.OpenUp(t, mount)
	if err := mountAt(mount); err != nil {
		t.Fatal(err)
	}
	pg := servertest.StartPostgres(t, map[string]string{"cluster_name": Name, "autovacuum": "off", "max_wal_size": "64MB", "min_wal_size": "32MB",
		"wal_init_zero": filled, "wal_recycle": filled, "checkpoint_timeout": "1h", "wal_writer_delay": "10s", "compute_query_id": "on"}, func(data string) { querytest.LogOn(t, data, mount) })
	querytest.WaitForServer(t, a.Query, Name)
	c := pg.Connect(t)
	querytest.Run(t, c, "create table t (s text)")
	querytest.Run(t, c, "alter table t alter s set storage external")
	for range 10 {
		querytest.Run(t, c, CommitOf8KB)
	}
	return pg, c
}

// Name is the server's label: other tests of this kind may run beside.
var Name = fmt.Sprintf("traced-%d", os.Getpid())

// CommitOf8KB writes as much to the log.
const CommitOf8KB = "insert into t select string_agg(md5(random()::text), '') from generate_series(1, 240)"
