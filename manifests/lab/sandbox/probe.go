package sandbox

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
	"golang.org/x/sys/unix"
)

// Probe tries what the lab needs and returns what the machine refuses, with the reason and what to do about it: keys
// are mount, loop, fuse, nvme and bpf.
func Probe() map[string]string {
	refused := map[string]string{}
	for name, try := range map[string]func() error{
		"mount": probeMount,
		"loop":  probeLoop,
		"fuse":  probeFUSE,
		"nvme":  probeNVMe,
		"bpf":   probeBPF,
	} {
		if err := try(); err != nil {
			refused[name] = err.Error()
		}
	}
	return refused
}

func probeMount() error {
	cmd := exec.Command("/bin/mount", "-t", "tmpfs", "plumbline-probe", "/run")
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("no private mount namespace (%w %s); the lab needs CAP_SYS_ADMIN for it", err, out)
	}
	return nil
}

func probeLoop() error {
	control, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("no loop devices (%w); try `modprobe loop`", err)
	}
	defer control.Close()
	n, err := unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE)
	if err != nil {
		return fmt.Errorf("no free loop device: %w", err)
	}
	device, err := os.OpenFile(fmt.Sprintf("/dev/loop%d", n), os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("loop devices are locked: %w", err)
	}
	return device.Close()
}

func probeNVMe() error {
	for _, file := range []string{"/dev/nvme-fabrics", "/sys/module/nvmet_tcp", "/sys/module/dm_raid", "/sys/module/veth"} {
		if _, err := os.Stat(file); err != nil {
			return fmt.Errorf("no NVMe over TCP (%w); try `modprobe -a nvme-tcp nvmet-tcp dm-raid dm-delay veth`", err)
		}
	}
	return nil
}

func probeFUSE() error {
	f, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("no FUSE (%w); try `modprobe fuse`", err)
	}
	return f.Close()
}

// probeBPF loads, without attaching it, a program of the kind that blockio and the agent use.
func probeBPF() error {
	if _, err := btf.LoadKernelSpec(); err != nil {
		return fmt.Errorf("the kernel has no BTF (%w); it needs CONFIG_DEBUG_INFO_BTF", err)
	}
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Type:         ebpf.Tracing,
		AttachType:   ebpf.AttachTraceRawTp,
		AttachTo:     "block_rq_complete",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()},
		License:      "GPL",
	})
	if errors.Is(err, os.ErrPermission) {
		return fmt.Errorf("the kernel refuses BPF (%w); it needs CAP_BPF and CAP_PERFMON, or CAP_SYS_ADMIN", err)
	}
	if err != nil {
		return fmt.Errorf("the kernel does not load a BPF tracing program: %w", err)
	}
	return prog.Close()
}
