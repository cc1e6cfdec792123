package server

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/plumbline/plumbline/tests/testkit"
)

// Symbols are found where the standard library finds them, in a real program.
func TestProgramSymbols(t *testing.T) {
	path := testkit.Tool(t, "postgres")
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	want, err := elf.NewFile(file)
	if err != nil {
		t.Fatal(err)
	}
	symbols, err := want.DynamicSymbols()
	if err != nil {
		t.Fatal(err)
	}
	p, err := readProgram(file)
	if err != nil {
		t.Fatal(err)
	}
	checked := 0
	for i, s := range symbols {
		if s.Section == elf.SHN_UNDEF || i%200 != 0 && s.Name != WaitEventVariable {
			continue
		}
		got, err := p.symbol(s.Name)
		same := slices.ContainsFunc(symbols, func(o elf.Symbol) bool { return o.Name == s.Name && o.Value == got })
		if err != nil || !same {
			t.Errorf("%s is at %#x, want %#x: %v", s.Name, got, s.Value, err)
		}
		checked++
	}
	if checked < 20 {
		t.Errorf("only %d symbols compared", checked)
	}
	if _, err := p.symbol("no_such_symbol"); err == nil {
		t.Error("a symbol that is not there is found")
	}
}

// counted counts what is read, and how much at once.
type counted struct {
	io.ReaderAt
	sum     int64
	largest int
}

func (c *counted) ReadAt(p []byte, off int64) (int, error) {
	n, err := c.ReaderAt.ReadAt(p, off)
	c.sum += int64(n)
	c.largest = max(c.largest, len(p))
	return n, err
}

// A program file may have any sizes in its headers: reading ends, needs little memory, and what is read is bounded.
func TestProgramHostile(t *testing.T) {
	sparse := func(edit func(h *elf.Header64, sections []elf.Section64)) *os.File {
		h := elf.Header64{Type: uint16(elf.ET_EXEC), Shoff: 4096, Shnum: 3, Shentsize: uint16(binary.Size(elf.Section64{}))}
		copy(h.Ident[:], elf.ELFMAG)
		h.Ident[elf.EI_CLASS] = byte(elf.ELFCLASS64)
		sections := []elf.Section64{{}, {Type: uint32(elf.SHT_DYNSYM), Link: 2, Off: 8192, Size: 24}, {Type: uint32(elf.SHT_STRTAB), Off: 16384, Size: 64}}
		edit(&h, sections)
		f, err := os.Create(filepath.Join(t.TempDir(), "elf"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		var head, table bytes.Buffer
		err = errors.Join(binary.Write(&head, binary.NativeEndian, h), binary.Write(&table, binary.NativeEndian, sections), f.Truncate(1<<30))
		_, err1 := f.WriteAt(head.Bytes(), 0)
		_, err2 := f.WriteAt(table.Bytes(), 4096)
		if err := errors.Join(err, err1, err2); err != nil {
			t.Fatal(err)
		}
		return f
	}
	for _, c := range []struct {
		name string
		edit func(h *elf.Header64, sections []elf.Section64)
	}{
		{"plain", func(*elf.Header64, []elf.Section64) {}},
		{"all of 1 GiB are symbols", func(_ *elf.Header64, s []elf.Section64) { s[1].Size = 1 << 30 }},
		{"all of 1 GiB are names", func(_ *elf.Header64, s []elf.Section64) { s[2].Size = 1 << 30 }},
		{"as much as may be", func(_ *elf.Header64, s []elf.Section64) { s[1].Size, s[2].Size = maxSymbolBytes, maxSymbolBytes }},
		{"compressed", func(_ *elf.Header64, s []elf.Section64) { s[2].Flags = uint64(elf.SHF_COMPRESSED) }},
		{"names of another section", func(_ *elf.Header64, s []elf.Section64) { s[1].Link = 99 }},
		{"outside", func(_ *elf.Header64, s []elf.Section64) { s[1].Off, s[2].Off = 1<<63, 1<<63 }},
		{"past the end", func(_ *elf.Header64, s []elf.Section64) { s[1].Off, s[2].Off = 1<<40, 1<<40 }},
		{"sections outside", func(h *elf.Header64, _ []elf.Section64) { h.Shoff = 1<<64 - 1 }},
		{"segments outside", func(h *elf.Header64, _ []elf.Section64) {
			h.Phnum, h.Phentsize, h.Phoff = 4, uint16(binary.Size(elf.Prog64{})), 1<<63
		}},
		{"very many sections", func(h *elf.Header64, _ []elf.Section64) { h.Shnum = 65535 }},
		{"sections without number", func(h *elf.Header64, s []elf.Section64) { h.Shnum = 0; s[0].Size = 1 << 40 }},
		{"another class", func(h *elf.Header64, _ []elf.Section64) { h.Ident[elf.EI_CLASS] = 1 }},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := &counted{ReaderAt: sparse(c.edit)}
			p, err := readProgram(f)
			if err == nil {
				_, err = p.symbol(WaitEventVariable)
			}
			if err == nil {
				t.Error("a symbol is found")
			}
			if f.largest > 1<<20 || f.sum > 3*maxSymbolBytes {
				t.Errorf("%d bytes read, %d at once", f.sum, f.largest)
			}
		})
	}
}

// A name at the seam of two pieces is found.
func TestProgramFind(t *testing.T) {
	const at = 64<<10 - 5
	table := make([]byte, 200<<10)
	copy(table[at:], WaitEventVariable)
	p := &program{file: bytes.NewReader(table)}
	p.names.Size = uint64(len(table))
	found, err := p.find(WaitEventVariable + "\x00")
	if err != nil || len(found) != 1 || !found[at] {
		t.Errorf("found at %v, %v; want %d", found, err, at)
	}
}
