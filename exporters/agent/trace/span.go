package trace

// Span is one step of a chain. Times are nanoseconds of CLOCK_MONOTONIC.
type Span struct {
	// Layer is where its time went, one of the package layers: what none of the steps below it, on the critical path, has.
	Layer string
	// What it is, in a few words without anything that others wrote.
	What       string
	Start, End uint64
	Below      []*Span
	// Elsewhere is the number, as a trace, of the same request as another node's agent sees it; empty if there is no
	// other node.
	Elsewhere string
}

// add puts a span, if it is one, below another one, cut to its time; what lies outside is left away.
func (s *Span) add(below *Span) {
	if below == nil {
		return
	}
	if cut := below.cut(s.Start, s.End); cut != nil {
		s.Below = append(s.Below, cut)
	}
}

// cut returns the part of a span between two times, or nil.
func (s *Span) cut(from, to uint64) *Span {
	from, to = max(from, s.Start), min(to, s.End)
	if from >= to {
		return nil
	}
	if from == s.Start && to == s.End {
		return s
	}
	c := &Span{Layer: s.Layer, What: s.What, Start: from, End: to, Elsewhere: s.Elsewhere}
	for _, b := range s.Below {
		c.add(b)
	}
	return c
}

// shares gives every nanosecond of the span to one layer: what it waited for is found from its end backwards. At each
// moment that is the step below that ended last, as far as it lies before.
func (s *Span) shares(from, to uint64, into map[string]uint64) {
	for from < to {
		last := s.last(from, to)
		if last == nil {
			into[s.Layer] += to - from
			return
		}
		begin, end := max(last.Start, from), min(last.End, to)
		if end < to {
			into[s.Layer] += to - end
		}
		last.shares(begin, end, into)
		to = begin
	}
}

// last returns the step below that ends last between two times; of several the one that began first.
func (s *Span) last(from, to uint64) *Span {
	var last *Span
	for _, b := range s.Below {
		if max(b.Start, from) >= min(b.End, to) {
			continue
		}
		if last == nil || min(b.End, to) > min(last.End, to) || min(b.End, to) == min(last.End, to) && b.Start < last.Start {
			last = b
		}
	}
	return last
}

// Shares returns how long each layer was waited for; they add up to the span's time.
func (s *Span) Shares() map[string]uint64 {
	into := map[string]uint64{}
	s.shares(s.Start, s.End, into)
	return into
}
