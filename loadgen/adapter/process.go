package adapter

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// maxLine is the longest line of a tool's output that is kept whole; the rest of a longer one
// is dropped.
const maxLine = 64 << 10

// Process is one run of a tool.
type Process struct {
	// Command is the program and its arguments.
	Command []string
	// Env is added to the environment of loadgen, from which Unset is taken.
	Env, Unset []string
	// Dir is its working directory.
	Dir string
	// Files are its further open files, from descriptor 3 on.
	Files []*os.File
	// Stop is the signal that ends it in good order when the context ends; StopBy is another way, for a program that
	// heeds no signal.
	Stop   syscall.Signal
	StopBy func() error
	// Grace is how long it may take to do so before it is killed.
	Grace time.Duration
	// Stdout and Stderr are called for each line.
	Stdout, Stderr func(line string)
	// Started is called with its process ID once it runs.
	Started func(pid int)
}

// Run runs the process to its end and returns once all its output was read. It stops the process when ctx ends. The
// process never outlives loadgen.
func (p *Process) Run(ctx context.Context) error {
	done := make(chan error, 1)
	go func() {
		// Linux sends the death signal when the starting thread ends, so the thread has to stay.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		done <- p.run(ctx)
	}()
	return <-done
}

// unset reports whether the process does not get a variable, NAME=VALUE, of loadgen's environment.
func (p *Process) unset(variable string) bool {
	name, _, _ := strings.Cut(variable, "=")
	return slices.Contains(p.Unset, name)
}

func (p *Process) run(ctx context.Context) error {
	cmd := exec.Command(p.Command[0], p.Command[1:]...)
	cmd.Env, cmd.Dir, cmd.ExtraFiles = append(slices.DeleteFunc(cmd.Environ(), p.unset), p.Env...), p.Dir, p.Files
	// A group of its own keeps a terminal's ^C from it, so that it can end in good order; no
	// new session, which would make a log on a terminal device its controlling terminal.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	stderr, err := cmd.StderrPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return &startError{err}
	}
	if p.Started != nil {
		p.Started(cmd.Process.Pid)
	}
	var reading sync.WaitGroup
	reading.Go(func() { Lines(stdout, p.Stdout) })
	reading.Go(func() { Lines(stderr, p.Stderr) })

	ended := make(chan struct{})
	var stopping sync.WaitGroup
	stopping.Go(func() {
		select {
		case <-ended:
			return
		case <-ctx.Done():
		}
		group := -cmd.Process.Pid
		grace := p.Grace
		if p.StopBy == nil {
			_ = syscall.Kill(group, p.Stop)
		} else if p.StopBy() != nil {
			grace = 0
		}
		select {
		case <-ended:
		case <-time.After(grace):
			_ = syscall.Kill(group, syscall.SIGKILL)
		}
	})
	reading.Wait()
	err = cmd.Wait()
	close(ended)
	stopping.Wait()
	return err
}

type startError struct{ err error }

func (e *startError) Error() string { return e.err.Error() }
func (e *startError) Unwrap() error { return e.err }

// NotStarted reports whether err means that the program could not even be started.
func NotStarted(err error) bool {
	var start *startError
	return errors.As(err, &start)
}

// KilledBy returns the signal that ended the process, 0 if it ended by itself.
func KilledBy(err error) syscall.Signal {
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() {
			return status.Signal()
		}
	}
	return 0
}

// ExitCode is the code that a process ended with by itself; -1 if it did not.
func ExitCode(err error) int {
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return exit.ExitCode()
	}
	return -1
}

// Describe makes one line of how a process ended and its last output.
func Describe(tool string, err error, lastWords string) error {
	switch {
	case err == nil && lastWords == "":
		return fmt.Errorf("%s ended by itself", tool)
	case err == nil:
		return fmt.Errorf("%s ended: %s", tool, lastWords)
	case lastWords == "":
		return fmt.Errorf("%s: %w", tool, err)
	}
	return fmt.Errorf("%s: %w: %s", tool, err, lastWords)
}

// Lines calls f for each line of r, without its line end, until r ends. What follows the last
// line end is left out: it is half a line of a killed writer.
func Lines(r io.Reader, f func(string)) {
	b := bufio.NewReaderSize(r, maxLine)
	for {
		line, err := b.ReadSlice('\n')
		if err == nil {
			if f != nil {
				f(string(line[:len(line)-1]))
			}
			continue
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return
		}
		if f != nil {
			f(string(line))
		}
		for errors.Is(err, bufio.ErrBufferFull) {
			_, err = b.ReadSlice('\n')
		}
	}
}
