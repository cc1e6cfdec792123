package try

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"go.yaml.in/yaml/v3"
	"golang.org/x/sys/unix"

	"github.com/plumbline/plumbline/exporters/agent/pod"
	"github.com/plumbline/plumbline/exporters/agent/volume"
)

const (
	// nobody is the user and group that the programs run as.
	nobody = 65534
	// startTimeout is how long they may take to begin: on a busy node it was 19 s.
	startTimeout = 2 * time.Minute
	// grace is how long they may take to end before they are killed.
	grace = 5 * time.Second
)

// The capabilities of the programs, and no others: those of the chart's containers.
var (
	blockioCapabilities = []uintptr{unix.CAP_BPF, unix.CAP_PERFMON}
	agentCapabilities   = append([]uintptr{unix.CAP_SYS_PTRACE, unix.CAP_DAC_READ_SEARCH}, blockioCapabilities...)
)

// Descriptors that the programs get: the folder that they are in, which nobody may otherwise not reach, and the names of
// volumes.
const (
	folder = "/proc/self/fd/3"
	names  = "/proc/self/fd/4"
)

// Host runs the agent and the block I/O exporter as children while f runs, and gives it them to read. The programs are in a
// folder, that of this program if it is empty. They end with this process, however it ends.
func Host(ctx context.Context, programs string, f func(context.Context, []Exporter) error) (err error) {
	if err := fit(); err != nil {
		return err
	}
	if programs == "" {
		own, err := os.Executable()
		if err != nil {
			return err
		}
		programs = filepath.Dir(own)
	}
	dir, err := os.Open(programs)
	if err != nil {
		return fmt.Errorf("the folder of programs: %w", err)
	}
	defer dir.Close()
	for _, name := range []string{"plumbline-agent", "ebpf_exporter", "blockio/blkio.yaml", "blockio/blkio.bpf.o"} {
		if _, err := os.Stat(filepath.Join(programs, name)); err != nil {
			return fmt.Errorf("a program is missing: %w; --programs names the folder of a release that was unpacked", err)
		}
	}
	volumes, err := namesOfVolumes()
	if err != nil {
		return fmt.Errorf("names of volumes: %w", err)
	}
	defer volumes.Close()
	node, err := os.Hostname()
	if err != nil {
		return err
	}
	addresses, err := freeAddresses(2)
	if err != nil {
		return err
	}
	// The kernel sends the signal when the thread ends that started the child.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var children []*child
	defer func() {
		for _, c := range children {
			c.end()
		}
	}()
	var all []Exporter
	agentTarget, blockioTarget := Targets(node)
	for i, c := range []struct {
		target       map[string]string
		capabilities []uintptr
		memory, name string
		flags        []string
	}{
		{agentTarget, agentCapabilities, "200MiB", "plumbline-agent", []string{"--volume.identity-file=" + names, "--log.level=warn"}},
		{blockioTarget, blockioCapabilities, "100MiB", "ebpf_exporter", []string{"--config.dir=" + folder + "/blockio", "--config.names=blkio"}},
	} {
		cmd := exec.Command(folder+"/"+c.name, append(c.flags, "--web.listen-address="+addresses[i])...)
		cmd.Env = []string{"GOMEMLIMIT=" + c.memory, "OTEL_TRACES_EXPORTER=none"}
		cmd.ExtraFiles = []*os.File{dir, volumes}
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}, AmbientCaps: c.capabilities,
			Pdeathsig: syscall.SIGKILL, Setpgid: true} // an interrupt from the terminal is for this process alone
		started, err := start(cmd, c.name, cancel)
		if err != nil {
			return err
		}
		children = append(children, started)
		all = append(all, Exporter{URL: "http://" + addresses[i] + "/metrics", Client: http.DefaultClient, Target: c.target})
	}
	begin, stop := context.WithTimeout(ctx, startTimeout)
	defer stop()
	if err = Await(begin, all); err == nil {
		err = f(ctx, all)
	} else if !errors.Is(err, ErrInterrupted) {
		err = fmt.Errorf("the programs do not answer within %v: %w", startTimeout, err)
	}
	if ended := (*endedError)(nil); errors.As(context.Cause(ctx), &ended) {
		return ended // and not what followed from it
	}
	return err
}

