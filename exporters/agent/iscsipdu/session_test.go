package iscsipdu

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
)

const target = "iqn.2016-09.com.openebs.cstor:pvc-1"

// pdu is one message of a connection.
type pdu struct {
	toTarget bool
	header   string // hex
	attached int
	data     string
}

// wire writes messages, with the digests that the connection has then. A digest's bytes look like a header's.
type wire struct {
	headerDigest, dataDigest bool
}

func (w wire) bytes(t testing.TB, p pdu) []byte {
	t.Helper()
	b := unhex(t, p.header)
	b[4] = byte(p.attached / 4)
	binary.BigEndian.PutUint32(b[4:], uint32(b[4])<<24|uint32(len(p.data)))
	m, err := Parse(b, p.toTarget)
	if err != nil {
		t.Fatal(err)
	}
	digest := []byte{0x01, 0x80, 0, 0}
	b = append(b, make([]byte, p.attached)...)
	if w.headerDigest && !m.login() {
		b = append(b, digest...)
	}
	b = append(b, p.data...)
	b = append(b, make([]byte, -len(p.data)&3)...)
	if w.dataDigest && !m.login() && p.data != "" {
		b = append(b, digest...)
	}
	return b
}

const (
	loginOn    = "43440000 00000000 00023d0000010000 00000001 00000000"
	loginLast  = "43870000 00000000 00023d0000010000 00000001 00000000"
	answerOn   = "23440000 00000000 00023d0000010001 00000001"
	answerNo   = "23040000 00000000 00023d0000010001 00000001"
	answerLast = "23870000 00000000 00023d0000010001 00000001"
	refusal    = "23870000 00000000 00023d0000010001 00000001 00000000 0000000100000001 00000001 02030000"
	r2t        = "31800000 00000000 0001000000000000 00000022 00000001"
)

func read(tag uint32) pdu {
	return pdu{true, fmt.Sprintf("01c10000 00000000 0001000000000000 %08x 00000064 0000000100000001 28", tag), 0, ""}
}

func write(tag uint32, attached int, data string) pdu {
	return pdu{true, fmt.Sprintf("01a10000 00000000 0001000000000000 %08x 00000200 0000000100000001 2a", tag), attached, data}
}

func dataIn(tag uint32, data string) pdu {
	return pdu{false, fmt.Sprintf("25810000 00000000 0000000000000000 %08x ffffffff", tag), 0, data}
}

func good(tag uint32) pdu {
	return pdu{false, fmt.Sprintf("21800000 00000000 0000000000000000 %08x", tag), 0, ""}
}

func bad(tag uint32, sense string) pdu {
	return pdu{false, fmt.Sprintf("21800002 00000000 0000000000000000 %08x", tag), 0, sense}
}

// login has the target's name and the agreement on digests each cut by the end of a message.
func login(headerDigest, dataDigest bool) []pdu {
	value := map[bool]string{true: "CRC32C", false: "None"}
	request := "InitiatorName=iqn.2026-11.io.plumbline:test\x00TargetName=" + target + "\x00SessionType=Normal\x00HeaderDigest=CRC32C,None\x00"
	agreed := "HeaderDigest=" + value[headerDigest] + "\x00DataDigest=" + value[dataDigest] + "\x00TargetPortalGroupTag=1\x00"
	return []pdu{
		{true, loginOn, 0, request[:66]},
		{false, answerNo, 0, ""},
		{true, loginLast, 0, request[66:]},
		{false, answerOn, 0, agreed[:17]},
		{true, loginLast, 0, ""},
		{false, answerLast, 0, agreed[17:]},
	}
}

var op = map[uint32]Operation{
	0x11: {Tag: 0x11, LUN: 1, Bytes: 0x64, Op: Read},
	0x21: {Tag: 0x21, LUN: 1, Bytes: 0x64, Op: Read},
	0x22: {Tag: 0x22, LUN: 1, Bytes: 0x200, Op: Write},
	0x23: {Tag: 0x23, LUN: 1, Bytes: 0x200, Op: Write},
	0x24: {Tag: 0x24, LUN: 1, Bytes: 0x200, Op: Write},
}

