package nvmetcp

import (
	"bytes"
	"errors"
	"net"
	"sync/atomic"
	"testing"
)

// damage changes the last byte of one write to a connection: the one that the count comes to 0 with.
type damage struct {
	net.Conn
	in *atomic.Int64
}

func (d *damage) Write(b []byte) (int, error) {
	if d.in.Add(-1) == 0 {
		b = bytes.Clone(b)
		b[len(b)-1] ^= 1
	}
	return d.Conn.Write(b)
}

// damaging has all connections that come to it damaged.
type damaging struct {
	net.Listener
	in *atomic.Int64
}

func (d *damaging) Accept() (net.Conn, error) {
	c, err := d.Listener.Accept()
	return &damage{c, d.in}, err
}

// With both digests the header, the data and the data's digest are a write each.
var both = HostOptions{HeaderDigest: true, DataDigest: true}

func TestDamageOnTheWayThere(t *testing.T) {
	for _, c := range []struct {
		what   string
		in     int64
		blocks int
		fatal  bool
	}{
		{"the command's header", 1, 1, true},
		{"the command's data", 2, 1, false},
		{"their digest", 3, 1, false},
		{"the header of data that the target requested", 2, 300, true},
		{"that data", 3, 300, false},
		{"the last data", 15, 300, false},
	} {
		t.Run(c.what, func(t *testing.T) {
			f := newFile(t)
			h := connect(t, startTarget(t, Options{Disk: f}), 1, both)
			q, in := h.queues[0], new(atomic.Int64)
			q.Conn = &damage{q.Conn, in}
			in.Store(c.in)
			_, err := q.do(WriteBlocks(0, random(c.blocks*BlockSize)))
			if c.fatal {
				wantEnd(t, err, endHeaderDigest)
				return
			}
			if err != TransportError {
				t.Errorf("it ends with %v", err)
			}
			if got, err := h.Read(0, 0, c.blocks); err != nil || !bytes.Equal(got, make([]byte, c.blocks*BlockSize)) {
				t.Errorf("it was written, or the connection is lost: %v", err)
			}
		})
	}
}

func TestDamageOnTheWayBack(t *testing.T) {
	for _, c := range []struct {
		what   string
		in     int64
		status uint16 // of the connection's end
	}{
		{"the header of data", 1, endHeaderDigest},
		{"data", 2, 0},
		{"the response's header", 7, endHeaderDigest},
	} {
		t.Run(c.what, func(t *testing.T) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			in := new(atomic.Int64)
			target, err := Start(&damaging{l, in}, Options{NQN: testNQN, Disk: newFile(t), Size: diskBlocks * BlockSize})
			if err != nil {
				t.Fatal(err)
			}
			defer target.Close()
			h := connect(t, target, 1, both)
			in.Store(c.in)
			_, err = h.Read(0, 0, 2*maxTargetData/BlockSize)
			if c.status > 0 {
				wantEnd(t, err, c.status)
				return
			}
			if err != ErrDamaged {
				t.Errorf("it ends with %v", err)
			}
			if _, err := h.Read(0, 0, 1); err != nil {
				t.Errorf("and the next one: %v", err)
			}
		})
	}
}

func wantEnd(t *testing.T, err error, status uint16) {
	t.Helper()
	var end *endError
	if !errors.As(err, &end) || end.status != status {
		t.Errorf("the connection ends with %v, not %d", err, status)
	}
}

// Data beyond what the target requested, although the command has more.
func TestDataBeyondR2T(t *testing.T) {
	q := connect(t, startTarget(t, Options{Disk: newFile(t)}), 1, HostOptions{}).queues[0]
	q.silent.Store(true)
	w, err := q.submit(WriteBlocks(0, random(2*maxR2T)))
	if err != nil {
		t.Fatal(err)
	}
	const parts = 3
	for i := range parts { // the last one ends after it
		p := newPDU(kindHostData)
		p.setWord(8, 2)
		p.setWord(10, 1)
		p.data = make([]byte, maxR2T/parts/4*4+4)
		p.setLong(12, uint32(i*len(p.data)))
		p.setLong(16, uint32(len(p.data)))
		if err := q.send(p); err != nil {
			t.Fatal(err)
		}
	}
	_, err = w.Wait()
	wantEnd(t, err, endDataOutOfRange)
}

// What a host must not send ends the connection, with the target's reason.
func TestViolations(t *testing.T) {
	data := func(command, tag uint16, at, length, sent int, flags byte) *pdu {
		p := newPDU(kindHostData)
		p.header[1] = flags
		p.setWord(8, command)
		p.setWord(10, tag)
		p.setLong(12, uint32(at))
		p.setLong(16, uint32(length))
		p.data = make([]byte, sent)
		return p
	}
	changed := func(kind byte, change func(*pdu)) *pdu {
		p := newPDU(kind)
		change(p)
		return p
	}
	// The write below is command 2 of its queue, after Connect, and its tag the first.
	const id, tag = 2, 1
	for _, c := range []struct {
		what string
		*pdu
		status uint16
	}{
		{"a kind that there is not", changed(kindHostData, func(p *pdu) { p.header[0] = 0x55 }), endInvalidHeader},
		{"a header that is too long", changed(kindHostData, func(p *pdu) { p.header[2]++ }), endInvalidHeader},
		{"a digest that was not agreed on", changed(kindCommand, func(p *pdu) { p.header[1] = flagHeaderDigest }), endInvalidHeader},
		{"what only a target sends", newPDU(kindR2T), endSequence},
		{"the beginning once more", newPDU(kindICReq), endSequence},
		{"data for another command", data(id+1, tag, 0, 512, 512, 0), endInvalidHeader},
		{"data with another tag", data(id, tag+1, 0, 512, 512, 0), endInvalidHeader},
		{"data from elsewhere", data(id, tag, 512, 512, 512, 0), endDataOutOfRange},
		{"another length than announced", data(id, tag, 0, 1024, 512, 0), endDataOutOfRange},
		{"too much at once", data(id, tag, 0, 2*maxHostData, 2*maxHostData, flagLast), endDataOutOfRange},
		{"an end too early", data(id, tag, 0, 512, 512, flagLast), endSequence},
		{"no data", data(id, tag, 0, 0, 0, 0), endInvalidHeader},
	} {
		t.Run(c.what, func(t *testing.T) {
			q := connect(t, startTarget(t, Options{Disk: newFile(t)}), 1, HostOptions{}).queues[0]
			q.silent.Store(true)
			w, err := q.submit(WriteBlocks(0, random(300*BlockSize)))
			if err != nil {
				t.Fatal(err)
			}
			if c.has(flagHeaderDigest) { // send would add one
				c.setLong(4, uint32(len(c.header)))
				_, err = q.Conn.Write(c.header)
			} else {
				err = q.send(c.pdu)
			}
			if err != nil {
				t.Fatal(err)
			}
			_, err = w.Wait()
			wantEnd(t, err, c.status)
		})
	}
}
