package nvmepdu

import (
	"encoding/hex"
	"strings"
	"testing"
)

// header is bytes in hexadecimal, with spaces, filled up with zeros.
func header(t testing.TB, text string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(text, " ", ""))
	if err != nil || len(b) > HeaderMax {
		t.Fatalf("%q: %v", text, err)
	}
	return append(b, make([]byte, HeaderMax-len(b))...)
}

// command is a command's header with an opcode, an identifier and a namespace, and how many bytes its data has.
func command(flags, length, opcode, identifier, namespace, data string) string {
	return "04" + flags + "48 00" + length + opcode + "00" + identifier + namespace + strings.Repeat("00", 24) + data
}

func TestParse(t *testing.T) {
	const alone = "48000000"
	for _, one := range []struct {
		name, text string
		toTarget   bool
		want       Message
	}{
		{"a connection's first message", "00 00 80 00 80000000", true, Message{Kind: Hello, Rest: 120, Op: OpOther}},
		{"its answer", "01 00 80 00 80000000", false, Message{Rest: 120, Op: OpOther}},
		{"a read", command("00", alone, "02", "0700", "01000000", "00100000"), true, Message{Kind: Command, Op: OpRead, Tag: 7, Namespace: 1, Bytes: 4096}},
		{"a write with its data and digests", command("03", "50100000", "01", "ffff", "02000000", "00100000"), true,
			Message{Kind: Command, Op: OpWrite, Tag: 0xffff, Namespace: 2, Bytes: 4096, Rest: 4104}},
		{"a flush", command("00", alone, "00", "0100", "01000000", "00000000"), true, Message{Kind: Command, Op: OpSync, Tag: 1, Namespace: 1}},
		{"a deallocation", command("00", alone, "09", "0100", "01000000", "10000000"), true, Message{Kind: Command, Op: OpUnmap, Tag: 1, Namespace: 1}},
		{"a log page, of no namespace", command("00", alone, "02", "0100", "ffffffff", "00100000"), true,
			Message{Kind: Command, Op: OpOther, Tag: 1, Namespace: 0xffffffff, Anywhere: true}},
		{"the keeping alive", command("00", alone, "18", "0100", "00000000", "00000000"), true, Message{Kind: Command, Op: OpOther, Tag: 1, Anywhere: true}},
		{"a property", "04 00 48 00" + alone + "7f 00 0300 04", true, Message{Kind: Command, Op: OpOther, Tag: 3, Anywhere: true}},
		{"a queue is connected", "04 01 48 4c 4c040000 7f 00 0000 01" + strings.Repeat("00", 37) + "0300", true,
			Message{Kind: Connect, Op: OpOther, Queue: 3, Rest: 1028, Lead: 4, Text: 1024}},
		{"data from the host", "06 04 18 18 18100000", true, Message{Rest: 4096, Op: OpOther}},
		{"an answer", "05 00 18 00 18000000" + strings.Repeat("00", 12) + "0900 0000", false, Message{Kind: Answer, Tag: 9, Op: OpOther}},
		{"an error", "05 00 18 00 18000000" + strings.Repeat("00", 12) + "0900 8102", false, Message{Kind: Answer, Tag: 9, Failed: true, Op: OpOther}},
		{"data, and more comes", "07 00 18 18 18100000 0500", false, Message{Rest: 4096, Op: OpOther}},
		{"the last data, and a response comes", "07 04 18 18 18100000 0500", false, Message{Rest: 4096, Op: OpOther}},
		{"the last data, and nothing comes", "07 0c 18 18 18100000 0500", false, Message{Kind: Answer, Tag: 5, Rest: 4096, Op: OpOther}},
		{"room for data", "09 00 18 00 18000000 0500", false, Message{Op: OpOther}},
	} {
		got, err := Parse(header(t, one.text), one.toTarget)
		if err != nil || got != one.want {
			t.Errorf("%s: %+v, %v, want %+v", one.name, got, err, one.want)
		}
		if _, err := Parse(header(t, one.text), !one.toTarget); err == nil {
			t.Errorf("%s: in both directions", one.name)
		}
	}
	for name, text := range map[string]string{
		"a type that is none":        "08 00 18 00 18000000",
		"a flag that is none":        "04 10 48 00 48000000",
		"a header of another length": "04 00 18 00 48000000",
		"shorter than its header":    "04 00 48 00 47000000",
		"longer than any":            "06 00 18 00 01000004",
	} {
		for _, toTarget := range []bool{false, true} {
			if m, err := Parse(header(t, text), toTarget); err == nil {
				t.Errorf("%s: %+v", name, m)
			}
		}
	}
	if _, err := Parse(header(t, command("00", alone, "02", "0700", "01000000", "00100000"))[:71], true); err == nil {
		t.Error("a header that is not whole")
	}
}
