package dataconn

type state uint8

const (
	out state = iota
	tentative
	in
)

// Stream follows one direction of a connection, however its bytes are cut. It is adopted at
// the first byte of a message and given up at the first byte that cannot belong to one.
// The zero Stream is ready.
type Stream struct {
	// Resyncs counts how often a stream in step met bytes that are no message.
	Resyncs int
	// Missed is set while bytes have gone by that were not understood.
	Missed bool

	state   state
	skip    uint32
	header  [HeaderMax]byte
	have    int
	message Message
	magic   uint16 // the messages' so far; 0 until one had it
}

// InStep reports whether the stream knows where messages begin.
func (s *Stream) InStep() bool { return s.state == in }

// Feed takes the next bytes and calls done for each message that they complete. After
// bytes that are no message it waits for a later call whose first byte begins one.
func (s *Stream) Feed(b []byte, done func(Message)) {
	if s.state == out {
		s.state, s.have, s.skip = tentative, 0, 0
	}
	for len(b) > 0 {
		if s.skip > 0 {
			n := min(s.skip, uint32(min(len(b), PayloadMax)))
			s.skip -= n
			b = b[n:]
			if s.skip == 0 {
				done(s.message)
			}
			continue
		}
		n := copy(s.header[s.have:Need(s.header[:s.have])], b)
		s.have += n
		b = b[n:]
		header := s.header[:s.have]
		if s.state != in && !Begins(header) {
			s.leave()
			return
		}
		if len(header) < Need(header) {
			continue
		}
		m, err := Parse(header)
		if err != nil || !s.keeps(m) {
			s.leave()
			return
		}
		s.state, s.Missed = in, false
		s.message, s.have, s.skip = m, 0, m.Payload
		if s.skip == 0 {
			done(m)
		}
	}
}

func (s *Stream) leave() {
	if s.state == in {
		s.Resyncs++
	} else {
		s.Missed = true
	}
	s.state, s.magic = out, 0
}

// keeps reports whether the message has the magic of those before it on this stream.
func (s *Stream) keeps(m Message) bool {
	if s.magic == 0 {
		s.magic = m.Magic
	}
	return m.Magic == 0 || m.Magic == s.magic
}
