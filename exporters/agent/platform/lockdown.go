package platform

import _ "unsafe" // for go:linkname

// haveProbeReadKernel is the library's own test whether the kernel has the helpers that came with Linux 5.5, by one of them.
// A kernel that is locked down (confidentiality) refuses that one, whereupon the library takes it for an older one, and
// replaces bpf_probe_read_user, which is allowed, by a helper that is not. All kernels that the agent supports have them.
//
//go:linkname haveProbeReadKernel github.com/cilium/ebpf.haveProbeReadKernel
var haveProbeReadKernel func() error

func init() { haveProbeReadKernel = func() error { return nil } }
