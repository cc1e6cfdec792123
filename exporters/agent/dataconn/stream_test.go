package dataconn

import (
	"bytes"
	"encoding/binary"
	"io"
	"math/rand/v2"
	"net"
	"reflect"
	"testing"

	engine "github.com/longhorn/longhorn-engine/pkg/dataconn"
)

// encode lets the engine's own code write messages.
func encode(t testing.TB, messages ...*engine.Message) []byte {
	t.Helper()
	here, there := net.Pipe()
	sent := make(chan error, 1)
	go func() {
		wire := engine.NewWire(here)
		for _, m := range messages {
			if err := wire.Write(m); err != nil {
				sent <- err
				break
			}
		}
		sent <- here.Close()
	}()
	b, err := io.ReadAll(there)
	if err != nil {
		t.Fatal(err)
	}
	if err := <-sent; err != nil {
		t.Fatal(err)
	}
	return b
}

func message(seq, typ uint32, offset int64, size uint32, data []byte) *engine.Message {
	return &engine.Message{MagicVersion: engine.MagicVersion, Seq: seq, Type: typ, Offset: offset, Size: size, Data: data}
}

// A stream of every kind of message, and what it holds.
func sample(t testing.TB) ([]byte, []Message) {
	data := bytes.Repeat([]byte{1, 0x1b, 0}, 100)
	b := encode(t,
		message(1, engine.TypeWrite, 4096, 300, data),
		message(2, engine.TypeRead, 8192, 512, nil),
		message(3, engine.TypeUnmap, 1<<40, 1<<30, nil),
		message(4, engine.TypePing, 0, 0, nil),
		message(1, engine.TypeResponse, 4096, 300, nil),
		message(2, engine.TypeResponse, 8192, 300, data),
		message(3, engine.TypeError, 1<<40, 5, []byte("wrong")),
		message(4, engine.TypeEOF, 0, 0, nil),
		&engine.Message{Type: engine.TypeClose},
	)
	messages := []Message{
		{ID: 1, Offset: 4096, Size: 300, Payload: 300, Kind: Request, Op: Write},
		{ID: 2, Offset: 8192, Size: 512, Kind: Request, Op: Read},
		{ID: 3, Offset: 1 << 40, Size: 1 << 30, Kind: Request, Op: Unmap},
		{ID: 4, Kind: Request, Op: Ping},
		{ID: 1, Offset: 4096, Size: 300, Kind: Response, Op: OpOther},
		{ID: 2, Offset: 8192, Size: 300, Payload: 300, Kind: Response, Op: OpOther},
		{ID: 3, Offset: 1 << 40, Size: 5, Payload: 5, Kind: Response, Op: OpOther, Failed: true},
		{ID: 4, Kind: Response, Op: OpOther},
		{Kind: Other, Op: OpOther},
	}
	for i := range messages[:len(messages)-1] {
		messages[i].Magic = MagicLonghorn
	}
	return b, messages
}

func feed(s *Stream, chunks ...[]byte) []Message {
	var got []Message
	for _, c := range chunks {
		s.Feed(c, func(m Message) { got = append(got, m) })
	}
	return got
}

// samples are streams, each of one version of the wire.
func samples(t *testing.T, f func(t *testing.T, b []byte, want []Message)) {
	b, want := sample(t)
	t.Run("longhorn", func(t *testing.T) { f(t, b, want) })
	for _, g := range jivaGolden {
		t.Run(g.version, func(t *testing.T) { f(t, g.bytes(t), g.messages()) })
	}
}

func TestStreamInOnePiece(t *testing.T) {
	samples(t, func(t *testing.T, b []byte, want []Message) {
		var s Stream
		if got := feed(&s, b); !reflect.DeepEqual(got, want) {
			t.Errorf("got %+v\nwant %+v", got, want)
		}
	})
}

// The stream cut at every byte: in two pieces at each place, in pieces of every length, and
// in pieces of random lengths.
func TestStreamSplitAnywhere(t *testing.T) { samples(t, splitAnywhere) }

func splitAnywhere(t *testing.T, b []byte, want []Message) {
	check := func(how string, at int, chunks ...[]byte) {
		t.Helper()
		var s Stream
		if got := feed(&s, chunks...); !reflect.DeepEqual(got, want) || s.Resyncs != 0 || s.Missed {
			t.Fatalf("%s %d: %d messages, %d resyncs, missed %v; want %d messages", how, at, len(got), s.Resyncs, s.Missed, len(want))
		}
	}
	for i := range b {
		check("cut at", i, b[:i], b[i:])
	}
	for n := 1; n <= 64; n++ {
		var chunks [][]byte
		for rest := b; len(rest) > 0; {
			m := min(n, len(rest))
			chunks = append(chunks, rest[:m])
			rest = rest[m:]
		}
		check("pieces of", n, chunks...)
	}
	r := rand.New(rand.NewPCG(1, 2))
	for i := range 1000 {
		var chunks [][]byte
		for rest := b; len(rest) > 0; {
			m := min(1+r.IntN(200), len(rest))
			chunks = append(chunks, rest[:m])
			rest = rest[m:]
		}
		check("random cut", i, chunks...)
	}
}

