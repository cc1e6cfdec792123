package query

import (
	"crypto/tls"
	"os"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/plumbline/plumbline/exporters/agent/query/querytest"
	"github.com/plumbline/plumbline/exporters/agent/server/servertest"
)

// Without the collector nothing of it is loaded: a program at wake-ups is attached only for servers that need it, and the others are
// smaller.
func TestTracingOff(t *testing.T) {
	with := startQueryTraced(t).programs
	without := startQuery(t).programs
	if without.wakes != nil || with.wakes == nil {
		t.Error("the program at wake-ups is attached without tracing, or not with it")
	}
	if n := without.objects.TraceEvents.MaxEntries(); n > uint32(os.Getpagesize()) {
		t.Errorf("a ring of %d bytes without tracing", n)
	}
	size := func(p *queryPrograms) int {
		info, err := p.programs["task_switched"].Info()
		if err != nil {
			t.Fatal(err)
		}
		n, err := info.TranslatedSize()
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	t.Logf("task_switched has %d bytes without tracing, %d with it", size(without), size(with))
	if size(without) >= size(with) {
		t.Error("task_switched is as large without tracing as with it")
	}
}

// A server with threads that decrypt what wakes them has wake-ups, too: the statement begins when its encrypted bytes
// came.
func TestTraceWakeupEncrypted(t *testing.T) {
	my := servertest.StartMariaDB(t, encryptedMariaDB(t)...)
	q := startQueryTraced(t)
	name := defaultName(t, q, my.PID)
	db := my.Open(t, func(c *mysql.Config) { c.TLS = &tls.Config{InsecureSkipVerify: true} })
	db.SetMaxOpenConns(1)
	var thread int
	if err := db.QueryRow("select tid from information_schema.processlist where id = connection_id()").Scan(&thread); err != nil {
		t.Fatal(err)
	}
	const statements = 20
	querytest.UntilAsleep(t, thread) // its last statement is counted then
	before, _ := querytest.Wakeups(t, q, name)
	got := querytest.During(t, q, name, statements, func() {
		for range statements {
			querytest.UntilAsleep(t, thread)
			if err := db.QueryRow("select 1").Scan(new(int)); err != nil {
				t.Fatal(err)
			}
		}
	})
	querytest.WantCounts(t, got, map[string]uint64{"select": statements})
	querytest.WantSum(t, got)
	if sum, _ := querytest.Wakeups(t, q, name); sum <= before {
		t.Errorf("%v s of wake-ups in %d statements", sum-before, statements)
	}
}
