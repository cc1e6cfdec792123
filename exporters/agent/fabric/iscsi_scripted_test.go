package fabric

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	osexec "os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	dto "github.com/prometheus/client_model/go"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/plumbline/plumbline/exporters/agent/operation/operationtest"
	"github.com/plumbline/plumbline/tests/testkit"
)

// A target and its initiator that are both this process, and send what a test has them send.

const (
	scriptedTarget = "iqn.2026-11.io.plumbline:"
	scriptedBlock  = 512
)

// scriptedPDU is a PDU: its header's fields, and its data.
type scriptedPDU struct {
	opcode, flags, response, status byte
	lun                             byte
	tag, word                       uint32 // word is what a read or write expects, or the tag that a task management request is about
	rest                            []byte // from byte 32 on: a command's block
	data                            string
}

const (
	final     = 0x80
	loginLast = final | 0x07       // from operational negotiation to the full feature phase
	goesOn    = 0x40 | 0x04        // the login's text does
	toRead    = final | 0x40 | 0x1 // a simple task
	toWrite   = final | 0x20 | 0x1
	hasState  = final | 0x01 // Data-In with the command's status

	checkCondition = 0x02
	refusedClass   = 0x02

	abortTask, unitReset, warmReset = 1, 5, 6
	noSuchTask                      = 1
)

func loginRequest(flags byte, text string) scriptedPDU {
	return scriptedPDU{opcode: 0x43, flags: flags, data: text}
}

func loginAnswer(flags byte, text string) scriptedPDU {
	return scriptedPDU{opcode: 0x23, flags: flags, data: text}
}

func loginRefused() scriptedPDU {
	return scriptedPDU{opcode: 0x23, flags: loginLast, rest: []byte{4: refusedClass}}
}

func readCommand(tag uint32, lun byte) scriptedPDU {
	return scriptedPDU{opcode: 0x01, flags: toRead, tag: tag, lun: lun, word: scriptedBlock, rest: []byte{0x28, 8: 1}}
}

func writeCommand(tag uint32, lun byte) scriptedPDU {
	return scriptedPDU{opcode: 0x01, flags: toWrite, tag: tag, lun: lun, word: scriptedBlock, rest: []byte{0x2a, 8: 1}}
}

func capacityCommand(tag uint32, lun byte) scriptedPDU {
	return scriptedPDU{opcode: 0x01, flags: toRead, tag: tag, lun: lun, word: 8, rest: []byte{0x25}}
}

func inquiryCommand(tag uint32, lun byte) scriptedPDU {
	return scriptedPDU{opcode: 0x01, flags: toRead, tag: tag, lun: lun, word: 36, rest: []byte{0x12, 4: 36}}
}

func response(tag uint32, status byte) scriptedPDU {
	return scriptedPDU{opcode: 0x21, flags: final, status: status, tag: tag}
}

func dataIn(tag uint32, flags byte, n int) scriptedPDU {
	return scriptedPDU{opcode: 0x25, flags: flags, tag: tag, data: strings.Repeat("d", n)}
}

func dataOut(tag uint32, n int) scriptedPDU {
	return scriptedPDU{opcode: 0x05, flags: final, tag: tag, data: strings.Repeat("d", n)}
}

func r2t(tag uint32) scriptedPDU { return scriptedPDU{opcode: 0x31, flags: final, tag: tag} }

func nopOut(tag uint32) scriptedPDU {
	return scriptedPDU{opcode: 0x40, flags: final, tag: tag, data: "ping"}
}

func nopIn(tag uint32) scriptedPDU {
	return scriptedPDU{opcode: 0x20, flags: final, tag: tag, data: "ping"}
}

func reject() scriptedPDU {
	return scriptedPDU{opcode: 0x3f, flags: final, data: strings.Repeat("\x00", 48)}
}

func taskRequest(tag uint32, function, lun byte, about uint32) scriptedPDU {
	return scriptedPDU{opcode: 0x42, flags: final | function, tag: tag, lun: lun, word: about}
}

func taskAnswer(tag uint32, response byte) scriptedPDU {
	return scriptedPDU{opcode: 0x22, flags: final, response: response, tag: tag}
}

