package nvmetcp

import (
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
)

// Disk is what a target's namespace is made of. Several calls are under way at once.
type Disk interface {
	io.ReaderAt
	io.WriterAt
	// Sync returns once all that was written will last.
	Sync() error
}

// Options are what a target serves, and how.
type Options struct {
	// NQN is the subsystem's name.
	NQN string
	// Disk is the namespace, of this size in bytes.
	Disk Disk
	Size int64
	// Queues is how many I/O queues each controller has; 8 if it is 0.
	Queues int
	// Workers is how many commands of one I/O queue are done at once, and answered as they end; 4 if it is 0. With 1
	// all are answered in their order, except writes, whose data come later.
	Workers int
	// Each ShortEvery-th read of a queue ends with its data's SUCCESS flag, without a response; each second one if it
	// is 0, none if it is negative. That is allowed if the host has disabled flow control of its queue.
	ShortEvery int
	// AlwaysShort does it although the host has not disabled flow control: as SPDK's target does, and Linux tolerates.
	AlwaysShort bool
	// What reads or writes any of BadBlocks blocks from BadLBA on fails with a media error.
	BadLBA, BadBlocks uint64
	// Log, if there is one, gets the reason why a connection ends.
	Log func(format string, args ...any)
}

const (
	defaultQueues     = 8
	defaultWorkers    = 4
	defaultShortEvery = 2
)

// Target is a running target.
type Target struct {
	o        Options
	listener net.Listener
	group    sync.WaitGroup

	mu          sync.Mutex
	closed      bool
	connections map[*connection]bool
	controllers map[uint16]*controller
	lastID      uint16
}

// controller is what a host has of the subsystem. Others have others.
type controller struct {
	id   uint16
	host string // its NQN

	mu            sync.Mutex
	configuration uint32 // the property CC
	features      map[byte]uint32
	queues        map[uint16]*connection
}

// Start serves hosts that come to l, which it takes over.
func Start(l net.Listener, o Options) (*Target, error) {
	if o.NQN == "" || len(o.NQN) > maxNQN || o.Disk == nil || o.Size < BlockSize {
		return nil, fmt.Errorf("a target needs a name of at most %d bytes and a disk of at least a block", maxNQN)
	}
	if o.Queues == 0 {
		o.Queues = defaultQueues
	}
	if o.Workers == 0 {
		o.Workers = defaultWorkers
	}
	if o.ShortEvery == 0 {
		o.ShortEvery = defaultShortEvery
	}
	if o.Log == nil {
		o.Log = func(string, ...any) {}
	}
	t := &Target{o: o, listener: l, connections: map[*connection]bool{}, controllers: map[uint16]*controller{}}
	t.group.Go(t.accept)
	return t, nil
}

// Address is where the target listens.
func (t *Target) Address() string { return t.listener.Addr().String() }

// Close ends all connections, and returns once nothing of the target is left.
func (t *Target) Close() error {
	err := t.listener.Close()
	t.mu.Lock()
	t.closed = true
	for c := range t.connections {
		_ = c.Close()
	}
	t.mu.Unlock()
	t.group.Wait()
	return err
}

func (t *Target) accept() {
	for {
		n, err := t.listener.Accept()
		if err != nil {
			if !errors.Is(err, net.ErrClosed) {
				t.o.Log("accepting: %v", err)
			}
			return
		}
		c := &connection{wire: newWire(n), target: t, transfers: map[uint16]*request{}}
		t.mu.Lock()
		if t.closed {
			_ = n.Close()
		} else {
			t.connections[c] = true
			t.group.Go(c.serve)
		}
		t.mu.Unlock()
	}
}

// leave forgets a connection. A controller lasts as long as its admin queue.
func (t *Target) leave(c *connection) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.connections, c)
	if c.controller == nil {
		return
	}
	c.controller.mu.Lock()
	defer c.controller.mu.Unlock()
	delete(c.controller.queues, c.queue)
	if c.queue == 0 {
		delete(t.controllers, c.controller.id)
		for _, other := range c.controller.queues {
			_ = other.Close()
		}
	}
}

// newController makes one with a unique id.
func (t *Target) newController(host string) *controller {
	t.mu.Lock()
	defer t.mu.Unlock()
	for t.lastID++; t.lastID == 0 || t.lastID >= 0xfff0 || t.controllers[t.lastID] != nil; t.lastID++ {
	}
	one := &controller{id: t.lastID, host: host, features: map[byte]uint32{}, queues: map[uint16]*connection{}}
	t.controllers[one.id] = one
	return one
}

// controllerOf finds a host's.
func (t *Target) controllerOf(id uint16, host string) *controller {
	t.mu.Lock()
	defer t.mu.Unlock()
	if one := t.controllers[id]; one != nil && one.host == host {
		return one
	}
	return nil
}
