package nvmetcp

import (
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// Task is a command under way.
type Task struct {
	// Short is whether the target ended it without a response, R2Ts how often it requested data, and DataPDUs how many
	// it sent: valid once Wait has returned.
	Short          bool
	R2Ts, DataPDUs int

	command Command
	data    []byte
	got     int
	result  uint64
	head    uint16 // of the queue, from the response
	err     error
	done    chan struct{}
}

// Wait returns what a command has read, and its error: a Status if the target has answered.
func (t *Task) Wait() ([]byte, error) {
	<-t.done
	return t.data, t.err
}

// ErrDamaged is the error of a command whose data came with a wrong digest.
var ErrDamaged = errors.New("wrong data digest")

// hostQueue is one connection.
type hostQueue struct {
	*wire
	capsule, most int           // how much data a command may have with it, and a PDU of data
	multiple      int           // where data begin in the target's PDUs
	room          chan struct{} // has an element for each command under way
	group         sync.WaitGroup
	silent        atomic.Bool // the test sends the data that the target requests

	mu    sync.Mutex
	err   error // why it has ended
	tasks map[uint16]*Task
	last  uint16
}

// newHostQueue agrees with the target on what the connection uses, which has to be what was requested.
func newHostQueue(c net.Conn, size int, o HostOptions) (*hostQueue, error) {
	q := &hostQueue{wire: newWire(c), capsule: inCapsule, multiple: max(o.Alignment, 4),
		room: make(chan struct{}, max(size-1, 1)), tasks: map[uint16]*Task{}}
	var digests byte
	if o.HeaderDigest {
		digests |= 1
	}
	if o.DataDigest {
		digests |= 2
	}
	p := newPDU(kindICReq)
	p.header[10], p.header[11] = byte(max(o.Alignment/4-1, 0)), digests
	if err := c.SetDeadline(time.Now().Add(connectTime)); err != nil {
		return nil, err
	}
	if err := q.send(p); err != nil {
		return nil, err
	}
	answer, err := q.receive(nil)
	if err != nil {
		return nil, err
	}
	if answer.kind() != kindICResp || answer.word(8) != 0 || answer.header[11] != digests || answer.header[10] > 31 || answer.long(12) < 4096 {
		return nil, fmt.Errorf("the target agrees to something else: % x", answer.header[:16])
	}
	q.alignment, q.most = 4*(int(answer.header[10])+1), int(answer.long(12))
	q.headerDigest, q.dataDigest = o.HeaderDigest, o.DataDigest
	if err := c.SetDeadline(time.Time{}); err != nil {
		return nil, err
	}
	q.group.Go(q.run)
	return q, nil
}

// end ends the connection.
func (q *hostQueue) end() {
	_ = q.Close()
	q.group.Wait()
}

func (q *hostQueue) do(c Command) (*Task, error) {
	t, err := q.submit(c)
	if err == nil {
		_, err = t.Wait()
	}
	return t, err
}

func (q *hostQueue) submit(c Command) (*Task, error) {
	q.room <- struct{}{}
	t := &Task{command: c, data: make([]byte, c.Read), done: make(chan struct{})}
	e := append(command(nil), c.entry...)
	p := newPDU(kindCommand)
	switch n := len(c.Write); {
	case n > 0 && n <= q.capsule:
		e.describe(sglInCapsule, n)
		p.data = c.Write
	default:
		e.describe(sglTransport, n+c.Read)
	}
	q.mu.Lock()
	if q.err != nil {
		q.mu.Unlock()
		<-q.room
		return nil, q.err
	}
	for q.last++; q.tasks[q.last] != nil; q.last++ {
	}
	le.PutUint16(e[2:], q.last)
	q.tasks[q.last] = t
	q.mu.Unlock()
	copy(p.body(), e)
	// The receiver gets a failure, too, with its reason, and ends the command.
	_ = q.send(p)
	return t, nil
}

// run receives until the connection ends, and ends what is under way then.
func (q *hostQueue) run() {
	err := q.receiveAll()
	_ = q.Close()
	q.mu.Lock()
	defer q.mu.Unlock()
	q.err = fmt.Errorf("the connection has ended: %w", err)
	for id := range q.tasks {
		q.finish(id, q.err)
	}
}

func (q *hostQueue) receiveAll() error {
	for {
		p, err := q.receive(q.place)
		if err != nil {
			return err
		}
		if p.kind() == kindTargetEnds {
			return fatal(p.word(8), "the target ends it")
		}
		q.mu.Lock()
		switch p.kind() {
		case kindTargetData:
			err = q.takeData(p)
		case kindR2T:
			err = q.giveData(p)
		case kindResponse:
			err = q.takeResponse(p)
		default:
			err = fmt.Errorf("a PDU of kind %#x", p.kind())
		}
		q.mu.Unlock()
		if err != nil {
			return err
		}
	}
}

// finish ends a command. The lock is held.
func (q *hostQueue) finish(id uint16, err error) {
	t := q.tasks[id]
	delete(q.tasks, id)
	if err == nil && t.got != t.command.Read {
		err = fmt.Errorf("%d bytes, not %d", t.got, t.command.Read)
	}
	if t.err == nil {
		t.err = err
	}
	close(t.done)
	<-q.room
}

// place is where a read's data go.
func (q *hostQueue) place(p *pdu, n int) ([]byte, error) {
	if p.kind() != kindTargetData {
		return nil, nil
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	t := q.tasks[p.word(8)]
	if t == nil || int(p.long(12)) != t.got || int(p.long(16)) != n || n > len(t.data)-t.got {
		return nil, fmt.Errorf("%d bytes at %d for command %d, which does not await them", n, p.long(12), p.word(8))
	}
	return t.data[t.got : t.got+n], nil
}

func (q *hostQueue) takeData(p *pdu) error {
	t := q.tasks[p.word(8)]
	if t == nil || len(p.data) == 0 || int(p.header[3])%q.multiple != 0 {
		return fmt.Errorf("%d bytes of data for command %d, from %d on", len(p.data), p.word(8), p.header[3])
	}
	t.got += len(p.data)
	t.DataPDUs++
	if p.damaged {
		t.err = ErrDamaged
	}
	if p.has(flagLast) != (t.got == t.command.Read) || p.has(flagSuccess) && !p.has(flagLast) {
		return fmt.Errorf("flags %#x after %d bytes of %d", p.header[1], t.got, t.command.Read)
	}
	if p.has(flagSuccess) {
		t.Short = true
		q.finish(p.word(8), nil)
	}
	return nil
}

func (q *hostQueue) takeResponse(p *pdu) error {
	b := p.body()
	id := le.Uint16(b[12:])
	t := q.tasks[id]
	if t == nil {
		return fmt.Errorf("a response to command %d, which is not under way", id)
	}
	t.result, t.head = le.Uint64(b), le.Uint16(b[8:])
	if status := Status(le.Uint16(b[14:]) >> 1); status != Success {
		q.finish(id, status)
	} else {
		q.finish(id, nil)
	}
	return nil
}

// giveData sends data that the target requests, not on the receiving goroutine: the target may be sending, too.
func (q *hostQueue) giveData(p *pdu) error {
	t := q.tasks[p.word(8)]
	from, n := int(p.long(12)), int(p.long(16))
	if t == nil || from+n > len(t.command.Write) || n == 0 {
		return fmt.Errorf("the target requests %d bytes at %d of command %d", n, from, p.word(8))
	}
	t.R2Ts++
	if q.silent.Load() {
		return nil
	}
	data := t.command.Write
	q.group.Go(func() {
		for at := from; at < from+n; at += q.most {
			d := newPDU(kindHostData)
			d.data = data[at:min(at+q.most, from+n)]
			copy(d.header[8:12], p.header[8:12]) // the command and the tag
			d.setLong(12, uint32(at))
			d.setLong(16, uint32(len(d.data)))
			if at+len(d.data) == from+n {
				d.header[1] = flagLast
			}
			if q.send(d) != nil {
				return
			}
		}
	})
	return nil
}
