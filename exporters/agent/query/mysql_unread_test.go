package query

import (
	"crypto/sha512"
	"crypto/tls"
	"database/sql"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"io"
	"maps"
	"net"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/plumbline/plumbline/exporters/agent/query/querytest"
	"github.com/plumbline/plumbline/exporters/agent/server/servertest"
)

func withCompression(c *mysql.Config) { _ = c.Apply(mysql.EnableCompression(true)) }

// status is one of the server's own counts.
func status(t *testing.T, db *sql.DB, variable string) (n float64) {
	t.Helper()
	if err := db.QueryRow("show global status like '"+variable+"'").Scan(new(string), &n); err != nil {
		t.Fatal(err)
	}
	return n
}

// wantUnread fails unless what do has the server do is in no count of statements, and all of it is lost by this reason, as the
// server counts it, less what it counts besides. db is a connection that is read.
func wantUnread(t *testing.T, my *servertest.MariaDB, db *sql.DB, q *query, name, reason string, count func(*testing.T, *sql.DB) float64, less float64, do func(t *testing.T)) {
	t.Helper()
	first := count(t, db)
	before := querytest.AtRest(t, q, name)
	do(t)
	lost := count(t, db) - first - less
	dialMySQL(t, my, 0).ok("\x03rollback")
	want := map[string]uint64{"rollback": 1, "other": 1}
	got := querytest.Since(t, q, name, before, querytest.SumOf(want))
	if !maps.Equal(got.Counts, want) || lost == 0 || !maps.Equal(got.Lost, map[string]float64{reason: lost}) || got.Unknown != 0 {
		t.Errorf("statements %v, lost %v; want %v, and %v lost by reason %q", got.Counts, got.Lost, want, lost, reason)
	}
	querytest.WantSum(t, got)
}

// commandsOf is the server's own count of statements, the read of it included.
func commandsOf(t *testing.T, db *sql.DB) float64 {
	t.Helper()
	return float64(querytest.SumOf(ownCounts(t, db)))
}

// What is wrong in that count: the last read of it, and that MySQL's client tries out a text that is not parsed.
const (
	itself   = 1
	unparsed = -1
)

// compressedLoad has a client with compression make statements, short and long, prepared and not, and load a file of more frames
// than their numbers distinguish, the last of which has the last number.
func compressedLoad(t *testing.T, db *sql.DB) {
	db.SetMaxOpenConns(1)
	for i := range 20 {
		for _, text := range []string{"begin", "delete from d.t where i = " + strings.Repeat("1+", 200) + "1", "insert into d.t values (" + incompressible(i) + ")", "commit"} {
			execMySQL(t, db, text)
		}
		if err := db.QueryRow("select ?", i).Scan(new(int)); err != nil {
			t.Fatal(err)
		}
	}
	// Each line begins with COM_QUERY's byte, and so does each packet.
	mysql.RegisterReaderHandler("compressed", func() io.Reader {
		return &packetReader{packet: []byte(strings.Repeat("\x03delete from d.f\n", 60)), left: 2*256 - 3}
	})
	defer mysql.DeregisterReaderHandler("compressed")
	execMySQL(t, db, "load data local infile 'Reader::compressed' into table d.f")
	execMySQL(t, db, "delete from d.f")
}

// incompressible is a number that is written in many digits, and like no other.
func incompressible(i int) string {
	sum := sha512.Sum512([]byte{byte(i)})
	return "length(/*" + base64.StdEncoding.EncodeToString(sum[:]) + base64.StdEncoding.EncodeToString(sum[:]) + "*/'')"
}

