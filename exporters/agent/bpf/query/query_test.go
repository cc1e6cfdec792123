package query

import (
	"fmt"
	"slices"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"github.com/plumbline/plumbline/exporters/agent/bpf/bpftest"
)

// The kernel's verifier accepts every program, in both ways to count, with and without tracing, with and without entries
// for queries.
func TestLoad(t *testing.T) {
	for _, preemptible := range []bool{false, true} {
		for _, tracing := range []bool{false, true} {
			entries := uint32(0)
			if preemptible == tracing {
				entries = 64
			}
			t.Run(fmt.Sprintf("preemptible %v tracing %v entries %d", preemptible, tracing, entries), func(t *testing.T) {
				spec, err := LoadQuery()
				if err != nil {
					t.Fatal(err)
				}
				if err := spec.Variables["query_entries"].Set(entries); err != nil {
					t.Fatal(err)
				}
				for name, value := range map[string]bool{"preemptible": preemptible, "tracing": tracing} {
					if err := spec.Variables[name].Set(value); err != nil {
						t.Fatal(err)
					}
				}
				bpftest.Load(t, spec)
			})
		}
	}
}

// A probe on a library keeps its stack to itself, as only a program with a tail call does: a task may be preempted within it,
// and another task's run of it on that CPU would write to the same stack. All programs of the kind are such probes.
func TestProbesOnLibrariesKeepTheirStack(t *testing.T) {
	spec, err := LoadQuery()
	if err != nil {
		t.Fatal(err)
	}
	probes := 0
	for name, program := range spec.Programs {
		if program.Type != ebpf.Kprobe {
			continue
		}
		probes++
		if !slices.ContainsFunc(program.Instructions, func(i asm.Instruction) bool { return i.IsBuiltinCall() && i.Constant == int64(asm.FnTailCall) }) {
			t.Errorf("%s has no tail call", name)
		}
	}
	if probes != 3 {
		t.Errorf("%d probes on libraries, want 3", probes)
	}
}