// bytes is a message as it goes over the wire; a digest is any four bytes, also such as begin a header.
func (m scriptedPDU) bytes(digests bool) []byte {
	b := make([]byte, 48)
	b[0], b[1], b[2], b[3], b[9] = m.opcode, m.flags, m.response, m.status, m.lun
	binary.BigEndian.PutUint32(b[4:], uint32(len(m.data)))
	binary.BigEndian.PutUint32(b[16:], m.tag)
	binary.BigEndian.PutUint32(b[20:], m.word)
	copy(b[32:], m.rest)
	digests = digests && m.opcode&0x1f != 0x03
	digest := []byte{0x01, final, 0, 0}
	if digests {
		b = append(b, digest...)
	}
	b = append(b, m.data...)
	b = append(b, make([]byte, -len(m.data)&3)...)
	if digests && m.data != "" {
		b = append(b, digest...)
	}
	return b
}

func wireBytes(digests bool, messages ...scriptedPDU) (b []byte) {
	for _, m := range messages {
		b = append(b, m.bytes(digests)...)
	}
	return b
}

// newScriptedBench follows this process.
func newScriptedBench(t *testing.T) *userTargetBench {
	t.Helper()
	name, err := os.ReadFile("/proc/self/comm")
	if err != nil {
		t.Fatal(err)
	}
	b := newUserTargetBench(t, strings.TrimSpace(string(name)))
	b.show(os.Getpid())
	return b
}

// script is a connection whose ends are both the test's.
type script struct {
	t                 testing.TB
	initiator, target net.Conn
	digests           bool
	// read and write are the target's ways of calling, one call for all bytes.
	read, write func(net.Conn, []byte) error
}

func oneRead(c net.Conn, b []byte) error {
	_, err := io.ReadFull(c, b)
	return err
}

func oneWrite(c net.Conn, b []byte) error {
	_, err := c.Write(b)
	return err
}

func (b *userTargetBench) connect() *script {
	b.T.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.T.Fatal(err)
	}
	defer l.Close()
	s := &script{t: b.T, read: oneRead, write: oneWrite}
	if s.initiator, err = net.Dial("tcp", l.Addr().String()); err != nil {
		b.T.Fatal(err)
	}
	if s.target, err = l.Accept(); err != nil {
		b.T.Fatal(err)
	}
	limit := time.Now().Add(testkit.DefaultTimeout) // what hangs shall fail
	_, _ = s.initiator.SetDeadline(limit), s.target.SetDeadline(limit)
	b.T.Cleanup(s.close)
	return s
}

// use logs in to a target and reads once from its LUN 0, which then has series.
func (b *userTargetBench) use(volume string) *script {
	b.T.Helper()
	s := b.connect()
	s.login(scriptedTarget + volume)
	s.good(1, 0)
	return s
}

func (s *script) close() { _, _ = s.initiator.Close(), s.target.Close() }

