package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/plumbline/plumbline/tests/kernels/job"
)

// guest is what to boot, and what to run there.
type guest struct {
	arch    string
	folder  string // the unpacked kernel
	release string
	init    string // the program that is the guest's first process
	command []string
	dir     string // the command's folder
	env     []string
	append  string // more of the kernel's command line
	disk    string // a file that is the guest's /dev/vda; none if empty
	root    string // the folder that is the guest's root
	shares  []job.Share
	share   string // a folder that the guest finds, writable, as /run/host
	memory  int    // MiB
	cpus    int
	timeout time.Duration // for the command; booting and describing a command that hangs has bootTime more
	console io.Writer     // the guest's output
}

// consoleLog is the file of a guest's output, in its folder.
const consoleLog = "console.log"

// settle recreates the guest's folder, which it sees as /run/host, with its console and an empty disk; its output also
// goes to live. The returned function closes the console and removes the disk.
func (g *guest) settle(folder string, diskMiB int, live io.Writer) (leave func(), err error) {
	// An absolute path without a comma is what the emulator takes.
	if g.share, err = filepath.Abs(folder); err != nil {
		return nil, err
	}
	if err := errors.Join(os.RemoveAll(folder), os.MkdirAll(folder, 0o755)); err != nil {
		return nil, err
	}
	if g.disk, err = emptyDisk(g.share, diskMiB); err != nil {
		return nil, err
	}
	console, err := os.Create(filepath.Join(folder, consoleLog))
	if err != nil {
		return nil, errors.Join(err, os.Remove(g.disk))
	}
	g.console = io.MultiWriter(console, live)
	return func() {
		console.Close()
		os.Remove(g.disk)
	}, nil
}

// bootTime is what the emulator may need for everything but the command.
const bootTime = 5 * time.Minute

// lastLines of a console are printed for a guest that did not end: enough for the threads of one that hangs.
const lastLines = 80

// errCrashed is that the guest ended, or did not, without the command's end, or that its clock was wrong. That is the
// emulator's fault or the kernel's, never a wrong number.
var errCrashed = errors.New("the guest did not get to the command's end")

// boot runs the command in a guest and returns its exit code.
func boot(ctx context.Context, g guest) (int, error) {
	files, err := modules(g.folder, g.release, "virtio_pci", "virtio_blk", "9pnet_virtio", "9p", "overlay")
	if err != nil {
		return 0, err
	}
	if foreign(g.arch) {
		g.shares = append(slices.Clip(g.shares), job.Share{Tag: "kernel", From: g.folder, To: g.folder})
	}
	image, err := initramfs(g.init, files, job.Job{Kernel: filepath.Join(g.folder, "lib/modules", g.release),
		Shares: g.shares, Command: g.command, Dir: g.dir, Env: g.env, Seconds: int(g.timeout.Seconds())})
	if err != nil {
		return 0, err
	}
	f, err := os.CreateTemp("", "plumbline-initramfs-")
	if err != nil {
		return 0, err
	}
	defer os.Remove(f.Name())
	if _, err := f.Write(image); err != nil {
		return 0, err
	}
	if err := f.Close(); err != nil {
		return 0, err
	}
	for _, file := range []string{job.Booted, job.Ended, job.Exit} {
		os.Remove(filepath.Join(g.share, file))
	}
	ctx, cancel := context.WithTimeout(ctx, g.timeout+bootTime)
	defer cancel()
	last, err := g.emulate(ctx, f.Name())
	text, missing := os.ReadFile(filepath.Join(g.share, job.Exit))
	if missing == nil {
		if err := clockOff(g.share); err != nil {
			return 0, err
		}
		return strconv.Atoi(strings.TrimSpace(string(text)))
	}
	if ctx.Err() == context.DeadlineExceeded {
		err = fmt.Errorf("not within %s", g.timeout+bootTime)
	} else if ctx.Err() != nil {
		return 0, ctx.Err()
	}
	return 0, fmt.Errorf("%w (emulator: %v); its last lines:\n%s", errCrashed, err, strings.Join(last, "\n"))
}

