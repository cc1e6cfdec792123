// Package program reads from an ELF file where it can run.
package program

import (
	"debug/elf"
	"io"
	"strings"
)

// Machines are the architectures that images are made for, by Go's names.
var Machines = map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}

// Loader is the path of a program's interpreter, which loads its libraries; "" of a static program and of a library.
func Loader(f *elf.File) (string, error) {
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			text, err := io.ReadAll(p.Open())
			return strings.TrimRight(string(text), "\x00"), err
		}
	}
	return "", nil
}
