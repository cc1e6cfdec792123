// Command generate compiles the BPF programs whose objects are committed, if their sources differ from those that the objects
// were made of: only then it needs clang. `make generate` calls it.
package main

import (
	"crypto/sha256"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// made has the checksum of the sources that the objects were made of.
const made = "exporters/bpf/sources.sha256"

func main() {
	if err := generate(); err != nil {
		fmt.Fprintln(os.Stderr, "exporters/bpf/generate:", err)
		os.Exit(1)
	}
}

func generate() error {
	sum, err := sources(".")
	if err != nil {
		return err
	}
	if text, err := os.ReadFile(made); err == nil && string(text) == sum {
		return nil
	}
	for _, command := range [][]string{{"tools/install-packages", "bpf"}, {"go", "generate", "./exporters/..."}} {
		cmd := exec.Command(command[0], command[1:]...)
		cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("%s: %w; the BPF sources have changed, and their objects are compiled with clang 14", strings.Join(command, " "), err)
		}
	}
	return os.WriteFile(made, []byte(sum), 0o644)
}

// sources returns a checksum of the programs, of their headers and of the commands that compile them.
func sources(root string) (string, error) {
	hash := sha256.New()
	err := filepath.WalkDir(filepath.Join(root, "exporters"), func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.Name() == "testdata" {
			return fs.SkipDir
		}
		extension := filepath.Ext(path)
		if extension != ".c" && extension != ".h" && extension != ".go" {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for line := range strings.Lines(string(text)) {
			if extension != ".go" || strings.HasPrefix(line, "//go:generate ") {
				fmt.Fprintf(hash, "%s: %s", d.Name(), line)
			}
		}
		return nil
	})
	return fmt.Sprintf("%x\n", hash.Sum(nil)), err
}