// clockOff returns an error if the guest's clock did not run like the machine's during the command. Its kernel measures
// at boot how fast the CPU counts: an emulator that is not run meanwhile makes it find a fraction of that, and every
// timeout ends at once.
func clockOff(share string) error {
	var guest, machine [2]time.Duration
	for i, name := range []string{job.Booted, job.Ended} {
		up, at, err := readStamp(filepath.Join(share, name))
		if err != nil {
			return err
		}
		guest[i], machine[i] = up, time.Duration(at.UnixNano())
	}
	passed, there := machine[1]-machine[0], guest[1]-guest[0]
	if apart := max(passed, there) - min(passed, there); apart > max(passed/4, 5*time.Second) {
		return fmt.Errorf("%w: its clock ran for %s while the machine's ran for %s", errCrashed, there, passed)
	}
	return nil
}

// readStamp reads how long the guest's kernel was up, and when, by the machine's clock, it wrote so.
func readStamp(file string) (up time.Duration, at time.Time, err error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return 0, at, err
	}
	info, err := os.Stat(file)
	if err != nil {
		return 0, at, err
	}
	seconds, err := strconv.ParseFloat(strings.TrimSpace(string(text)), 64)
	if err != nil {
		return 0, at, fmt.Errorf("%s: %w", file, err)
	}
	return time.Duration(seconds * float64(time.Second)), info.ModTime(), nil
}

// emulate runs the emulator until the guest is off, and returns the last lines of its console.
func (g guest) emulate(ctx context.Context, image string) ([]string, error) {
	c := exec.CommandContext(ctx, g.emulator(), g.arguments(image)...)
	// It ends with this program, however that ends.
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := c.StdoutPipe()
	if err != nil {
		return nil, err
	}
	c.Stderr = c.Stdout
	if err := c.Start(); err != nil {
		return nil, err
	}
	var last []string
	lines := bufio.NewReader(out)
	for {
		line, err := lines.ReadString('\n')
		io.WriteString(g.console, line)
		if line = strings.TrimRight(line, "\r\n"); line != "" {
			if last = append(last, line); len(last) > lastLines {
				last = last[1:]
			}
		}
		if err != nil {
			return last, c.Wait()
		}
	}
}

func (g guest) emulator() string {
	if g.arch == "arm64" {
		return "qemu-system-aarch64"
	}
	return "qemu-system-x86_64"
}

func (g guest) arguments(image string) []string {
	// One thread for all CPUs: with one for each, a CPU sometimes runs code that another one has just rewritten, which
	// the kernel does for every program that is attached, and hangs.
	a := []string{"-accel", "tcg,thread=single,tb-size=512", "-smp", strconv.Itoa(g.cpus), "-m", strconv.Itoa(g.memory),
		"-nodefaults", "-no-user-config", "-display", "none", "-no-reboot", "-serial", "stdio",
		"-kernel", filepath.Join(g.folder, "vmlinuz"), "-initrd", image, "-device", "virtio-rng-pci"}
	console := "ttyS0"
	if g.arch == "arm64" {
		a = append(a, "-M", "virt,gic-version=3", "-cpu", "max,pauth=off")
		console = "ttyAMA0"
	} else {
		// Without what the emulator does slowly. Not without cmpxchg16b, which all machines have: from 6.18 on the
		// kernel gives a BPF program memory for a task only with it.
		a = append(a, "-M", "q35", "-cpu", "max,pcid=off,la57=off,pmu=off")
	}
	a = append(a, "-append", strings.TrimSpace("console="+console+
		" panic=-1 quiet loglevel=4 mitigations=off nokaslr tsc=reliable no_timer_check "+g.append))
	folders := []struct{ tag, path, readonly string }{{"root", g.root, "on"}, {"host", g.share, "off"}}
	for _, s := range g.shares {
		folders = append(folders, struct{ tag, path, readonly string }{s.Tag, s.From, "on"})
	}
	for _, s := range folders {
		a = append(a, "-fsdev", "local,id="+s.tag+",path="+s.path+",security_model=none,multidevs=remap,readonly="+s.readonly,
			"-device", "virtio-9p-pci,fsdev="+s.tag+",mount_tag="+s.tag)
	}
	if g.disk != "" {
		a = append(a, "-drive", "file="+g.disk+",if=none,id=disk,format=raw,cache=writeback,discard=unmap", "-device", "virtio-blk-pci,drive=disk")
	}
	return a
}
