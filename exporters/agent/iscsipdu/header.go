// Package iscsipdu reads the connections of an iSCSI target (RFC 7143), both directions. It is
// the user-space counterpart of the parser that runs in the kernel (exporters/agent/bpf/fabric/iscsi_pdu.h):
// tests and fuzzing hold one against the other. Change both.
package iscsipdu

import (
	"encoding/binary"
	"fmt"
)

const (
	// HeaderSize is the length of a basic header segment.
	HeaderSize = 48
	// AttachedMax is what additional header segments may have, in bytes; more is taken for garbage.
	AttachedMax = 64 * 4
)

// Kind is what a message does to an operation or to the login.
type Kind uint8

// Kinds of messages.
const (
	Other Kind = iota
	Command
	Answer
	LoginRequest
	LoginResponse
	TaskRequest
	TaskResponse
	_
	// Rejected has the header of a message to the target that is refused, as its data.
	Rejected
)

// Opcodes in the header; those from 0x20 on are a target's.
const (
	opNopOut        = 0x00
	opCommand       = 0x01
	opTaskRequest   = 0x02
	opLoginRequest  = 0x03
	opTextRequest   = 0x04
	opDataOut       = 0x05
	opLogoutRequest = 0x06
	opSnack         = 0x10
	opNopIn         = 0x20
	opResponse      = 0x21
	opTaskResponse  = 0x22
	opLoginResponse = 0x23
	opTextResponse  = 0x24
	opDataIn        = 0x25
	opLogoutAnswer  = 0x26
	opR2T           = 0x31
	opAsync         = 0x32
	opReject        = 0x3f
)

// Bits of the header: of its first byte, and of the second one.
const (
	bitReserved  = 0x80
	bitImmediate = 0x40

	bitFinal    = 0x80 // of a login: transit
	bitContinue = 0x40 // of a login
	bitStatus   = 0x01 // of Data-In: it has a status, so no response follows

	nextStage        = 0x03
	stageFullFeature = 0x03
)

// Message is a basic header segment.
type Message struct {
	// Tag is the initiator task tag; it ties an answer to its command.
	Tag uint32
	// LUN is the logical unit of a command or task management request, as Linux numbers them by the first two levels.
	LUN uint32
	// Reference is the tag of the task that a task management request is about.
	Reference uint32
	// Bytes is how many bytes a read or write is about; 0 of other commands.
	Bytes uint32
	// Attached is the length of the additional header segments.
	Attached uint32
	// Data is the length of the data segment, without its padding.
	Data uint32
	Kind Kind
	// Op is a command's operation.
	Op Op
	// Function is the function of a task management request.
	Function uint8
	// Failed is set on an answer that reports an error.
	Failed bool
	// Final is set on a login message that leads to the full feature phase; on a response only if it reports success.
	Final bool
	// Anywhere is set on a command that succeeds on any LUN, also on one that is not there.
	Anywhere bool
	// Doubtful is set on a message after the login whose header may as well be data that others choose: bytes that are 0
	// in most headers are not, or the final bit is not set.
	Doubtful bool
	// Continues is set on a login message whose text goes on in the next one.
	Continues bool
}

// opcodes has those that one direction may have.
type opcodes uint64

func those(codes ...uint8) (o opcodes) {
	for _, c := range codes {
		o |= 1 << c
	}
	return o
}

func (o opcodes) has(code uint8) bool { return o>>(code&0x3f)&1 != 0 }

var (
	toTargets   = those(opNopOut, opCommand, opTaskRequest, opLoginRequest, opTextRequest, opDataOut, opLogoutRequest, opSnack)
	fromTargets = those(opNopIn, opResponse, opTaskResponse, opLoginResponse, opTextResponse, opDataIn, opLogoutAnswer, opR2T, opAsync, opReject)
	withoutData = those(opTaskRequest, opLogoutRequest, opSnack, opTaskResponse, opLogoutAnswer, opR2T)
	alwaysFinal = those(opNopOut, opTaskRequest, opLogoutRequest, opSnack, opNopIn, opResponse, opTaskResponse, opLogoutAnswer, opR2T)
)

// Parse reads a complete header of HeaderSize bytes: one to the target, or one from it.
func Parse(h []byte, toTarget bool) (Message, error) {
	var (
		be   = binary.BigEndian
		code = h[0] & 0x3f
		m    = Message{
			Tag:      be.Uint32(h[16:]),
			Attached: uint32(h[4]) * 4,
			Data:     be.Uint32(h[4:]) & 0xffffff,
			Op:       OpOther,
			Doubtful: h[1]&bitFinal == 0 || h[2]|h[3]|h[4] != 0,
		}
	)
	bad := func(what string) (Message, error) {
		return m, fmt.Errorf("iSCSI header of opcode %#x: %s", h[0], what)
	}
	valid, reserved := fromTargets, byte(bitReserved|bitImmediate)
	if toTarget {
		valid, reserved = toTargets, bitReserved
	}
	switch {
	case h[0]&reserved != 0:
		return bad("a reserved bit is set")
	case !valid.has(code):
		return bad("unknown in this direction")
	case m.Attached > AttachedMax || m.Attached > 0 && code != opCommand:
		return bad(fmt.Sprintf("%d bytes of additional headers", m.Attached))
	case m.Data > 0 && withoutData.has(code):
		return bad(fmt.Sprintf("%d bytes of data", m.Data))
	case h[1]&reservedBits[code] != 0:
		return bad("a reserved bit of its second byte is set")
	case h[1]&bitFinal == 0 && alwaysFinal.has(code):
		return bad("the first bit of its second byte is not set")
	}
	switch code {
	case opCommand:
		m.Kind, m.LUN, m.Op = Command, lun(h[8:]), opOf(h[32:])
		m.Anywhere = anywhere[h[32]]
		if m.Op == Read || m.Op == Write {
			m.Bytes = be.Uint32(h[20:])
		}
	case opTaskRequest:
		m.Kind, m.LUN, m.Reference, m.Function = TaskRequest, lun(h[8:]), be.Uint32(h[20:]), h[1]&0x7f
	case opReject:
		m.Kind = Rejected
	case opResponse:
		m.Kind, m.Failed = Answer, h[2] != 0 || h[3] != 0
	case opDataIn:
		if h[1]&bitStatus != 0 {
			m.Kind, m.Failed = Answer, h[3] != 0
		}
	case opTaskResponse:
		m.Kind, m.Failed = TaskResponse, h[2] != 0
	case opLoginRequest, opLoginResponse:
		m.Kind, m.Doubtful = LoginRequest, false
		m.Continues = h[1]&bitContinue != 0
		m.Final = h[1]&bitFinal != 0 && h[1]&nextStage == stageFullFeature
		if code == opLoginResponse {
			m.Kind = LoginResponse
			m.Final = m.Final && h[36] == 0
		}
	}
	return m, nil
}

// reservedBits are those of the second byte that are 0.
var reservedBits = map[uint8]byte{opLoginRequest: 0x30, opLoginResponse: 0x30, opCommand: 0x18}

// anywhere are INQUIRY, REQUEST SENSE and REPORT LUNS.
var anywhere = map[byte]bool{0x12: true, 0x03: true, 0xa0: true}

// lun is what Linux makes of the first two levels (scsilun_to_int).
func lun(b []byte) uint32 {
	return uint32(b[0])<<8 | uint32(b[1]) | (uint32(b[2])<<8|uint32(b[3]))<<16
}
