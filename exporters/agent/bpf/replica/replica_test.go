package replica

import (
	"testing"

	"github.com/plumbline/plumbline/exporters/agent/bpf/bpftest"
)

// The kernel's verifier accepts every program. User space sets the sizes of maps; here they are small.
func TestLoad(t *testing.T) {
	spec, err := LoadDataconn()
	if err != nil {
		t.Fatal(err)
	}
	bpftest.Load(t, spec)
}