// traffic is what follows a login, with what it means.
func traffic() ([]pdu, []Event) {
	return []pdu{
			read(0x21),
			write(0x22, 8, "immediate"),
			{false, r2t, 0, ""},
			dataIn(0x21, strings.Repeat("\x01\x81", 50)),
			{true, "05800000 00000000 0001000000000000 00000022 00000001", 0, strings.Repeat("\x21\x80\x00", 41)},
			{true, "40800000 00000000 0000000000000000 00000030 ffffffff", 0, "ping"},
			good(0x22),
			{false, "20800000 00000000 0000000000000000 00000030 ffffffff", 0, "ping"},
			write(0x23, 0, ""),
			write(0x24, 0, ""),
			bad(0x24, strings.Repeat("s", 20)),
			{true, "02810000 00000000 0001000000000000 00000031 00000023", 0, ""},
			{false, "22800000 00000000 0000000000000000 00000031", 0, ""},
		}, []Event{
			{Operation: op[0x21]},
			{Operation: op[0x22]},
			{Operation: op[0x21], Ends: true},
			{Operation: op[0x22], Ends: true},
			{Operation: op[0x23]},
			{Operation: op[0x24]},
			{Operation: op[0x24], Ends: true, Failed: true},
		}
}

// feed gives a session messages, each cut by pieces.
func feed(s *Session, toTarget bool, b []byte, pieces func([]byte) [][]byte) (got []Event) {
	for _, piece := range pieces(b) {
		if toTarget {
			s.Received(piece, func(e Event) { got = append(got, e) })
		} else {
			s.Sent(piece, func(e Event) { got = append(got, e) })
		}
	}
	return got
}

func whole(b []byte) [][]byte { return [][]byte{b} }

// everyDigest calls f with each combination of digests.
func everyDigest(t *testing.T, f func(t *testing.T, w wire)) {
	for i := range 4 {
		w := wire{i&1 != 0, i&2 != 0}
		t.Run(fmt.Sprintf("digests %v and %v", w.headerDigest, w.dataDigest), func(t *testing.T) { f(t, w) })
	}
}

// A session with a login, cut at every byte: in pieces of every length, and each message in two at each place.
func TestSessionSplitAnywhere(t *testing.T) {
	everyDigest(t, func(t *testing.T, w wire) {
		body, want := traffic()
		messages := append(login(w.headerDigest, w.dataDigest), body...)
		check := func(how string, at int, pieces func([]byte) [][]byte) {
			t.Helper()
			var s Session
			var got []Event
			for _, p := range messages {
				got = append(got, feed(&s, p.toTarget, w.bytes(t, p), pieces)...)
			}
			if !reflect.DeepEqual(got, want) {
				t.Fatalf("%s %d: %+v\nwant %+v", how, at, got, want)
			}
			if !s.Known || s.Target != target || s.HeaderDigest != w.headerDigest || s.DataDigest != w.dataDigest ||
				s.Resyncs != 0 || s.Missed || s.Unmatched != 0 || s.Aborted != 1 || s.UnderWay() != 0 {
				t.Fatalf("%s %d: %+v", how, at, s)
			}
		}
		check("whole", 0, whole)
		for n := 1; n < 64; n++ {
			check("pieces of", n, func(b []byte) (pieces [][]byte) {
				for len(b) > 0 {
					m := min(n, len(b))
					pieces, b = append(pieces, b[:m]), b[m:]
				}
				return pieces
			})
		}
		for at := 1; at < 200; at++ {
			check("cut at", at, func(b []byte) [][]byte { return [][]byte{b[:min(at, len(b))], b[min(at, len(b)):]} })
		}
		r := rand.New(rand.NewPCG(1, 2))
		for i := range 200 {
			check("random cut", i, func(b []byte) (pieces [][]byte) {
				for len(b) > 0 {
					m := min(1+r.IntN(70), len(b))
					pieces, b = append(pieces, b[:m]), b[m:]
				}
				return pieces
			})
		}
	})
}

