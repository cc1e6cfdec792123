package replica

import (
	bpf "github.com/plumbline/plumbline/exporters/agent/bpf/replica"
	"github.com/plumbline/plumbline/exporters/agent/operation"
)

// What is stalled is seen by sampling, once a second: no tracepoint fires for a process that does not read its socket,
// or that is stopped. All times here are the kernel's monotonic clock in nanoseconds, 0 for none.

// watchedSocket is a data connection's socket as the latest samples found it.
type watchedSocket struct {
	slot       uint32
	view       operation.View
	peer       uint32
	connection uint32 // its number in the kernel's maps; 0 if no message was seen on it
	tcp        bool

	// unread are the bytes that lie in it; since is when the first sample found that nothing had
	// been read in between, age how long that was at the latest sample.
	unread uint32
	since  uint64
	age    uint64
	mark   uint64

	// half is the message that was sent in part, and no more since the sample before, though nothing keeps the process
	// from sending the rest; halfway is true if there is one, and sent are the bytes that the programs saw it send.
	half    uint64
	halfway bool
	sent    uint32

	// offset is what the kernel has moved for the process in the direction of the answers,
	// less what the programs saw: it stays the same unless bytes go by unseen.
	offset        uint32
	known         bool
	missedSince   uint64
	missedSamples int
	missedUntil   uint64 // operations from before are taken for answered unseen
}

// sample takes a newer sample of a socket. before and after are when the sample began and ended, and stopped is true if
// its process is stopped.
func (w *watchedSocket) sample(s *bpf.SocketState, c *bpf.Connection, before, after uint64, stopped bool) {
	mark := s.Front
	switch {
	case w.tcp:
		mark = uint64(s.Read)
	case c != nil:
		mark = uint64(c.Rx.Moved)
	}
	if s.Unread == 0 || w.unread == 0 || mark != w.mark {
		w.since, w.age = after, 0
	} else {
		w.age = before - min(before, w.since)
	}
	w.unread, w.mark = s.Unread, mark
	w.checkHalfway(s, c, stopped)
	if c == nil || c.Id != w.connection {
		w.known, w.missedSince, w.missedUntil = false, 0, 0
	}
	if c != nil {
		w.connection = c.Id
		if w.tcp {
			w.count(s, c, before)
		}
	}
}

// checkHalfway finds a message that was sent in part. The other end has taken that part; of a unix socket this is not
// to be seen, and a process that is stopped is what is known to hold up the rest.
func (w *watchedSocket) checkHalfway(s *bpf.SocketState, c *bpf.Connection, stopped bool) {
	w.halfway = c != nil && c.Id == w.connection && c.Tx.Skip > 0 && c.Tx.Moved == w.sent && (w.tcp && s.Unsent == 0 || !w.tcp && stopped)
	if c != nil {
		w.half, w.sent = c.Tx.Message.Id, c.Tx.Moved
	}
}

// count compares the bytes that the programs saw with those that the kernel moved.
func (w *watchedSocket) count(s *bpf.SocketState, c *bpf.Connection, now uint64) {
	offset := s.Read - c.Rx.Moved
	if w.view != operation.ViewRequest {
		offset = s.Written - c.Tx.Moved
		if s.Unsent > 0 && w.known && offset != w.offset {
			return // a write may be under way that waits for the other end
		}
	}
	switch missing := int32(offset - w.offset); {
	case !w.known || missing < 0:
		// The first sample may have met a call under way; the lowest one is right.
		w.known, w.offset, w.missedSince = true, offset, 0
	case missing == 0:
		w.missedSince = 0
	case w.missedSince == 0:
		w.missedSince, w.missedSamples = now, 1
	default:
		w.missedSamples++
		if now-w.missedSince >= uint64(missedFor) && w.missedSamples >= missedSamples {
			w.missedUntil = w.missedSince
			w.offset, w.missedSince = offset, 0
		}
	}
}

// stopped is for how long a process has been stopped, as of the latest sample.
type stopped struct {
	since, age, switches uint64
}

func (p *stopped) sample(s *bpf.SocketState, before, after uint64) {
	switch {
	case s.Flags&uint8(bpf.SocketStopped|bpf.SocketFrozen) == 0:
		*p = stopped{}
	case p.since == 0 || s.Switches != p.switches:
		*p = stopped{since: after, switches: s.Switches}
	default:
		p.age = before - min(before, p.since)
	}
}
