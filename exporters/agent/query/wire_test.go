package query

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/plumbline/plumbline/exporters/agent/query/querytest"
	"github.com/plumbline/plumbline/exporters/agent/server/servertest"
)

// What clients may do on the wire, and what they should not, leaves the counts exact.
func TestQueryWire(t *testing.T) {
	q := startQuery(t)
	pg := servertest.StartPostgres(t, map[string]string{"cluster_name": "wired", "autovacuum": "off"}, nil)
	querytest.WaitForServer(t, q, "wired")
	for _, c := range []struct {
		name string
		f    func(t *testing.T, w *wire)
		want map[string]uint64
	}{
		{"a statement split at every byte", func(t *testing.T, w *wire) {
			for _, b := range []byte(message('Q', "update pg_class set relname = relname where false\x00")) {
				w.send([]byte{b})
			}
			w.ready(1)
		}, map[string]uint64{"update": 1}},
		{"ten statements in one packet, each with its Sync", func(t *testing.T, w *wire) {
			w.send([]byte(strings.Repeat(executeOf("select 1")+message('S', ""), 10)))
			w.ready(10)
		}, map[string]uint64{"select": 10}},
		{"a batch with one Sync is one statement", func(t *testing.T, w *wire) {
			w.send([]byte(strings.Repeat(executeOf("delete from pg_class where false"), 10) + message('S', "")))
			w.ready(1)
		}, map[string]uint64{"delete": 1}},
		{"a BEGIN with the first statement and one Sync is that statement, as pgjdbc sends it", func(t *testing.T, w *wire) {
			const change = "delete from pg_class where false"
			for _, batch := range []string{change, change + "\n", "/*" + strings.Repeat("x", 200) + "*/ " + change} {
				w.send([]byte(executeOf("BEGIN") + executeOf(batch) + message('S', "")))
				w.ready(1)
				w.send([]byte(executeOf("COMMIT") + message('S', "")))
				w.ready(1)
			}
			// As a chunk of more messages than the usual, of several statements, and alone.
			w.send([]byte(executeOf("BEGIN") + executeOf(change) + executeOf("select 1") + executeOf("select 2") + message('S', "")))
			w.ready(1)
			w.send([]byte(executeOf("COMMIT") + message('S', "")))
			w.ready(1)
			w.send([]byte(executeOf("BEGIN") + message('S', "")))
			w.ready(1)
		}, map[string]uint64{"delete": 4, "commit": 4, "begin": 1}},
		{"more requests in flight than fit a receive buffer", func(t *testing.T, w *wire) {
			go w.send([]byte(strings.Repeat(message('Q', "select 1"+strings.Repeat(" ", 1000)+"\x00"), 500)))
			w.ready(500)
		}, map[string]uint64{"select": 500}},
		{"a long statement", func(t *testing.T, w *wire) {
			w.send([]byte(message('Q', "insert into pg_class select from pg_class where false and "+strings.Repeat("true and ", 100000)+"false\x00")))
			w.ready(1)
		}, map[string]uint64{"insert": 1}},
		{"only a preparation is no statement", func(t *testing.T, w *wire) {
			w.send([]byte(message('P', "p\x00select 1\x00\x00\x00") + message('D', "Sp\x00") + message('S', "")))
			w.ready(1)
		}, nil},
		{"prepared statements by name", func(t *testing.T, w *wire) {
			w.send([]byte(message('P', "a\x00select 1\x00\x00\x00") + message('P', "b\x00insert into pg_class select from pg_class where false\x00\x00\x00") + message('S', "")))
			w.ready(1)
			for _, name := range []string{"a", "b", "a"} {
				w.send([]byte(message('B', "\x00"+name+"\x00\x00\x00\x00\x00\x00\x00") + message('E', "\x00\x00\x00\x00\x00") + message('S', "")))
				w.ready(1)
			}
		}, map[string]uint64{"select": 2, "insert": 1}},
		{"a preparation with Flush, then its execution", func(t *testing.T, w *wire) {
			w.send([]byte(message('P', "\x00values (1)\x00\x00\x00") + message('H', "")))
			w.wait('1')
			w.send([]byte(message('B', "\x00\x00\x00\x00\x00\x00\x00\x00") + message('E', "\x00\x00\x00\x00\x00") + message('S', "")))
			w.ready(1)
		}, map[string]uint64{"select": 1}},
		{"statements that fail", func(t *testing.T, w *wire) {
			w.send([]byte(message('Q', "select nonsense\x00")))
			w.ready(1)
			w.send([]byte(executeOf("select nonsense") + message('S', "")))
			w.ready(1)
		}, map[string]uint64{"select": 2}},
		{"a command of the replication protocol, on a connection without that", func(t *testing.T, w *wire) {
			w.send([]byte(executeOf("base_backup") + message('S', "")))
			w.ready(1)
			w.send([]byte(message('P', "b\x00start_replication\x00\x00\x00") + message('B', "\x00b\x00\x00\x00\x00\x00\x00\x00") + message('E', "\x00\x00\x00\x00\x00") + message('S', "")))
			w.ready(1)
		}, map[string]uint64{"other": 2}},
		{"comments and case", func(t *testing.T, w *wire) {
			for _, s := range []string{"/* app: x */ SeLeCt 1", "-- hint\nUPDATE pg_class set relname = relname where false",
				"  (select 1)", "/* a **/ /* b */with x as (select 1) table x", "show all", ""} {
				w.query(s)
			}
		}, map[string]uint64{"select": 3, "update": 1, "other": 2}},
		{"comments in comments", func(t *testing.T, w *wire) {
			for _, s := range []string{"/* a /* b */ delete */ select 1", "/*/* a */*/ select 1", "/*/ a /*/ b */ */select 1", "/* * / //* a **/ ***/ select 1",
				"/**/ /* a */ update pg_class set relname = relname where false", strings.Repeat("/*", 20) + strings.Repeat("*/", 20) + " begin"} {
				w.query(s)
			}
		}, map[string]uint64{"select": 4, "update": 1, "begin": 1}},
		{"what WITH does, as the answer names it", func(t *testing.T, w *wire) {
			const with = "with x as (select 1) "
			const change = with + "update pg_class set relname = relname where false"
			for _, s := range []string{with + "select generate_series(1, 10000)", with + "table x", change, with + "delete from pg_class where false",
				with + "insert into pg_class select from pg_class where false", "with x as (insert into pg_class select from pg_class where false returning 1) select * from x",
				with + "merge into pg_class using x on false when matched then do nothing", with + "select nonsense"} {
				w.query(s)
			}
			w.send([]byte(message('P', "p\x00"+change+"\x00\x00\x00") + message('S', "")))
			w.ready(1)
			for range 2 {
				w.send([]byte(bindAndExecute("p")))
				w.ready(1)
			}
			w.send([]byte(strings.Repeat(executeOf(change)+message('S', ""), 10)))
			w.ready(10)
			// A batch is named after its first statement, which the answer's end does not show.
			w.send([]byte(executeOf(with+"table x") + executeOf(change) + message('S', "")))
			w.ready(1)
		}, map[string]uint64{"select": 5, "update": 13, "delete": 1, "insert": 1, "other": 1}},
		{"copy in, with a Sync that the server ignores", func(t *testing.T, w *wire) {
			w.send([]byte(message('Q', "create temp table c (t text)\x00")))
			w.ready(1)
			w.send([]byte(executeOf("copy c from stdin") + message('S', "")))
			w.wait('G')
			// The next statement is there before the server is through with this one.
			w.send([]byte(message('d', "a\nb\n") + message('d', "c\n") + message('c', "") + message('S', "") + message('Q', "select count(*) from c\x00")))
			w.ready(2)
		}, map[string]uint64{"other": 1, "copy": 1, "select": 1}},
		{"copy in, in the simple protocol", func(t *testing.T, w *wire) {
			w.send([]byte(message('Q', "create temp table c (t text)\x00")))
			w.ready(1)
			w.send([]byte(message('Q', "copy c from stdin\x00")))
			w.wait('G')
			w.send([]byte(message('d', "a\nb\n") + message('c', "") + message('Q', "select count(*) from c\x00")))
			w.ready(2)
		}, map[string]uint64{"other": 1, "copy": 1, "select": 1}},
		{"several statements in one chunk of many messages", func(t *testing.T, w *wire) {
			w.send([]byte(executeOf("select 1") + message('S', "") + message('Q', "begin\x00") + executeOf("values (1)") + message('S', "")))
			w.ready(3)
		}, map[string]uint64{"select": 2, "begin": 1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := querytest.During(t, q, "wired", querytest.SumOf(c.want)+1, func() {
				w := dial(t, pg)
				c.f(t, w)
				// One more on the same connection: the boundaries are still known.
				w.send([]byte(message('Q', "rollback\x00")))
				w.ready(1)
			})
			want := map[string]uint64{"rollback": 1}
			for command, n := range c.want {
				want[command] = n
			}
			querytest.WantCounts(t, got, want)
			querytest.WantSum(t, got)
		})
	}
}

