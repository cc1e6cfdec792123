package iscsipdu

import (
	"encoding/hex"
	"strings"
	"testing"
)

// unhex reads a header as RFC 7143 draws it, without the zeros at its end.
func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
	if err != nil || len(b) > HeaderSize {
		t.Fatalf("%q: %v, %d bytes", s, err, len(b))
	}
	return append(b, make([]byte, HeaderSize-len(b))...)
}

// Bytes 0 to 7, 8 to 15 (LUN or ISID), 16 to 19 (tag), 20 to 23, 24 to 31, 32 to 47.
func TestParse(t *testing.T) {
	for _, c := range []struct {
		name     string
		hex      string
		toTarget bool
		want     Message
	}{
		{"NOP-Out", "40800000 00000005 0001000000000000 ffffffff 00000007 0000000000000000", true,
			Message{Tag: 0xffffffff, Data: 5, Op: OpOther}},
		{"READ(10)", "01c10000 00000000 0002000000000000 00000011 00001000 0000000100000001 28000000000800000800", true,
			Message{Kind: Command, Tag: 0x11, LUN: 2, Op: Read, Bytes: 4096}},
		{"WRITE(16), immediate, with data and additional headers", "41a10000 02010203 0001000200000000 80000001 00020000 0000000100000001 8a", true,
			Message{Kind: Command, Tag: 0x80000001, LUN: 1 | 2<<16, Op: Write, Doubtful: true, Bytes: 0x20000, Attached: 8, Data: 0x10203}},
		{"SYNCHRONIZE CACHE(10) is about no bytes", "01810000 00000000 0000000000000000 00000012 00000100 0000000100000001 35", true,
			Message{Kind: Command, Tag: 0x12, Op: Sync}},
		{"the longest additional headers", "01810000 40000000 0000000000000000 00000012 00000000 0000000100000001 00", true,
			Message{Kind: Command, Tag: 0x12, Op: OpOther, Doubtful: true, Attached: 256}},
		{"ABORT TASK", "02810000 00000000 0003000000000000 00000013 00000011 0000000100000001", true,
			Message{Kind: TaskRequest, Tag: 0x13, LUN: 3, Op: OpOther, Reference: 0x11, Function: 1}},
		{"login, text goes on", "43440000 00000030 00023d0000010000 00000001 00000000 0000000100000001", true,
			Message{Kind: LoginRequest, Tag: 1, Op: OpOther, Data: 0x30, Continues: true}},
		{"login, to operational negotiation", "43810000 00000030 00023d0000010000 00000001 00000000 0000000100000001", true,
			Message{Kind: LoginRequest, Tag: 1, Op: OpOther, Data: 0x30}},
		{"login, the last one", "43870000 00000030 00023d0000010000 00000001 00000000 0000000100000001", true,
			Message{Kind: LoginRequest, Tag: 1, Op: OpOther, Data: 0x30, Final: true}},
		{"text request", "04800000 00000010 0000000000000000 00000002 ffffffff", true,
			Message{Tag: 2, Op: OpOther, Data: 0x10}},
		{"Data-Out without the final bit", "05000000 00002000 0000000000000000 00000011 00000001", true,
			Message{Tag: 0x11, Op: OpOther, Doubtful: true, Data: 0x2000}},
		{"logout", "46800000 00000000 0000000000000000 00000014 00000000", true, Message{Tag: 0x14, Op: OpOther}},
		{"SNACK", "10800000 00000000 0000000000000000 00000014 00000001", true, Message{Tag: 0x14, Op: OpOther}},

		{"NOP-In", "20800000 00000000 0000000000000000 ffffffff 00000001", false, Message{Tag: 0xffffffff, Op: OpOther}},
		{"response, good", "21800000 00000000 0000000000000000 00000011 00000000", false,
			Message{Kind: Answer, Tag: 0x11, Op: OpOther}},
		{"response, CHECK CONDITION with sense", "21800002 00000014 0000000000000000 00000011 00000000", false,
			Message{Kind: Answer, Tag: 0x11, Op: OpOther, Doubtful: true, Data: 0x14, Failed: true}},
		{"response, target failure", "21800100 00000000 0000000000000000 00000011 00000000", false,
			Message{Kind: Answer, Tag: 0x11, Op: OpOther, Doubtful: true, Failed: true}},
		{"task management response", "22800000 00000000 0000000000000000 00000013", false,
			Message{Kind: TaskResponse, Tag: 0x13, Op: OpOther}},
		{"task management response, no such task", "22800100 00000000 0000000000000000 00000013", false,
			Message{Kind: TaskResponse, Tag: 0x13, Op: OpOther, Doubtful: true, Failed: true}},
		{"login response, the last one", "23870000 00000020 00023d0000010001 00000001 00000000 0000000100000001 00000002 00000000", false,
			Message{Kind: LoginResponse, Tag: 1, Op: OpOther, Data: 0x20, Final: true}},
		{"login response, no such target", "23870000 00000000 00023d0000010001 00000001 00000000 0000000100000001 00000002 02030000", false,
			Message{Kind: LoginResponse, Tag: 1, Op: OpOther}},
		{"login response, text goes on", "23440000 00000020 00023d0000010001 00000001", false,
			Message{Kind: LoginResponse, Tag: 1, Op: OpOther, Data: 0x20, Continues: true}},
		{"text response", "24800000 00000010 0000000000000000 00000002 ffffffff", false, Message{Tag: 2, Op: OpOther, Data: 0x10}},
		{"Data-In without a status", "25800000 00001000 0000000000000000 00000011 ffffffff", false,
			Message{Tag: 0x11, Op: OpOther, Data: 0x1000}},
		{"Data-In with a status", "25810000 00001000 0000000000000000 00000011 ffffffff", false,
			Message{Kind: Answer, Tag: 0x11, Op: OpOther, Data: 0x1000}},
		{"Data-In with a bad status", "25810008 00000000 0000000000000000 00000011 ffffffff", false,
			Message{Kind: Answer, Tag: 0x11, Op: OpOther, Doubtful: true, Failed: true}},
		{"logout response", "26800000 00000000 0000000000000000 00000014", false, Message{Tag: 0x14, Op: OpOther}},
		{"ready to transfer", "31800000 00000000 0001000000000000 80000001 00000001", false, Message{Tag: 0x80000001, Op: OpOther}},
		{"asynchronous message", "32000000 00000000 0000000000000000 ffffffff", false, Message{Tag: 0xffffffff, Op: OpOther, Doubtful: true}},
		{"reject", "3f000900 00000030 0000000000000000 ffffffff", false, Message{Tag: 0xffffffff, Kind: Rejected, Op: OpOther, Doubtful: true, Data: 0x30}},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := unhex(t, c.hex)
			if m, err := Parse(h, c.toTarget); err != nil || m != c.want {
				t.Errorf("%+v, %v\nwant %+v", m, err, c.want)
			}
			if m, err := Parse(h, !c.toTarget); err == nil {
				t.Errorf("in the other direction it is %+v", m)
			}
		})
	}
}

