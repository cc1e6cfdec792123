package server

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// What a program file may have; real ones stay far below. The file is another's, so that every
// size in it is hostile: nothing is read at once, and nothing unpacked.
const (
	maxSections    = 4096
	maxSegments    = 512
	maxSymbolBytes = 64 << 20
	// maxNames bounds how often the wanted name may stand in the table of names.
	maxNames = 16
)

// program is what is read of a 64-bit program file of this machine's byte order.
type program struct {
	header   elf.Header64
	file     io.ReaderAt
	symbols  elf.Section64
	names    elf.Section64
	segments []elf.Prog64
}

func readProgram(file io.ReaderAt) (*program, error) {
	p := &program{file: file}
	if err := p.read(0, &p.header); err != nil {
		return nil, err
	}
	h := &p.header
	switch {
	case string(h.Ident[:4]) != elf.ELFMAG, elf.Class(h.Ident[elf.EI_CLASS]) != elf.ELFCLASS64:
		return nil, errors.New("not a 64-bit ELF file")
	case h.Phnum > maxSegments, h.Shnum > maxSections, h.Shnum == 0:
		return nil, fmt.Errorf("%d segments and %d sections: too many, or none", h.Phnum, h.Shnum)
	case int(h.Phentsize) != binary.Size(elf.Prog64{}) && h.Phnum > 0, int(h.Shentsize) != binary.Size(elf.Section64{}):
		return nil, errors.New("its tables have entries of an unknown size")
	}
	p.segments = make([]elf.Prog64, h.Phnum)
	sections := make([]elf.Section64, h.Shnum)
	if err := errors.Join(p.read(h.Phoff, p.segments), p.read(h.Shoff, sections)); err != nil {
		return nil, err
	}
	for _, s := range sections {
		if elf.SectionType(s.Type) != elf.SHT_DYNSYM {
			continue
		}
		if int(s.Link) >= len(sections) {
			return nil, errors.New("its table of symbols has no names")
		}
		p.symbols, p.names = s, sections[s.Link]
		for _, t := range []elf.Section64{p.symbols, p.names} {
			if t.Size > maxSymbolBytes || elf.SectionFlag(t.Flags)&elf.SHF_COMPRESSED != 0 {
				return nil, fmt.Errorf("its table of symbols or names has %d bytes or is compressed", t.Size)
			}
		}
	}
	return p, nil
}

func (p *program) read(at uint64, to any) error {
	if at > 1<<62 {
		return errors.New("its tables lie outside of it")
	}
	return binary.Read(io.NewSectionReader(p.file, int64(at), int64(binary.Size(to))), binary.NativeEndian, to)
}

// symbol returns an exported variable's value, piece by piece: first where its name stands in
// the table of names, then which symbol has one of these.
func (p *program) symbol(name string) (uint64, error) {
	offsets, err := p.find(name + "\x00")
	if err != nil {
		return 0, fmt.Errorf("names of symbols: %w", err)
	}
	missing := fmt.Errorf("program file has no symbol %s", name)
	if len(offsets) == 0 {
		return 0, missing
	}
	if p.symbols.Off > 1<<62 {
		return 0, missing
	}
	table := io.NewSectionReader(p.file, int64(p.symbols.Off), int64(p.symbols.Size))
	piece := make([]elf.Sym64, 2048)
	raw := make([]byte, binary.Size(piece))
	for {
		n, err := io.ReadFull(table, raw)
		whole := n / elf.Sym64Size
		if _, err := binary.Decode(raw[:whole*elf.Sym64Size], binary.NativeEndian, piece[:whole]); err != nil {
			return 0, err
		}
		for _, s := range piece[:whole] {
			if offsets[uint64(s.Name)] && elf.SectionIndex(s.Shndx) != elf.SHN_UNDEF {
				return s.Value, nil
			}
		}
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return 0, missing
		}
		if err != nil {
			return 0, fmt.Errorf("symbols: %w", err)
		}
	}
}

// find returns where a text stands in the table of names.
func (p *program) find(text string) (map[uint64]bool, error) {
	found := map[uint64]bool{}
	if p.names.Off > 1<<62 {
		return nil, errors.New("they lie outside of the file")
	}
	table := io.NewSectionReader(p.file, int64(p.names.Off), int64(p.names.Size))
	window := make([]byte, 0, 64<<10)
	at := uint64(0) // where the window begins
	for {
		n, err := table.Read(window[len(window):cap(window)])
		window = window[:len(window)+n]
		rest := window
		for {
			i := bytes.Index(rest, []byte(text))
			if i < 0 || len(found) >= maxNames {
				break
			}
			found[at+uint64(len(window)-len(rest)+i)] = true
			rest = rest[i+1:]
		}
		// The end of the window may be the beginning of the text.
		keep := min(len(text)-1, len(window))
		at += uint64(len(window) - keep)
		window = window[:copy(window, window[len(window)-keep:])]
		if errors.Is(err, io.EOF) {
			return found, nil
		}
		if err != nil {
			return nil, err
		}
	}
}
