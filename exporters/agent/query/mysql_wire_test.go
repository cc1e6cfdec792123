package query

import (
	"bufio"
	"encoding/binary"
	"io"
	"maps"
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/plumbline/plumbline/exporters/agent/query/querytest"
	"github.com/plumbline/plumbline/exporters/agent/server/servertest"
)

// testMySQLWire: what clients of a real MySQL may put before a text, and what they should not, leaves the counts exact.
// old is a connection that was there before the agent.
func testMySQLWire(t *testing.T, my *servertest.MySQL, old *mysqlWire, q *query, name string) {
	const text, reset, changeUser, prepare, execute = "\x03", "\x1f", "\x11", "\x16", "\x17"
	kinds := []attribute{{kind: 1, value: "\x01"}, {kind: 2, value: "\x00\x01"}, {kind: 0x8003, value: "\x01\x00\x00\x00"}, {kind: 4, value: "\x00\x00\x80\x3f"},
		{kind: 5, value: strings.Repeat("\x00", 8)}, {kind: 6, null: true}, {kind: 8, value: strings.Repeat("\x01", 8)}, {kind: 12, value: "\x07\xea\x07\x0b\x1c\x01\x01\x01"},
		{kind: 11, value: "\x00"}, {kind: 0xfe, null: true}, {kind: 0xfd, value: "\x04text"}}
	for _, c := range []struct {
		name    string
		f       func(w *mysqlWire)
		want    map[string]uint64
		unknown float64
	}{
		{"older than the agent", func(*mysqlWire) {
			old.ok(text + attributes() + "select 1")
			old.ok(text + attributes(kinds...) + "delete from d.t")
		}, map[string]uint64{"select": 1, "delete": 1}, 0},
		{"no attributes", func(w *mysqlWire) { w.ok(text + attributes() + "select 1") }, map[string]uint64{"select": 1}, 0},
		{"of every type, with nulls", func(w *mysqlWire) { w.ok(text + attributes(kinds...) + "delete from d.t") }, map[string]uint64{"delete": 1}, 0},
		{"each type alone", func(w *mysqlWire) {
			for _, k := range kinds {
				w.ok(text + attributes(k) + "/* a */ insert into d.t values (1)")
			}
		}, map[string]uint64{"insert": uint64(len(kinds))}, 0},
		{"without names", func(w *mysqlWire) {
			w.ok(text + attributes(attribute{kind: 0xfe, noName: true, value: "\x06select"}) + "update d.t set i = 1")
		}, map[string]uint64{"update": 1}, 0},
		{"300 of them", func(w *mysqlWire) {
			w.ok(text + attributes(slices.Repeat([]attribute{{kind: 0xfe, value: "\x01a"}}, 300)...) + "select 1")
		}, map[string]uint64{"other": 1}, 1},
		{"one of 1000 bytes", func(w *mysqlWire) {
			w.ok(text + attributes(attribute{kind: 0xfe, value: "\xfc\xe8\x03" + strings.Repeat("select 1", 125)}) + "select 1")
		}, map[string]uint64{"other": 1}, 1},
		{"lengths that lead nowhere", func(w *mysqlWire) {
			for _, length := range []string{"\xfb", "\xfc\xff\xff", "\xfd\xff\xff\xff", "\xfe\xff\xff\xff\xff\xff\xff\xff\xff", "\xfa"} {
				w.refused(text + attributes(attribute{kind: 0xfe, value: length}) + "select 1")
				w.refused(text + "\x01\x01\x00\x01\xfe\x00" + length)
			}
		}, map[string]uint64{"other": 10}, 0},
		{"commands of another protocol", func(w *mysqlWire) {
			w.refused(text + attributes() + "base_backup")
			w.refused(text + attributes() + "start_replication slot a physical 0/0")
			w.refused(prepare + "base_backup")
		}, map[string]uint64{"other": 2}, 0},
		{"several texts", func(w *mysqlWire) { w.ok(text + attributes(kinds[0]) + "set @a = 1; set @b = 2") }, map[string]uint64{"other": 1}, 0},
		{"after a reset", func(w *mysqlWire) {
			w.ok(prepare + "delete from d.t")
			w.ok(reset)
			w.refused(execute + "\x01\x00\x00\x00\x00\x01\x00\x00\x00") // it is gone, and fails as what it was
			w.ok(text + attributes(kinds[10]) + "select 1")
		}, map[string]uint64{"select": 1, "delete": 1}, 0},
		{"after another login", func(w *mysqlWire) {
			w.ok(changeUser + "root\x00\x00d\x00\x2d\x00caching_sha2_password\x00")
			w.ok(text + attributes(kinds[10]) + "select 1")
		}, map[string]uint64{"select": 1}, 0},
		{"a comment that looks like them", func(w *mysqlWire) {
			dialMySQL(w.t, &my.MariaDB, 0).ok(text + "#\x01\nselect 1")
		}, map[string]uint64{"select": 1}, 0},
		{"a prepared statement's", func(w *mysqlWire) {
			w.ok(prepare + "delete from d.t")
			const counted = "\x08"
			all := attributes(kinds...)
			w.ok(execute + "\x01\x00\x00\x00" + counted + "\x01\x00\x00\x00" + all[:1] + all[2:])
		}, map[string]uint64{"delete": 1}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := querytest.During(t, q, name, querytest.SumOf(c.want)+1, func() {
				w := dialMySQL(t, &my.MariaDB, withAttributes)
				c.f(w)
				// One more on the same connection: the boundaries are still known.
				w.ok(text + attributes() + "rollback")
			})
			want := map[string]uint64{"rollback": 1}
			maps.Copy(want, c.want)
			if !maps.Equal(got.Counts, want) || len(got.Lost) != 0 || got.Unknown != c.unknown {
				t.Errorf("statements %v, %v of unknown command, lost %v; want %v, %v", got.Counts, got.Unknown, got.Lost, want, c.unknown)
			}
			querytest.WantSum(t, got)
		})
	}
}

