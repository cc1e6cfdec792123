package disk_test

import (
	"testing"

	"github.com/plumbline/plumbline/exporters/agent/bpf/bpftest"
	"github.com/plumbline/plumbline/exporters/agent/bpf/disk"
)

// The verifier takes the program, also where the kernel is locked down.
func TestLoad(t *testing.T) {
	spec, err := disk.LoadDisk()
	if err != nil {
		t.Fatal(err)
	}
	bpftest.Load(t, spec)
}