// Statements on compressed connections are lost as such, one by one as the server counts them, and are never taken for others.
// old is such a connection that was there before the agent.
func testMySQLCompressed(t *testing.T, my *servertest.MySQL, old, db *sql.DB, q *query, name string) {
	var script strings.Builder
	for i := range 20 {
		fmt.Fprintf(&script, "begin; insert into d.t values (%s); delete from d.t where i = %s1;\ncommit; select '%s';\n", incompressible(i), strings.Repeat("1+", 200), strings.Repeat("x", 20000))
	}
	client := func(local bool, args ...string) func(*testing.T) {
		return func(t *testing.T) { my.Client(t, local, script.String(), args...) }
	}
	for _, c := range []struct {
		name string
		less float64
		do   func(t *testing.T)
	}{
		{"zlib", itself + unparsed, client(false, "--compression-algorithms=zlib", "--ssl-mode=DISABLED")},
		{"zlib, encrypted", itself + unparsed, client(false, "--compression-algorithms=zlib")},
		{"zlib, local socket", itself + unparsed, client(true, "--compression-algorithms=zlib")},
		{"zstd", itself + unparsed, client(false, "--compression-algorithms=zstd", "--ssl-mode=DISABLED")},
		{"zstd, encrypted", itself + unparsed, client(false, "--compression-algorithms=zstd")},
		{"older than the agent", itself, func(t *testing.T) { compressedLoad(t, old) }},
		{"go-sql-driver", itself, func(t *testing.T) { compressedLoad(t, my.Open(t, withCompression)) }},
	} {
		t.Run(c.name, func(t *testing.T) { wantUnread(t, &my.MariaDB, db, q, name, "compressed", commandsOf, c.less, c.do) })
	}
}

// mysqlX is a connection by the X protocol.
type mysqlX struct {
	t    *testing.T
	conn net.Conn
}

// do sends a message and awaits one of a kind.
func (x *mysqlX) do(kind byte, fields string, want byte) {
	x.t.Helper()
	message := append(binary.LittleEndian.AppendUint32(nil, uint32(len(fields)+1)), kind)
	if _, err := x.conn.Write(append(message, fields...)); err != nil {
		x.t.Fatal(err)
	}
	for {
		var header [5]byte
		if _, err := io.ReadFull(x.conn, header[:]); err != nil {
			x.t.Fatal(err)
		}
		body := make([]byte, binary.LittleEndian.Uint32(header[:])-1)
		if _, err := io.ReadFull(x.conn, body); err != nil {
			x.t.Fatal(err)
		}
		const failed = 1
		if header[4] == want {
			return
		} else if header[4] == failed {
			x.t.Fatalf("the server answers %q", body)
		}
	}
}

// What goes over the X protocol, which is not read, is in no count of statements, and is lost as such.
func testMySQLX(t *testing.T, my *servertest.MySQL, db *sql.DB, q *query, name string) {
	executed := func(t *testing.T, db *sql.DB) float64 { return status(t, db, "Mysqlx_stmt_execute_sql") }
	for _, c := range []struct {
		name, network, address string
		encrypted              bool
	}{
		{"local socket", "unix", my.XSocket(), false},
		{"TCP, encrypted", "tcp", fmt.Sprintf("127.0.0.1:%d", my.XPort), true},
	} {
		t.Run(c.name, func(t *testing.T) {
			wantUnread(t, &my.MariaDB, db, q, name, "x_protocol", executed, 0, func(t *testing.T) {
				conn, err := net.Dial(c.network, c.address)
				if err != nil {
					t.Fatal(err)
				}
				defer conn.Close()
				x := &mysqlX{t, conn}
				const setCapabilities, authenticate, statement, closing, ok, authenticated, done = 2, 4, 12, 3, 0, 4, 17
				if c.encrypted {
					x.do(setCapabilities, "\x0a\x11\x0a\x0f\x0a\x03tls\x12\x08\x08\x01\x12\x04\x08\x07\x40\x01", ok)
					x.conn = tls.Client(conn, &tls.Config{InsecureSkipVerify: true})
				}
				x.do(authenticate, "\x0a\x05PLAIN\x12\x06\x00root\x00", authenticated)
				for range 10 {
					x.do(statement, "\x0a\x0fdelete from d.t", done)
				}
				x.do(closing, "", ok)
			})
		})
	}
}
