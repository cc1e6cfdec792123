package images

import (
	"bytes"
	"debug/elf"
	"fmt"
	"io"
	"strings"
)

// machines are the architectures, as Go names them, by what a program's header says.
var machines = map[elf.Machine]string{elf.EM_X86_64: "amd64", elf.EM_AARCH64: "arm64"}

// checkProgram refuses a Linux program or library that an image for an architecture could not run: one of another architecture, or
// one that is not static and whose loader is not among the image's files. Other files are not looked into.
func checkProgram(content []byte, arch string, files map[string]string) error {
	f, err := elf.NewFile(bytes.NewReader(content))
	if err != nil || f.Type != elf.ET_EXEC && f.Type != elf.ET_DYN {
		return nil // no program; BPF objects are ET_REL
	}
	if got := machines[f.Machine]; got != arch {
		return fmt.Errorf("a program for %s in an image for %s", f.Machine, arch)
	}
	for _, p := range f.Progs {
		if p.Type != elf.PT_INTERP {
			continue
		}
		text, err := io.ReadAll(p.Open())
		if err != nil {
			return err
		}
		if loader := strings.TrimRight(string(text), "\x00"); files[loader] == "" {
			return fmt.Errorf("the program is not static, and its loader %s is not in the image", loader)
		}
	}
	return nil
}
