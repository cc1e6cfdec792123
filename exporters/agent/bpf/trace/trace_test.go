package trace

import (
	"testing"

	"github.com/plumbline/plumbline/exporters/agent/bpf/bpftest"
)

// The kernel's verifier accepts every program.
func TestLoad(t *testing.T) {
	spec, err := LoadTrace()
	if err != nil {
		t.Fatal(err)
	}
	if err := spec.Variables["tracing"].Set(true); err != nil {
		t.Fatal(err)
	}
	bpftest.Load(t, spec)
}
