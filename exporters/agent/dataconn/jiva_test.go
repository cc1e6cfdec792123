package dataconn

import (
	"encoding/hex"
	"strings"
	"testing"
)

// frame is one message, byte for byte, and its meaning.
type frame struct {
	hex  string
	want Message
}

// golden is a stream of a version of Jiva. The bytes are written out from its published source, field by field as
// rpc/wire.go writes them: magic, sequence, type, offset, size, the payload's length, the payload. The content of
// requests is by rpc/client.go, of answers by rpc/server.go (createResponse). No Jiva was run.
type golden struct {
	version string
	magic   uint16
	frames  []frame
}

var jivaGolden = []golden{
	// The size has four bytes.
	{"jiva 0.7.2", MagicJiva07, []frame{
		{"021b 01000000 01000000 0010000000000000 04000000 04000000 deadbeef", Message{ID: 1, Offset: 4096, Size: 4, Payload: 4, Kind: Request, Op: Write}},
		{"021b 01000000 02000000 0010000000000000 04000000 00000000", Message{ID: 1, Offset: 4096, Size: 4, Kind: Response, Op: OpOther}},
		{"021b 02000000 06000000 0000000000000000 00000000 00000000", Message{ID: 2, Kind: Request, Op: Ping}},
	}},
	// The size has eight. Requests, as a controller sends them.
	{"jiva 3.6.0, controller", MagicJiva, []frame{
		{"031b 01000000 06000000 0000000000000000 0000000000000000 00000000", Message{ID: 1, Kind: Request, Op: Ping}},
		{"031b 02000000 01000000 0010000000000000 0600000000000000 06000000 031b02000000", Message{ID: 2, Offset: 4096, Size: 6, Payload: 6, Kind: Request, Op: Write}},
		{"031b 03000000 00000000 0000004000000000 0002000000000000 00000000", Message{ID: 3, Offset: 1 << 30, Size: 512, Kind: Request, Op: Read}},
		{"031b 04000000 08000000 0000000000000000 0000000000000000 00000000", Message{ID: 4, Kind: Request, Op: Sync}},
		{"031b ffffffff 09000000 0000000001000000 0000004000000000 00000000", Message{ID: 0xffffffff, Offset: 1 << 32, Size: 1 << 30, Kind: Request, Op: Unmap}},
	}},
	// Answers, as a replica sends them: that to a write has the size of what was written and nothing behind it, those
	// to the others the size of what follows.
	{"jiva 3.6.0, replica", MagicJiva, []frame{
		{"031b 01000000 02000000 0000000000000000 0000000000000000 00000000", Message{ID: 1, Kind: Response, Op: OpOther}},
		{"031b 02000000 02000000 0010000000000000 0600000000000000 00000000", Message{ID: 2, Offset: 4096, Size: 6, Kind: Response, Op: OpOther}},
		{"031b 03000000 02000000 0000004000000000 0300000000000000 03000000 031b03", Message{ID: 3, Offset: 1 << 30, Size: 3, Payload: 3, Kind: Response, Op: OpOther}},
		{"031b 04000000 03000000 0000000000000000 0200000000000000 02000000 4e6f", Message{ID: 4, Size: 2, Payload: 2, Kind: Response, Op: OpOther, Failed: true}},
		{"031b 05000000 04000000 0000000000000000 0100000000000000 01000000 00", Message{ID: 5, Size: 1, Payload: 1, Kind: Response, Op: OpOther}},
		{"031b ffffffff 02000000 0000000001000000 0000000000000000 00000000", Message{ID: 0xffffffff, Offset: 1 << 32, Kind: Response, Op: OpOther}},
	}},
}

func (g golden) bytes(t testing.TB) (b []byte) {
	t.Helper()
	for _, f := range g.frames {
		one, err := hex.DecodeString(strings.ReplaceAll(f.hex, " ", ""))
		if err != nil {
			t.Fatal(err)
		}
		b = append(b, one...)
	}
	return b
}

func (g golden) messages() (messages []Message) {
	for _, f := range g.frames {
		f.want.Magic = g.magic
		messages = append(messages, f.want)
	}
	return messages
}

// Sizes of more than four bytes are refused, not cut.
func TestJivaTooLarge(t *testing.T) {
	b, err := hex.DecodeString("031b010000000900000000000000000000000000000001000000" + "00000000")
	if err != nil {
		t.Fatal(err)
	}
	if m, err := Parse(b); err == nil {
		t.Errorf("4 GiB are taken for %+v", m)
	}
}
