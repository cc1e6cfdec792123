// Package damage slows and stops parts of a running lab on purpose, for `plumbline-lab break` and for the proofs that
// check what is reported of it. Whatever it does can be undone, also by another process after this one was killed.
package damage

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Mend undoes a damage. It may be called once.
type Mend func() error

// Repeat runs f repeatedly until its Mend is called.
func Repeat(ctx context.Context, f func(context.Context)) Mend {
	stop := until(ctx, f)
	return func() error { stop(); return nil }
}

// until runs f repeatedly in a goroutine until the returned function is called.
func until(ctx context.Context, f func(context.Context)) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() {
		for ctx.Err() == nil {
			f(ctx)
		}
	})
	return func() {
		cancel()
		running.Wait()
	}
}

// Pause waits, or until ctx ends.
func Pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// Halve stops a process for half of each 40 ms.
func Halve(ctx context.Context, pid int) Mend { return ByTurns(ctx, pid, 20*time.Millisecond) }

// ByTurns stops a process for a turn of this length, has it run for one, and so on.
func ByTurns(ctx context.Context, pid int, turn time.Duration) Mend {
	stop := until(ctx, func(ctx context.Context) {
		_ = syscall.Kill(pid, syscall.SIGSTOP)
		Pause(ctx, turn)
		_ = syscall.Kill(pid, syscall.SIGCONT)
		Pause(ctx, turn)
	})
	return func() error {
		stop()
		return alive(syscall.Kill(pid, syscall.SIGCONT))
	}
}

// alive makes no error of a process that has ended meanwhile.
func alive(err error) error {
	if errors.Is(err, syscall.ESRCH) {
		return nil
	}
	return err
}

// LockStorm locks a table for 300 ms of each 400, as a session of the PostgreSQL at a socket's folder.
func LockStorm(ctx context.Context, socket, table string, environment ...string) Mend {
	return Repeat(ctx, func(ctx context.Context) {
		cmd := exec.CommandContext(ctx, "psql", "-qAt", "-h", socket, "-U", "postgres",
			"-c", "BEGIN", "-c", "LOCK TABLE "+table, "-c", "SELECT pg_sleep(0.3)", "-c", "COMMIT")
		cmd.Env = append(os.Environ(), environment...)
		_ = cmd.Run()
		Pause(ctx, 100*time.Millisecond)
	})
}

// Hog starts busy loops, four a CPU, each in a session of its own: the kernel shares its time out among
// sessions first (autogroup), so the loops of one session would count as a single competitor.
func Hog(environment ...string) (Mend, error) {
	var all []*exec.Cmd
	mend := func() error {
		for _, c := range all {
			_ = c.Process.Kill()
			_ = c.Wait()
		}
		return nil
	}
	for range 4 * runtime.NumCPU() {
		c := exec.Command("sh", "-c", "while :; do :; done")
		c.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		c.Env = append(os.Environ(), environment...)
		if err := c.Start(); err != nil {
			return nil, errors.Join(err, mend())
		}
		all = append(all, c)
	}
	return mend, nil
}

// Limit is what a process may write to a disk.
type Limit struct {
	// v2 is the key in cgroup v2's io.max, v1 the file of version 1.
	v2, v1, value string
}

// WritesPerSecond limits the number of writes.
func WritesPerSecond(n int) Limit {
	return Limit{"wiops", "blkio.throttle.write_iops_device", fmt.Sprint(n)}
}

// BytesPerSecond limits the bytes written.
func BytesPerSecond(n int) Limit {
	return Limit{"wbps", "blkio.throttle.write_bps_device", fmt.Sprint(n)}
}

// root is the folder of the cgroups that limit I/O, and whether it is version 1.
func root() (folder string, v1 bool) {
	const v2 = "/sys/fs/cgroup"
	if _, err := os.Stat(v2 + "/blkio"); err == nil {
		return v2 + "/blkio", true
	}
	return v2, false
}

// Throttle limits what a process writes to the disk that a path is on, in a cgroup of a name. The limit is
// above the block device: the kernel's times of the disk do not show it.
func Throttle(name string, pid int, path string, limit Limit) (Mend, error) {
	folder, v1 := root()
	group := filepath.Join(folder, name)
	former, err := groupOf(pid, v1)
	if err != nil {
		return nil, err
	}
	if !v1 { // on a machine whose services are not limited it is off
		_ = os.WriteFile(filepath.Join(folder, "cgroup.subtree_control"), []byte("+io"), 0o644)
	}
	if err := os.Mkdir(group, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return nil, err
	}
	mend := func() error { return unthrottle(group, filepath.Join(folder, former)) }
	if err := setLimit(group, path, v1, limit, limit.value); err != nil {
		return nil, errors.Join(err, mend())
	}
	if err := moveTo(group, pid); err != nil {
		return nil, errors.Join(err, mend())
	}
	return func() error {
		// A write that waits for its turn continues.
		none := "max"
		if v1 {
			none = "0"
		}
		return errors.Join(setLimit(group, path, v1, limit, none), mend())
	}, nil
}

// Unthrottle takes away a limit that a process which was killed has left; the processes go to the root
// of the cgroups.
func Unthrottle(name, path string) error {
	folder, v1 := root()
	group := filepath.Join(folder, name)
	if _, err := os.Stat(group); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	none := "max"
	if v1 {
		none = "0"
	}
	var problems []error
	for _, limit := range []Limit{WritesPerSecond(0), BytesPerSecond(0)} {
		problems = append(problems, setLimit(group, path, v1, limit, none))
	}
	return errors.Join(append(problems, unthrottle(group, folder))...)
}

// unthrottle moves what is left in a cgroup to another one, and removes it.
func unthrottle(group, to string) error {
	text, err := os.ReadFile(filepath.Join(group, "cgroup.procs"))
	if err != nil {
		return err
	}
	for _, pid := range strings.Fields(string(text)) {
		if err := os.WriteFile(filepath.Join(to, "cgroup.procs"), []byte(pid), 0o644); alive(err) != nil {
			return err
		}
	}
	return os.Remove(group)
}

func setLimit(group, path string, v1 bool, limit Limit, value string) error {
	var at syscall.Stat_t
	if err := syscall.Stat(path, &at); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	disk := fmt.Sprintf("%d:%d", unix.Major(at.Dev), unix.Minor(at.Dev))
	if v1 {
		return os.WriteFile(filepath.Join(group, limit.v1), []byte(disk+" "+value), 0o644)
	}
	return os.WriteFile(filepath.Join(group, "io.max"), []byte(disk+" "+limit.v2+"="+value), 0o644)
}

func moveTo(group string, pid int) error {
	return os.WriteFile(filepath.Join(group, "cgroup.procs"), []byte(fmt.Sprint(pid)), 0o644)
}

// groupOf is the cgroup that a process is in, in the hierarchy that limits I/O.
func groupOf(pid int, v1 bool) (string, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(text)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) == 3 && (v1 && strings.Contains(","+parts[1]+",", ",blkio,") || !v1 && parts[0] == "0") {
			return parts[2], nil
		}
	}
	return "", fmt.Errorf("process %d is in no cgroup that can limit its writes", pid)
}