func TestParseRefuses(t *testing.T) {
	for _, c := range []struct {
		name, hex string
		toTarget  bool
	}{
		{"reserved bit, to the target", "81810000 00000000", true},
		{"reserved bit, from it", "a1800000 00000000", false},
		{"immediate, from the target", "61800000 00000000", false},
		{"unknown opcode, to the target", "07800000 00000000", true},
		{"unknown opcode, from it", "27800000 00000000", false},
		{"a vendor's opcode", "1c800000 00000000", true},
		{"another protocol", "47455420 2f204854 54502f312e310d0a", true},
		{"additional headers of 65 words", "01810000 41000000", true},
		{"additional headers without a command", "05800000 01000000", true},
		{"additional headers from the target", "21800000 01000000", false},
		{"data of a task management request", "02810000 00000001", true},
		{"data of a logout", "06800000 00000001", true},
		{"data of a SNACK", "10800000 00000001", true},
		{"data of a task management response", "22800000 00000001", false},
		{"data of a logout response", "26800000 00000001", false},
		{"data of a ready to transfer", "31800000 00000001", false},
		{"NOP-Out", "00000000 00000000", true},
		{"task management request", "02010000 00000000", true},
		{"logout", "06000000 00000000", true},
		{"SNACK", "10000000 00000000", true},
		{"NOP-In", "20000000 00000000", false},
		{"response", "21000000 00000000", false},
		{"task management response", "22000000 00000000", false},
		{"logout response", "26000000 00000000", false},
		{"ready to transfer", "31000000 00000000", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			if m, err := Parse(unhex(t, c.hex), c.toTarget); err == nil {
				t.Errorf("it is taken for %+v", m)
			}
		})
	}
}

