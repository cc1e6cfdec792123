package fabric

import (
	"maps"
	"math/rand/v2"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/plumbline/plumbline/exporters/agent/bpf/bpftest"
	"github.com/plumbline/plumbline/exporters/agent/iscsipdu"
	"github.com/plumbline/plumbline/tests/testkit"
)

// The kernel's verifier accepts the programs that follow targets in user space.
func TestLoadServer(t *testing.T) {
	spec, err := LoadIscsiServer()
	if err != nil {
		t.Fatal(err)
	}
	bpftest.Load(t, spec)
}

// parser is the programs' own, in the kernel.
func parser(t testing.TB) func(header []byte, toTarget bool) (iscsipdu.Message, bool) {
	testkit.NeedBPF(t)
	spec, err := LoadIscsiServer()
	if err != nil {
		t.Fatal(err)
	}
	maps.DeleteFunc(spec.Programs, func(name string, _ *ebpf.ProgramSpec) bool { return name != IscsiServerProgIscsiServerParse })
	collection, err := ebpf.NewCollection(spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(collection.Close)
	return func(header []byte, toTarget bool) (iscsipdu.Message, bool) {
		p := Parsed{}
		copy(p.Header[:], header)
		if toTarget {
			p.ToTarget = 1
		}
		if _, err := collection.Programs[IscsiServerProgIscsiServerParse].Run(&ebpf.RunOptions{Context: &p, ContextOut: &p}); err != nil {
			t.Fatal(err)
		}
		return iscsipdu.Message{Tag: p.Pdu.Tag, LUN: p.Pdu.Lun, Reference: p.Pdu.Reference, Bytes: p.Pdu.Bytes, Attached: uint32(p.Pdu.Attached),
			Data: p.Pdu.Data, Kind: iscsipdu.Kind(p.Pdu.Kind), Op: iscsipdu.Op(p.Pdu.Op), Function: p.Pdu.Function,
			Failed: p.Pdu.Failed != 0, Final: p.Pdu.Final != 0, Continues: p.Pdu.Continues != 0}, p.Result == 0
	}
}

// agree fails if the kernel's parser and its twin differ about a header.
func agree(t *testing.T, parse func([]byte, bool) (iscsipdu.Message, bool), header []byte, toTarget bool) (valid bool) {
	t.Helper()
	want, err := iscsipdu.Parse(header, toTarget)
	got, ok := parse(header, toTarget)
	if ok != (err == nil) || ok && got != want {
		t.Fatalf("%x to the target %v: the kernel has %+v, %v, its twin %+v, %v", header, toTarget, got, ok, want, err)
	}
	return ok
}

// Headers of all kinds, mostly valid ones, mean the same to both.
func TestParserTwins(t *testing.T) {
	parse := parser(t)
	random := rand.New(rand.NewPCG(1, 2))
	valid := 0
	const rounds = 20000
	for range rounds {
		header := make([]byte, iscsipdu.HeaderSize)
		for i := range header {
			if random.IntN(3) == 0 {
				header[i] = byte(random.Uint32())
			}
		}
		header[0] &= 0x7f
		header[1] |= 0x80
		if random.IntN(2) == 0 {
			header[0], header[1] = header[0]&0x40|1, header[1]|0x40 // a command
		}
		if random.IntN(4) > 0 {
			header[4], header[5], header[6] = 0, 0, 0
		}
		for _, toTarget := range []bool{false, true} {
			if agree(t, parse, header, toTarget) {
				valid++
			}
		}
	}
	if valid < rounds/4 {
		t.Errorf("only %d of %d were headers at all", valid, rounds)
	}
}

// FuzzParserTwins is the same for whatever comes.
func FuzzParserTwins(f *testing.F) {
	parse := parser(f)
	f.Add(make([]byte, iscsipdu.HeaderSize), true)
	f.Fuzz(func(t *testing.T, header []byte, toTarget bool) {
		if len(header) == iscsipdu.HeaderSize {
			agree(t, parse, header, toTarget)
		}
	})
}
