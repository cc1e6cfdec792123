package nvmetcp

// forceUnitAccess is a bit of writes: they last once they are answered.
const forceUnitAccess = 1 << 14

func (c *connection) doIO(r *request) error {
	o := &c.target.o
	if n := r.namespace(); n != namespaceID && (n != everyNamespace || r.opcode() != ioFlush) {
		return c.respond(r.command, InvalidNamespace|DoNotRetry, 0)
	}
	switch r.opcode() {
	case ioRead:
		data, status := c.read(r.command)
		if status != Success {
			return c.respond(r.command, status, 0)
		}
		short := o.ShortEvery > 0 && c.reads.Add(1)%uint64(o.ShortEvery) == 0 && (c.unlimited || o.AlwaysShort)
		return c.give(r.command, data, short)
	case ioWrite:
		if len(r.data) != r.blocks()*BlockSize {
			return c.respond(r.command, DataLengthInvalid|DoNotRetry, 0)
		}
		return c.respond(r.command, c.write(r.command, r.data), 0)
	case ioWriteZeroes:
		return c.respond(r.command, c.write(r.command, memory(r.blocks()*BlockSize)), 0)
	case ioFlush:
		return c.respond(r.command, c.sync(), 0)
	case ioDiscard:
		return c.respond(r.command, c.discard(r), 0)
	}
	return c.respond(r.command, InvalidOpcode|DoNotRetry, 0)
}

// within returns an error status unless blocks are on the disk, and may be used.
func (o *Options) within(lba uint64, blocks uint64, bad Status) Status {
	switch size := uint64(o.Size / BlockSize); {
	case lba >= size || blocks > size-lba:
		return OutOfRange | DoNotRetry
	case o.BadBlocks > 0 && lba < o.BadLBA+o.BadBlocks && o.BadLBA < lba+blocks:
		return bad | DoNotRetry
	}
	return Success
}

func (c *connection) read(r command) ([]byte, Status) {
	n := r.blocks() * BlockSize
	if n > maxTransfer || int(r.dataLength()) != n {
		return nil, DataLengthInvalid | DoNotRetry
	}
	if status := c.target.o.within(r.lba(), uint64(r.blocks()), UnrecoveredRead); status != Success {
		return nil, status
	}
	data := memory(n)
	if got, err := c.target.o.Disk.ReadAt(data, int64(r.lba())*BlockSize); got < n {
		c.target.o.Log("reading %d blocks at %d: %v", r.blocks(), r.lba(), err)
		return nil, UnrecoveredRead | DoNotRetry
	}
	return data, Success
}

func (c *connection) write(w command, data []byte) Status {
	if status := c.target.o.within(w.lba(), uint64(w.blocks()), WriteFault); status != Success {
		return status
	}
	if _, err := c.target.o.Disk.WriteAt(data, int64(w.lba())*BlockSize); err != nil {
		c.target.o.Log("writing %d blocks at %d: %v", w.blocks(), w.lba(), err)
		return WriteFault | DoNotRetry
	}
	if w.word(50)&forceUnitAccess != 0 {
		return c.sync()
	}
	return Success
}

func (c *connection) sync() Status {
	if err := c.target.o.Disk.Sync(); err != nil {
		c.target.o.Log("flushing: %v", err)
		return WriteFault | DoNotRetry
	}
	return Success
}

// discard checks what is no longer needed, and keeps it: that is allowed.
func (c *connection) discard(r *request) Status {
	const rangeLength = 16
	n := int(r.byte(40)) + 1
	if len(r.data) < n*rangeLength {
		return DataLengthInvalid | DoNotRetry
	}
	for i := range n {
		b := r.data[i*rangeLength:]
		if size, lba := uint64(c.target.o.Size/BlockSize), le.Uint64(b[8:]); lba > size || uint64(le.Uint32(b[4:])) > size-lba {
			return OutOfRange | DoNotRetry
		}
	}
	return Success
}