func (s *script) check(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// request has the target read messages in one call, answer has it write them in one.
func (s *script) request(messages ...scriptedPDU) {
	s.t.Helper()
	b := wireBytes(s.digests, messages...)
	s.check(oneWrite(s.initiator, b))
	s.check(s.read(s.target, b))
}

func (s *script) answer(messages ...scriptedPDU) {
	s.t.Helper()
	b := wireBytes(s.digests, messages...)
	s.check(s.write(s.target, b))
	s.check(oneRead(s.initiator, b))
}

func (s *script) login(target string) {
	s.t.Helper()
	s.request(loginRequest(loginLast, keys("InitiatorName=iqn.2026-11.io.plumbline:test", "TargetName="+target, "SessionType=Normal")))
	s.answer(loginAnswer(loginLast, keys("TargetPortalGroupTag=1")))
}

func keys(each ...string) string { return strings.Join(each, "\x00") + "\x00" }

// good is a read that is answered.
func (s *script) good(tag uint32, lun byte) {
	s.t.Helper()
	s.request(readCommand(tag, lun))
	s.answer(dataIn(tag, hasState, scriptedBlock))
}

// exchange is one of each, 2 reads and 1 write.
func (s *script) exchange() {
	s.t.Helper()
	s.request(nopOut(10), readCommand(11, 0), capacityCommand(12, 0), writeCommand(13, 0))
	s.answer(nopIn(10), dataIn(11, 0, scriptedBlock/2), dataIn(11, hasState, scriptedBlock/2), dataIn(12, final, 8), r2t(13), response(12, 0))
	s.request(dataOut(13, scriptedBlock), readCommand(14, 0))
	s.answer(reject(), response(13, 0), dataIn(14, final, scriptedBlock), response(14, 0))
}

// scriptedCounts are a volume's.
type scriptedCounts struct {
	reads, writes                uint64
	inFlight, unanswered, failed float64
}

func scriptedCountsOf(r operationtest.Reading, volume string) scriptedCounts {
	if volume != "other" { // which has no name
		volume = scriptedTarget + volume
	}
	of := operationtest.Match{"volume": volume, "backend": "iscsi"}
	op := func(op string) operationtest.Match {
		return operationtest.Match{"volume": volume, "backend": "iscsi", "op": op}
	}
	return scriptedCounts{
		reads: r.Count(targetPrefix+"_seconds", op("read")), writes: r.Count(targetPrefix+"_seconds", op("write")),
		inFlight: r.Value(targetPrefix+"_in_flight", of), unanswered: r.Value(targetPrefix+"_unanswered_total", of),
		failed: r.Value(targetPrefix+"_errors_total", of),
	}
}

// expect waits until a volume's counts are these.
func (b *userTargetBench) expect(volume string, want scriptedCounts) (r operationtest.Reading) {
	b.T.Helper()
	testkit.Eventually(b.T, testkit.DefaultTimeout, func() error {
		r = b.Read()
		if got := scriptedCountsOf(r, volume); got != want {
			return fmt.Errorf("%s has %+v, want %+v", volume, got, want)
		}
		return nil
	})
	return r
}

// stays makes sure that a scan later a volume's counts are still these.
func (b *userTargetBench) stays(volume string, want scriptedCounts) operationtest.Reading {
	b.T.Helper()
	time.Sleep(interval + interval/4)
	r := b.Read()
	if got := scriptedCountsOf(r, volume); got != want {
		b.T.Errorf("%s has %+v, want %+v", volume, got, want)
	}
	return r
}

// volumesOf are those that any metric names.
func volumesOf(r operationtest.Reading) (names []string) {
	for name := range r {
		r.Each(name, nil, func(l operationtest.Match, _ *dto.Metric) {
			if v, ok := l["volume"]; ok && !slices.Contains(names, v) {
				names = append(names, v)
			}
		})
	}
	return names
}

// A command without an answer is under way and gets older, until its connection ends.
func TestISCSIScriptedHangs(t *testing.T) {
	b := newScriptedBench(t)
	b.start()
	s := b.use("hangs")
	began := time.Now()
	s.request(readCommand(2, 0))
	r := b.expect("hangs", scriptedCounts{reads: 1, inFlight: 1})
	age := func(r operationtest.Reading) float64 {
		return r.Value(targetPrefix+"_oldest_seconds", operationtest.Match{"volume": scriptedTarget + "hangs"})
	}
	const wait = 300 * time.Millisecond
	time.Sleep(wait)
	was, is := age(r), age(b.Read())
	if most := time.Since(began).Seconds(); is < was+wait.Seconds() || is > most {
		t.Errorf("the oldest is %v s old, %v later %v s, of at most %v s", was, wait, is, most)
	}
	s.close()
	b.expect("hangs", scriptedCounts{reads: 1, unanswered: 1})
	r = b.stays("hangs", scriptedCounts{reads: 1, unanswered: 1})
	r.Clean(t)
	if n := age(r); n != 0 {
		t.Errorf("the oldest is %v s old", n)
	}
}

// A LUN that has reported its size is one, even if no other request to it has an answer: a volume that hangs when its
// user comes back.
func TestISCSIScriptedHangsFirst(t *testing.T) {
	b := newScriptedBench(t)
	b.start()
	s := b.connect()
	s.login(scriptedTarget + "first")
	s.request(capacityCommand(1, 0))
	s.answer(dataIn(1, hasState, 8))
	s.request(readCommand(2, 0))
	b.expect("first", scriptedCounts{inFlight: 1})
	s.close()
	b.expect("first", scriptedCounts{unanswered: 1}).Clean(t)
}

// A command that the target reports as aborted has ended; one that it reports as unknown goes on.
func TestISCSIScriptedAbort(t *testing.T) {
	b := newScriptedBench(t)
	b.start()
	s := b.use("abort")
	s.request(readCommand(2, 0))
	b.expect("abort", scriptedCounts{reads: 1, inFlight: 1})
	s.request(taskRequest(3, abortTask, 0, 2))
	b.stays("abort", scriptedCounts{reads: 1, inFlight: 1})
	s.answer(taskAnswer(3, 0))
	b.expect("abort", scriptedCounts{reads: 1, unanswered: 1})

	s.request(readCommand(4, 0))
	s.request(taskRequest(5, abortTask, 0, 4))
	s.answer(taskAnswer(5, noSuchTask))
	b.stays("abort", scriptedCounts{reads: 1, inFlight: 1, unanswered: 1})
	s.answer(dataIn(4, hasState, scriptedBlock))
	b.expect("abort", scriptedCounts{reads: 2, unanswered: 1}).Clean(t)
}

// An initiator may have two commands aborted at once.
func TestISCSIScriptedAbortTwo(t *testing.T) {
	b := newScriptedBench(t)
	b.start()
	s := b.use("aborttwo")
	s.request(readCommand(2, 0), readCommand(3, 0))
	b.expect("aborttwo", scriptedCounts{reads: 1, inFlight: 2})
	s.request(taskRequest(4, abortTask, 0, 2), taskRequest(5, abortTask, 0, 3))
	s.answer(taskAnswer(4, 0), taskAnswer(5, 0))
	b.expect("aborttwo", scriptedCounts{reads: 1, unanswered: 2}).Clean(t)
}

// A reset ends what had begun on the LUN, or on the target, of that session.
func TestISCSIScriptedReset(t *testing.T) {
	b := newScriptedBench(t)
	b.start()
	one, other := b.use("reset"), b.use("reset")
	one.good(2, 1)
	one.request(readCommand(3, 0), readCommand(4, 1))
	other.request(readCommand(5, 0))
	b.expect("reset", scriptedCounts{reads: 2, inFlight: 2})
	b.expect("reset/1", scriptedCounts{reads: 1, inFlight: 1})

	one.request(taskRequest(6, unitReset, 0, 0))
	one.request(readCommand(7, 0))
	one.answer(taskAnswer(6, 0))
	b.expect("reset", scriptedCounts{reads: 2, inFlight: 2, unanswered: 1})
	b.stays("reset/1", scriptedCounts{reads: 1, inFlight: 1})

	one.request(taskRequest(8, warmReset, 0, 0))
	one.answer(taskAnswer(8, 0))
	b.expect("reset", scriptedCounts{reads: 2, inFlight: 1, unanswered: 2})
	b.expect("reset/1", scriptedCounts{reads: 1, unanswered: 1})

	other.answer(dataIn(5, hasState, scriptedBlock))
	b.expect("reset", scriptedCounts{reads: 3, unanswered: 2}).Clean(t)
}

// What follows a reset is not ended by it, also if one call has read both.
func TestISCSIScriptedBehindReset(t *testing.T) {
	b := newScriptedBench(t)
	b.start()
	s := b.use("behind")
	s.request(readCommand(2, 0))
	s.request(taskRequest(3, unitReset, 0, 0), readCommand(4, 0))
	s.answer(taskAnswer(3, 0), dataIn(4, hasState, scriptedBlock))
	b.expect("behind", scriptedCounts{reads: 2, unanswered: 1}).Clean(t)
}

// An error counts, with its time; a LUN that has never done anything has no series.
func TestISCSIScriptedErrors(t *testing.T) {
	b := newScriptedBench(t)
	b.start()
	s := b.use("errors")
	s.request(writeCommand(2, 0))
	s.answer(response(2, checkCondition))
	s.request(readCommand(3, 0))
	failed := dataIn(3, hasState, 0)
	failed.status = checkCondition
	s.answer(failed)
	r := b.expect("errors", scriptedCounts{reads: 2, writes: 1, failed: 2})
	for op, want := range map[string]float64{"read": scriptedBlock, "write": 0} {
		if n := r.Value(targetPrefix+"_bytes_total", operationtest.Match{"volume": scriptedTarget + "errors", "op": op}); n != want {
			t.Errorf("%v bytes of %s, want %v", n, op, want)
		}
	}
	s.request(inquiryCommand(4, 9))
	s.answer(dataIn(4, hasState, 36))
	s.request(readCommand(5, 9))
	s.answer(response(5, checkCondition))
	r = b.stays("errors", scriptedCounts{reads: 2, writes: 1, failed: 2})
	r.Clean(t)
	if slices.Contains(volumesOf(r), scriptedTarget+"errors/9") {
		t.Error("a LUN that is none has series")
	}
}

// Only a login that the target accepts gives a name, and only one for a target.
func TestISCSIScriptedRefused(t *testing.T) {
	b := newScriptedBench(t)
	b.start()
	refused := b.connect()
	refused.request(loginRequest(loginLast, keys("InitiatorName=i", "TargetName="+scriptedTarget+"refused")))
	refused.answer(loginRefused())
	discovery := b.connect()
	discovery.request(loginRequest(loginLast, keys("InitiatorName=i", "SessionType=Discovery")))
	discovery.answer(loginAnswer(loginLast, keys("TargetName="+scriptedTarget+"discovery")))
	discovery.request(scriptedPDU{opcode: 0x04, flags: final, tag: 2, data: keys("SendTargets=All", "TargetName="+scriptedTarget+"discovery")})
	discovery.answer(scriptedPDU{opcode: 0x24, flags: final, tag: 2, data: keys("TargetName=" + scriptedTarget + "discovery")})
	for _, s := range []*script{refused, discovery} {
		s.good(3, 0)
		s.close()
	}
	b.use("accepted")
	b.expect("accepted", scriptedCounts{reads: 1})
	r := b.expect("other", scriptedCounts{reads: 2})
	if names := volumesOf(r); len(names) != 2 {
		t.Errorf("volumes %q", names)
	}
}

// An initiator names its target once, in its first PDU (RFC 7143, 13.4); the target ignores later names.
func TestISCSIScriptedNameOnce(t *testing.T) {
	const more = final | 0x04 | 0x01 // from security negotiation to operational negotiation
	b := newScriptedBench(t)
	b.start()
	name := func(volume string) string { return "TargetName=" + scriptedTarget + volume }
	s := b.connect()
	s.request(loginRequest(more, keys(name("own"))))
	s.answer(loginAnswer(more, ""))
	s.request(loginRequest(loginLast, keys(name("victim"))))
	s.answer(loginAnswer(loginLast, ""))
	s.good(1, 0)
	s = b.connect()
	s.request(loginRequest(loginLast, keys(name("own"), name("victim"))))
	s.answer(loginAnswer(loginLast, ""))
	s.good(1, 0)
	s = b.use("own")
	s.request(loginRequest(loginLast, keys(name("victim"))))
	s.good(2, 1)
	b.expect("own/1", scriptedCounts{reads: 1})
	b.expect("own", scriptedCounts{reads: 3})
	if names := volumesOf(b.Read()); len(names) != 2 {
		t.Errorf("volumes %q", names)
	}
}

// A client that does not log in, and gets no answer, leaves nothing behind.
func TestISCSIScriptedStranger(t *testing.T) {
	b := newScriptedBench(t)
	b.start()
	for lun := range byte(4) {
		s := b.connect()
		s.request(readCommand(1, lun))
		s.close()
	}
	b.use("known")
	b.expect("known", scriptedCounts{reads: 1})
	r := b.stays("other", scriptedCounts{})
	r.Clean(t)
}

// Data that looks like a login names nothing: neither on a connection that is older than the agent, nor on a new one
// that has sent something else before.
func TestISCSIScriptedForged(t *testing.T) {
	b := newScriptedBench(t)
	something := func(s *script) *script {
		const text = "GET / HTTP/1.1\r\n\r\n"
		s.check(oneWrite(s.initiator, []byte(text)))
		s.check(oneRead(s.target, make([]byte, len(text))))
		return s
	}
	old := something(b.connect())
	b.start()
	fresh := something(b.connect())
	for _, s := range []*script{old, fresh} {
		s.login(scriptedTarget + "victim")
		s.good(1, 0)
	}
	b.use("known")
	b.expect("known", scriptedCounts{reads: 1})
	b.stays("victim", scriptedCounts{})
	if names := volumesOf(b.Read()); slices.Contains(names, scriptedTarget+"victim") {
		t.Errorf("volumes %q", names)
	}
}

// A target that rejects a command gives no other answer; one that rejects its data does.
func TestISCSIScriptedReject(t *testing.T) {
	b := newScriptedBench(t)
	b.start()
	s := b.use("reject")
	refuse := func(m scriptedPDU) scriptedPDU {
		r := reject()
		r.data = string(m.bytes(false)[:48])
		return r
	}
	s.request(readCommand(2, 0))
	s.answer(refuse(readCommand(2, 0)))
	b.expect("reject", scriptedCounts{reads: 1, unanswered: 1})
	s.request(writeCommand(3, 0))
	s.answer(r2t(3))
	s.request(dataOut(3, scriptedBlock))
	s.answer(refuse(dataOut(3, scriptedBlock)), response(3, checkCondition))
	b.expect("reject", scriptedCounts{reads: 1, writes: 1, unanswered: 1, failed: 1}).Clean(t)
}

// No name breaks a scrape.
func TestISCSIScriptedNames(t *testing.T) {
	b := newScriptedBench(t)
	b.start()
	names := []string{
		"a\"b\\c{d=\"e\"}", "line\nfeed\r\x01\x1b[31m", "not\xff\xfeUTF-8\xc3", "\u202eright to left\u2028", ":", "",
		"long" + strings.Repeat("v", 300), "wide" + strings.Repeat("\u00fc", 140), "\xff" + strings.Repeat("\xe2\x82", 100),
	}
	for _, name := range names {
		b.use(name)
	}
	var r operationtest.Reading
	// One that is longer than a target's name may be is no name: others are waited for.
	testkit.Eventually(t, testkit.DefaultTimeout, func() error {
		r = b.Read()
		if n := r.Count(targetPrefix+"_seconds", operationtest.Match{"backend": "iscsi"}); n != uint64(len(names)) {
			return fmt.Errorf("%d reads, want %d", n, len(names))
		}
		return nil
	})
	for _, v := range volumesOf(r) {
		if len(v) > 128 || !utf8.ValidString(v) || strings.ContainsFunc(v, unicode.IsControl) {
			t.Errorf("volume %q", v)
		}
	}
	if n := r.Value("plumbline_replica_lost_total", operationtest.Match{"reason": "path_nameless"}); n != 3 {
		t.Errorf("%v sessions without a name, want the 3 with one that is too long", n)
	}
}

// inPieces makes calls of n bytes each.
func inPieces(n int, call func(net.Conn, []byte) error) func(net.Conn, []byte) error {
	return func(c net.Conn, b []byte) error {
		for piece := range slices.Chunk(b, n) {
			if err := call(c, piece); err != nil {
				return err
			}
		}
		return nil
	}
}

// segments cuts bytes such that headers are in several pieces; one is empty.
func segments(b []byte) (pieces [][]byte) {
	for _, n := range []int{0, 10, 30, 1, 90} {
		n = min(n, len(b))
		pieces, b = append(pieces, b[:n]), b[n:]
	}
	return append(pieces, b)
}

// oneCall makes one system call on a connection, for all bytes.
func oneCall(call func(fd int, b []byte) (int, error)) func(net.Conn, []byte) error {
	return func(c net.Conn, b []byte) error {
		r, err := c.(*net.TCPConn).SyscallConn()
		if err != nil {
			return err
		}
		var n int
		var failed error
		if err := r.Control(func(fd uintptr) { n, failed = call(int(fd), b) }); err != nil || failed != nil {
			return errors.Join(err, failed)
		}
		if n != len(b) {
			return fmt.Errorf("%d of %d bytes", n, len(b))
		}
		return nil
	}
}

// However a target reads and writes, what it does counts alike.
func TestISCSIScriptedCalls(t *testing.T) {
	type way struct {
		name        string
		read, write func(net.Conn, []byte) error
	}
	ways := []way{
		{"read", oneRead, oneWrite},
		{"recvfrom",
			oneCall(func(fd int, b []byte) (int, error) { n, _, err := unix.Recvfrom(fd, b, 0); return n, err }),
			oneCall(func(fd int, b []byte) (int, error) { return len(b), unix.Send(fd, b, 0) })},
		{"readv",
			oneCall(func(fd int, b []byte) (int, error) { return unix.Readv(fd, segments(b)) }),
			oneCall(func(fd int, b []byte) (int, error) { return unix.Writev(fd, segments(b)) })},
		{"recvmsg",
			oneCall(func(fd int, b []byte) (int, error) {
				n, _, _, _, err := unix.RecvmsgBuffers(fd, segments(b), nil, 0)
				return n, err
			}),
			oneCall(func(fd int, b []byte) (int, error) { return unix.SendmsgBuffers(fd, segments(b), nil, nil, 0) })},
	}
	for _, n := range []int{1, 7, 47, 48, 49} {
		ways = append(ways, way{fmt.Sprintf("by-%d", n), inPieces(n, oneRead), inPieces(n, oneWrite)})
	}
	b := newScriptedBench(t)
	b.start()
	var volumes []string
	for _, digests := range []bool{false, true} {
		for _, w := range ways {
			volume := fmt.Sprintf("%s-%v", w.name, digests)
			volumes = append(volumes, volume)
			s := b.connect()
			s.logInWith(volume, digests)
			s.read, s.write = w.read, w.write
			s.exchange()
		}
	}
	for _, volume := range volumes {
		r := b.expect(volume, scriptedCounts{reads: 2, writes: 1})
		for op, want := range map[string]float64{"read": 2 * scriptedBlock, "write": scriptedBlock} {
			if n := r.Value(targetPrefix+"_bytes_total", operationtest.Match{"volume": scriptedTarget + volume, "op": op}); n != want {
				t.Errorf("%s: %v bytes of %s, want %v", volume, n, op, want)
			}
		}
	}
	b.Read().Clean(t)
}

// A whole login is known, however it is read.
func TestISCSIScriptedLoginCalls(t *testing.T) {
	b := newScriptedBench(t)
	b.start()
	for name, read := range map[string]func(net.Conn, []byte) error{
		"bytes": inPieces(1, oneRead),
		"readv": oneCall(func(fd int, b []byte) (int, error) { return unix.Readv(fd, segments(b)) }),
	} {
		t.Run(name, func(t *testing.T) {
			s := b.connect()
			s.read = read
			s.login(scriptedTarget + name)
			s.read = oneRead
			s.good(2, 0)
			s.close()
			testkit.Eventually(t, testkit.DefaultTimeout, func() error {
				if got := scriptedCountsOf(b.Read(), name); got != (scriptedCounts{reads: 1}) {
					return fmt.Errorf("%+v, want one read", got)
				}
				return nil
			})
		})
	}
}

// logInWith agrees on digests or on none.
func (s *script) logInWith(volume string, digests bool) {
	s.t.Helper()
	choice := "None"
	if digests {
		choice = "CRC32C"
	}
	s.request(loginRequest(loginLast, keys("TargetName="+scriptedTarget+volume, "HeaderDigest=CRC32C,None", "DataDigest=CRC32C,None")))
	s.answer(loginAnswer(loginLast, keys("HeaderDigest="+choice, "DataDigest="+choice)))
	s.digests = digests
}

// Bytes that are no message: what is under way is lost, and it goes on with the next message.
func TestISCSIScriptedJunk(t *testing.T) {
	b := newScriptedBench(t)
	b.start()
	s := b.use("junk")
	s.request(readCommand(2, 0))
	b.expect("junk", scriptedCounts{reads: 1, inFlight: 1})
	junk := []byte(strings.Repeat("\xff", 100))
	s.check(oneWrite(s.initiator, junk))
	s.check(oneRead(s.target, junk))
	r := b.expect("junk", scriptedCounts{reads: 1})
	if n := r.Value("plumbline_replica_resyncs_total", operationtest.Match{"wire": "iscsi-user-target"}); n != 1 {
		t.Errorf("%v resyncs, want 1", n)
	}
	if n := r.Value("plumbline_replica_lost_total", operationtest.Match{"wire": "iscsi-user-target", "reason": "end_unseen"}); n != 1 {
		t.Errorf("%v lost, want 1", n)
	}
	s.answer(dataIn(2, hasState, scriptedBlock))
	s.good(3, 0)
	r = b.expect("junk", scriptedCounts{reads: 2})
	if n := r.Value("plumbline_replica_unmatched_total", nil); n != 0 {
		t.Errorf("%v answers without a request", n)
	}
}

// Data that a direction out of step meets may begin like a message, or like a login: it goes on with the next message.
func TestISCSIScriptedLookalikes(t *testing.T) {
	for _, c := range []struct {
		name, like string
		toTarget   bool
	}{
		{"command", "\x01\xe5\xc6\xc0\x0b\xec\xdd\x0e", true},
		{"command of little-endian numbers", "\x01\x00\x00\x00\x00\x01", true},
		{"login", "\x43\x87\x00\x00\x00\xdd\x0e\x65", true},
		{"response", "\x21\x8f\x42\x00\x00\x22\x33\x44", false},
		{"login response", "\x23\x87\x00\x00\x00\x22\x33\x44", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newScriptedBench(t)
			b.start()
			s := b.use("alike")
			for _, data := range []string{strings.Repeat("\xff", 100), c.like + strings.Repeat("\x5a", 100)} {
				from, to := s.initiator, s.target
				if !c.toTarget {
					from, to = to, from
				}
				s.check(oneWrite(from, []byte(data)))
				s.check(oneRead(to, make([]byte, len(data))))
			}
			for tag := range uint32(3) {
				s.good(2+tag, 0)
			}
			b.expect("alike", scriptedCounts{reads: 4})
		})
	}
}

