package nvmetcp

import (
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// inCapsule is how much data may come with a command.
	inCapsule = 8 << 10
	// maxR2T is how much data the target requests at once, and maxHostData how much of it may be in one PDU.
	maxR2T      = 64 << 10
	maxHostData = 32 << 10
	// maxTargetData is how much data is in one of the target's PDUs.
	maxTargetData = 16 << 10
	// maxTransfer is how much data a command can have: 2 to the power of maxTransferPower pages.
	maxTransfer      = 4096 << maxTransferPower
	maxTransferPower = 8
	// endTime is how long a host may take to end a connection once it is requested to.
	endTime = 30 * time.Second
	// queueSize is how many commands a queue holds at most.
	queueSize = 128
)

// connection is one queue of one host. One goroutine receives, and does what comes on the admin queue; workers do what
// comes on I/O queues.
type connection struct {
	*wire
	target     *Target
	controller *controller // once connected, as what follows
	queue      uint16
	size       uint16 // of the queue
	unlimited  bool   // the host wants no flow control
	work       chan *request
	workers    sync.WaitGroup

	head   atomic.Uint32 // commands taken from the queue
	reads  atomic.Uint64
	events int // requested

	transfers map[uint16]*request // writes whose data are awaited, by their tags
	lastTag   uint16
}

// request is a command with its data.
type request struct {
	command
	data    []byte
	damaged bool // on the way here

	tag            uint16
	got, requested int // how much of the data was received, and how much requested
}

// serve is what a connection does all its time.
func (c *connection) serve() {
	defer c.target.leave(c)
	defer c.workers.Wait()
	defer func() {
		if c.work != nil {
			close(c.work)
		}
	}()
	defer c.Close()
	err := c.begin()
	for err == nil {
		err = c.next()
	}
	var end *endError
	if errors.As(err, &end) {
		c.terminate(end.status)
	}
	if !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed) {
		c.target.o.Log("queue %d of %s: %v", c.queue, c.RemoteAddr(), err)
	}
}

// terminate sends the host the reason why the connection ends, and has the host end it: the end that closes a
// connection with unread data may lose what it sent last.
func (c *connection) terminate(status uint16) {
	p := newPDU(kindTargetEnds)
	p.setWord(8, status)
	if c.send(p) == nil && c.SetReadDeadline(time.Now().Add(endTime)) == nil {
		_, _ = io.Copy(io.Discard, c.r)
	}
}

// begin agrees on what the connection uses.
func (c *connection) begin() error {
	p, err := c.receive(nil)
	if err != nil {
		return err
	}
	if p.kind() != kindICReq || p.word(8) != 0 {
		return fatal(endSequence, "a connection begins with a PDU of kind %#x, format %d", p.kind(), p.word(8))
	}
	answer := newPDU(kindICResp)
	answer.header[11] = p.header[11] & 3
	answer.setLong(12, maxHostData)
	if err := c.send(answer); err != nil {
		return err
	}
	c.alignment = 4 * (int(p.header[10]) + 1)
	c.headerDigest, c.dataDigest = p.header[11]&1 != 0, p.header[11]&2 != 0
	return nil
}

// next handles the host's next PDU.
func (c *connection) next() error {
	p, err := c.receive(c.place)
	if err != nil {
		return err
	}
	switch p.kind() {
	case kindCommand:
		c.head.Add(1)
		return c.take(&request{command: command(p.body()), data: p.data, damaged: p.damaged})
	case kindHostData:
		return c.takeData(p)
	case kindHostEnds:
		c.target.o.Log("queue %d of %s: the host ends it with status %d", c.queue, c.RemoteAddr(), p.word(8))
		return io.EOF
	}
	return fatal(endSequence, "a PDU of kind %#x", p.kind())
}

// take has a command done once its data are here.
func (c *connection) take(r *request) error {
	length := int(r.dataLength())
	switch {
	case !r.towardsTarget() || length == 0:
		if len(r.data) > 0 {
			return fatal(endDataOutOfRange, "opcode %#x with %d bytes that belong to nothing", r.opcode(), len(r.data))
		}
		return c.do(r)
	case r.dataKind() == sglInCapsule:
		if r.dataOffset() != 0 || len(r.data) != length || length > inCapsule {
			return c.respond(r.command, DataLengthInvalid|DoNotRetry, 0)
		}
		return c.do(r)
	case r.dataKind() != sglTransport || len(r.data) > 0 || length > maxTransfer:
		return c.respond(r.command, InvalidField|DoNotRetry, 0)
	}
	r.data = memory(length)
	for c.lastTag++; c.transfers[c.lastTag] != nil; c.lastTag++ {
	}
	r.tag = c.lastTag
	c.transfers[r.tag] = r
	return c.requestData(r)
}

