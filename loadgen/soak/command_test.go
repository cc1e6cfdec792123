package soak

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/plumbline/plumbline/tests/testkit"
)

// leftBehind awaits the process ID that a command wrote, and kills that process at the test's end.
func leftBehind(t *testing.T, path string) (pid int) {
	t.Helper()
	testkit.Eventually(t, testkit.DefaultTimeout, func() error {
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if !strings.HasSuffix(string(text), "\n") {
			return fmt.Errorf("half a process ID: %q", text)
		}
		pid, err = strconv.Atoi(strings.TrimSpace(string(text)))
		return err
	})
	t.Cleanup(func() {
		_ = syscall.Kill(pid, syscall.SIGKILL)
		if err := testkit.Await(testkit.DefaultTimeout, func() error { return gone(pid) }); err != nil {
			t.Error(err)
		}
	})
	return pid
}

// gone is an error as long as a process is there and no zombie.
func gone(pid int) error {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err == nil && !strings.Contains(string(status), ") Z") {
		return fmt.Errorf("process %d runs", pid)
	}
	return nil
}

// What a command starts and leaves behind holds its output, but not the soak; it runs on, and its output is read, more
// than a pipe holds. It is waited for only to report why a command has failed.
func TestCommandLeavesADaemon(t *testing.T) {
	t.Parallel()
	for exit, grace := range []time.Duration{time.Hour, commandGrace} {
		path, log := filepath.Join(t.TempDir(), "pid"), filepath.Join(t.TempDir(), "log")
		script := fmt.Sprintf("(while printf '%%16384s\\n' on; do echo on >> %s; sleep 0.05; done) & echo $! > %s; exit %d", log, path, exit)
		done := make(chan error, 1)
		go func() { done <- command(t.Context(), []string{"sh", "-c", script}, grace) }()
		leftBehind(t, path)
		select {
		case err := <-done:
			if (err == nil) != (exit == 0) {
				t.Errorf("a command that exits with %d ended with %v", exit, err)
			}
		case <-time.After(testkit.DefaultTimeout):
			t.Fatal("a command whose daemon holds its output does not end")
		}
		written := size(log)
		testkit.Eventually(t, testkit.DefaultTimeout, func() error {
			if n := size(log); n < written+24 { // eight rounds of 16 KiB
				return fmt.Errorf("the daemon has written %d times since the command's end", (n-written)/3)
			}
			return nil
		})
	}
}

// size is a file's, 0 if it is not there.
func size(path string) int64 {
	info, err := os.Stat(path)
	if err != nil {
		return 0
	}
	return info.Size()
}

// A command that takes too long is killed with all that it has started, and the error reports that.
func TestSlowCommand(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "pid")
	ctx, cancel := context.WithCancelCause(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- command(ctx, []string{"sh", "-c", "echo hanging; sleep 1000 & echo $! > " + path + "; wait"}, commandGrace)
	}()
	pid := leftBehind(t, path)
	cancel(errSlow)
	if err := <-done; !errors.Is(err, errSlow) || !strings.HasPrefix(err.Error(), "sh: not done after 5m0s") {
		t.Errorf("the command ended with %v", err)
	}
	testkit.Eventually(t, testkit.DefaultTimeout, func() error { return gone(pid) })
}

// The error of a command that is not there has its name.
func TestNoCommand(t *testing.T) {
	if err := command(t.Context(), []string{"/nowhere/kill-replica"}, commandGrace); err == nil || !strings.Contains(err.Error(), "/nowhere/kill-replica") {
		t.Errorf("of a command that is not there: %v", err)
	}
}

// The error has a command's last output also if that does not end the line.
func TestLastWordsWithoutAnEnd(t *testing.T) {
	t.Parallel()
	if err := command(t.Context(), []string{"sh", "-c", "printf 'one line\\nno such replica'; exit 3"}, time.Hour); err == nil || err.Error() != "sh: exit status 3: no such replica" {
		t.Errorf("a command that fails returns %v", err)
	}
}

// A command that was killed and does not die is given up, and the error reports that; one that ended well meanwhile is
// done.
func TestFinish(t *testing.T) {
	killed, kill := context.WithCancelCause(t.Context())
	kill(errSlow)
	stuck := make(chan error)
	defer close(stuck)
	if err := finish(killed, func() error { return <-stuck }, time.Millisecond); !errors.Is(err, errSlow) || !strings.Contains(err.Error(), "cannot be killed") {
		t.Errorf("a command that does not die ended with %v", err)
	}
	if err := finish(killed, func() error { return errors.New("signal: killed") }, time.Hour); err != errSlow {
		t.Errorf("a command that was killed ended with %v", err)
	}
	if err := finish(killed, func() error { return nil }, time.Hour); err != nil {
		t.Errorf("a command that was done when it was to be killed ended with %v", err)
	}
}

// A process that is no more need not be killed, so that its command is done.
func TestKillNobody(t *testing.T) {
	if err := killGroup(1 << 30); err != os.ErrProcessDone { // above any process ID
		t.Errorf("killing what is not there: %v", err)
	}
}
