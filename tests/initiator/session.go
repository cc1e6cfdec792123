// Package initiator is a small iSCSI initiator (RFC 7143) for tests: one connection, error recovery level 0, no
// authentication.
package initiator

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
)

// qualifiers distinguish the sessions of one process.
var qualifiers atomic.Uint32

// ErrAborted is the result of a command that was aborted.
var ErrAborted = errors.New("aborted")

// Session is a connection to a target, for several commands at a time. All its methods may be called at once.
type Session struct {
	c         net.Conn
	r         *bufio.Reader
	agreed    agreement
	qualifier byte
	done      chan struct{} // closed when nothing more is received

	mu        sync.Mutex
	changed   sync.Cond  // maxCmdSN or err
	turn      sync.Mutex // a command's, held while it waits for the target
	sending   sync.Mutex
	tasks     map[uint32]*Task
	tag       uint32
	cmdSN     uint32
	maxCmdSN  uint32
	expStatSN uint32
	closed    bool
	err       error
}

// Command is sent to a logical unit (below 256).
type Command struct {
	LUN int
	// CDB has up to 16 bytes.
	CDB []byte
	// Write is what is sent, Read how much is expected; a command has one of them at most.
	Write []byte
	Read  int
}

// Result is a command's.
type Result struct {
	// Data is what was read.
	Data []byte
	// Err is a *StatusError if the target has answered by an error.
	Err error
}

// StatusError is an answer that reports an error.
type StatusError struct {
	// Response is the target's, Status the logical unit's.
	Response, Status byte
	// Sense is the unit's sense data on it.
	Sense []byte
}

func (e *StatusError) Error() string {
	return fmt.Sprintf("response %#x, status %#x, sense %x", e.Response, e.Status, e.Sense)
}

// key is the sense key; 0 if there is none.
func (e *StatusError) key() byte {
	if len(e.Sense) < 3 {
		return 0
	}
	return e.Sense[2] & 0xf
}

// Task is a command that was sent.
type Task struct {
	// Tag is its initiator task tag.
	Tag uint32
	// Done has its result, once.
	Done <-chan Result

	done    chan Result
	command Command
	cmdSN   uint32
	data    []byte
	answer  *pdu // of a task management request or logout
}

// Wait returns a task's result.
func (t *Task) Wait() ([]byte, error) {
	r := <-t.Done
	return r.Data, r.Err
}

// Submit sends a command, once the target takes one more, and returns before its answer.
func (s *Session) Submit(c Command) (*Task, error) {
	t, p := newTask(c)
	p.header[0], p.header[1] = opCommand, final|1 // a simple task
	p.setLUN(c.LUN)
	copy(p.header[32:], c.CDB)
	switch {
	case len(c.CDB) > 16 || c.LUN < 0 || c.LUN > 255 || len(c.Write) > 0 && c.Read > 0:
		return nil, fmt.Errorf("command of %d bytes for unit %d that writes %d bytes and reads %d", len(c.CDB), c.LUN, len(c.Write), c.Read)
	case len(c.Write) > 0:
		p.header[1] |= 0x20
		p.set(atLength, uint32(len(c.Write)))
		if s.agreed.immediate {
			p.data = c.Write[:min(len(c.Write), s.agreed.first)]
		}
	case c.Read > 0:
		p.header[1] |= 0x40
		p.set(atLength, uint32(c.Read))
		t.data = make([]byte, 0, c.Read)
	}
	return t, s.start(t, p)
}

func newTask(c Command) (*Task, *pdu) {
	done := make(chan Result, 1)
	return &Task{Done: done, done: done, command: c}, &pdu{}
}

// start gives a message its numbers and sends it. One that is not immediate waits until the target takes one more.
func (s *Session) start(t *Task, p *pdu) error {
	inTurn := p.header[0]&immediate == 0
	if inTurn {
		s.turn.Lock()
		defer s.turn.Unlock()
		s.mu.Lock()
		for s.err == nil && int32(s.maxCmdSN-s.cmdSN) < 0 {
			s.changed.Wait()
		}
		s.mu.Unlock()
	}
	// Not before: data of earlier commands may have to be sent until the target takes one more.
	s.sending.Lock()
	defer s.sending.Unlock()
	if err := s.enter(t, p, inTurn); err != nil {
		return err
	}
	return s.write(p)
}

// enter gives a message its numbers.
func (s *Session) enter(t *Task, p *pdu, inTurn bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return s.err
	}
	if s.tag++; s.tag == noTag {
		s.tag = 1
	}
	t.Tag, t.cmdSN = s.tag, s.cmdSN
	s.tasks[t.Tag] = t
	p.set(atTag, t.Tag)
	p.set(atCmdSN, s.cmdSN)
	if inTurn {
		s.cmdSN++
	}
	p.set(atExpStat, s.expStatSN)
	return nil
}

// send sends a message that has no number of its own.
func (s *Session) send(p *pdu) error {
	s.sending.Lock()
	defer s.sending.Unlock()
	s.mu.Lock()
	p.set(atExpStat, s.expStatSN)
	s.mu.Unlock()
	return s.write(p)
}

func (s *Session) write(p *pdu) error {
	_, err := s.c.Write(p.bytes(s.agreed.digests))
	return err
}

// numbers updates its and our numbers from a message of the target.
func (s *Session) numbers(p *pdu) {
	s.mu.Lock()
	defer s.mu.Unlock()
	status := p.opcode() != opR2T && (p.opcode() != opDataIn || p.header[1]&1 != 0) && p.number(atTag) != noTag
	if status {
		s.expStatSN = p.number(atStatSN) + 1
	}
	if most := p.number(atMaxCmd); int32(most-s.maxCmdSN) > 0 {
		s.maxCmdSN = most
		s.changed.Broadcast()
	}
}

// finish ends a task; it may have been ended before.
func (s *Session) finish(tag uint32, r Result) {
	s.mu.Lock()
	t := s.tasks[tag]
	delete(s.tasks, tag)
	s.mu.Unlock()
	if t != nil {
		t.done <- r
	}
}

func (s *Session) task(tag uint32) *Task {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.tasks[tag]
}

// Close ends the connection at once. Commands that were not answered fail.
func (s *Session) Close() error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	err := s.c.Close()
	<-s.done
	return err
}

// LocalPort is the connection's own port.
func (s *Session) LocalPort() int { return s.c.LocalAddr().(*net.TCPAddr).Port }
