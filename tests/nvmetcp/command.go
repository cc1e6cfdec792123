package nvmetcp

import "fmt"

const (
	commandLength    = 64
	completionLength = 16
)

// Opcodes of the admin queue.
const (
	adminGetLogPage  = 0x02
	adminIdentify    = 0x06
	adminAbort       = 0x08
	adminSetFeatures = 0x09
	adminGetFeatures = 0x0a
	adminAsyncEvent  = 0x0c
	adminKeepAlive   = 0x18
	opFabrics        = 0x7f // of each queue
)

// Commands of opFabrics.
const (
	fabricsPropertySet = 0x00
	fabricsConnect     = 0x01
	fabricsPropertyGet = 0x04
)

// Opcodes of I/O queues.
const (
	ioFlush       = 0x00
	ioWrite       = 0x01
	ioRead        = 0x02
	ioWriteZeroes = 0x08
	ioDiscard     = 0x09 // Dataset Management
)

// How a command's data are described (SGL descriptor type and subtype).
const (
	sglInCapsule = 0x01
	sglTransport = 0x5a
)

// usesSGL is in the second byte of each command over fabrics.
const usesSGL = 0x40

// Status is how a command ended: the status code, the status code type from bit 8 on, and whether not to try again.
type Status uint16

// What the target answers.
const (
	Success           Status = 0
	InvalidOpcode     Status = 0x001
	InvalidField      Status = 0x002
	InvalidNamespace  Status = 0x00b
	SequenceError     Status = 0x00c
	DataLengthInvalid Status = 0x00f
	TransportError    Status = 0x022
	OutOfRange        Status = 0x080
	TooManyEvents     Status = 0x105
	ConnectInvalid    Status = 0x182
	WriteFault        Status = 0x280
	UnrecoveredRead   Status = 0x281
	// DoNotRetry is added to what would not end otherwise the next time.
	DoNotRetry Status = 0x4000
)

func (s Status) Error() string {
	return fmt.Sprintf("status code %#x of type %d, do not retry: %v", uint16(s)&0xff, uint16(s)>>8&7, s&DoNotRetry != 0)
}

// command is one as it is sent. Fields are at their offsets.
type command []byte

func newCommand(opcode byte) command {
	c := make(command, commandLength)
	c[0], c[1] = opcode, usesSGL
	return c
}

func (c command) opcode() byte       { return c[0] }
func (c command) id() uint16         { return le.Uint16(c[2:]) }
func (c command) namespace() uint32  { return le.Uint32(c[4:]) }
func (c command) fabrics() byte      { return c[4] } // in place of a namespace
func (c command) dataOffset() uint64 { return le.Uint64(c[24:]) }
func (c command) dataLength() uint32 { return le.Uint32(c[32:]) }
func (c command) dataKind() byte     { return c[39] }
func (c command) byte(at int) byte   { return c[at] }
func (c command) word(at int) uint16 { return le.Uint16(c[at:]) }
func (c command) long(at int) uint32 { return le.Uint32(c[at:]) }
func (c command) quad(at int) uint64 { return le.Uint64(c[at:]) }
func (c command) lba() uint64        { return c.quad(40) }
func (c command) blocks() int        { return int(c.word(48)) + 1 }
func (c command) describe(k byte, n int) {
	le.PutUint32(c[32:], uint32(n))
	c[39] = k
}

// towardsTarget reports whether a command's data goes to the target, by the opcode's last bits; for a fabrics command,
// by those of the command type.
func (c command) towardsTarget() bool {
	code := c.opcode()
	if code == opFabrics {
		code = c.fabrics()
	}
	return code&3 == 1
}
