// Package dataconn reads the wire between the engine, the replicas and the frontend of
// Longhorn V1 and Jiva volumes. It is the user-space counterpart of the parser that runs in the
// kernel (exporters/agent/bpf/replica/dataconn.h and track.h): tests and fuzzing hold one
// against the other and both against the engine's own code. Change both.
package dataconn

import (
	"encoding/binary"
	"fmt"
)

const (
	// MagicLonghorn begins the messages of Longhorn, and of Jiva to 0.6.
	MagicLonghorn = 0x1b01
	// MagicJiva07 begins the messages of Jiva 0.7, which are Longhorn's otherwise.
	MagicJiva07 = 0x1b02
	// MagicJiva begins the messages of Jiva from 0.8 on, whose size field has 64 bits.
	MagicJiva = 0x1b03
	// HeaderMax is the length of the longest header.
	HeaderMax = headerJiva
	// PayloadMax is what a message may carry; more is taken for garbage.
	PayloadMax = 64 << 20

	headerLonghorn = 26
	headerJiva     = 30
)

// Kind is what a message does to an operation.
type Kind uint8

// Kinds of messages.
const (
	Request Kind = iota
	Response
	Other
)

// Op is what an operation does.
type Op uint8

// Operations.
const (
	Read Op = iota
	Write
	Unmap
	Sync
	Ping
	OpOther
)

// Types of messages in the header.
const (
	typeRead      = 0
	typeWrite     = 1
	typeResponse  = 2
	typeError     = 3
	typeEOF       = 4
	typeClose     = 5
	typePing      = 6
	typeUnmap     = 7
	typeExtra8    = 8 // Longhorn: no space left; Jiva: sync
	typeJivaUnmap = 9
)

// Message is a header without its payload.
type Message struct {
	// ID ties a response to its request on the same connection.
	ID uint32
	// Offset is where in the volume the operation is, in bytes.
	Offset uint64
	// Size is how many bytes the operation is about.
	Size uint32
	// Payload is how many bytes follow the header.
	Payload uint32
	Kind    Kind
	// Op is a request's operation.
	Op Op
	// Failed is set on a response that reports an error.
	Failed bool
	// Magic is the number that the message begins with; a stream keeps to its first one. A farewell has 0.
	Magic uint16
}

// Begins reports whether these first bytes (one or more) can begin a message.
func Begins(b []byte) bool {
	return b[0] >= 0x01 && b[0] <= 0x03 && (len(b) < 2 || b[1] == 0x1b)
}

// Need returns the header's length as far as its first bytes determine it.
func Need(b []byte) int {
	if len(b) >= 2 && b[0] == 0x03 && b[1] == 0x1b {
		return headerJiva
	}
	return headerLonghorn
}

// Parse reads a complete header of Need bytes.
func Parse(b []byte) (Message, error) {
	var (
		le      = binary.LittleEndian
		magic   = le.Uint16(b)
		typ     = le.Uint32(b[6:])
		size    = uint64(le.Uint32(b[18:]))
		payload = le.Uint32(b[22:])
	)
	if magic == MagicJiva {
		size, payload = le.Uint64(b[18:]), le.Uint32(b[26:])
	}
	m := Message{ID: le.Uint32(b[2:]), Offset: le.Uint64(b[10:]), Size: uint32(size), Payload: payload, Op: OpOther, Magic: magic}
	bad := func(what string) (Message, error) {
		return m, fmt.Errorf("dataconn header of magic %#x, type %d: %s", magic, typ, what)
	}
	switch {
	case magic == 0:
		// A server's farewell carries no magic number: all zeros but for its type.
		m.Kind = Other
		if typ != typeClose || m.ID != 0 || m.Offset != 0 || size != 0 || payload != 0 {
			return bad("no magic number")
		}
		return m, nil
	case magic < MagicLonghorn || magic > MagicJiva:
		return bad("another magic number")
	case payload > PayloadMax || size > 0xffffffff:
		return bad("too large")
	case m.Offset>>62 != 0:
		return bad("offset beyond any volume")
	}
	if magic == MagicJiva && typ == typeJivaUnmap {
		typ = typeUnmap
	}
	ok := false
	switch typ {
	case typeRead:
		m.Op, ok = Read, payload == 0 && size <= PayloadMax
	case typeWrite:
		m.Op, ok = Write, uint64(payload) == size
	case typeUnmap:
		m.Op, ok = Unmap, payload == 0
	case typePing:
		m.Op, ok = Ping, payload == 0 && size == 0
	case typeError:
		m.Kind, m.Failed, ok = Response, true, uint64(payload) == size
	case typeExtra8:
		if magic == MagicJiva {
			m.Op, ok = Sync, payload == 0 && size == 0
		} else {
			m.Kind, m.Failed, ok = Response, true, true
		}
	case typeResponse, typeEOF:
		// To a write or unmap: the size done and no payload. To a read: the data.
		m.Kind, ok = Response, payload == 0 || uint64(payload) == size
	case typeClose:
		m.Kind, ok = Other, payload == 0
	default:
		return bad("unknown type")
	}
	if !ok {
		return bad(fmt.Sprintf("size %d does not go with payload %d", size, payload))
	}
	return m, nil
}
