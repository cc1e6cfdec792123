package query

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/plumbline/plumbline/exporters/agent/query/querytest"
	"github.com/plumbline/plumbline/exporters/agent/server/servertest"
)

// A file that a client loads is one statement, however many packets it takes and whatever is in it: the packets' numbers
// begin anew after 256, and its text looks like commands. So it is if another statement comes before it in one command. The
// number of the server's answer is 0, as that of an X message looks.
func TestQueryLoadData(t *testing.T) {
	my := servertest.StartMariaDB(t, "--local-infile=1")
	q := startQuery(t)
	name := defaultName(t, q, my.PID)
	// Each line begins with COM_QUERY's byte and a statement, and so does each packet, of whole lines.
	const line, perPacket = "\x03delete from d.t where false\n", 500
	packets := 0
	mysql.RegisterReaderHandler("lines", func() io.Reader {
		return &packetReader{packet: []byte(strings.Repeat(line, perPacket)), left: packets}
	})
	defer mysql.DeregisterReaderHandler("lines")
	db := my.Open(t, func(c *mysql.Config) { c.MultiStatements = true })
	db.SetMaxOpenConns(1)
	const load = "load data local infile 'Reader::lines' into table d.t"
	for _, c := range []struct {
		statement, command string
		packets            int
	}{{load, "copy", 4*256 - 3}, {"set @a = 1; " + load, "other", 4*256 - 4}} {
		t.Run(c.command, func(t *testing.T) {
			packets = c.packets
			querytest.During(t, q, name, 2, func() {
				execMySQL(t, db, "create or replace database d")
				execMySQL(t, db, "create table d.t (line text)")
			})
			got := querytest.During(t, q, name, 2, func() {
				execMySQL(t, db, c.statement)
				var n int
				if err := db.QueryRow("select count(*) from d.t").Scan(&n); err != nil {
					t.Fatal(err)
				}
				if n != packets*perPacket {
					t.Errorf("%d lines loaded of %d", n, packets*perPacket)
				}
			})
			querytest.WantCounts(t, got, map[string]uint64{c.command: 1, "select": 1})
			querytest.WantSum(t, got)
		})
	}
}

// What MariaDB reports of a statement's progress is no answer: the statement is under way until it has one.
func TestQueryProgressReport(t *testing.T) {
	my := servertest.StartMariaDB(t)
	q := startQuery(t)
	name := defaultName(t, q, my.PID)
	db := my.Open(t, nil)
	const rows = 400
	querytest.During(t, q, name, 3, func() {
		execMySQL(t, db, "create database d")
		execMySQL(t, db, "create table d.t (i int)")
		execMySQL(t, db, fmt.Sprintf("insert into d.t select seq from seq_1_to_%d", rows))
	})
	reader, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Rollback()
	w := dialMySQL(t, my, withProgress)
	got := querytest.During(t, q, name, 4, func() {
		if err := reader.QueryRow("select count(*) from d.t").Scan(new(int)); err != nil {
			t.Fatal(err)
		}
		w.ok("\x03set progress_report_time = 1")
		// It copies each row slowly, and then waits for the reader.
		w.send(0, "\x03alter table d.t add h char(64) as (sha2(repeat(i, 4000000), 256)) persistent, algorithm=copy")
		if p := w.packet(); len(p) < 9 || p[0] != mysqlFailed || p[1] != 0xff || p[2] != 0xff {
			t.Fatalf("%q, want a report", p)
		}
		wantGauge(t, q, name, "plumbline_query_in_flight wait", func(n float64) bool { return n == 1 })
		if err := reader.Commit(); err != nil {
			t.Fatal(err)
		}
		for {
			if p := w.packet(); p[0] == 0 {
				return
			} else if p[0] == mysqlFailed && p[1] != 0xff {
				t.Fatalf("%q", p)
			}
		}
	})
	delete(got.Counts, "begin") // of the reader
	querytest.WantCounts(t, got, map[string]uint64{"select": 1, "commit": 1, "other": 2})
	if got.Sums["other"] < 1 {
		t.Errorf("the statement took %v s", got.Sums["other"])
	}
	querytest.WantSum(t, got)
}

