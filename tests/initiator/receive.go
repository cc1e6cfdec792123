package initiator

import (
	"errors"
	"fmt"
	"io"
	"net"
)

// errUnmatched means that the target answered what is none of the commands under way.
var errUnmatched = errors.New("an answer to none of the commands")

// receive takes what the target sends until the connection ends.
func (s *Session) receive() {
	defer close(s.done)
	var err error
	for err == nil {
		var p *pdu
		if p, err = receive(s.r, s.agreed.digests); err == nil {
			s.numbers(p)
			err = s.handle(p)
		}
	}
	s.mu.Lock()
	if s.closed || errors.Is(err, io.EOF) {
		err = net.ErrClosed
	}
	s.err = err
	left := s.tasks
	s.tasks = map[uint32]*Task{}
	s.changed.Broadcast()
	s.mu.Unlock()
	for _, t := range left {
		t.done <- Result{Err: err}
	}
}

func (s *Session) handle(p *pdu) error {
	tag := p.number(atTag)
	t := s.task(tag)
	switch p.opcode() {
	case opNopIn:
		if p.number(atTransfer) != noTag {
			pong := &pdu{data: p.data}
			pong.header = [headerSize]byte{opNopOut | immediate, final}
			copy(pong.header[8:16], p.header[8:16])
			pong.set(atTag, noTag)
			pong.set(atTransfer, p.number(atTransfer))
			s.mu.Lock()
			pong.set(atCmdSN, s.cmdSN)
			s.mu.Unlock()
			s.later(pong)
		}
		return nil
	case opAsync:
		return errors.New("an asynchronous message of the target: the connection's end, or one that this initiator does not know")
	case opReject:
		return fmt.Errorf("rejected, for reason %#x", p.header[2])
	}
	if t == nil {
		return fmt.Errorf("%w: opcode %#x with tag %#x", errUnmatched, p.opcode(), tag)
	}
	switch p.opcode() {
	case opDataIn:
		if err := t.take(p); err != nil {
			return err
		}
		if p.header[1]&1 != 0 {
			s.finish(tag, Result{Data: t.data, Err: status(0, p.header[3], nil)})
		}
	case opResponse:
		s.finish(tag, Result{Data: t.data, Err: status(p.header[2], p.header[3], p.data)})
	case opR2T:
		messages, err := s.dataOut(t, p)
		if err != nil {
			return err
		}
		s.later(messages...)
	case opTaskResponse, opLogoutAnswer:
		t.answer = p
		s.finish(tag, Result{})
	default:
		return fmt.Errorf("opcode %#x", p.opcode())
	}
	return nil
}

// later sends messages, and does not wait until the target has taken them: it may wait until we take its own. That they
// could not be sent shows when the connection ends.
func (s *Session) later(messages ...*pdu) {
	go func() {
		for _, p := range messages {
			if s.send(p) != nil {
				return
			}
		}
	}()
}

// take adds a part of what was read; parts come in order.
func (t *Task) take(p *pdu) error {
	if at := p.number(atOffset); int(at) != len(t.data) || len(t.data)+len(p.data) > t.command.Read {
		return fmt.Errorf("%d bytes of data at %d of %d, after %d", len(p.data), at, t.command.Read, len(t.data))
	}
	t.data = append(t.data, p.data...)
	return nil
}

// dataOut is what the target is ready for.
func (s *Session) dataOut(t *Task, r2t *pdu) (messages []*pdu, err error) {
	at, end := int(r2t.number(atOffset)), int(r2t.number(atOffset))+int(r2t.number(atDesired))
	if end > len(t.command.Write) || at >= end {
		return nil, fmt.Errorf("ready for %d to %d of %d bytes", at, end, len(t.command.Write))
	}
	for at < end {
		p := &pdu{data: t.command.Write[at:min(end, at+s.agreed.sendMax)]}
		p.header[0] = opDataOut
		if at+len(p.data) == end {
			p.header[1] = final
		}
		copy(p.header[8:16], r2t.header[8:16])
		p.set(atTag, t.Tag)
		p.set(atTransfer, r2t.number(atTransfer))
		p.set(atDataSN, uint32(len(messages)))
		p.set(atOffset, uint32(at))
		messages = append(messages, p)
		at += len(p.data)
	}
	return messages, nil
}

// status is nil if all is well. Sense data has its own length before it.
func status(response, status byte, data []byte) error {
	if response == 0 && status == 0 {
		return nil
	}
	e := &StatusError{Response: response, Status: status}
	if len(data) >= 2 {
		e.Sense = data[2:min(len(data), 2+int(be.Uint16(data)))]
	}
	return e
}
