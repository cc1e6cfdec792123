package soak

import (
	"context"
	"fmt"
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
	// outputGrace is for how long the output of a command that has ended is awaited, if what it left running holds it.
	outputGrace = 5 * time.Second
)

// errSlow is why a command that took too long has failed.
var errSlow = fmt.Errorf("not done after %s", faultTimeout)

// command runs a fault's command. When ctx ends, it is killed with all that it has started. Its last line of output is told if it fails.
// What it leaves running, such as a replica that it has started again, may hold its output: that is read on, but not waited for.
func command(ctx context.Context, args []string) error {
	out, in, err := os.Pipe()
	if err != nil {
		return err
	}
	c := exec.CommandContext(ctx, args[0], args[1:]...)
	c.Stdout, c.Stderr = in, in
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a ^C for the soak is not one for the mending
	c.Cancel = func() error { return syscall.Kill(-c.Process.Pid, syscall.SIGKILL) }
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
		adapter.Lines(out, func(line string) {
			if line = strings.TrimSpace(line); line != "" {
				last.Store(&line)
			}
		})
	}()
	err = c.Wait()
	select {
	case <-ended:
	case <-time.After(outputGrace):
	}
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	words := ""
	if line := last.Load(); line != nil {
		words = *line
	}
	return adapter.Describe(args[0], err, words)
}
