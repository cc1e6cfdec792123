package images

import (
	"bytes"
	"debug/elf"
	"fmt"
)

// machines are the architectures, as Go names them, by what a program's header says.
var machines = map[elf.Machine]string{elf.EM_X86_64: "amd64", elf.EM_AARCH64: "arm64"}

// checkProgram refuses a Linux program that an image for an architecture could not run: one of another architecture, or one that
// wants libraries or a loader, of which an empty image has none. Other files are not looked into.
func checkProgram(content []byte, arch string) error {
	f, err := elf.NewFile(bytes.NewReader(content))
	if err != nil || f.Type != elf.ET_EXEC && f.Type != elf.ET_DYN {
		return nil // no program; BPF objects are ET_REL
	}
	if got := machines[f.Machine]; got != arch {
		return fmt.Errorf("a program for %s in an image for %s", f.Machine, arch)
	}
	libraries, err := f.ImportedLibraries()
	if err != nil {
		return err
	}
	if len(libraries) > 0 {
		return fmt.Errorf("the program is not static: it needs %s", libraries)
	}
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			return fmt.Errorf("the program is not static: it needs a loader")
		}
	}
	return nil
}
