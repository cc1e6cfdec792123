package initiator

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"
)

// Options of a session.
type Options struct {
	// HeaderDigest and DataDigest request CRC32C; it is an error if the target does not agree.
	HeaderDigest, DataDigest bool
}

const (
	loginTimeout = 20 * time.Second
	// rounds is how many requests a stage of a login may take.
	rounds = 8

	stageSecurity    = 0
	stageOperational = 1
	stageFull        = 3
)

// What this initiator requests. Data is cut in several messages where it is longer than receiveMax, and writes of more
// than firstBurst need an R2T.
const (
	name       = "iqn.2026-11.io.plumbline:initiator"
	receiveMax = 16 << 10
	firstBurst = 4 << 10
	maxBurst   = 64 << 10
)

// agreement is what a login has led to.
type agreement struct {
	immediate bool
	first     int // bytes that may go with a command
	sendMax   int // bytes of data of a message to the target
	digests   Options
}

// Login connects to a target, and returns a session for commands.
func Login(address, target string, o Options) (*Session, error) {
	c, err := net.DialTimeout("tcp", address, loginTimeout)
	if err != nil {
		return nil, err
	}
	s := newSession(c)
	if err := s.login(target, o); err != nil {
		return nil, errors.Join(fmt.Errorf("login to %s: %w", target, err), c.Close())
	}
	go s.receive()
	return s, nil
}

func (s *Session) login(target string, o Options) error {
	if err := s.c.SetDeadline(time.Now().Add(loginTimeout)); err != nil {
		return err
	}
	if _, err := s.stage(stageSecurity, stageOperational, "InitiatorName="+name, "TargetName="+target, "SessionType=Normal", "AuthMethod=None"); err != nil {
		return err
	}
	digest := map[bool]string{true: "CRC32C", false: "None"}
	keys, err := s.stage(stageOperational, stageFull,
		"HeaderDigest="+digest[o.HeaderDigest], "DataDigest="+digest[o.DataDigest],
		"MaxRecvDataSegmentLength="+strconv.Itoa(receiveMax), "MaxBurstLength="+strconv.Itoa(maxBurst), "FirstBurstLength="+strconv.Itoa(firstBurst),
		"InitialR2T=Yes", "ImmediateData=Yes", "MaxOutstandingR2T=1", "MaxConnections=1", "ErrorRecoveryLevel=0",
		"DataPDUInOrder=Yes", "DataSequenceInOrder=Yes", "DefaultTime2Wait=2", "DefaultTime2Retain=0")
	if err != nil {
		return err
	}
	for key, want := range map[string]bool{"HeaderDigest": o.HeaderDigest, "DataDigest": o.DataDigest} {
		if want && keys[key] != digest[true] {
			return fmt.Errorf("requested %s=%s, the target answers %q", key, digest[true], keys[key])
		}
	}
	a := &s.agreed
	a.digests, a.immediate = o, keys["ImmediateData"] != "No"
	if a.first, err = number(keys, "FirstBurstLength", firstBurst); err != nil {
		return err
	}
	if a.sendMax, err = number(keys, "MaxRecvDataSegmentLength", 8192); err != nil {
		return err
	}
	a.first = min(a.first, a.sendMax)
	return s.c.SetDeadline(time.Time{})
}

func number(keys map[string]string, key string, otherwise int) (int, error) {
	value, ok := keys[key]
	if !ok {
		return otherwise, nil
	}
	n, err := strconv.Atoi(value)
	if err == nil && n <= 0 {
		err = errors.New("not above zero")
	}
	if err != nil {
		return 0, fmt.Errorf("%s=%s: %w", key, value, err)
	}
	return n, nil
}

// stage takes the login through one of its stages, and returns the target's keys.
func (s *Session) stage(current, next byte, keys ...string) (map[string]string, error) {
	pairs := map[string]string{}
	data := []byte(strings.Join(keys, "\x00") + "\x00")
	var text []byte
	for range rounds {
		p := pdu{data: data}
		data = nil
		p.header[0] = opLogin | immediate
		p.header[1] = final | current<<2 | next
		p.header[8] = 0x80 // a random ISID, which is always the same: each test has a target of its own
		p.header[13] = s.qualifier
		p.set(atTag, 1)
		p.set(atCmdSN, s.cmdSN)
		p.set(atExpStat, s.expStatSN)
		if _, err := s.c.Write(p.bytes(Options{})); err != nil {
			return nil, err
		}
		answer, err := receive(s.r, Options{})
		switch {
		case err != nil:
			return nil, err
		case answer.opcode() != opLoginResponse:
			return nil, fmt.Errorf("opcode %#x, not a login response", answer.opcode())
		case answer.header[36] != 0:
			return nil, fmt.Errorf("status %#02x%02x", answer.header[36], answer.header[37])
		}
		s.numbers(answer)
		text = append(text, answer.data...)
		if answer.header[1]&0x40 != 0 {
			continue
		}
		for _, key := range bytes.Split(text, []byte{0}) {
			if name, value, ok := strings.Cut(string(key), "="); ok {
				pairs[name] = value
			}
		}
		text = nil
		if answer.header[1]&final != 0 && answer.header[1]&3 == next {
			return pairs, nil
		}
	}
	return nil, fmt.Errorf("stage %d does not end", current)
}

func newSession(c net.Conn) *Session {
	s := &Session{c: c, r: bufio.NewReader(c), tasks: map[uint32]*Task{}, cmdSN: 1, maxCmdSN: 1, tag: 1, qualifier: byte(qualifiers.Add(1)), done: make(chan struct{})}
	s.changed.L = &s.mu
	return s
}
