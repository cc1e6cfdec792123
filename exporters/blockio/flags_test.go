package blockio_test

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"

	"github.com/plumbline/plumbline/tests/testkit"
)

// Linux 6.11 to 6.17 have the enum of the request flags without a name: requests are counted there, too.
func TestNamelessFlags(t *testing.T) {
	testkit.NeedBPF(t)
	spec, err := ebpf.LoadCollectionSpec("blkio.bpf.o")
	if err != nil {
		t.Fatal(err)
	}
	coll, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{Programs: ebpf.ProgramOptions{KernelTypes: withoutName(t, "rqf_flags")}})
	if err != nil {
		t.Fatalf("%+v", err)
	}
	t.Cleanup(coll.Close)
	attach(t, "blkio.bpf.o", coll)
	wholly(t, func() error {
		path, _ := newLoop(t, diskSize)
		device := filepath.Base(path)
		before := exported(t, coll, "blkio_total_seconds", device)
		d := openDisk(t, path, 0)
		d.write(50)
		d.read(40)
		// A request that carries its own flush completes twice, and is counted once: the second of the flags.
		d.flush(10)
		d.close()
		return awaitExported(t, coll, device, before+100)
	})
}

// withoutName returns this kernel's types with an enum's name taken away; nothing else changes, numbers of types
// included.
func withoutName(t *testing.T, name string) *btf.Spec {
	t.Helper()
	raw, err := os.ReadFile("/sys/kernel/btf/vmlinux")
	if err != nil {
		t.Fatal(err)
	}
	// Documentation/bpf/btf.rst: a header with the places of types and strings; each type begins with its name's place
	// among the strings, and a word whose bits 24 to 28 are its kind.
	const kindEnum = 6
	word := func(at uint32) uint32 { return binary.NativeEndian.Uint32(raw[at:]) }
	header := word(4)
	types, typesLen, strings, stringsLen := header+word(8), word(12), header+word(16), word(20)
	place := bytes.Index(raw[strings:strings+stringsLen], append([]byte{0}, name+"\x00"...)) + 1
	if place == 0 {
		testkit.Skip(t, "this kernel's request flags have no name: the other tests show the same")
	}
	found := 0
	for at := types; at < types+typesLen-4; at += 4 {
		if word(at) == uint32(place) && word(at+4)>>24&0x1f == kindEnum {
			binary.NativeEndian.PutUint32(raw[at:], 0)
			found++
		}
	}
	if found != 1 {
		t.Fatalf("%d enums %s", found, name)
	}
	spec, err := btf.LoadSpecFromReader(bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	var enum *btf.Enum
	if err := spec.TypeByName(name, &enum); err == nil {
		t.Fatalf("the enum still has its name")
	}
	return spec
}
