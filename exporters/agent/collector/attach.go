package collector

import (
	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
)

// AttachTrace attaches a program by its kind: to a raw tracepoint, or by BTF.
func AttachTrace(spec *ebpf.ProgramSpec, program *ebpf.Program) (link.Link, error) {
	if spec.Type == ebpf.RawTracepoint {
		return link.AttachRawTracepoint(link.RawTracepointOptions{Name: spec.AttachTo, Program: program})
	}
	return link.AttachTracing(link.TracingOptions{Program: program})
}