// requestData requests more of a command's data.
func (c *connection) requestData(r *request) error {
	n := min(len(r.data)-r.requested, maxR2T)
	p := newPDU(kindR2T)
	p.setWord(8, r.id())
	p.setWord(10, r.tag)
	p.setLong(12, uint32(r.requested))
	p.setLong(16, uint32(n))
	r.requested += n
	return c.send(p)
}

// place returns where requested data goes.
func (c *connection) place(p *pdu, n int) ([]byte, error) {
	if p.kind() != kindHostData {
		return nil, nil
	}
	r := c.transfers[p.word(10)]
	if r == nil || r.id() != p.word(8) {
		return nil, fatal(endInvalidHeader, "data for command %d, tag %d, that nobody requested", p.word(8), p.word(10))
	}
	if int(p.long(12)) != r.got || int(p.long(16)) != n || r.got+n > r.requested || n > maxHostData {
		return nil, fatal(endDataOutOfRange, "%d bytes for command %d at %d, and %d to %d were awaited", n, r.id(), p.long(12), r.got, r.requested)
	}
	return r.data[r.got : r.got+n], nil
}

func (c *connection) takeData(p *pdu) error {
	if len(p.data) == 0 {
		return fatal(endInvalidHeader, "a PDU for data without any")
	}
	r := c.transfers[p.word(10)]
	r.got += len(p.data)
	r.damaged = r.damaged || p.damaged
	if p.has(flagLast) != (r.got == r.requested) {
		return fatal(endSequence, "the requested data ends at %d, not %d", r.got, r.requested)
	}
	switch {
	case r.got < r.requested:
		return nil
	case r.got < len(r.data):
		return c.requestData(r)
	}
	delete(c.transfers, r.tag)
	return c.do(r)
}

// do has a command done now, or by a worker.
func (c *connection) do(r *request) error {
	switch {
	case r.damaged:
		return c.respond(r.command, TransportError, 0)
	case r.opcode() == opFabrics:
		return c.doFabrics(r)
	case c.controller == nil:
		return c.respond(r.command, SequenceError|DoNotRetry, 0)
	case c.queue == 0:
		return c.doAdmin(r)
	}
	c.work <- r
	return nil
}

// startWorkers begins to do commands of an I/O queue.
func (c *connection) startWorkers() {
	c.work = make(chan *request, queueSize)
	for range c.target.o.Workers {
		c.workers.Go(func() {
			for r := range c.work {
				if err := c.doIO(r); err != nil {
					_ = c.Close() // the receiver reports why
				}
			}
		})
	}
}

// respond ends a command.
func (c *connection) respond(to command, status Status, result uint64) error {
	p := newPDU(kindResponse)
	b := p.body()
	le.PutUint64(b, result)
	le.PutUint16(b[8:], 0xffff)
	if !c.unlimited && c.size > 0 {
		le.PutUint16(b[8:], uint16(c.head.Load()%uint32(c.size)))
	}
	le.PutUint16(b[10:], c.queue)
	le.PutUint16(b[12:], to.id())
	le.PutUint16(b[14:], uint16(status)<<1)
	return c.send(p)
}

// give sends a command's data, and ends it: by the data's last PDU, if short.
func (c *connection) give(to command, data []byte, short bool) error {
	for at := 0; at < len(data); at += maxTargetData {
		p := newPDU(kindTargetData)
		p.data = data[at:min(at+maxTargetData, len(data))]
		p.setWord(8, to.id())
		p.setLong(12, uint32(at))
		p.setLong(16, uint32(len(p.data)))
		if at+len(p.data) == len(data) {
			p.header[1] = flagLast
			if short {
				p.header[1] |= flagSuccess
			}
		}
		if err := c.send(p); err != nil {
			return err
		}
	}
	if short {
		return nil
	}
	return c.respond(to, Success, 0)
}
