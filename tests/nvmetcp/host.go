package nvmetcp

import (
	"errors"
	"fmt"
	"math"
	"net"
	"time"
)

// HostOptions are what a host requests.
type HostOptions struct {
	HeaderDigest, DataDigest bool
	// NoFlowControl lets the target end reads without a response.
	NoFlowControl bool
	// QueueSize is how many commands each I/O queue has, at most and if it is 0: 128. One less is under way at most.
	QueueSize int
	// Alignment is that of the data in the target's PDUs, in bytes: a multiple of 4 up to 128, or 0.
	Alignment int
}

// Host is what an initiator has of a subsystem: a controller with an admin queue and I/O queues. Several may use it at
// once.
type Host struct {
	// Blocks is the size of the namespace.
	Blocks uint64

	id     uint16
	o      HostOptions
	admin  *hostQueue
	queues []*hostQueue
}

const (
	hostNQN = "nqn.2026-11.io.plumbline:test-host"
	// connectTime is what connecting may take.
	connectTime = 30 * time.Second
	// The bits of the property CC beside the one that enables: the sizes of entries of queues.
	configured = 6<<16 | 4<<20
	adminSize  = 32
)

// Connect connects to a subsystem, with this many I/O queues.
func Connect(address, nqn string, queues int, o HostOptions) (*Host, error) {
	if o.QueueSize == 0 {
		o.QueueSize = queueSize
	}
	h := &Host{id: noController, o: o}
	if err := h.connect(address, nqn, queues); err != nil {
		h.end()
		return nil, err
	}
	return h, nil
}

func (h *Host) connect(address, nqn string, queues int) (err error) {
	if h.admin, err = h.open(address, nqn, 0, adminSize); err != nil {
		return err
	}
	if err := h.enable(); err != nil {
		return err
	}
	page, err := h.identify(identifyController, 0)
	if err != nil {
		return err
	}
	if text(page[768:1024]) != nqn || le.Uint16(page[78:]) != h.id || page[525]&1 == 0 {
		return fmt.Errorf("it is controller %d of %s, with a cache: %v", le.Uint16(page[78:]), text(page[768:1024]), page[525]&1 == 1)
	}
	capsule := int(le.Uint32(page[1792:]))*16 - commandLength
	if page, err = h.identify(identifyNamespace, namespaceID); err != nil {
		return err
	}
	if h.Blocks = le.Uint64(page); page[130] != 9 {
		return fmt.Errorf("blocks of 2^%d bytes", page[130])
	}
	if _, err := h.admin.submit(Command{entry: newCommand(adminAsyncEvent)}); err != nil { // as Linux does
		return err
	}
	f := newCommand(adminSetFeatures)
	f[40] = featureQueues
	le.PutUint32(f[44:], uint32(queues-1)*(1<<16|1))
	given, err := h.admin.do(Command{entry: f})
	if err != nil {
		return err
	}
	if n := int(given.result&math.MaxUint16) + 1; n < queues {
		return fmt.Errorf("%d queues, not %d", n, queues)
	}
	for i := range queues {
		q, err := h.open(address, nqn, uint16(i+1), h.o.QueueSize)
		if err != nil {
			return fmt.Errorf("queue %d: %w", i, err)
		}
		q.capsule = capsule
		h.queues = append(h.queues, q)
	}
	return nil
}

// open opens one queue.
func (h *Host) open(address, nqn string, queue uint16, size int) (*hostQueue, error) {
	c, err := net.DialTimeout("tcp", address, connectTime)
	if err != nil {
		return nil, err
	}
	q, err := newHostQueue(c, size, h.o)
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	e := newCommand(opFabrics)
	e[4] = fabricsConnect
	le.PutUint16(e[42:], queue)
	le.PutUint16(e[44:], uint16(size-1))
	if h.o.NoFlowControl && queue > 0 {
		e[46] = 1 << 2
	}
	data := make([]byte, connectLength)
	data[0] = 1 // the host's id
	le.PutUint16(data[16:], h.id)
	copy(data[256:], nqn)
	copy(data[512:], hostNQN)
	t, err := q.do(Command{entry: e, Write: data})
	if err != nil {
		q.end()
		return nil, err
	}
	if queue == 0 {
		h.id = uint16(t.result)
	}
	return q, nil
}

// enable has the controller become ready.
func (h *Host) enable() error {
	capabilities, err := h.property(propertyCapabilities)
	if err != nil {
		return err
	}
	if h.o.QueueSize > int(capabilities&math.MaxUint16)+1 {
		return fmt.Errorf("queues have at most %d commands", capabilities&math.MaxUint16+1)
	}
	if err := h.configure(configured | enabled); err != nil {
		return err
	}
	for deadline := time.Now().Add(connectTime); ; {
		status, err := h.property(propertyStatus)
		if err != nil || status&ready != 0 {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("not ready: status %#x", status)
		}
	}
}

func (h *Host) property(which uint32) (uint64, error) {
	e := newCommand(opFabrics)
	e[4] = fabricsPropertyGet
	if which == propertyCapabilities {
		e[40] = 1 // eight bytes
	}
	le.PutUint32(e[44:], which)
	t, err := h.admin.do(Command{entry: e})
	if err != nil {
		return 0, fmt.Errorf("property %#x: %w", which, err)
	}
	return t.result, nil
}

func (h *Host) configure(value uint64) error {
	e := newCommand(opFabrics)
	e[4] = fabricsPropertySet
	le.PutUint32(e[44:], propertyConfiguration)
	le.PutUint64(e[48:], value)
	_, err := h.admin.do(Command{entry: e})
	return err
}

func (h *Host) identify(what byte, namespace uint32) ([]byte, error) {
	e := newCommand(adminIdentify)
	le.PutUint32(e[4:], namespace)
	e[40] = what
	t, err := h.admin.do(Command{entry: e, Read: identifyLength})
	if err != nil {
		return nil, fmt.Errorf("identify %#x: %w", what, err)
	}
	return t.data, nil
}

// Close shuts the controller down and ends all connections, and with them what is under way.
func (h *Host) Close() error {
	err := h.configure(configured | enabled | 1<<14)
	h.end()
	return err
}

func (h *Host) end() {
	for _, q := range h.queues {
		q.end()
	}
	if h.admin != nil {
		h.admin.end()
	}
}