// A statement that begins with a comment longer than what is read has the command that the answer names, in each
// protocol; one that fails is of unknown command.
func TestQueryLongComment(t *testing.T) {
	q := startQuery(t)
	pg := servertest.StartPostgres(t, map[string]string{"cluster_name": "commented", "autovacuum": "off"}, nil)
	querytest.WaitForServer(t, q, "commented")
	text := "/*" + strings.Repeat("x", 200) + "*/ select 1"
	got := querytest.During(t, q, "commented", 5, func() {
		w := dial(t, pg)
		w.query(text)
		w.query(text + "/0")
		w.send([]byte(executeOf(text) + message('S', "")))
		w.ready(1)
		w.send([]byte(message('P', "a\x00"+text+"\x00\x00\x00") + message('B', "\x00a\x00\x00\x00\x00\x00\x00\x00") + message('E', "\x00\x00\x00\x00\x00") + message('S', "")))
		w.ready(1)
		w.query("/* x */") // empty, and that is known
	})
	if got.Total() != 5 || got.Counts["select"] != 3 || got.Counts["other"] != 2 || got.Unknown != 1 || len(got.Lost) != 0 {
		t.Errorf("statements %v, %v of unknown command, lost %v; want 3 selects and 2 others, 1 of unknown command", got.Counts, got.Unknown, got.Lost)
	}
}