// A direction may have many messages in one call.
func TestSessionInOneCall(t *testing.T) {
	var s Session
	var received, sent []byte
	for _, p := range login(true, true) {
		feed(&s, p.toTarget, wire{}.bytes(t, p), whole)
	}
	w := wire{true, true}
	messages, want := traffic()
	for _, p := range messages {
		if p.toTarget {
			received = append(received, w.bytes(t, p)...)
		} else {
			sent = append(sent, w.bytes(t, p)...)
		}
	}
	begun := feed(&s, true, received, whole)
	ended := feed(&s, false, sent, whole)
	for _, e := range want {
		list := &begun
		if e.Ends {
			list = &ended
		}
		if len(*list) == 0 || (*list)[0] != e {
			t.Fatalf("no %+v in its place", e)
		}
		*list = (*list)[1:]
	}
	if len(begun)+len(ended) > 0 || s.Resyncs != 0 {
		t.Errorf("too many events, or out of step: %v, %v, %d", begun, ended, s.Resyncs)
	}
}

// A login that fails leaves no name, and no agreement.
func TestLoginRefused(t *testing.T) {
	var s Session
	messages := login(true, true)
	messages[len(messages)-1].header = refusal
	for _, p := range messages {
		feed(&s, p.toTarget, wire{}.bytes(t, p), whole)
	}
	if s.Known || s.Target != "" || s.HeaderDigest || s.Resyncs != 0 || s.Missed {
		t.Errorf("%+v", s)
	}
}

// A text of any length is kept to what is parsed.
func TestLoginLong(t *testing.T) {
	var s Session
	long := strings.Repeat("k", 5000)
	for range 10 {
		feed(&s, true, wire{}.bytes(t, pdu{true, loginOn, 0, long}), whole)
		feed(&s, false, wire{}.bytes(t, pdu{false, answerOn, 0, long}), whole)
	}
	if len(s.received.text) != TextMax || len(s.sent.text) != TextMax || cap(s.sent.text) > 2*TextMax {
		t.Errorf("%d and %d bytes of text, not %d", len(s.received.text), len(s.sent.text), TextMax)
	}
	if received, sent := s.InStep(); !received || !sent {
		t.Errorf("out of step: %+v", s)
	}
}

// Each text of a login is parsed from its beginning.
func TestLoginTexts(t *testing.T) {
	var s Session
	long := "Other=" + strings.Repeat("k", 1000) + "\x00"
	for _, p := range append([]pdu{{true, loginLast, 0, long}, {false, answerNo, 0, long}}, login(true, false)...) {
		feed(&s, p.toTarget, wire{}.bytes(t, p), whole)
	}
	if s.Target != target || !s.HeaderDigest {
		t.Errorf("%+v", s)
	}
}

// inCalls cuts a message as tgt and istgt do: the header, its digest, the data, its digest are a call each.
func (w wire) inCalls(b []byte) (calls [][]byte) {
	cut := func(n int) {
		n = min(n, len(b))
		if n > 0 {
			calls, b = append(calls, b[:n]), b[n:]
		}
	}
	cut(HeaderSize)
	if w.headerDigest {
		cut(4)
	}
	if w.dataDigest {
		cut(len(b) - 4)
	}
	cut(len(b))
	return calls
}

// A connection whose login was not seen is adopted at a header, and its digests are found.
func TestAdopted(t *testing.T) {
	everyDigest(t, func(t *testing.T, w wire) {
		t.Run("a message a call", func(t *testing.T) { adopted(t, w, whole) })
		t.Run("a part of a message a call", func(t *testing.T) { adopted(t, w, w.inCalls) })
	})
}

