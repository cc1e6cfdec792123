package blockio_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/plumbline/plumbline/tests/rig"
	"github.com/plumbline/plumbline/tests/testkit"
)

// compile builds a BPF object from source with the flags of the go:generate line in doc.go
// and returns its path.
func compile(t testing.TB, source string, flags ...string) string {
	t.Helper()
	object := filepath.Join(t.TempDir(), strings.TrimSuffix(filepath.Base(source), ".c")+".o")
	args := []string{"-target", "bpfel", "-mcpu=v3", "-O2", "-g", "-Wall", "-Werror", "-fdebug-compilation-dir=."}
	args = append(args, flags...)
	out, err := exec.Command(testkit.Tool(t, "clang-14"), append(args, "-c", source, "-o", object)...).CombinedOutput()
	if err != nil {
		t.Fatalf("compiling %s: %v\n%s", source, err, out)
	}
	return object
}

// load loads an object's programs and maps into the kernel until the test ends.
func load(t testing.TB, object string) *ebpf.Collection {
	t.Helper()
	coll, err := ebpf.LoadCollection(object)
	if err != nil {
		t.Fatalf("loading %s: %+v", object, err)
	}
	t.Cleanup(coll.Close)
	return coll
}

// attach attaches all of an object's programs and returns how to detach them; they are
// detached at the test's end in any case.
func attach(t testing.TB, object string, coll *ebpf.Collection) (detach func()) {
	t.Helper()
	spec, err := ebpf.LoadCollectionSpec(object)
	if err != nil {
		t.Fatal(err)
	}
	var links []link.Link
	detach = func() {
		for _, l := range links {
			l.Close()
		}
		links = nil
	}
	t.Cleanup(detach)
	for name, prog := range coll.Programs {
		var l link.Link
		switch section := spec.Programs[name].SectionName; {
		case section == "raw_tp/block_io_done" && !rig.HasIODone(t):
			continue // before Linux 6.5, where it is not needed
		case strings.HasPrefix(section, "raw_tp/"):
			l, err = link.AttachRawTracepoint(link.RawTracepointOptions{Name: strings.TrimPrefix(section, "raw_tp/"), Program: prog})
		default:
			l, err = link.AttachTracing(link.TracingOptions{Program: prog})
		}
		if err != nil {
			t.Fatalf("attaching %s: %v", name, err)
		}
		links = append(links, l)
	}
	return detach
}

// diskTempDir is like t.TempDir, but on a file system that supports O_DIRECT.
func diskTempDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/var/tmp", "plumbline-blockio-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}
