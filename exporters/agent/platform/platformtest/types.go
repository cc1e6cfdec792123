// Package platformtest makes up kernels for tests.
package platformtest

import (
	"bytes"
	"testing"

	"github.com/cilium/ebpf/btf"
)

// Types returns kernel types with these tracepoints and functions.
func Types(t testing.TB, tracepoints, functions []string) *btf.Spec {
	t.Helper()
	var all []btf.Type
	for _, name := range tracepoints {
		all = append(all, &btf.Typedef{Name: "btf_trace_" + name, Type: &btf.Void{}})
	}
	for _, name := range functions {
		all = append(all, &btf.Func{Name: name, Type: &btf.FuncProto{Return: &btf.Void{}}})
	}
	builder, err := btf.NewBuilder(all, nil)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := builder.Marshal(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	spec, err := btf.LoadSpecFromReader(bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	return spec
}
