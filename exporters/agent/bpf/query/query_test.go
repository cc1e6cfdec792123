package query

import (
	"errors"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/plumbline/plumbline/tests/testkit"
)

// The kernel's verifier accepts every program.
func TestLoad(t *testing.T) {
	testkit.NeedBPF(t)
	var objs QueryObjects
	if err := LoadQueryObjects(&objs, nil); err != nil {
		var ve *ebpf.VerifierError
		if errors.As(err, &ve) {
			t.Fatalf("%+v", ve)
		}
		t.Fatal(err)
	}
	defer objs.Close()
}
