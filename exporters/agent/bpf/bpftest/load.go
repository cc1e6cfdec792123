// Package bpftest loads BPF objects for tests.
package bpftest

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"golang.org/x/sys/unix"

	"github.com/plumbline/plumbline/tests/testkit"
)

// Load fails unless the kernel's verifier accepts each program of an object, and unless each works where the kernel is
// locked down, if this one has what they need for that. Programs at functions (fexit, fentry) are refused as a whole on
// some virtual machines; Load then only logs the refusal.
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
	if len(spec.Programs) == 0 {
		t.Fatal("no programs")
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
	defer collection.Close()
	if err := small(collection); err != nil {
		return err
	}
	if options.Programs.KernelTypes != nil {
		return nil
	}
	return lockedDown(collection)
}

// mostVerified is how many instructions the verifier may process. Older kernels' process up to several times as many as
// the one that the tests run on, and refuse a program after a million.
const mostVerified = 250_000

// small returns an error if an older kernel's verifier might not take a program for its size.
func small(collection *ebpf.Collection) error {
	for name, p := range collection.Programs {
		info, err := p.Info()
		if err != nil {
			return err
		}
		if n, ok := info.VerifiedInstructions(); ok && n > mostVerified {
			return fmt.Errorf("%s: the verifier processed %d instructions, which is more than %d", name, n, mostVerified)
		}
	}
	return nil
}

// readers are the kernel's functions behind the helpers that it refuses with lockdown=confidentiality.
var readers = []string{"bpf_probe_read_kernel", "bpf_probe_read_kernel_str", "bpf_probe_read_compat", "bpf_probe_read_compat_str"}

// lockedDown returns an error if what the verifier left of a program calls one of them, though the kernel has the cast
// that programs use in its place (bpf/kernel.h).
func lockedDown(collection *ebpf.Collection) error {
	types, err := btf.LoadKernelSpec()
	if err != nil {
		return err
	}
	var cast *btf.Func
	if types.TypeByName("bpf_rdonly_cast", &cast) != nil {
		return nil
	}
	calls, err := callsOf(readers)
	if err != nil {
		return err
	}
	var problems []error
	for name, p := range collection.Programs {
		info, err := p.Info()
		if err != nil {
			return err
		}
		instructions, err := info.Instructions()
		if err != nil {
			return err
		}
		for _, i := range instructions {
			if i.IsBuiltinCall() && calls[int32(i.Constant)] != "" {
				problems = append(problems, fmt.Errorf("%s calls %s", name, calls[int32(i.Constant)]))
			}
		}
	}
	return errors.Join(problems...)
}

// callsOf are the kernel's functions as a loaded program's calls name them: by how far they are from one address.
func callsOf(functions []string) (map[int32]string, error) {
	file, err := os.Open("/proc/kallsyms")
	if err != nil {
		return nil, err
	}
	defer file.Close()
	const base = "__bpf_call_base"
	addresses := map[string]uint64{}
	for lines := bufio.NewScanner(file); lines.Scan(); {
		var address uint64
		var kind, name string
		if _, err := fmt.Sscanf(lines.Text(), "%x %s %s", &address, &kind, &name); err == nil && (name == base || slices.Contains(functions, name)) {
			addresses[name] = address
		}
	}
	if addresses[base] == 0 || len(addresses) != 1+len(functions) {
		return nil, fmt.Errorf("/proc/kallsyms: found only %v of %s and %q", addresses, base, functions)
	}
	calls := map[int32]string{}
	for _, name := range functions {
		calls[int32(addresses[name]-addresses[base])] = name
	}
	return calls, nil
}
