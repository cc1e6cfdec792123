package soak

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/plumbline/plumbline/loadgen/adapter"
)

const (
	// faultTimeout bounds a fault's command.
	faultTimeout = 5 * time.Minute
	// commandGrace is for how long the end of a command that was killed is awaited, and the output of one that has
	// failed, if what it left running holds it.
	commandGrace = 5 * time.Second
)

// errSlow is why a command that took too long has failed.
var errSlow = fmt.Errorf("not done after %s", faultTimeout)

// command runs a fault's command. When ctx ends, it is killed with all that it has started. If it fails, the error has
// its last line of output. What it leaves running, such as a replica that it has started again, may hold its output:
// that is read on, but not waited for.
func command(ctx context.Context, args []string, grace time.Duration) error {
	out, in, err := os.Pipe()
	if err != nil {
		return err
	}
	c := exec.CommandContext(ctx, args[0], args[1:]...)
	c.Stdout, c.Stderr = in, in
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a ^C for the soak is not one for the mending
	c.Cancel = func() error { return killGroup(c.Process.Pid) }
	err = c.Start()
	in.Close()
	if err != nil {
		out.Close()
		return err
	}
	var last atomic.Pointer[string]
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer out.Close()
		// The last line may lack its end.
		adapter.Lines(io.MultiReader(out, strings.NewReader("\n")), func(line string) {
			if line = strings.TrimSpace(line); line != "" {
				last.Store(&line)
			}
		})
	}()
	if err = finish(ctx, c.Wait, grace); err == nil {
		return nil
	}
	select {
	case <-ended:
	case <-time.After(grace):
	}
	words := ""
	if line := last.Load(); line != nil {
		words = *line
	}
	return adapter.Describe(args[0], err, words)
}

// finish waits for a command's end. One that is killed as ctx ends may not die, as in a call of a disk that hangs: it
// is waited for no longer than grace.
func finish(ctx context.Context, wait func() error, grace time.Duration) error {
	waited := make(chan error, 1)
	go func() { waited <- wait() }()
	var err error
	select {
	case err = <-waited:
	case <-ctx.Done():
		select {
		case err = <-waited:
		case <-time.After(grace):
			return fmt.Errorf("%w, and it cannot be killed", context.Cause(ctx))
		}
	}
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// killGroup kills a process with all that it has started.
func killGroup(pid int) error {
	err := syscall.Kill(-pid, syscall.SIGKILL)
	if errors.Is(err, syscall.ESRCH) {
		return os.ErrProcessDone
	}
	return err
}
