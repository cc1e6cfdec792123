package nvmetcp

import (
	"bytes"
)

const (
	connectLength = 1024 // of the data of Connect
	maxNQN        = 223
	noController  = 0xffff
)

// Properties.
const (
	propertyCapabilities  = 0x00
	propertyVersion       = 0x08
	propertyConfiguration = 0x14
	propertyStatus        = 0x1c
)

const (
	version = 1<<16 | 4<<8 // 1.4
	// capabilities are queues of queueSize commands, contiguous, half a minute to become ready, and the NVM command
	// set.
	capabilities = queueSize - 1 | 1<<16 | 60<<24 | 1<<37

	enabled      = 1
	shutdownMask = 3 << 14
	ready        = 1
	shutDown     = 2 << 2
)

func (c *connection) doFabrics(r *request) error {
	kind := r.fabrics()
	if (kind == fabricsConnect) != (c.controller == nil) || kind != fabricsConnect && c.queue != 0 {
		return c.respond(r.command, SequenceError|DoNotRetry, 0)
	}
	switch kind {
	case fabricsConnect:
		return c.connect(r)
	case fabricsPropertyGet:
		return c.property(r)
	case fabricsPropertySet:
		if r.long(44) != propertyConfiguration {
			return c.respond(r.command, InvalidField|DoNotRetry, 0)
		}
		c.controller.mu.Lock()
		c.controller.configuration = r.long(48)
		c.controller.mu.Unlock()
		return c.respond(r.command, Success, 0)
	}
	return c.respond(r.command, InvalidOpcode|DoNotRetry, 0)
}

// connect makes the connection a queue of a new controller, or of one that is there.
func (c *connection) connect(r *request) error {
	refuse := func(at int) error { // the offset of what is wrong: in the data
		return c.respond(r.command, ConnectInvalid|DoNotRetry, 1<<16|uint64(at))
	}
	if len(r.data) != connectLength || r.word(40) != 0 {
		return c.respond(r.command, InvalidField|DoNotRetry, 0)
	}
	queue, last, id := r.word(42), r.word(44), le.Uint16(r.data[16:])
	if last == 0 || last >= queueSize || int(queue) > c.target.o.Queues {
		return c.respond(r.command, ConnectInvalid|DoNotRetry, 42)
	}
	if text(r.data[256:512]) != c.target.o.NQN {
		return refuse(256)
	}
	host := text(r.data[512:768])
	var one *controller
	if queue == 0 {
		if id != noController {
			return refuse(16)
		}
		one = c.target.newController(host)
	} else if one = c.target.controllerOf(id, host); one == nil {
		return refuse(16)
	}
	one.mu.Lock()
	taken := one.queues[queue] != nil || queue > 0 && one.configuration&enabled == 0
	if !taken {
		one.queues[queue] = c
	}
	one.mu.Unlock()
	if taken {
		return c.respond(r.command, SequenceError|DoNotRetry, 0)
	}
	c.controller, c.queue, c.size, c.unlimited = one, queue, last+1, r.byte(46)&(1<<2) != 0
	if queue > 0 {
		c.startWorkers()
	}
	return c.respond(r.command, Success, uint64(one.id))
}

// property answers what the controller is.
func (c *connection) property(r *request) error {
	c.controller.mu.Lock()
	configuration := c.controller.configuration
	c.controller.mu.Unlock()
	var value uint64
	switch r.long(44) {
	case propertyCapabilities:
		value = capabilities
	case propertyVersion:
		value = version
	case propertyConfiguration:
		value = uint64(configuration)
	case propertyStatus:
		if configuration&enabled != 0 {
			value = ready
		}
		if configuration&shutdownMask != 0 {
			value |= shutDown
		}
	default:
		return c.respond(r.command, InvalidField|DoNotRetry, 0)
	}
	return c.respond(r.command, Success, value)
}

// text is what is before the first zero.
func text(b []byte) string {
	before, _, _ := bytes.Cut(b, []byte{0})
	return string(before)
}
