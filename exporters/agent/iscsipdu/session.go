package iscsipdu

const (
	// UnderWayMax is how many operations a session remembers that were not answered yet; that of more is not known.
	UnderWayMax = 256
	// TrustAfter is how many messages a direction has to understand, one after the other, until digests that were
	// guessed are kept.
	TrustAfter = 8
)

// Operation is a command's request.
type Operation struct {
	Tag, LUN, Bytes uint32
	Op              Op
}

// Event is the beginning or the end of an operation.
type Event struct {
	Operation
	// Ends is set where the answer has come, Failed if it reports an error.
	Ends, Failed bool
}

// Session follows a target's connection, both directions, however their bytes are cut. A connection whose login was not
// seen is adopted at a call that begins with a header, and a direction is given up at a header that is none. The zero
// Session is ready.
type Session struct {
	// Number is a new one each time that what was under way was forgotten.
	Number int
	// Resyncs counts how often a direction in step met bytes that are no message.
	Resyncs int
	// Missed is set once bytes at the beginning of a direction were not understood.
	Missed bool
	// Unmatched counts answers without a command, Lost commands that found no room, Aborted those that a task
	// management request ended.
	Unmatched, Lost, Aborted int
	// HeaderDigest and DataDigest are set if messages have them, as far as is known: see Known.
	HeaderDigest, DataDigest bool
	// Known is set if the digests are known from the login; else they are guessed.
	Known bool
	// Target is the name that a login was for, once it has succeeded.
	Target string

	received, sent  stream
	offered, agreed Login // by the initiator, and by the target
	underWay        []Operation
	task            Message // the latest task management request; its Kind is Other if there is none
}

// Received takes the next bytes that the target received, and calls on for each operation that they begin.
func (s *Session) Received(b []byte, on func(Event)) { s.feed(&s.received, b, true, on) }

// Sent takes the next bytes that the target sent, and calls on for each operation that they end.
func (s *Session) Sent(b []byte, on func(Event)) { s.feed(&s.sent, b, false, on) }

// InStep reports whether it is known where messages begin, for those that the target receives and those that it sends.
func (s *Session) InStep() (received, sent bool) { return s.received.state == in, s.sent.state == in }

// UnderWay returns how many operations have begun and not ended.
func (s *Session) UnderWay() int { return len(s.underWay) }

func (s *Session) feed(one *stream, b []byte, toTarget bool, on func(Event)) {
	header := func(m Message) uint32 {
		s.message(m, on)
		return s.digests(m)
	}
	if one.feed(b, toTarget, header, s.login) {
		return
	}
	if one.state != in {
		s.Missed = true
		one.leave()
		return
	}
	s.Resyncs++
	if !s.Known && one.run < TrustAfter {
		s.guess()
	}
	one.leave()
	s.forget()
}

// guess tries the next of the four combinations of digests, on both directions: neither knows where its next header is.
func (s *Session) guess() {
	s.HeaderDigest = !s.HeaderDigest
	if !s.HeaderDigest {
		s.DataDigest = !s.DataDigest
	}
	for _, one := range []*stream{&s.received, &s.sent} {
		if one.state == in {
			one.leave()
		}
	}
}

// forget gives up what is under way: answers may have gone by.
func (s *Session) forget() {
	s.Number++
	s.underWay, s.task = nil, Message{}
}

// digests is how many bytes they add to what follows a header. A login's messages have none.
func (s *Session) digests(m Message) (n uint32) {
	if m.login() {
		return 0
	}
	if s.HeaderDigest {
		n += 4
	}
	if s.DataDigest && m.Data > 0 {
		n += 4
	}
	return n
}

// login takes the text of a login's messages, whose last one is m.
func (s *Session) login(m Message, text []byte) {
	if m.Kind == LoginRequest {
		s.offered.add(Keys(text))
		return
	}
	s.agreed.add(Keys(text))
	if m.Final {
		s.Known, s.HeaderDigest, s.DataDigest = true, s.agreed.HeaderDigest, s.agreed.DataDigest
		s.Target = s.offered.Target
	}
}

func (s *Session) message(m Message, on func(Event)) {
	switch m.Kind {
	case Command:
		s.begin(Operation{Tag: m.Tag, LUN: m.LUN, Bytes: m.Bytes, Op: m.Op}, on)
	case Answer:
		s.end(m, on)
	case TaskRequest:
		s.task = m
	case TaskResponse:
		if s.task.Kind == TaskRequest && s.task.Tag == m.Tag {
			if !m.Failed {
				s.abort(s.task)
			}
			s.task = Message{}
		}
	}
}

func (s *Session) begin(o Operation, on func(Event)) {
	// A tag that is used anew: the answer to its former command was missed.
	s.drop(func(old Operation) bool { return old.Tag == o.Tag })
	if len(s.underWay) == UnderWayMax {
		s.Lost++
		return
	}
	s.underWay = append(s.underWay, o)
	on(Event{Operation: o})
}

func (s *Session) end(m Message, on func(Event)) {
	for i, o := range s.underWay {
		if o.Tag == m.Tag {
			last := len(s.underWay) - 1
			s.underWay[i] = s.underWay[last]
			s.underWay = s.underWay[:last]
			on(Event{Operation: o, Ends: true, Failed: m.Failed})
			return
		}
	}
	s.Unmatched++
}

// drop forgets the operations for which gone returns true, and returns their number.
func (s *Session) drop(gone func(Operation) bool) (n int) {
	kept := s.underWay[:0]
	for _, o := range s.underWay {
		if gone(o) {
			n++
		} else {
			kept = append(kept, o)
		}
	}
	s.underWay = kept
	return n
}

// Functions of task management requests.
const (
	abortTask        = 1
	abortTaskSet     = 2
	clearTaskSet     = 4
	logicalUnitReset = 5
	targetWarmReset  = 6
	targetColdReset  = 7
)

// abort forgets what a task management request has ended: no answer comes.
func (s *Session) abort(request Message) {
	s.Aborted += s.drop(func(o Operation) bool {
		switch request.Function {
		case abortTask:
			return o.Tag == request.Reference
		case abortTaskSet, clearTaskSet, logicalUnitReset:
			return o.LUN == request.LUN
		case targetWarmReset, targetColdReset:
			return true
		}
		return false
	})
}