func TestOpOf(t *testing.T) {
	for _, c := range []struct {
		hex  string
		want Op
	}{
		{"08", Read}, {"28", Read}, {"a8", Read}, {"88", Read},
		{"0a", Write}, {"2a", Write}, {"aa", Write}, {"8a", Write},
		{"2e", Write}, {"ae", Write}, {"8e", Write},
		{"35", Sync}, {"91", Sync},
		{"42", Unmap},
		{"41", OpOther}, {"4108", Unmap}, {"93", OpOther}, {"9308", Unmap}, {"93f7", OpOther},
		{"7f000000 00000018 0009", Read}, {"7f000000 00000018 000b", Write}, {"7f000000 00000018 000c", Write},
		{"7f000000 00000018 000a", OpOther}, {"7f", OpOther},
		{"00", OpOther}, {"12", OpOther}, {"a0", OpOther},
	} {
		if got := opOf(unhex(t, c.hex)[:16]); got != c.want {
			t.Errorf("%s: %d, not %d", c.hex, got, c.want)
		}
	}
}

func TestKeys(t *testing.T) {
	long := strings.Repeat("n", NameMax)
	for _, c := range []struct {
		name, text string
		want       Login
	}{
		{"none", "", Login{}},
		{"an initiator's", "InitiatorName=iqn.a\x00TargetName=iqn.2016-09.com.openebs.cstor:pvc-1\x00SessionType=Normal\x00", Login{Target: "iqn.2016-09.com.openebs.cstor:pvc-1"}},
		{"a target's", "HeaderDigest=CRC32C\x00DataDigest=CRC32C\x00", Login{HeaderDigest: true, DataDigest: true}},
		{"header digest", "DataDigest=None\x00HeaderDigest=CRC32C\x00", Login{HeaderDigest: true}},
		{"data digest", "HeaderDigest=None\x00DataDigest=CRC32C\x00", Login{DataDigest: true}},
		{"an offer is no agreement", "HeaderDigest=CRC32C,None\x00DataDigest=None,CRC32C\x00", Login{}},
		{"a key's end is another key's", "XTargetName=a\x00TargetNames=b\x00TargetName\x00", Login{}},
		{"without the last NUL", "TargetName=iqn.a", Login{Target: "iqn.a"}},
		{"empty keys", "\x00\x00TargetName=iqn.a\x00\x00", Login{Target: "iqn.a"}},
		{"a value with a sign of equality", "TargetName=a=b\x00", Login{Target: "a=b"}},
		{"the longest name", "TargetName=" + long + "\x00", Login{Target: long}},
		{"a name that is too long", "TargetName=" + long + "n\x00", Login{}},
		{"just within", strings.Repeat("k", TextMax-14) + "\x00TargetName=a\x00", Login{Target: "a"}},
		{"cut", strings.Repeat("k", TextMax-13) + "\x00TargetName=ab\x00", Login{}},
		{"beyond", strings.Repeat("k", TextMax) + "\x00TargetName=a\x00", Login{}},
	} {
		if got := Keys([]byte(c.text)); got != c.want {
			t.Errorf("%s: %+v, not %+v", c.name, got, c.want)
		}
	}
}
