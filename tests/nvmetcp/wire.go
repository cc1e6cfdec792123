package nvmetcp

import (
	"bufio"
	"io"
	"net"
	"sync"
)

// wire is one connection with what its ends have agreed on.
type wire struct {
	net.Conn
	r                        *bufio.Reader
	mu                       sync.Mutex // held while a PDU is sent
	headerDigest, dataDigest bool
	alignment                int // of the data in PDUs that are sent
}

func newWire(c net.Conn) *wire {
	return &wire{Conn: c, r: bufio.NewReaderSize(c, 64<<10), alignment: 4}
}

// send sends one PDU. Several may call it at once.
func (w *wire) send(p *pdu) error {
	kind, flags, at := p.kind(), p.header[1], len(p.header)
	if digested(kind) && w.headerDigest {
		flags |= flagHeaderDigest
		at += digestLength
	}
	length, offset := at, 0
	if len(p.data) > 0 {
		at = (at + w.alignment - 1) / w.alignment * w.alignment
		length, offset = at+len(p.data), at
		if digested(kind) && w.dataDigest {
			flags |= flagDataDigest
			length += digestLength
		}
	}
	p.header[1], p.header[3] = flags, byte(offset)
	p.setLong(4, uint32(length))
	b := make([]byte, at)
	copy(b, p.header)
	if flags&flagHeaderDigest != 0 {
		le.PutUint32(b[len(p.header):], digest(p.header))
	}
	pieces := net.Buffers{b}
	if len(p.data) > 0 {
		pieces = append(pieces, p.data)
	}
	if flags&flagDataDigest != 0 {
		pieces = append(pieces, le.AppendUint32(nil, digest(p.data)))
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	_, err := pieces.WriteTo(w.Conn)
	return err
}

// receive returns the next PDU. place, if not nil, returns where its data goes, nil for new memory; its error ends the
// connection.
func (w *wire) receive(place func(p *pdu, n int) ([]byte, error)) (*pdu, error) {
	var common [commonLength]byte
	if _, err := io.ReadFull(w.r, common[:]); err != nil {
		return nil, err
	}
	kind, flags, at := common[0], common[1], int(common[2])
	if length, known := headerLengths[kind]; !known || at != length {
		return nil, fatal(endInvalidHeader, "a PDU of kind %#x with a header of %d bytes", kind, at)
	}
	p := &pdu{header: make([]byte, at)}
	copy(p.header, common[:])
	if _, err := io.ReadFull(w.r, p.header[commonLength:]); err != nil {
		return nil, err
	}
	if digested(kind) && p.has(flagHeaderDigest) != w.headerDigest {
		return nil, fatal(endInvalidHeader, "flags %#x, and header digests %v were agreed on", flags, w.headerDigest)
	}
	if digested(kind) && w.headerDigest {
		sum, err := w.sum()
		if err != nil {
			return nil, err
		}
		if sum != digest(p.header) {
			return nil, fatal(endHeaderDigest, "a wrong header digest of a PDU of kind %#x", kind)
		}
		at += digestLength
	}
	return p, w.receiveData(p, at, place)
}

// receiveData receives what follows the header, which ended at.
func (w *wire) receiveData(p *pdu, at int, place func(*pdu, int) ([]byte, error)) error {
	length, offset := int(p.long(4)), int(p.header[3])
	if length == at {
		return nil
	}
	if !digested(p.kind()) {
		offset = at
	}
	n := length - offset
	if digested(p.kind()) && p.has(flagDataDigest) != w.dataDigest {
		return fatal(endInvalidHeader, "flags %#x, and data digests %v were agreed on", p.header[1], w.dataDigest)
	}
	summed := digested(p.kind()) && w.dataDigest
	if summed {
		n -= digestLength
	}
	if !hasData(p.kind()) || offset < at || n <= 0 || length > maxLength {
		return fatal(endInvalidHeader, "a PDU of kind %#x with %d bytes, data from %d on", p.kind(), length, offset)
	}
	if _, err := w.r.Discard(offset - at); err != nil {
		return err
	}
	var err error
	if place != nil {
		p.data, err = place(p, n)
	}
	if p.data == nil && err == nil {
		p.data = memory(n)
	}
	if err == nil {
		_, err = io.ReadFull(w.r, p.data)
	}
	if err != nil || !summed {
		return err
	}
	sum, err := w.sum()
	p.damaged = sum != digest(p.data)
	return err
}

// sum receives a digest.
func (w *wire) sum() (uint32, error) {
	var b [digestLength]byte
	_, err := io.ReadFull(w.r, b[:])
	return le.Uint32(b[:]), err
}
