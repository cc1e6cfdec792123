// Package nvmepdu reads the headers of NVMe over TCP (NVMe/TCP transport specification 1.0), of what a target receives
// and of what it sends. It is the user-space counterpart of the parser that runs in the kernel
// (exporters/agent/bpf/fabric/nvme_pdu.h): tests and fuzzing hold one against the other. Change both.
package nvmepdu

import (
	"encoding/binary"
	"fmt"
)

const (
	// Common is the length of what all headers begin with.
	Common = 8
	// HeaderMax is the longest header that is parsed: a command's.
	HeaderMax = 72
	// LengthMax is what a message may have; more is taken for garbage.
	LengthMax = 64 << 20
)

// Kind is what a message does to an operation or to the connection.
type Kind uint8

// Kinds of messages, as enum message_kind in message.h numbers them; those left out are not on this wire.
const (
	Other   Kind = 0
	Command Kind = 1
	Answer  Kind = 2
	Connect Kind = 3 // the command that connects a queue, whose data names the subsystem
	Hello   Kind = 7 // the first message of a connection
)

// Op is a command's operation, as enum wire_op numbers it.
type Op uint8

// Operations.
const (
	OpRead  Op = 0
	OpWrite Op = 1
	OpUnmap Op = 2
	OpSync  Op = 3
	OpOther Op = 5
)

// Types of messages; the host's are even.
const (
	typeInitialize     = 0x00
	typeInitialized    = 0x01
	typeHostEnds       = 0x02
	typeControllerEnds = 0x03
	typeCommand        = 0x04
	typeResponse       = 0x05
	typeHostData       = 0x06
	typeControllerData = 0x07
	typeReady          = 0x09
)

// Flags of the common header.
const (
	flagLast    = 0x04
	flagSuccess = 0x08
	flagsKnown  = 0x0f
)

var headers = map[uint8]uint32{
	typeInitialize: 128, typeInitialized: 128, typeHostEnds: 24, typeControllerEnds: 24, typeCommand: 72, typeResponse: 24,
	typeHostData: 24, typeControllerData: 24, typeReady: 24,
}

const (
	submission  = 8 // where a command has the submission queue's entry
	completion  = 8 // where a response has the completion queue's
	fabrics     = 0x7f
	connectType = 0x01
)

// Message is a header.
type Message struct {
	// Tag is the command's identifier; it ties an answer to its command on a connection.
	Tag uint32
	// Namespace is a command's, Queue the number that a Connect gives the connection.
	Namespace, Queue uint32
	// Bytes is how many bytes a read or write is about; 0 of other commands.
	Bytes uint32
	// Rest is how long what follows the header is, with digests, and Text which of it is a Connect's data, after Lead
	// bytes.
	Rest, Text, Lead uint32
	Kind             Kind
	Op               Op
	// Anywhere is set on a command that is for no namespace.
	Anywhere bool
	// Failed is set on an answer that reports an error.
	Failed bool
}

// Need returns how long a header is, as far as these bytes of it determine it; more than there are until it is whole.
func Need(h []byte) int {
	if len(h) < Common {
		return Common
	}
	if n := headers[h[0]]; n > 0 && n <= HeaderMax {
		return int(n)
	}
	return Common // of others no more is parsed
}

// Parse reads a whole header, of a message to a target or from one. It returns an error for anything else.
func Parse(h []byte, toTarget bool) (Message, error) {
	m := Message{Op: OpOther}
	if len(h) < Common || len(h) < Need(h) {
		return m, fmt.Errorf("%d bytes are no header", len(h))
	}
	kind, length := h[0], binary.LittleEndian.Uint32(h[4:])
	header := headers[kind]
	switch {
	case header == 0, kind&1 == 0 != toTarget:
		return m, fmt.Errorf("type %#x is none of this direction", kind)
	case h[1]&^flagsKnown != 0, uint32(h[2]) != header, length < header, length > LengthMax:
		return m, fmt.Errorf("type %#x with flags %#x, a header of %d bytes and %d in all", kind, h[1], h[2], length)
	}
	m.Rest = length - uint32(Need(h))
	switch kind {
	case typeInitialize:
		m.Kind = Hello
	case typeCommand:
		m.command(h)
	case typeResponse:
		m.Kind, m.Tag = Answer, uint32(binary.LittleEndian.Uint16(h[completion+12:]))
		m.Failed = binary.LittleEndian.Uint16(h[completion+14:])>>1 != 0
	case typeControllerData:
		// The last data of a read after which no response follows.
		if h[1]&(flagLast|flagSuccess) == flagLast|flagSuccess {
			m.Kind, m.Tag = Answer, uint32(binary.LittleEndian.Uint16(h[8:]))
		}
	}
	return m, nil
}

func (m *Message) command(h []byte) {
	entry := h[submission:]
	opcode := entry[0]
	m.Kind, m.Tag = Command, uint32(binary.LittleEndian.Uint16(entry[2:]))
	if opcode == fabrics {
		if entry[4] == connectType {
			m.Kind, m.Queue = Connect, uint32(binary.LittleEndian.Uint16(entry[42:]))
			m.Lead = max(uint32(h[3]), HeaderMax) - HeaderMax // a digest, and padding
			m.Text = max(m.Rest, m.Lead) - m.Lead
		}
		m.Anywhere = m.Kind == Command
		return
	}
	m.Namespace = binary.LittleEndian.Uint32(entry[4:])
	if m.Anywhere = m.Namespace == 0 || m.Namespace == 0xffffffff; m.Anywhere {
		return
	}
	switch opcode {
	case 0x00:
		m.Op = OpSync
	case 0x01:
		m.Op = OpWrite
	case 0x02:
		m.Op = OpRead
	case 0x09:
		m.Op = OpUnmap
	}
	if m.Op == OpRead || m.Op == OpWrite {
		m.Bytes = binary.LittleEndian.Uint32(entry[32:])
	}
}
