package initiator

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
)

const (
	headerSize = 48
	digestSize = 4
	// dataMax is more than this initiator allows a target to send in one message.
	dataMax = 1 << 20

	noTag = 0xffffffff
)

// Opcodes (RFC 7143, 11.2.1.2); those of a target are at 0x20 and above.
const (
	opNopOut        = 0x00
	opCommand       = 0x01
	opTask          = 0x02
	opLogin         = 0x03
	opDataOut       = 0x05
	opLogout        = 0x06
	opNopIn         = 0x20
	opResponse      = 0x21
	opTaskResponse  = 0x22
	opLoginResponse = 0x23
	opDataIn        = 0x25
	opLogoutAnswer  = 0x26
	opR2T           = 0x31
	opAsync         = 0x32
	opReject        = 0x3f

	immediate = 0x40
	final     = 0x80
)

var (
	be         = binary.BigEndian
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
)

// pdu is one message: its basic header and its data.
type pdu struct {
	header [headerSize]byte
	data   []byte
}

func (p *pdu) opcode() byte { return p.header[0] & 0x3f }

// number is one of the header's numbers of 32 bits.
func (p *pdu) number(at int) uint32     { return be.Uint32(p.header[at:]) }
func (p *pdu) set(at int, value uint32) { be.PutUint32(p.header[at:], value) }

// setLUN puts a logical unit below 256 where it belongs.
func (p *pdu) setLUN(lun int) { p.header[9] = byte(lun) }

// Places of numbers that many headers have.
const (
	atTag      = 16
	atTransfer = 20 // the target's own tag
	atLength   = 20 // of a command: how many bytes it is about
	atCmdSN    = 24 // to the target
	atExpStat  = 28
	atStatSN   = 24 // from it
	atMaxCmd   = 32
	atDataSN   = 36
	atOffset   = 40
	atDesired  = 44
)

// bytes is what is sent.
func (p *pdu) bytes(o Options) []byte {
	be.PutUint32(p.header[4:], uint32(len(p.data)))
	b := append(make([]byte, 0, headerSize+len(p.data)+3+2*digestSize), p.header[:]...)
	if o.HeaderDigest {
		b = withDigest(b, b)
	}
	if len(p.data) == 0 {
		return b
	}
	from := len(b)
	b = append(b, p.data...)
	b = append(b, make([]byte, padding(len(p.data)))...)
	if o.DataDigest {
		b = withDigest(b, b[from:])
	}
	return b
}

func padding(n int) int { return -n & 3 }

func withDigest(b, of []byte) []byte {
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(of, castagnoli))
}

// receive reads one message and checks its digests.
func receive(r *bufio.Reader, o Options) (*pdu, error) {
	var p pdu
	if err := readDigested(r, p.header[:], o.HeaderDigest); err != nil {
		return nil, fmt.Errorf("header: %w", err)
	}
	if p.header[4] != 0 {
		return nil, fmt.Errorf("opcode %#x with additional headers", p.opcode())
	}
	n := int(be.Uint32(p.header[4:]))
	if n > dataMax {
		return nil, fmt.Errorf("opcode %#x with %d bytes of data", p.opcode(), n)
	}
	if n == 0 {
		return &p, nil
	}
	data := make([]byte, n+padding(n))
	if err := readDigested(r, data, o.DataDigest); err != nil {
		return nil, fmt.Errorf("data of opcode %#x: %w", p.opcode(), err)
	}
	p.data = data[:n]
	return &p, nil
}

// readDigested fills b, and checks the digest that follows if there is one.
func readDigested(r io.Reader, b []byte, digest bool) error {
	if _, err := io.ReadFull(r, b); err != nil {
		return err
	}
	if !digest {
		return nil
	}
	var d [digestSize]byte
	if _, err := io.ReadFull(r, d[:]); err != nil {
		return err
	}
	if got, want := binary.LittleEndian.Uint32(d[:]), crc32.Checksum(b, castagnoli); got != want {
		return fmt.Errorf("digest %#x, not %#x", got, want)
	}
	return nil
}
