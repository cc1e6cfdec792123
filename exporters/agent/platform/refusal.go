package platform

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/features"
	"golang.org/x/sys/unix"
)

// noTypesError is a kernel without type information.
type noTypesError struct{ error }

func (e *noTypesError) Unwrap() error { return e.error }

// Explain adds to an error of loading or attaching BPF programs what this kernel or this process
// lacks, as far as it is found out.
func Explain(err error) error {
	if err == nil {
		return nil
	}
	return explain(err, probeKernel())
}

// circumstances are what a refusal may come from.
type circumstances struct {
	noTypes      error    // why the kernel's types cannot be read
	capabilities []string // missing
	unprivileged string   // kernel.unprivileged_bpf_disabled
	noKernelRead bool     // programs may not read the kernel's memory
	noBPF        bool     // there is no bpf(2)
	helpers      []string // missing, with the version that has them
	functions    []string // missing, of those used instead of the socket tracepoints
	onlyEnds     bool     // the socket tracepoints are missing: programs go to the ends of functions
}

func probeKernel() circumstances {
	var c circumstances
	types, err := btf.LoadKernelSpec()
	c.noTypes = err
	c.capabilities = missingCapabilities("CAP_BPF", "CAP_PERFMON")
	text, _ := os.ReadFile("/proc/sys/kernel/unprivileged_bpf_disabled")
	c.unprivileged = strings.TrimSpace(string(text))
	_, err = ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 4, MaxEntries: 1})
	c.noBPF = errors.Is(err, unix.ENOSYS)
	if len(c.capabilities) > 0 || c.noBPF {
		return c // what follows would be refused for that
	}
	lacks := func(helper asm.BuiltinFunc) bool {
		return errors.Is(features.HaveProgramHelper(ebpf.Kprobe, helper), ebpf.ErrNotSupported)
	}
	c.noKernelRead = lacks(asm.FnProbeReadKernel) && !lacks(asm.FnProbeReadUser)
	for _, h := range []struct {
		helper asm.BuiltinFunc
		name   string
	}{{asm.FnLoop, "bpf_loop (Linux 5.17)"}, {asm.FnTaskPtRegs, "bpf_task_pt_regs (Linux 5.15)"}} {
		if lacks(h.helper) {
			c.helpers = append(c.helpers, h.name)
		}
	}
	if types != nil && len(missing(types, SocketTracepoints...)) > 0 {
		c.onlyEnds = true
		for _, name := range socketFunctions {
			var f *btf.Func
			if types.TypeByName(name, &f) != nil {
				c.functions = append(c.functions, name)
			}
		}
	}
	return c
}

// socketFunctions are what Functions watches.
var socketFunctions = []string{
	"inet_recvmsg", "inet_sendmsg", "inet6_recvmsg", "inet6_sendmsg", "unix_stream_recvmsg", "unix_stream_sendmsg",
}

func explain(err error, c circumstances) error {
	var reasons []string
	switch {
	case c.noBPF:
		reasons = append(reasons, "the kernel is built without bpf(2) (CONFIG_BPF_SYSCALL)")
	case c.noTypes != nil && !os.IsPermission(c.noTypes):
		reasons = append(reasons, fmt.Sprintf("the kernel has no BTF, its type information (CONFIG_DEBUG_INFO_BTF): %v", c.noTypes))
		err = &noTypesError{err}
	case c.noTypes != nil:
		reasons = append(reasons, fmt.Sprintf("the kernel's BTF may not be read: %v", c.noTypes))
	}
	// Without rights, probes of features are refused, too, and report the feature as missing.
	if len(c.capabilities) > 0 && (errors.Is(err, unix.EPERM) || errors.Is(err, ebpf.ErrNotSupported)) {
		reason := "the process lacks " + strings.Join(c.capabilities, " and ")
		if c.unprivileged == "1" || c.unprivileged == "2" {
			reason += " (kernel.unprivileged_bpf_disabled=" + c.unprivileged + ": BPF is for processes that have it)"
		}
		reasons = append(reasons, reason)
	}
	if c.noKernelRead {
		reasons = append(reasons, "this kernel is locked down (confidentiality): a program may read its memory only by types that it has (Linux 6.2), which not all of this one's are; boot with lockdown=integrity or none")
	}
	if len(c.helpers) > 0 {
		reasons = append(reasons, "the kernel has no "+strings.Join(c.helpers, ", no "))
	}
	if len(c.functions) > 0 {
		reasons = append(reasons, "the kernel has neither the tracepoints "+strings.Join(SocketTracepoints, " and ")+
			" (Linux 6.3) nor the functions "+strings.Join(c.functions, ", "))
	}
	if c.onlyEnds && errors.Is(err, ebpf.ErrNotSupported) {
		reasons = append(reasons, "the kernel has no tracepoints "+strings.Join(SocketTracepoints, " and ")+
			" (Linux 6.3), and lets no program run at the ends of its functions (on arm64 from Linux 6.4 on)")
	}
	var verifier *ebpf.VerifierError
	if errors.As(err, &verifier) && len(reasons) == 0 {
		reasons = append(reasons, "the kernel's verifier refused a program; please report it with the kernel's version")
	}
	if len(reasons) == 0 && errors.Is(err, unix.EPERM) {
		reasons = append(reasons, "refused although the process has CAP_BPF and CAP_PERFMON: a container's seccomp profile, or a vendor's kernel, forbids it")
	}
	if len(reasons) == 0 {
		return err
	}
	return fmt.Errorf("%s: %w", strings.Join(reasons, "; "), err)
}

var capabilities = map[string]uint{"CAP_BPF": unix.CAP_BPF, "CAP_PERFMON": unix.CAP_PERFMON, "CAP_SYS_ADMIN": unix.CAP_SYS_ADMIN}

// missingCapabilities returns those of the capabilities that this process does not have. CAP_SYS_ADMIN includes them
// all.
func missingCapabilities(wanted ...string) []string {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return nil
	}
	has := func(c uint) bool { return data[c/32].Effective&(1<<(c%32)) != 0 }
	if has(unix.CAP_SYS_ADMIN) {
		return nil
	}
	var missing []string
	for _, name := range wanted {
		if !has(capabilities[name]) {
			missing = append(missing, name)
		}
	}
	return missing
}
