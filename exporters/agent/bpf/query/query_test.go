package query

import (
	"fmt"
	"testing"

	"github.com/plumbline/plumbline/exporters/agent/bpf/bpftest"
)

// The kernel's verifier accepts every program, in both ways to count.
func TestLoad(t *testing.T) {
	for _, preemptible := range []bool{false, true} {
		t.Run(fmt.Sprintf("preemptible %v", preemptible), func(t *testing.T) {
			spec, err := LoadQuery()
			if err != nil {
				t.Fatal(err)
			}
			if err := spec.Variables["preemptible"].Set(preemptible); err != nil {
				t.Fatal(err)
			}
			bpftest.Load(t, spec)
		})
	}
}