func adopted(t *testing.T, w wire, pieces func([]byte) [][]byte) {
	var s Session
	middle := w.bytes(t, dataIn(0x10, strings.Repeat("x", 100)))[60:]
	feed(&s, false, middle, whole)
	if !s.Missed {
		t.Fatal("the end of a message was understood")
	}
	var last []Event
	for round := range 20 {
		last = nil
		for _, p := range []pdu{read(0x21), dataIn(0x21, "data"), write(0x22, 0, "data"), good(0x22), write(0x23, 0, "data"), bad(0x23, "why")} {
			last = append(last, feed(&s, p.toTarget, w.bytes(t, p), pieces)...)
		}
		if round == 0 && !w.headerDigest && !w.dataDigest && s.Resyncs > 0 {
			t.Fatalf("out of step without digests: %+v", s)
		}
	}
	if len(last) != 6 || !last[1].Ends || !last[5].Failed {
		t.Errorf("of the last round: %+v", last)
	}
	if s.HeaderDigest != w.headerDigest || s.DataDigest != w.dataDigest || s.Known || s.Target != "" {
		t.Errorf("%+v", s)
	}
	resyncs := s.Resyncs
	for range 20 {
		feed(&s, true, w.bytes(t, read(0x21)), pieces)
		feed(&s, false, w.bytes(t, dataIn(0x21, "data")), pieces)
	}
	if s.Resyncs != resyncs || s.Number != resyncs {
		t.Errorf("%d resyncs and number %d after %d", s.Resyncs, s.Number, resyncs)
	}
}

// Data that others choose is not adopted, though its first bytes have an opcode: its length would be any.
func TestAdoptsNoData(t *testing.T) {
	for _, c := range []struct {
		hex      string
		toTarget bool
	}{
		{"01e5c6c0 0becdd0e 6509889b 239ca42c", true},
		{"01000000 00000000 0100000000000000 00000001", true},
		{"05000000 00002000", true},
		{"43810000 00000030", true},
		{"25a30017 00112233", false},
		{"21ff0000 11223344", false},
		{"218f4200 00223344", false},
	} {
		var s Session
		feed(&s, c.toTarget, bytes.Repeat([]byte("x"), HeaderSize), whole)
		feed(&s, c.toTarget, unhex(t, c.hex), whole)
		if received, sent := s.InStep(); received || sent {
			t.Errorf("%s: in step", c.hex)
		}
	}
}

// A direction that is out of step waits for a call that begins with a header, and what was under way is forgotten.
func TestOutOfStep(t *testing.T) {
	var s Session
	for _, p := range login(true, false) {
		feed(&s, p.toTarget, wire{}.bytes(t, p), whole)
	}
	w := wire{headerDigest: true}
	feed(&s, true, w.bytes(t, read(0x11)), whole)
	feed(&s, true, w.bytes(t, read(0x21)), whole)
	garbage := bytes.Repeat([]byte("x"), HeaderSize)
	if got := feed(&s, true, append(garbage, w.bytes(t, read(0x22))...), whole); got != nil {
		t.Errorf("after garbage in the same call: %+v", got)
	}
	if s.Resyncs != 1 || s.Number != 1 || s.UnderWay() != 0 || !s.Known || !s.HeaderDigest {
		t.Errorf("%+v", s)
	}
	if got := feed(&s, false, w.bytes(t, dataIn(0x11, "data")), whole); got != nil || s.Unmatched != 1 {
		t.Errorf("an answer to what was forgotten: %+v, %d", got, s.Unmatched)
	}
	for _, p := range []pdu{login(true, true)[0], {true, "05800000", 0, "data"}} {
		b := w.bytes(t, p)
		feed(&s, true, b[:HeaderSize-1], whole)
		if received, _ := s.InStep(); received {
			t.Error("adopted at a part of a header")
		}
		feed(&s, true, b, whole)
	}
	if received, sent := s.InStep(); !received || !sent {
		t.Errorf("in step: %v, %v", received, sent)
	}
	if got := feed(&s, true, w.bytes(t, read(0x11)), whole); len(got) != 1 || got[0].Operation != op[0x11] {
		t.Errorf("%+v", got)
	}
	if s.Target != target || s.Resyncs != 1 {
		t.Errorf("%+v", s)
	}
}

