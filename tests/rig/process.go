package rig

import (
	"bytes"
	"os/exec"
	"strings"
	"sync"
	"syscall"
)

// Process is a running program; it is killed at the end of its test or Scope.
type Process struct {
	// Cmd is how it was started, Log its output.
	Cmd *exec.Cmd
	Log *Log
	// Done is closed when it has ended.
	Done chan struct{}
}

// Log collects output, from several writers.
type Log struct {
	mu sync.Mutex
	b  bytes.Buffer
}

// Write appends.
func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

// String returns all that was written so far.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// StartProcess starts a program in a folder. Its log is shown if the test or Scope fails.
func StartProcess(t T, dir string, name string, args ...string) *Process {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	return Start(t, cmd)
}

// Start is StartProcess for a command that is prepared already.
func Start(t T, cmd *exec.Cmd) *Process {
	t.Helper()
	p := &Process{Cmd: cmd, Log: &Log{}, Done: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = p.Log, p.Log
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	// Some start helpers, as a replica its sync agent: end them, too.
	cmd.SysProcAttr.Setpgid = true
	if err := cmd.Start(); err != nil {
		t.Fatalf("%v", err)
	}
	go func() {
		_ = cmd.Wait()
		close(p.Done)
	}()
	t.Cleanup(func() {
		p.Kill()
		if t.Failed() {
			log := p.Log.String()
			t.Logf("%s:\n%s", strings.Join(cmd.Args, " "), log[max(0, len(log)-2000):])
		}
	})
	return p
}

// PID is the process's id.
func (p *Process) PID() int { return p.Cmd.Process.Pid }

// Await returns once f returns no error. It ends the test or program if the process ends first.
func (p *Process) Await(t T, f func() error) {
	t.Helper()
	Eventually(t, DefaultTimeout, func() error {
		select {
		case <-p.Done:
			t.Fatalf("%s ended: %s", p.Cmd.Path, p.Log)
		default:
		}
		return f()
	})
}

// Kill ends it by force, with what it started, and waits for its end.
func (p *Process) Kill() {
	select {
	case <-p.Done: // the id may be another's by now
	default:
		_ = syscall.Kill(-p.PID(), syscall.SIGKILL)
	}
	<-p.Done
}

// Stop requests its end, and waits for it.
func (p *Process) Stop() {
	_ = p.Cmd.Process.Signal(syscall.SIGTERM)
	<-p.Done
}
