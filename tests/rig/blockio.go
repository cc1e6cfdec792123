package rig

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"github.com/cilium/ebpf/btf"

	"github.com/plumbline/plumbline/tests/testkit"
)

// nobody is the user and group without rights.
const nobody = 65534

// BlockioCapabilities are what ebpf_exporter needs for the programs of exporters/blockio:
// CAP_PERFMON and CAP_BPF.
var BlockioCapabilities = []uintptr{38, 39}

// HasIODone reports whether the kernel has the tracepoint block_io_done, as it does since 6.5.
func HasIODone(t T) bool {
	t.Helper()
	kernel, err := btf.LoadKernelSpec()
	if err != nil {
		t.Fatalf("the kernel's types: %v", err)
	}
	var hook *btf.Typedef
	return kernel.TypeByName("btf_trace_block_io_done", &hook) == nil
}

// BlockioCommand prepares ebpf_exporter with exporters/blockio as nobody with the capabilities
// it needs, on copies of our files that nobody can read, in an empty folder. With --web.listen-
// address=fd://0 it serves on the first of ExtraFiles.
func BlockioCommand(t T, dir string, args ...string) *exec.Cmd {
	t.Helper()
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatalf("%v", err)
	}
	binary := filepath.Join(dir, "ebpf_exporter")
	copyFile(t, Tool(t, "ebpf_exporter"), binary, 0o755)
	for _, name := range []string{"blkio.yaml", "blkio.bpf.o"} {
		copyFile(t, filepath.Join(testkit.Root(), "exporters", "blockio", name), filepath.Join(dir, name), 0o644)
	}
	args = append([]string{binary, "--config.dir=" + dir, "--config.names=blkio"}, args...)
	// The shell sets the environment of systemd's socket activation, where the process ID counts.
	cmd := exec.Command("/bin/sh", append([]string{"-c", `LISTEN_FDS=1 LISTEN_PID=$$ exec "$@"`, "sh"}, args...)...)
	cmd.Env = append(os.Environ(), "OTEL_TRACES_EXPORTER=none")
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Credential:  &syscall.Credential{Uid: nobody, Gid: nobody},
		AmbientCaps: BlockioCapabilities,
	}
	return cmd
}

func copyFile(t T, from, to string, mode os.FileMode) {
	t.Helper()
	data, err := os.ReadFile(from)
	if err == nil {
		err = os.WriteFile(to, data, mode)
	}
	if err != nil {
		t.Fatalf("%v", err)
	}
}

// StartBlockio runs ebpf_exporter with exporters/blockio and returns its metrics' address and
// its process. The socket listens before the exporter does, so the first scrape waits for it.
func StartBlockio(t T) (url string, p *Process) {
	t.Helper()
	dir, err := os.MkdirTemp("/var/tmp", "plumbline-blockio-")
	if err != nil {
		t.Fatalf("%v", err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("%v", err)
	}
	defer l.Close()
	socket, err := l.(*net.TCPListener).File()
	if err != nil {
		t.Fatalf("%v", err)
	}
	defer socket.Close()
	cmd := BlockioCommand(t, dir, "--web.listen-address=fd://0")
	cmd.ExtraFiles = []*os.File{socket}
	return "http://" + l.Addr().String() + "/metrics", Start(t, cmd)
}
