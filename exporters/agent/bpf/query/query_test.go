package query

import (
	"fmt"
	"testing"

	"github.com/plumbline/plumbline/exporters/agent/bpf/bpftest"
)

// The kernel's verifier accepts every program, in both ways to count, with and without tracing.
func TestLoad(t *testing.T) {
	for _, preemptible := range []bool{false, true} {
		for _, tracing := range []bool{false, true} {
			t.Run(fmt.Sprintf("preemptible %v tracing %v", preemptible, tracing), func(t *testing.T) {
				spec, err := LoadQuery()
				if err != nil {
					t.Fatal(err)
				}
				for name, value := range map[string]bool{"preemptible": preemptible, "tracing": tracing, "budgeted": !tracing} {
					if err := spec.Variables[name].Set(value); err != nil {
						t.Fatal(err)
					}
				}
				bpftest.Load(t, spec)
			})
		}
	}
}