// A pipelined statement begins when the server can begin with it. What it waited for is reported separately.
func TestQueryPipelined(t *testing.T) {
	q := startQuery(t)
	pg := servertest.StartPostgres(t, map[string]string{"cluster_name": "pipelined", "autovacuum": "off"}, nil)
	querytest.WaitForServer(t, q, "pipelined")
	w := dial(t, pg)
	const sleep, n = 0.2, 4
	got := querytest.During(t, q, "pipelined", n, func() {
		w.send([]byte(strings.Repeat(executeOf(fmt.Sprintf("select pg_sleep(%v)", sleep))+message('S', ""), n)))
		w.ready(n)
	})
	querytest.WantCounts(t, got, map[string]uint64{"select": n})
	querytest.WantSum(t, got)
	if got.Pipelined != n-1 {
		t.Errorf("%v statements arrived behind others, want %d", got.Pipelined, n-1)
	}
	// The second waits for one, the third for two ...; all of it is time of statements that were under way.
	if least := sleep * n * (n - 1) / 2; got.Behind < least || got.Behind > float64(n-1)*got.Sums["select"] {
		t.Errorf("they waited for %v s behind others, want at least %v s; all took %v s", got.Behind, least, got.Sums["select"])
	}
}

// What waits in the socket is not known to have come: only what the server read counts as pipelined.
func TestQueryPipelinedInSocket(t *testing.T) {
	q := startQuery(t)
	pg := servertest.StartPostgres(t, map[string]string{"cluster_name": "waiting", "autovacuum": "off"}, nil)
	querytest.WaitForServer(t, q, "waiting")
	w := dial(t, pg)
	got := querytest.During(t, q, "waiting", 2, func() {
		w.send([]byte(message('Q', "select pg_sleep(0.5)\x00")))
		wantGauge(t, q, "waiting", "plumbline_query_in_flight wait", func(n float64) bool { return n == 1 })
		w.send([]byte(message('Q', "update pg_class set relname = relname where false\x00")))
		w.ready(2)
	})
	querytest.WantCounts(t, got, map[string]uint64{"select": 1, "update": 1})
	if got.Pipelined != 0 || got.Behind != 0 {
		t.Errorf("%v statements behind others for %v s", got.Pipelined, got.Behind)
	}
}

