package iscsipdu

type state uint8

const (
	fresh state = iota // at the connection's first bytes, or those of its first header
	in
	out
)

// stream is one direction of a connection.
type stream struct {
	state   state
	run     int    // messages understood one after the other
	have    int    // bytes of the header
	skip    uint32 // bytes still to come before the next header
	login   uint32 // of these, how many are a login's text
	message Message
	header  [HeaderSize]byte
	text    []byte // of a login's messages so far; at most TextMax
	over    bool   // the login is over, or a part of it was not understood
}

// leave has the stream wait for a call that begins with a header.
func (s *stream) leave() {
	*s = stream{state: out}
}

// feed takes the next bytes, and returns false where they stop being understood. It calls header for each header, which
// returns how much digests add to what follows it, and loginText with the text of a login's messages once the last one
// of them is complete.
func (s *stream) feed(b []byte, toTarget bool, header func(Message) (digests uint32), loginText func(Message, []byte)) bool {
	if s.state == out {
		if !s.adopts(b, toTarget) {
			return true
		}
		s.state = in
	}
	for len(b) > 0 {
		if s.skip > 0 {
			n := min(s.skip, uint32(min(len(b), 1<<30)))
			text := min(n, s.login)
			s.text = append(s.text, b[:min(int(text), TextMax-len(s.text))]...)
			s.login -= text
			s.skip -= n
			b = b[n:]
			if s.skip == 0 {
				s.complete(loginText)
			}
			continue
		}
		n := copy(s.header[s.have:], b)
		s.have += n
		b = b[n:]
		if s.have < HeaderSize {
			return true
		}
		m, err := Parse(s.header[:], toTarget)
		if err != nil {
			return false
		}
		s.state, s.have, s.message = in, 0, m
		s.run++
		s.skip = m.Attached + (m.Data+3)&^3 + header(m)
		s.login = 0
		if !m.login() {
			s.over, s.text = true, nil
		} else if !s.over {
			s.login = m.Data
		}
		if s.skip == 0 {
			s.complete(loginText)
		}
	}
	return true
}

// adopts reports whether a call's bytes begin with a header of a connection whose login is over. One that data may look
// like does not count: with a length out of data the direction would be lost for up to 16 MiB.
func (s *stream) adopts(b []byte, toTarget bool) bool {
	if len(b) < HeaderSize {
		return false
	}
	m, err := Parse(b[:HeaderSize], toTarget)
	return err == nil && !m.login() && !m.Doubtful
}

// complete ends a message. The text of a login's messages is passed on with the last of them.
func (s *stream) complete(loginText func(Message, []byte)) {
	if s.over || s.message.Continues {
		return
	}
	loginText(s.message, s.text)
	s.text = nil
}

// login reports whether a message is a part of a login.
func (m Message) login() bool { return m.Kind == LoginRequest || m.Kind == LoginResponse }
