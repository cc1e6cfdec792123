package iscsipdu

import (
	"bytes"
	"reflect"
	"testing"
)

func FuzzParse(f *testing.F) {
	messages, _ := traffic()
	for _, p := range append(login(true, true), messages...) {
		f.Add(unhex(f, p.header), p.toTarget)
	}
	f.Fuzz(func(t *testing.T, h []byte, toTarget bool) {
		if len(h) < HeaderSize {
			return
		}
		m, err := Parse(h, toTarget)
		if err != nil {
			return
		}
		if m.Attached > AttachedMax || m.Attached > 0 && m.Kind != Command || m.Data >= 1<<24 {
			t.Errorf("as long as no message: %+v", m)
		}
		if _, err := Parse(h, !toTarget); err == nil {
			t.Errorf("in both directions: %x", h)
		}
		if toTarget != (m.Kind == Command || m.Kind == LoginRequest || m.Kind == TaskRequest) && m.Kind != Other {
			t.Errorf("in the wrong direction: %+v", m)
		}
	})
}

// script turns the fuzzer's bytes into calls: a byte for the call's direction and length, then the call's bytes.
func script(b []byte, call func(toTarget bool, b []byte)) {
	for len(b) > 0 {
		how := b[0]
		n := min(int(how&0x7f)*4, len(b)-1)
		call(how&0x80 != 0, b[1:1+n])
		b = b[1+n:]
	}
}

// scripted is the opposite of it.
func scripted(toTarget bool, b []byte) (s []byte) {
	for len(b) > 0 {
		n := min(len(b), 0x7f*4)
		how := byte(n / 4)
		if toTarget {
			how |= 0x80
		}
		s = append(append(s, how), b[:n]...)
		b = b[n:]
	}
	return s
}

// For any input, a session keeps little, ends only what has begun, and means the same if the calls of a direction that
// is in step are cut.
func FuzzSession(f *testing.F) {
	messages, _ := traffic()
	for i := range 4 {
		w := wire{i&1 != 0, i&2 != 0}
		var with, without []byte
		for _, p := range login(w.headerDigest, w.dataDigest) {
			with = append(with, scripted(p.toTarget, w.bytes(f, p))...)
		}
		for _, p := range messages {
			without = append(without, scripted(p.toTarget, w.bytes(f, p))...)
		}
		f.Add(append(with, without...), uint8(i))
		f.Add(append(bytes.Clone(without), without...), uint8(7+i))
	}
	f.Fuzz(func(t *testing.T, b []byte, cut uint8) {
		var s, pieces Session
		begun, bound, same := map[Operation]int{}, 0, true
		script(b, func(toTarget bool, b []byte) {
			bound += len(b)
			got := feed(&s, toTarget, b, whole)
			if same {
				n := int(cut)%100 + 1
				other := feed(&pieces, toTarget, b, func(b []byte) (all [][]byte) {
					for len(b) > 0 {
						m := min(n, len(b))
						all, b = append(all, b[:m]), b[m:]
					}
					return all
				})
				if s.Resyncs > 0 || s.Missed || pieces.Resyncs > 0 || pieces.Missed {
					same = false // now it matters where a call begins
				} else if !reflect.DeepEqual(got, other) {
					t.Fatalf("cut in %d: %+v, whole: %+v", n, other, got)
				}
			}
			for _, e := range got {
				if !e.Ends {
					begun[e.Operation]++
				} else if begun[e.Operation]--; begun[e.Operation] < 0 {
					t.Fatalf("ended without a beginning: %+v", e)
				}
			}
		})
		if s.UnderWay() > UnderWayMax || cap(s.underWay) > 2*UnderWayMax || len(s.Target) > NameMax {
			t.Fatalf("%d under way in room for %d, a name of %d bytes", s.UnderWay(), cap(s.underWay), len(s.Target))
		}
		for _, one := range []*stream{&s.received, &s.sent} {
			if len(one.text) > TextMax || cap(one.text) > 2*TextMax || len(one.text) > 0 && one.over {
				t.Fatalf("%d bytes of text in room for %d", len(one.text), cap(one.text))
			}
		}
		if n := len(begun); n*HeaderSize > bound {
			t.Fatalf("%d operations in %d bytes", n, bound)
		}
	})
}