// A peer that sends garbage harms no other connection.
func TestQueryGarbage(t *testing.T) {
	q := startQuery(t)
	pg := servertest.StartPostgres(t, map[string]string{"cluster_name": "abused", "autovacuum": "off"}, nil)
	my := servertest.StartMariaDB(t)
	querytest.WaitForServer(t, q, "abused")
	mysqlName := defaultName(t, q, my.PID)
	garbage := []byte(strings.Repeat("\xff\x00GET / HTTP/1.1\r\n\x17\x03\x03Q", 1000))
	for _, port := range []int{pg.Port, my.Port} {
		for range 20 {
			c, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
			if err != nil {
				t.Fatal(err)
			}
			c.Write(garbage) // the server may have hung up
			c.Close()
		}
	}
	// Garbage after a good start.
	w := dial(t, pg)
	w.send(garbage)
	io.Copy(io.Discard, w.in)
	got := querytest.During(t, q, "abused", 1000, func() { pg.Bench(t, "select 1;\n", "-t", "1000", "-M", "extended") })
	querytest.WantCounts(t, got, map[string]uint64{"select": 1000})
	db := my.Open(t, nil)
	got = querytest.During(t, q, mysqlName, 100, func() {
		for range 100 {
			if err := db.QueryRow("select 1").Scan(new(int)); err != nil {
				t.Fatal(err)
			}
		}
	})
	querytest.WantCounts(t, got, map[string]uint64{"select": 100})
}

// wire is a connection that sends and reads PostgreSQL's protocol byte by byte.
type wire struct {
	t    testing.TB
	conn net.Conn
	in   *bufio.Reader
}

// dial connects over TCP and logs in.
func dial(t testing.TB, pg *servertest.Postgres) *wire {
	t.Helper()
	conn, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", pg.Port))
	if err != nil {
		t.Fatal(err)
	}
	return login(t, conn)
}

// login starts a session on a new connection, and closes it with the test.
func login(t testing.TB, conn net.Conn) *wire {
	t.Helper()
	t.Cleanup(func() { conn.Close() })
	w := &wire{t, conn, bufio.NewReader(conn)}
	startup := "\x00\x03\x00\x00user\x00postgres\x00database\x00postgres\x00\x00"
	w.send(append(binary.BigEndian.AppendUint32(nil, uint32(4+len(startup))), startup...))
	w.ready(1)
	return w
}

func (w *wire) send(b []byte) {
	if _, err := w.conn.Write(b); err != nil {
		w.t.Error(err)
	}
}

// query runs a statement in the simple protocol.
func (w *wire) query(statement string) {
	w.t.Helper()
	w.send([]byte(message('Q', statement+"\x00")))
	w.ready(1)
}

// wait reads messages up to one of the given type.
func (w *wire) wait(want byte) {
	w.t.Helper()
	for {
		var header [5]byte
		if _, err := io.ReadFull(w.in, header[:]); err != nil {
			w.t.Fatalf("waiting for %q: %v", want, err)
		}
		if _, err := w.in.Discard(int(binary.BigEndian.Uint32(header[1:])) - 4); err != nil {
			w.t.Fatal(err)
		}
		if header[0] == want {
			return
		}
	}
}

// ready reads up to the n-th ReadyForQuery.
func (w *wire) ready(n int) {
	w.t.Helper()
	for range n {
		w.wait('Z')
	}
}

func message(kind byte, body string) string {
	return string(kind) + string(binary.BigEndian.AppendUint32(nil, uint32(4+len(body)))) + body
}

// executeOf is a statement in the extended protocol, without its Sync.
func executeOf(statement string) string {
	return message('P', "\x00"+statement+"\x00\x00\x00") + message('B', "\x00\x00\x00\x00\x00\x00\x00\x00") + message('E', "\x00\x00\x00\x00\x00")
}
