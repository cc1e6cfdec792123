package replica

import (
	"fmt"
	"testing"

	"github.com/plumbline/plumbline/exporters/agent/bpf/bpftest"
)

// The kernel's verifier accepts every program, with and without tracing. User space sets the sizes of maps; here they are
// small.
func TestLoad(t *testing.T) {
	for _, tracing := range []bool{false, true} {
		t.Run(fmt.Sprintf("tracing %v", tracing), func(t *testing.T) {
			spec, err := LoadDataconn()
			if err != nil {
				t.Fatal(err)
			}
			if err := spec.Variables["tracing"].Set(tracing); err != nil {
				t.Fatal(err)
			}
			bpftest.Load(t, spec)
		})
	}
}
