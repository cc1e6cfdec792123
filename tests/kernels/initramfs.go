package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/plumbline/plumbline/tests/kernels/job"
)

// initramfs makes the guest's first file system: the program init, the modules that it needs to reach the machine's
// root, and its job.
func initramfs(init string, files []string, j job.Job) ([]byte, error) {
	program, err := os.ReadFile(init)
	if err != nil {
		return nil, err
	}
	a := archive{}
	for _, d := range []string{"proc", "sys", "dev", "lower", "rw", "new", "modules"} {
		a.add(d, 0o040755, nil)
	}
	a.add("init", 0o100755, program)
	for _, f := range files {
		content, err := readModule(f)
		if err != nil {
			return nil, err
		}
		name := "modules/" + moduleName(f) + ".ko"
		j.Modules = append(j.Modules, "/"+name)
		a.add(name, 0o100644, content)
	}
	text, err := json.Marshal(j)
	if err != nil {
		return nil, err
	}
	a.add(strings.TrimPrefix(job.File, "/"), 0o100644, text)
	a.add("TRAILER!!!", 0, nil)
	return a.Bytes(), nil
}

// readModule reads a module's file, which may be compressed.
func readModule(file string) ([]byte, error) {
	var command []string
	switch filepath.Ext(file) {
	case ".xz":
		command = []string{"xz", "-dc", file}
	case ".zst":
		command = []string{"zstd", "-dqc", file}
	default:
		return os.ReadFile(file)
	}
	out, err := exec.Command(command[0], command[1:]...).Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", strings.Join(command, " "), err)
	}
	return out, nil
}

// archive is a cpio archive of the format that the kernel unpacks ("newc": Documentation/driver-api/early-userspace).
type archive struct {
	bytes.Buffer
	inode int
}

func (a *archive) add(name string, mode int, content []byte) {
	a.inode++
	fmt.Fprintf(a, "070701%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%s\x00",
		a.inode, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(name)+1, 0, name)
	a.align()
	a.Write(content)
	a.align()
}

func (a *archive) align() {
	for a.Len()%4 != 0 {
		a.WriteByte(0)
	}
}
