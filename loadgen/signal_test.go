package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/plumbline/plumbline/tests/testkit"
)

// A soak that is stopped mends its fault first. If that hangs, a second signal ends it.
func TestSecondSignal(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	plan, mending := filepath.Join(folder, "plan.yaml"), filepath.Join(folder, "mending")
	text := "duration: 1h\ncanary: {profile: simple-ping, rate: 1}\n" +
		"faults:\n  - {name: stuck, at: 0s, for: 30m, do: ['true'], undo: [sh, -c, 'echo $$ > " + mending + "; exec sleep 1000']}\n" +
		"targets:\n  - {storageclass: gone, dsn: 'host=" + folder + "'}\n"
	if err := os.WriteFile(plan, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	s := start(t, []string{"soak", "--plan=" + plan, "--folder=" + filepath.Join(folder, "soak")})
	testkit.Eventually(t, testkit.DefaultTimeout, func() error {
		if log := s.log(); !strings.Contains(log, "name=stuck what=begin") {
			return fmt.Errorf("the fault is not begun:\n%s", log)
		}
		return nil
	})
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, testkit.DefaultTimeout, func() error {
		line, err := os.ReadFile(mending)
		if err != nil {
			return err
		}
		pid, err := strconv.Atoi(strings.TrimSpace(string(line)))
		if err == nil {
			t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGKILL) })
		}
		return err
	})
	ended := make(chan error, 1)
	go func() { ended <- s.cmd.Wait() }()
	testkit.Eventually(t, testkit.DefaultTimeout, func() error {
		_ = s.cmd.Process.Signal(syscall.SIGTERM) // more than once: the server of metrics takes some until it has ended
		select {
		case <-ended:
			return nil
		default:
			return fmt.Errorf("it still waits:\n%s", s.log())
		}
	})
	if status, ok := s.cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || status.Signal() != syscall.SIGTERM {
		t.Errorf("it ended with %s", s.cmd.ProcessState)
	}
}
