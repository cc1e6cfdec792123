package images

import (
	"bytes"
	"debug/elf"
	"fmt"

	"github.com/plumbline/plumbline/manifests/images/program"
)

// checkProgram refuses a Linux program or library that an image for an architecture could not run: one of another
// architecture, or one that is not static and whose loader is not among the image's files. Other files are not checked
// into.
func checkProgram(content []byte, arch string, files map[string]string) error {
	f, err := elf.NewFile(bytes.NewReader(content))
	if err != nil || f.Type != elf.ET_EXEC && f.Type != elf.ET_DYN {
		return nil // no program; BPF objects are ET_REL
	}
	if want := program.Machines[arch]; f.Machine != want {
		return fmt.Errorf("a program for %s in an image for %s", f.Machine, arch)
	}
	loader, err := program.Loader(f)
	if err == nil && loader != "" && files[loader] == "" {
		err = fmt.Errorf("the program is not static, and its loader %s is not in the image", loader)
	}
	return err
}
