package nvmetcp

const (
	featureQueues = 0x07
	// maxEvents is how many requests for events are held.
	maxEvents = 4
)

func (c *connection) doAdmin(r *request) error {
	switch r.opcode() {
	case adminIdentify:
		page, status := c.identify(r.command)
		if status != Success {
			return c.respond(r.command, status, 0)
		}
		return c.give(r.command, page[:min(len(page), int(r.dataLength()))], false)
	case adminGetLogPage:
		n := r.dataLength()
		if n == 0 || n > maxTransfer {
			return c.respond(r.command, InvalidField|DoNotRetry, 0)
		}
		return c.give(r.command, make([]byte, n), false)
	case adminSetFeatures, adminGetFeatures:
		return c.respond(r.command, Success, uint64(c.feature(r.command)))
	case adminAsyncEvent:
		if c.events++; c.events > maxEvents {
			return c.respond(r.command, TooManyEvents, 0)
		}
		return nil // nothing ever happens
	case adminKeepAlive:
		return c.respond(r.command, Success, 0)
	case adminAbort:
		return c.respond(r.command, Success, 1) // not aborted
	}
	return c.respond(r.command, InvalidOpcode|DoNotRetry, 0)
}

// feature sets a feature or returns its value. Only the number of queues is supported.
func (c *connection) feature(f command) uint32 {
	which, value := f.byte(40), f.long(44)
	c.controller.mu.Lock()
	defer c.controller.mu.Unlock()
	if f.opcode() == adminGetFeatures {
		return c.controller.features[which]
	}
	if which == featureQueues {
		last := uint32(c.target.o.Queues - 1)
		value = min(value&0xffff, last) | min(value>>16, last)<<16
		c.controller.features[which] = value
		return value
	}
	c.controller.features[which] = value
	return 0
}
