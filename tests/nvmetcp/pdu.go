package nvmetcp

import (
	"fmt"
	"hash/crc32"
	"unsafe"
)

// Kinds of PDUs.
const (
	kindICReq      = 0x00
	kindICResp     = 0x01
	kindHostEnds   = 0x02
	kindTargetEnds = 0x03
	kindCommand    = 0x04
	kindResponse   = 0x05
	kindHostData   = 0x06
	kindTargetData = 0x07
	kindR2T        = 0x09
)

// Flags of PDUs.
const (
	flagHeaderDigest = 0x01
	flagDataDigest   = 0x02
	flagLast         = 0x04
	flagSuccess      = 0x08
)

const (
	commonLength = 8 // what all headers begin with
	digestLength = 4
	// icLength is that of the PDUs that begin a connection.
	icLength = 128
	// maxLength is what no PDU here exceeds.
	maxLength = 4 << 20
)

// headerLengths are those of each kind.
var headerLengths = map[byte]int{
	kindICReq: icLength, kindICResp: icLength, kindHostEnds: 24, kindTargetEnds: 24,
	kindCommand: commonLength + commandLength, kindResponse: commonLength + completionLength,
	kindHostData: 24, kindTargetData: 24, kindR2T: 24,
}

// Why a connection is ended (FES), as both ends send it.
const (
	endInvalidHeader  = 1
	endSequence       = 2
	endHeaderDigest   = 3
	endDataOutOfRange = 4
)

// endError is a reason to end a connection.
type endError struct {
	status uint16
	what   string
}

func (e *endError) Error() string { return fmt.Sprintf("%s (fatal error status %d)", e.what, e.status) }

func fatal(status uint16, format string, args ...any) error {
	return &endError{status, fmt.Sprintf(format, args...)}
}

// pdu is one without its digests. Fields are at their offsets in the header.
type pdu struct {
	header []byte
	data   []byte
	// damaged is whether the data digest was wrong. The header's being right, only one command fails by it.
	damaged bool
}

func newPDU(kind byte) *pdu {
	p := &pdu{header: make([]byte, headerLengths[kind])}
	p.header[0], p.header[2] = kind, byte(len(p.header))
	return p
}

func (p *pdu) kind() byte               { return p.header[0] }
func (p *pdu) has(flag byte) bool       { return p.header[1]&flag != 0 }
func (p *pdu) word(at int) uint16       { return le.Uint16(p.header[at:]) }
func (p *pdu) long(at int) uint32       { return le.Uint32(p.header[at:]) }
func (p *pdu) setWord(at int, v uint16) { le.PutUint16(p.header[at:], v) }
func (p *pdu) setLong(at int, v uint32) { le.PutUint32(p.header[at:], v) }
func (p *pdu) body() []byte             { return p.header[commonLength:] } // a command or a completion

// digested reports whether connections that use digests use them in PDUs of this kind.
func digested(kind byte) bool { return kind >= kindCommand }

// hasData reports whether PDUs of this kind can have data.
func hasData(kind byte) bool {
	return kind == kindCommand || kind == kindHostData || kind == kindTargetData || kind == kindHostEnds || kind == kindTargetEnds
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func digest(b []byte) uint32 { return crc32.Checksum(b, castagnoli) }

// memory returns memory that a disk past the page cache can be read into.
func memory(n int) []byte {
	const alignment = 4096
	if n == 0 {
		return nil
	}
	b := make([]byte, n+alignment)
	skip := (alignment - int(uintptr(unsafe.Pointer(&b[0]))%alignment)) % alignment
	return b[skip : skip+n : skip+n]
}
