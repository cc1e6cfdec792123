package collector

import (
	"errors"
	"fmt"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"golang.org/x/sys/unix"
)

// tracepoints are what the query collector's programs attach to. sock_recv_length and
// sock_send_length exist from Linux 6.3 on.
var tracepoints = []string{
	"sock_recv_length", "sock_send_length", "sched_switch", "sched_process_fork", "sched_process_exec", "sched_process_exit",
}

// capabilities are those that loading and attaching need.
var capabilities = []struct {
	name   string
	number uint
}{{"CAP_BPF", unix.CAP_BPF}, {"CAP_PERFMON", unix.CAP_PERFMON}}

// explain adds to an error of loading or attaching BPF programs what this kernel or this
// process lacks, if that is found out.
func explain(err error) error {
	if err == nil {
		return nil
	}
	var reasons []string
	if missing := missingCapabilities(); len(missing) > 0 && errors.Is(err, unix.EPERM) {
		reasons = append(reasons, "the process lacks "+strings.Join(missing, " and "))
	}
	kernel, btfErr := btf.LoadKernelSpec()
	switch {
	case btfErr != nil:
		reasons = append(reasons, fmt.Sprintf("the kernel's BTF cannot be read (CONFIG_DEBUG_INFO_BTF): %v", btfErr))
	default:
		if missing := missingTracepoints(kernel); len(missing) > 0 {
			reasons = append(reasons, "this kernel has no tracepoint "+strings.Join(missing, ", ")+" (Linux 6.3 or later has)")
		}
	}
	var verifier *ebpf.VerifierError
	if errors.As(err, &verifier) {
		reasons = append(reasons, "the kernel's verifier refused a program; please report it with the kernel's version")
	}
	if len(reasons) == 0 {
		return err
	}
	return fmt.Errorf("%s: %w", strings.Join(reasons, "; "), err)
}

func missingTracepoints(kernel *btf.Spec) []string {
	var missing []string
	for _, name := range tracepoints {
		var t *btf.Typedef
		if kernel.TypeByName("btf_trace_"+name, &t) != nil {
			missing = append(missing, name)
		}
	}
	return missing
}

// missingCapabilities returns those of capabilities that this process does not have. Whoever
// has CAP_SYS_ADMIN has them all.
func missingCapabilities() []string {
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
	for _, c := range capabilities {
		if !has(c.number) {
			missing = append(missing, c.name)
		}
	}
	return missing
}
