// Command init is the first process of a guest: it goes from the initramfs to the machine's root, which it sees
// read-only below an overlay in memory, runs the job's command there, leaves its exit code in /run/host/exit, and
// switches the guest off.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/plumbline/plumbline/tests/kernels/job"
)

// nine are the options of the machine's folders.
const nine = "trans=virtio,version=9p2000.L,msize=512000"

func main() {
	if os.Getpid() != 1 {
		fmt.Fprintln(os.Stderr, "init: this is the first process of a guest of tests/kernels; `go run ./tests/kernels --help`")
		os.Exit(2)
	}
	err := run()
	if err != nil {
		fmt.Println("init:", err)
	}
	if !errors.Is(err, errStuck) { // what hangs would hold it up, too
		unix.Sync()
	}
	unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF)
}

func run() error {
	j, err := readJob(job.File)
	if err != nil {
		return err
	}
	if err := errors.Join(mount("proc", "/proc", "proc", 0, ""), mount("sys", "/sys", "sysfs", 0, ""), mount("dev", "/dev", "devtmpfs", 0, "")); err != nil {
		return err
	}
	for _, m := range j.Modules {
		if err := load(m); err != nil {
			return fmt.Errorf("%s: %w", m, err)
		}
	}
	if err := enterRoot(j.Shares); err != nil {
		return err
	}
	if err := settle(j); err != nil {
		return err
	}
	seconds, err := stamp(job.Booted)
	if err != nil {
		return err
	}
	var name unix.Utsname
	unix.Uname(&name)
	fmt.Printf("init: Linux %s, %s s after its start\n", unix.ByteSliceToString(name.Release[:]), seconds)
	code, err := command(j)
	if err != nil {
		return err
	}
	if _, err := stamp(job.Ended); err != nil {
		return err
	}
	return os.WriteFile("/run/host/"+job.Exit, []byte(strconv.Itoa(code)+"\n"), 0o644)
}

// stamp writes the seconds since the kernel's start to a file that has the machine's time, and returns them.
func stamp(name string) (seconds string, err error) {
	up, err := os.ReadFile("/proc/uptime")
	seconds, _, _ = strings.Cut(string(up), " ")
	return seconds, errors.Join(err, os.WriteFile("/run/host/"+name, []byte(seconds+"\n"), 0o644))
}

func readJob(file string) (job.Job, error) {
	j := job.Job{}
	text, err := os.ReadFile(file)
	if err != nil {
		return j, err
	}
	return j, json.Unmarshal(text, &j)
}

func load(file string) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	return unix.FinitModule(int(f.Fd()), "", 0)
}

// enterRoot makes the machine's root, below an overlay, the root of this process.
func enterRoot(shares []job.Share) error {
	if err := mount("root", "/lower", "9p", unix.MS_RDONLY, nine+",cache=loose"); err != nil {
		return err
	}
	if err := mount("rw", "/rw", "tmpfs", 0, "size=75%"); err != nil {
		return err
	}
	for _, d := range []string{"/rw/upper", "/rw/work"} {
		if err := os.Mkdir(d, 0o755); err != nil {
			return err
		}
	}
	if err := mount("root", "/new", "overlay", 0, "lowerdir=/lower,upperdir=/rw/upper,workdir=/rw/work"); err != nil {
		return err
	}
	for _, m := range []struct{ source, target, kind, options string }{
		{"proc", "/proc", "proc", ""}, {"sys", "/sys", "sysfs", ""}, {"dev", "/dev", "devtmpfs", ""}, {"run", "/run", "tmpfs", "mode=755"},
		{"host", "/run/host", "9p", nine}, {"lock", "/run/lock", "tmpfs", "mode=1777"}, {"pts", "/dev/pts", "devpts", ""},
		{"shm", "/dev/shm", "tmpfs", "mode=1777"}, {"cgroup", "/sys/fs/cgroup", "cgroup2", ""},
		{"debug", "/sys/kernel/debug", "debugfs", ""}, {"trace", "/sys/kernel/tracing", "tracefs", ""}, {"bpf", "/sys/fs/bpf", "bpf", ""},
	} {
		if err := os.MkdirAll("/new"+m.target, 0o755); err != nil {
			return err
		}
		if err := mount(m.source, "/new"+m.target, m.kind, 0, m.options); err != nil {
			return err
		}
	}
	for _, s := range shares {
		if err := os.MkdirAll("/new"+s.To, 0o755); err != nil {
			return err
		}
		if err := mount(s.Tag, "/new"+s.To, "9p", unix.MS_RDONLY, nine+",cache=loose"); err != nil {
			return err
		}
	}
	return errors.Join(os.Chdir("/new"), mount(".", "/", "", unix.MS_MOVE, ""), unix.Chroot("."), os.Chdir("/"))
}

// settle does what a booted machine has done: its name, its loopback device, the kernel's modules where modprobe looks
// for them.
func settle(j job.Job) error {
	there := "/lib/modules/" + filepath.Base(j.Kernel)
	if err := os.MkdirAll(there, 0o755); err != nil {
		return err
	}
	return errors.Join(mount(j.Kernel, there, "", unix.MS_BIND, ""), unix.Sethostname([]byte("guest")), linkUp("lo"))
}

func linkUp(name string) error {
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(s)
	r, err := unix.NewIfreq(name)
	if err != nil {
		return err
	}
	if err := unix.IoctlIfreq(s, unix.SIOCGIFFLAGS, r); err != nil {
		return err
	}
	r.SetUint16(r.Uint16() | unix.IFF_UP)
	return unix.IoctlIfreq(s, unix.SIOCSIFFLAGS, r)
}

func mount(source, target, kind string, flags uintptr, options string) error {
	if err := unix.Mount(source, target, kind, flags, options); err != nil {
		return fmt.Errorf("mounting %s %s: %w", kind, target, err)
	}
	return nil
}

// errStuck is that the command came to no end in its time.
var errStuck = errors.New("the command hangs")

// command runs the job's command and returns its exit code; 127 if it cannot be run.
func command(j job.Job) (int, error) {
	path := "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	os.Setenv("PATH", strings.TrimPrefix(path, "PATH="))
	c := exec.Command(j.Command[0], j.Command[1:]...)
	c.Dir = j.Dir
	c.Env = append([]string{path, "HOME=/root", "LC_ALL=C.UTF-8", "TMPDIR=/tmp"}, j.Env...)
	c.Stdout, c.Stderr = os.Stdout, os.Stderr
	if err := c.Start(); err != nil {
		fmt.Println("init:", err)
		return 127, nil
	}
	ended := make(chan error, 1)
	go func() { ended <- c.Wait() }()
	select {
	case <-ended:
	case <-time.After(time.Duration(j.Seconds) * time.Second):
		stuck(c, ended)
		return 0, fmt.Errorf("%w after %d s", errStuck, j.Seconds)
	}
	if code := c.ProcessState.ExitCode(); code >= 0 {
		return code, nil
	}
	return 128 + int(c.ProcessState.Sys().(unix.WaitStatus).Signal()), nil
}
