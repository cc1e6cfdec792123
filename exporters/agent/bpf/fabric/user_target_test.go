package fabric

import (
	"maps"
	"math/rand/v2"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/plumbline/plumbline/exporters/agent/bpf/bpftest"
	"github.com/plumbline/plumbline/exporters/agent/iscsipdu"
	"github.com/plumbline/plumbline/exporters/agent/nvmepdu"
	"github.com/plumbline/plumbline/tests/testkit"
)

var userTargets = map[string]func() (*ebpf.CollectionSpec, error){"nvme": LoadNvmeTarget, "iscsi": LoadIscsiTarget}

// The kernel's verifier accepts the programs that follow targets in user space.
func TestLoadUserTarget(t *testing.T) {
	for name, load := range userTargets {
		t.Run(name, func(t *testing.T) {
			spec, err := load()
			if err != nil {
				t.Fatal(err)
			}
			bpftest.Load(t, spec)
		})
	}
}

// parser is the programs' own of a wire, in the kernel. It reports whether a header is one at all.
func parser(t testing.TB, wire string) func(header []byte, toTarget bool) (Message, bool) {
	testkit.NeedBPF(t)
	spec, err := userTargets[wire]()
	if err != nil {
		t.Fatal(err)
	}
	maps.DeleteFunc(spec.Programs, func(name string, _ *ebpf.ProgramSpec) bool { return name != IscsiTargetProgUserTargetParse })
	collection, err := ebpf.NewCollection(spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(collection.Close)
	return func(header []byte, toTarget bool) (Message, bool) {
		p := Parsed{}
		copy(p.Header[:], header)
		if toTarget {
			p.ToTarget = 1
		}
		if _, err := collection.Programs[IscsiTargetProgUserTargetParse].Run(&ebpf.RunOptions{Context: &p, ContextOut: &p}); err != nil {
			t.Fatal(err)
		}
		return p.Message, p.Result == 0
	}
}

// iscsiReference returns what the reference in Go reads from a header, in the form of the kernel's parser.
func iscsiReference(header []byte, toTarget bool) (Message, error) {
	m, err := iscsipdu.Parse(header, toTarget)
	reference := Message{Tag: m.Tag, Lun: m.LUN, Reference: m.Reference, Bytes: m.Bytes, Rest: m.Attached + (m.Data+3)&^3, Data: m.Data,
		Kind: uint8(m.Kind), Op: uint8(m.Op), Scope: scopes[m.Function], Failed: bit(m.Failed), Final: bit(m.Final), Continues: bit(m.Continues), Anywhere: bit(m.Anywhere), Doubtful: bit(m.Doubtful)}
	if m.Kind == iscsipdu.LoginRequest || m.Kind == iscsipdu.LoginResponse || m.Kind == iscsipdu.Rejected {
		reference.Text = m.Data
	}
	return reference, err
}

// nvmeReference is the same of NVMe over TCP.
func nvmeReference(header []byte, toTarget bool) (Message, error) {
	m, err := nvmepdu.Parse(header, toTarget)
	return Message{Tag: m.Tag, Lun: m.Namespace, Reference: m.Queue, Bytes: m.Bytes, Rest: m.Rest, Text: m.Text, Lead: uint16(m.Lead),
		Kind: uint8(m.Kind), Op: uint8(m.Op), Failed: bit(m.Failed), Anywhere: bit(m.Anywhere)}, err
}

// scopes are what functions of task management requests are about, in the order of enum task_scope.
var scopes = map[uint8]uint8{1: 1, 2: 2, 4: 2, 5: 2, 6: 3, 7: 3}

func bit(b bool) uint8 {
	if b {
		return 1
	}
	return 0
}

// agree fails if the kernel's parser and its reference differ about a header.
func agree(t *testing.T, parse func([]byte, bool) (Message, bool), reference func([]byte, bool) (Message, error), header []byte, toTarget bool) (valid bool) {
	t.Helper()
	want, err := reference(header, toTarget)
	got, ok := parse(header, toTarget)
	if ok != (err == nil) || ok && got != want {
		t.Fatalf("%x to the target %v: the kernel has %+v, %v, its reference %+v, %v", header, toTarget, got, ok, want, err)
	}
	return ok
}

// Headers of all kinds, mostly valid ones, mean the same to both.
func TestISCSIParserAgainstReference(t *testing.T) {
	parse := parser(t, "iscsi")
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
			if agree(t, parse, iscsiReference, header, toTarget) {
				valid++
			}
		}
	}
	if valid < rounds/4 {
		t.Errorf("only %d of %d were headers at all", valid, rounds)
	}
}

// The same of NVMe over TCP.
func TestNVMeParserAgainstReference(t *testing.T) {
	parse := parser(t, "nvme")
	random := rand.New(rand.NewPCG(1, 2))
	lengths := []byte{128, 128, 24, 24, 72, 24, 24, 24, 0, 24}
	valid := 0
	const rounds = 20000
	for range rounds {
		header := make([]byte, nvmepdu.HeaderMax)
		for i := range header {
			if random.IntN(3) == 0 {
				header[i] = byte(random.Uint32())
			}
		}
		header[0] = byte(random.IntN(len(lengths)))
		header[1] &= 0x1f
		header[2] = lengths[header[0]]
		header[7] = byte(random.IntN(6))
		header[8] = []byte{0, 1, 2, 9, 0x18, 0x7f}[random.IntN(6)]
		header[12] &= 1
		for _, toTarget := range []bool{false, true} {
			if agree(t, parse, nvmeReference, header, toTarget) {
				valid++
			}
		}
	}
	if valid < rounds/4 {
		t.Errorf("only %d of %d were headers at all", valid, rounds)
	}
}

// FuzzNVMeParserAgainstReference is the same for whatever comes.
func FuzzNVMeParserAgainstReference(f *testing.F) {
	parse := parser(f, "nvme")
	f.Add(make([]byte, nvmepdu.HeaderMax), true)
	f.Fuzz(func(t *testing.T, header []byte, toTarget bool) {
		if len(header) == nvmepdu.HeaderMax {
			agree(t, parse, nvmeReference, header, toTarget)
		}
	})
}

// FuzzISCSIParserAgainstReference is the same for whatever comes.
func FuzzISCSIParserAgainstReference(f *testing.F) {
	parse := parser(f, "iscsi")
	f.Add(make([]byte, iscsipdu.HeaderSize), true)
	f.Fuzz(func(t *testing.T, header []byte, toTarget bool) {
		if len(header) == iscsipdu.HeaderSize {
			agree(t, parse, iscsiReference, header, toTarget)
		}
	})
}
