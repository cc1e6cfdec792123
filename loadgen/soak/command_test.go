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
	testkit.Eventually(t, time.Minute, func() error {
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
		if err := testkit.Await(time.Minute, func() error { return gone(pid) }); err != nil {
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

// What a command starts and leaves behind holds its output, but not the soak; it runs on, and its output is read.
func TestCommandLeavesADaemon(t *testing.T) {
	t.Parallel()
	for exit := range 2 {
		path, log := filepath.Join(t.TempDir(), "pid"), filepath.Join(t.TempDir(), "log")
		script := fmt.Sprintf("(while echo on; do echo on >> %s; sleep 0.05; done) & echo $! > %s; exit %d", log, path, exit)
		done := make(chan error, 1)
		go func() { done <- command(t.Context(), []string{"sh", "-c", script}) }()
		leftBehind(t, path)
		select {
		case err := <-done:
			if (err == nil) != (exit == 0) {
				t.Errorf("a command that exits with %d ended with %v", exit, err)
			}
		case <-time.After(time.Minute):
			t.Fatal("a command whose daemon holds its output does not end")
		}
		written := size(log)
		testkit.Eventually(t, time.Minute, func() error {
			if n := size(log); n < written+12 {
				return fmt.Errorf("the daemon has written %d bytes since the command's end", n-written)
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

// A command that takes too long is killed with all that it has started, and that is told.
func TestSlowCommand(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "pid")
	ctx, cancel := context.WithCancelCause(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- command(ctx, []string{"sh", "-c", "echo hanging; sleep 1000 & echo $! > " + path + "; wait"})
	}()
	pid := leftBehind(t, path)
	cancel(errSlow)
	if err := <-done; !errors.Is(err, errSlow) || !strings.HasPrefix(err.Error(), "sh: not done after 5m0s") {
		t.Errorf("the command ended with %v", err)
	}
	testkit.Eventually(t, time.Minute, func() error { return gone(pid) })
}

// A command that is not there is told by its name.
func TestNoCommand(t *testing.T) {
	if err := command(t.Context(), []string{"/nowhere/kill-replica"}); err == nil || !strings.Contains(err.Error(), "/nowhere/kill-replica") {
		t.Errorf("of a command that is not there: %v", err)
	}
}