// attribute is one of a query's: a type, and the value as it is sent.
type attribute struct {
	kind   uint16
	noName bool
	null   bool
	value  string
}

// attributes are those before a text: see page_protocol_com_query.html of MySQL's source documentation.
func attributes(all ...attribute) string {
	n := []byte{byte(len(all))}
	if len(all) > 250 {
		n = binary.LittleEndian.AppendUint16([]byte{0xfc}, uint16(len(all)))
	}
	text := append(n, 1)
	if len(all) == 0 {
		return string(text)
	}
	nulls := make([]byte, (len(all)+7)/8)
	var types, values []byte
	for i, a := range all {
		types = binary.LittleEndian.AppendUint16(types, a.kind)
		if a.noName {
			types = append(types, 0)
		} else {
			types = append(types, 1, 'n')
		}
		if a.null {
			nulls[i/8] |= 1 << (i % 8)
		} else {
			values = append(values, a.value...)
		}
	}
	text = append(append(text, nulls...), 1)
	return string(append(append(text, types...), values...))
}

// mysqlWire is a connection to MySQL on which a test writes packets.
type mysqlWire struct {
	t    *testing.T
	conn net.Conn
	r    *bufio.Reader
}

// Capabilities of a client: it has attributes for queries, and takes MariaDB's reports of progress.
const (
	withAttributes = 1 << 27
	withProgress   = 1 << 32
)

func dialMySQL(t *testing.T, my *servertest.MariaDB, capabilities uint64) *mysqlWire {
	t.Helper()
	conn, err := net.Dial("unix", my.Socket())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	w := &mysqlWire{t: t, conn: conn, r: bufio.NewReader(conn)}
	w.packet() // the greeting
	const protocol41, secure, plugins, multiStatements, multiResults = 1 << 9, 1 << 15, 1 << 19, 1 << 16, 1 << 17
	login := binary.LittleEndian.AppendUint32(nil, protocol41|secure|plugins|multiStatements|multiResults|uint32(capabilities))
	login = append(binary.LittleEndian.AppendUint32(login, 1<<24), 45)
	login = binary.LittleEndian.AppendUint32(append(login, make([]byte, 19)...), uint32(capabilities>>32))
	w.send(1, string(login)+"root\x00\x00caching_sha2_password\x00")
	answer := w.packet()
	if answer[0] == mysqlEnd { // MariaDB wants another plugin's answer, which is as empty
		w.send(3, "")
		answer = w.packet()
	}
	if answer[0] != 0 {
		t.Fatalf("login: %q", answer)
	}
	return w
}

func (w *mysqlWire) send(number byte, body string) {
	w.t.Helper()
	header := []byte{byte(len(body)), byte(len(body) >> 8), byte(len(body) >> 16), number}
	if _, err := w.conn.Write(append(header, body...)); err != nil {
		w.t.Fatal(err)
	}
}

func (w *mysqlWire) packet() []byte {
	w.t.Helper()
	var header [4]byte
	if _, err := io.ReadFull(w.r, header[:]); err != nil {
		w.t.Fatal(err)
	}
	body := make([]byte, int(header[0])|int(header[1])<<8|int(header[2])<<16)
	if _, err := io.ReadFull(w.r, body); err != nil {
		w.t.Fatal(err)
	}
	return body
}

const mysqlFailed, mysqlEnd = 0xff, 0xfe

// do sends a command and returns the first packet of the answer, once all of it is there.
func (w *mysqlWire) do(command string) []byte {
	w.t.Helper()
	w.send(0, command)
	first := w.packet()
	switch {
	case first[0] == mysqlEnd: // another login: the server requests another answer, which is empty, too
		w.send(2, "")
		return w.packet()
	case first[0] == mysqlFailed || first[0] == 0 && command[0] != '\x03':
		return first
	case first[0] == 0:
		const moreResults = 8
		for p := first; p[0] == 0 && p[3]&moreResults != 0; {
			p = w.packet()
		}
		return first
	}
	for ends := 0; ends < 2; { // of columns, and of rows
		if p := w.packet(); p[0] == mysqlEnd && len(p) < 9 {
			ends++
		}
	}
	return first
}

// rows sends a command whose answer ends with the first packet that ends rows, or columns before a cursor.
func (w *mysqlWire) rows(command string) {
	w.t.Helper()
	w.send(0, command)
	for {
		switch p := w.packet(); {
		case p[0] == mysqlFailed:
			w.t.Fatalf("%q: %q", command, p)
		case p[0] == mysqlEnd && len(p) < 9:
			return
		}
	}
}

func (w *mysqlWire) ok(command string) {
	w.t.Helper()
	if answer := w.do(command); answer[0] == mysqlFailed {
		w.t.Fatalf("%q: %q", command, answer)
	}
}

func (w *mysqlWire) refused(command string) {
	w.t.Helper()
	if answer := w.do(command); answer[0] != mysqlFailed {
		w.t.Fatalf("%q: %q, want an error", command, answer)
	}
}
