package blockio_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/plumbline/plumbline/tests/testkit"
)

// generateCommands returns the commands of doc.go's go:generate lines with the object's name
// replaced.
func generateCommands(t testing.TB, object string) [][]string {
	t.Helper()
	text, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	var commands [][]string
	for line := range strings.Lines(string(text)) {
		if args, ok := strings.CutPrefix(strings.TrimSpace(line), "//go:generate "); ok {
			commands = append(commands, strings.Fields(strings.ReplaceAll(args, "blkio.bpf.o", object)))
		}
	}
	return commands
}

func TestObjectIsUpToDate(t *testing.T) {
	object := filepath.Join(t.TempDir(), "blkio.bpf.o")
	commands := generateCommands(t, object)
	if len(commands) == 0 {
		t.Fatal("doc.go has no go:generate line")
	}
	for _, command := range commands {
		testkit.Tool(t, command[0]) // skips without this major version of clang
		if out, err := exec.Command(command[0], command[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", strings.Join(command, " "), err, out)
		}
	}
	fresh, err := os.ReadFile(object)
	if err != nil {
		t.Fatal(err)
	}
	committed, err := os.ReadFile("blkio.bpf.o")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(fresh, committed) {
		t.Error("blkio.bpf.o is not what its source compiles to; run make generate")
	}
	if cwd, err := os.Getwd(); err == nil && bytes.Contains(committed, []byte(cwd)) {
		t.Error("blkio.bpf.o names a folder of the machine that built it")
	}
}