// A login's text may be in several messages, and be read in any pieces.
func TestISCSIScriptedLoginText(t *testing.T) {
	text := keys("InitiatorName=iqn.2026-11.io.plumbline:test", "TargetName="+scriptedTarget+"text", "HeaderDigest=CRC32C,None", "DataDigest=CRC32C,None")
	b := newScriptedBench(t)
	b.start()
	want := scriptedCounts{}
	for _, at := range []int{1, 44, 50, 58, 80} { // within the first name, at the end of its key, within the second key, and its value
		for _, n := range []int{48, 53, 4096} {
			s := b.connect()
			s.read = inPieces(n, oneRead)
			s.request(loginRequest(goesOn, text[:at]))
			s.answer(loginAnswer(0x04, ""))
			s.request(loginRequest(loginLast, text[at:]))
			s.answer(loginAnswer(goesOn, "HeaderDigest=CRC"))
			s.request(loginRequest(loginLast, ""))
			s.answer(loginAnswer(loginLast, keys("32C", "DataDigest=CRC32C")))
			s.digests, s.read = true, oneRead
			s.exchange()
			want.reads, want.writes = want.reads+2, want.writes+1
		}
	}
	b.expect("text", want).Clean(t)
}

// The threads of a target that reads with one and writes with another.
func TestISCSIScriptedThreads(t *testing.T) {
	const commands, outstanding = 2000, 32
	b := newScriptedBench(t)
	b.start()
	s := b.use("threads")
	window, read := make(chan struct{}, outstanding), make(chan uint32, outstanding)
	var threads errgroup.Group
	threads.Go(func() error { // the initiator's commands
		for tag := range uint32(commands) {
			window <- struct{}{}
			if err := oneWrite(s.initiator, readCommand(tag, 0).bytes(false)); err != nil {
				return err
			}
		}
		return nil
	})
	threads.Go(func() error { // the target's reader
		defer close(read)
		header := make([]byte, 48)
		for range commands {
			if err := oneRead(s.target, header); err != nil {
				return err
			}
			read <- binary.BigEndian.Uint32(header[16:])
		}
		return nil
	})
	threads.Go(func() error { // the target's writer
		for tag := range read {
			if err := oneWrite(s.target, dataIn(tag, hasState, scriptedBlock).bytes(false)); err != nil {
				return err
			}
		}
		return nil
	})
	threads.Go(func() error { // the initiator's answers
		answer := dataIn(0, hasState, scriptedBlock).bytes(false)
		for range commands {
			if err := oneRead(s.initiator, answer); err != nil {
				return err
			}
			<-window
		}
		return nil
	})
	if err := threads.Wait(); err != nil {
		t.Fatal(err)
	}
	r := b.expect("threads", scriptedCounts{reads: 1 + commands})
	r.Clean(t)
	if n := r.Value(targetPrefix+"_bytes_total", operationtest.Match{"volume": scriptedTarget + "threads"}); n != (1+commands)*scriptedBlock {
		t.Errorf("%v bytes", n)
	}
}

// A user's process is not a target, whatever its name.
func TestISCSIScriptedNotRoot(t *testing.T) {
	b := newScriptedBench(t)
	dir, err := os.MkdirTemp("", "tgtd")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	program, err := os.ReadFile("/bin/sleep")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "tgtd")
	if err := errors.Join(os.WriteFile(path, program, 0o755), os.Chmod(dir, 0o755)); err != nil {
		t.Fatal(err)
	}
	p := osexec.Command(path, "60")
	p.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = p.Process.Kill(), p.Wait() })
	b.show(p.Process.Pid)
	b.start() // which sees that one process is followed, this one
	r := b.Read()
	if n := r.Value("plumbline_replica_processes_refused_total", operationtest.Match{"wire": "iscsi-user-target"}); n != 1 {
		t.Errorf("%v processes refused, want 1", n)
	}
}
