// Package bpftest loads BPF objects for tests.
package bpftest

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/plumbline/plumbline/tests/testkit"
)

// Load fails unless the kernel's verifier accepts each program of an object. Programs at functions
// (fexit, fentry) are refused as a whole on some virtual machines; then they are only told of.
func Load(t *testing.T, spec *ebpf.CollectionSpec) {
	t.Helper()
	testkit.NeedBPF(t)
	functions := &ebpf.CollectionSpec{Maps: spec.Maps, Variables: spec.Variables, Types: spec.Types, ByteOrder: spec.ByteOrder,
		Programs: map[string]*ebpf.ProgramSpec{}}
	for name, p := range spec.Programs {
		if strings.HasPrefix(p.SectionName, "fexit/") || strings.HasPrefix(p.SectionName, "fentry/") {
			functions.Programs[name] = p
			delete(spec.Programs, name)
		}
	}
	if len(spec.Programs) == 0 || len(functions.Programs) == 0 {
		t.Fatalf("%d programs, and %d at functions", len(spec.Programs), len(functions.Programs))
	}
	if err := load(spec, ebpf.CollectionOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := load(functions, ebpf.CollectionOptions{}); err != nil {
		var verifier *ebpf.VerifierError
		if !errors.Is(err, unix.EPERM) || errors.As(err, &verifier) && len(verifier.Log) > 0 {
			t.Fatal(err)
		}
		t.Logf("not seen here: %v", err)
	}
}

// LoadWithoutModules does the same for programs that read types of modules which this kernel may not have: they take their own
// declarations for the kernel's.
func LoadWithoutModules(t *testing.T, spec *ebpf.CollectionSpec) {
	t.Helper()
	testkit.NeedBPF(t)
	if len(spec.Programs) == 0 {
		t.Fatal("no programs")
	}
	if err := load(spec, ebpf.CollectionOptions{Programs: ebpf.ProgramOptions{KernelTypes: spec.Types}}); err != nil {
		t.Fatal(err)
	}
}

func load(spec *ebpf.CollectionSpec, options ebpf.CollectionOptions) error {
	collection, err := ebpf.NewCollectionWithOptions(spec, options)
	if err != nil {
		var verifier *ebpf.VerifierError
		if errors.As(err, &verifier) {
			return fmt.Errorf("%w\n%+v", err, verifier)
		}
		return err
	}
	collection.Close()
	return nil
}