// fit returns why this machine cannot be measured.
func fit() error {
	if os.Geteuid() != 0 {
		return errors.New("measuring this machine needs root: run it with sudo")
	}
	if _, err := os.Stat("/sys/kernel/btf/vmlinux"); err != nil {
		return fmt.Errorf("the kernel has no type information (BTF), without which no program can be loaded: %w; it needs a kernel of 5.17 or later with CONFIG_DEBUG_INFO_BTF, as distributions have it", err)
	}
	return nil
}

// freeAddresses returns loopback addresses that nobody listens at.
func freeAddresses(n int) (all []string, err error) {
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, fmt.Errorf("a free port: %w", err)
		}
		defer l.Close() // when all are known, as they differ then
		all = append(all, l.Addr().String())
	}
	return all, nil
}

// namesOfVolumes returns a file in memory that names this machine's file systems to the agent, by where they are
// mounted. Of several mounts of one the shortest path counts.
func namesOfVolumes() (*os.File, error) {
	tables, err := volume.ReadTables("/proc", pod.NewWalk("/proc"))
	if err != nil {
		return nil, err
	}
	mounts := slices.Clone(tables.Host)
	slices.SortStableFunc(mounts, func(a, b volume.Mount) int {
		if whole := (a.Root == "/"); whole != (b.Root == "/") {
			if whole {
				return -1
			}
			return 1
		}
		return len(a.Point) - len(b.Point)
	})
	devices, seen := volume.NewDevices("/proc", "/sys"), map[string]bool{}
	var found []volume.Identity
	for _, m := range mounts {
		if seen[m.Device] || seen[m.Point] {
			continue
		}
		if _, err := devices.Of(m); err != nil {
			continue // tmpfs, a network file system and the like
		}
		seen[m.Device], seen[m.Point] = true, true
		found = append(found, volume.Identity{Mountpoint: m.Point, Volume: m.Point, Backend: "disk"})
	}
	text, err := yaml.Marshal(map[string]any{"volumes": found})
	if err != nil {
		return nil, err
	}
	fd, err := unix.MemfdCreate("volumes", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), "volumes")
	if _, err := f.Write(text); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// child is a program that runs.
type child struct {
	cmd   *exec.Cmd
	ended chan struct{}
}

// endedError is why a program ended that should not have.
type endedError struct{ text string }

func (e *endedError) Error() string { return e.text }

// start starts a program; its end cancels, with the last of what it wrote.
func start(cmd *exec.Cmd, name string, cancel context.CancelCauseFunc) (*child, error) {
	last := &tail{}
	cmd.Stdout, cmd.Stderr = last, last
	if err := cmd.Start(); errors.Is(err, os.ErrPermission) {
		return nil, fmt.Errorf("starting %s as nobody: %w; the folder of programs and all in it must be readable by everybody", name, err)
	} else if err != nil {
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}
	c := &child{cmd, make(chan struct{})}
	go func() {
		err := cmd.Wait()
		cancel(&endedError{fmt.Sprintf("%s ended (%v): %s", name, err, last)})
		close(c.ended)
	}()
	return c, nil
}

// end ends the program, first by a signal to terminate, then by force.
func (c *child) end() {
	_ = c.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
	select {
	case <-c.ended:
	case <-time.After(grace):
		_ = c.cmd.Process.Kill()
		<-c.ended
	}
}

// tail keeps the last of what is written. It is safe for concurrent use.
type tail struct {
	mu   sync.Mutex
	text []byte
}

var _ io.Writer = (*tail)(nil)

// Write is io.Writer's.
func (t *tail) Write(p []byte) (int, error) {
	const most = 2 << 10
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, p...)
	t.text = t.text[max(0, len(t.text)-most):]
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if text := strings.TrimSpace(string(bytes.ToValidUTF8(t.text, []byte("?")))); text != "" {
		return text
	}
	return "it wrote nothing"
}