// A session that is killed is over: its statement is in no count, and no time is added to it any more.
func TestQueryKilledSession(t *testing.T) {
	my := servertest.StartMariaDB(t, "--thread-cache-size=4")
	q := startQuery(t)
	name := defaultName(t, q, my.PID)
	db, killer := my.Open(t, nil), my.Open(t, nil)
	c, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var id int
	got := querytest.During(t, q, name, 1, func() {
		if err := c.QueryRowContext(t.Context(), "select connection_id()").Scan(&id); err != nil {
			t.Fatal(err)
		}
	})
	querytest.WantCounts(t, got, map[string]uint64{"select": 1})
	done := make(chan error, 1)
	go func() {
		_, err := c.ExecContext(t.Context(), "do sleep(1000)")
		done <- err
	}()
	wantGauge(t, q, name, "plumbline_query_in_flight wait", func(n float64) bool { return n == 1 })
	execMySQL(t, killer, fmt.Sprintf("kill connection %d", id))
	if <-done == nil {
		t.Error("the statement was not killed")
	}
	// Its thread is woken, waits for a CPU, and may wait for others on its way out.
	before := querytest.AtRest(t, q, name)
	for range 3 {
		if err := killer.Ping(); err != nil {
			t.Fatal(err)
		}
		after := querytest.Collect(t, q, name)
		if before.Phases["other"]["wait"] != after.Phases["other"]["wait"] {
			t.Fatalf("time of a killed session goes on: %v s, then %v s", before.Phases["other"]["wait"], after.Phases["other"]["wait"])
		}
	}
}

// packetReader hands out the same bytes, as one packet each.
type packetReader struct {
	packet []byte
	left   int
	rest   bytes.Reader
}

func (r *packetReader) Read(p []byte) (int, error) {
	if r.rest.Len() == 0 {
		if r.left == 0 {
			return 0, io.EOF
		}
		r.left--
		r.rest.Reset(r.packet)
	}
	return r.rest.Read(p)
}

// Connections with and without encryption, one after the other, are served by the same threads, and their
// sockets may be at the same address in the kernel.
func TestQueryMixedConnections(t *testing.T) {
	my := servertest.StartMariaDB(t, append(encryptedMariaDB(t), "--thread-cache-size=4")...)
	q := startQuery(t)
	name := defaultName(t, q, my.PID)
	for _, c := range []struct {
		name string
		kind func(i int) string
	}{
		{"encrypted ones that come and go", func(int) string { return "tls" }},
		{"by turns", func(i int) string { return []string{"tls", "tcp"}[i%2] }},
		{"at random", func(i int) string { return []string{"tls", "tcp", "unix", "tls", "unix", "tcp", "tcp"}[i*i%7] }},
	} {
		t.Run(c.name, func(t *testing.T) {
			const clients, connections = 8, 1600
			got := querytest.During(t, q, name, 2*connections, func() {
				var wg sync.WaitGroup
				for k := range clients {
					wg.Go(func() {
						for i := range connections / clients {
							once(t, my, c.kind(i*7+k))
						}
					})
				}
				wg.Wait()
			})
			querytest.WantCounts(t, got, map[string]uint64{"select": connections, "delete": connections})
			querytest.WantSum(t, got)
		})
	}
}

// once makes one connection and two statements, one of them prepared.
func once(t *testing.T, my *servertest.MariaDB, kind string) {
	t.Helper()
	db := my.Open(t, func(c *mysql.Config) {
		switch kind {
		case "tls":
			c.TLS = &tls.Config{InsecureSkipVerify: true}
		case "unix":
			c.Net, c.Addr = "unix", my.Socket()
		}
	})
	defer db.Close()
	conn, err := db.Conn(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	var n int
	if err := conn.QueryRowContext(context.Background(), "select 1").Scan(&n); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.ExecContext(context.Background(), "delete from mysql.db where host = ?", "nobody's"); err != nil {
		t.Fatal(err)
	}
}