// A login in the middle of a connection is none of this connection's.
func TestLateLogin(t *testing.T) {
	var s Session
	feed(&s, true, wire{}.bytes(t, read(0x11)), whole)
	feed(&s, false, wire{}.bytes(t, dataIn(0x11, "")), whole)
	for _, p := range login(true, true) {
		feed(&s, p.toTarget, wire{}.bytes(t, p), whole)
	}
	if s.Known || s.Target != "" || s.HeaderDigest || s.Resyncs != 0 {
		t.Errorf("%+v", s)
	}
}

// Guesses that have held for long are kept.
func TestTrust(t *testing.T) {
	garbage := bytes.Repeat([]byte("x"), HeaderSize)
	for _, c := range []struct {
		messages int
		want     bool
	}{{1, true}, {TrustAfter - 1, true}, {TrustAfter, false}} {
		var s Session
		for range c.messages {
			feed(&s, true, wire{}.bytes(t, read(0x11)), whole)
		}
		feed(&s, true, garbage, whole)
		if s.HeaderDigest != c.want || s.DataDigest || s.Resyncs != 1 {
			t.Errorf("after %d messages: %+v", c.messages, s)
		}
	}
}

func TestTaskManagement(t *testing.T) {
	request := func(function byte, lun, reference int) pdu {
		return pdu{true, fmt.Sprintf("02%02x0000 00000000 %04x000000000000 00000031 %08x", 0x80|function, lun, reference), 0, ""}
	}
	response := pdu{false, "22800000 00000000 0000000000000000 00000031", 0, ""}
	refused := pdu{false, "22800500 00000000 0000000000000000 00000031", 0, ""}
	another := pdu{false, "22800000 00000000 0000000000000000 00000032", 0, ""}
	for _, c := range []struct {
		name     string
		messages []pdu
		left     int
	}{
		{"a task", []pdu{request(1, 1, 0x21), response}, 2},
		{"no such task", []pdu{request(1, 1, 0x41), response}, 3},
		{"not answered", []pdu{request(1, 1, 0x21)}, 3},
		{"refused", []pdu{request(1, 1, 0x21), refused}, 3},
		{"answered to another one", []pdu{request(1, 1, 0x21), another}, 3},
		{"without a request", []pdu{response}, 3},
		{"the tasks of another unit", []pdu{request(2, 2, 0), response}, 3},
		{"the tasks of a unit", []pdu{request(4, 1, 0), response}, 0},
		{"a unit's reset", []pdu{request(5, 1, 0), response}, 0},
		{"the target's reset", []pdu{request(6, 9, 0), response}, 0},
		{"a query", []pdu{request(9, 1, 0x21), response}, 3},
	} {
		var s Session
		for _, p := range append([]pdu{read(0x11), read(0x21), write(0x22, 0, "")}, c.messages...) {
			feed(&s, p.toTarget, wire{}.bytes(t, p), whole)
		}
		if s.UnderWay() != c.left || s.Aborted != 3-c.left || s.Resyncs != 0 {
			t.Errorf("%s: %d left, %d aborted", c.name, s.UnderWay(), s.Aborted)
		}
	}
}

// More commands than are remembered, and a tag that is used again.
func TestUnderWay(t *testing.T) {
	var s Session
	for tag := range uint32(UnderWayMax + 3) {
		feed(&s, true, wire{}.bytes(t, read(tag)), whole)
		feed(&s, true, wire{}.bytes(t, read(0)), whole)
	}
	if s.UnderWay() != UnderWayMax || s.Lost != 3 {
		t.Errorf("%d under way, %d lost", s.UnderWay(), s.Lost)
	}
}