func TestStreamOutOfStep(t *testing.T) {
	write := encode(t, message(1, engine.TypeWrite, 0, 512, make([]byte, 512)))
	ping := encode(t, message(2, engine.TypePing, 0, 0, nil))
	impossible := encode(t, message(3, engine.TypeRead, 0, 0, nil))
	impossible[6] = 77
	long := encode(t, message(4, engine.TypeWrite, 0, 0, nil))
	binary.LittleEndian.PutUint32(long[18:], 1<<31)
	binary.LittleEndian.PutUint32(long[22:], 1<<31)
	other := jivaGolden[1].bytes(t)
	farewell := encode(t, &engine.Message{Type: engine.TypeClose})
	unknown := bytes.Clone(ping)
	unknown[0] = 0x04
	for _, c := range []struct {
		name     string
		chunks   [][]byte
		messages int
		resyncs  int
		missed   bool
	}{
		{"another protocol", [][]byte{[]byte("GET / HTTP/1.1\r\n\r\n")}, 0, 0, true},
		{"zeros", [][]byte{make([]byte, 4096)}, 0, 0, true},
		{"adopted in the middle", [][]byte{write[100:], ping}, 1, 0, false},
		{"adopted in the middle, message within a read", [][]byte{append(bytes.Clone(write[100:]), ping...)}, 0, 0, true},
		{"garbage after a message", [][]byte{ping, []byte("xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"), ping, write}, 3, 1, false},
		{"impossible type", [][]byte{ping, impossible, ping}, 2, 1, false},
		{"impossible type at first", [][]byte{impossible}, 0, 0, true},
		{"impossible length", [][]byte{ping, long, ping}, 2, 1, false},
		{"another version amid a stream", [][]byte{ping, other}, 1, 1, false},
		{"no version known", [][]byte{unknown}, 0, 0, true},
		{"no version known, amid a stream", [][]byte{ping, unknown, ping}, 2, 1, false},
		{"the farewell amid a stream", [][]byte{ping, make([]byte, 6), farewell[6:], ping}, 3, 0, false},
		{"a first byte like ours", [][]byte{{0x01}, []byte("something else altogether, long enough"), ping}, 1, 0, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			var s Stream
			got := feed(&s, c.chunks...)
			if len(got) != c.messages || s.Resyncs != c.resyncs || s.Missed != c.missed {
				t.Errorf("%d messages, %d resyncs, missed %v; want %d, %d, %v", len(got), s.Resyncs, s.Missed, c.messages, c.resyncs, c.missed)
			}
		})
	}
}

// However a stream is cut, it means the same: whole reads against reads of the length that
// the fuzzer picks. (Out of step, the first byte of a read matters, so the streams are only
// compared as far as the first stays in step.)
func FuzzStream(f *testing.F) {
	b, _ := sample(f)
	f.Add(b, uint16(1))
	f.Add(b[:100], uint16(27))
	for _, g := range jivaGolden {
		f.Add(g.bytes(f), uint16(29))
		f.Add(append(bytes.Clone(b), g.bytes(f)...), uint16(4095))
	}
	f.Add(append(bytes.Clone(b), "garbage garbage garbage garbage"...), uint16(30))
	f.Fuzz(func(t *testing.T, b []byte, cut uint16) {
		var whole, pieces Stream
		want := feed(&whole, b)
		n := int(cut)%4096 + 1
		var got []Message
		for rest := b; len(rest) > 0; {
			m := min(n, len(rest))
			got = append(got, feed(&pieces, rest[:m])...)
			rest = rest[m:]
			if pieces.Resyncs > 0 || pieces.Missed {
				break
			}
		}
		if len(got) != len(want) || len(got) > 0 && !reflect.DeepEqual(got, want) {
			t.Fatalf("cut in %d: %+v, whole: %+v", n, got, want)
		}
		if len(b) > 0 && whole.InStep() != pieces.InStep() {
			t.Fatalf("cut in %d: in step %v, whole: %v", n, pieces.InStep(), whole.InStep())
		}
		// No more can have been understood than is there.
		room := len(b)
		for _, m := range want {
			room -= headerLonghorn + int(m.Payload)
		}
		if room < 0 {
			t.Fatalf("%d messages in %d bytes", len(want), len(b))
		}
	})
}
