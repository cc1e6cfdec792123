package nvmetcp

// Command is one for an I/O queue, for Submit.
type Command struct {
	entry command
	// Write is what goes to the target, Read how many bytes come from it.
	Write []byte
	Read  int
}

// Opcode is a command with an opcode of the caller's, and without data.
func Opcode(opcode byte) Command {
	c := Command{entry: newCommand(opcode)}
	le.PutUint32(c.entry[4:], namespaceID)
	return c
}

func onBlocks(opcode byte, lba uint64, blocks int) Command {
	c := Opcode(opcode)
	le.PutUint64(c.entry[40:], lba)
	le.PutUint16(c.entry[48:], uint16(blocks-1))
	return c
}

// ReadBlocks is the command that reads blocks.
func ReadBlocks(lba uint64, blocks int) Command {
	c := onBlocks(ioRead, lba, blocks)
	c.Read = blocks * BlockSize
	return c
}

// WriteBlocks is the command that writes whole blocks.
func WriteBlocks(lba uint64, data []byte) Command {
	c := onBlocks(ioWrite, lba, len(data)/BlockSize)
	c.Write = data
	return c
}

// ZeroBlocks is the command that writes zeroes.
func ZeroBlocks(lba uint64, blocks int) Command { return onBlocks(ioWriteZeroes, lba, blocks) }

// DiscardBlocks returns the command that discards blocks.
func DiscardBlocks(lba uint64, blocks int) Command {
	c := Opcode(ioDiscard)
	c.entry[44] = 1 << 2
	c.Write = make([]byte, 16)
	le.PutUint32(c.Write[4:], uint32(blocks))
	le.PutUint64(c.Write[8:], lba)
	return c
}

// Flush is the command that has all that was written last.
func Flush() Command { return Opcode(ioFlush) }

// Submit sends a command to an I/O queue, the first of which is 0, once the queue has room.
func (h *Host) Submit(queue int, c Command) (*Task, error) { return h.queues[queue].submit(c) }

// Read reads blocks.
func (h *Host) Read(queue int, lba uint64, blocks int) ([]byte, error) {
	t, err := h.queues[queue].do(ReadBlocks(lba, blocks))
	if err != nil {
		return nil, err
	}
	return t.data, nil
}

// Write writes whole blocks.
func (h *Host) Write(queue int, lba uint64, data []byte) error {
	_, err := h.queues[queue].do(WriteBlocks(lba, data))
	return err
}

// Flush has all that was written last.
func (h *Host) Flush(queue int) error {
	_, err := h.queues[queue].do(Flush())
	return err
}
