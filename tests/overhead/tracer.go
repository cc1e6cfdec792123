package main

import (
	"bufio"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/plumbline/plumbline/tests/agentproc"
)

// attachTimeout is how long a tracer may take to attach.
const attachTimeout = 60 * time.Second

// script measures with bpftrace what the agent measures: the time of each query, of each
// block request and of each read, write and sync call.
//
//go:embed trace.bt
var script string

// tracer is a running observer.
type tracer interface{ Stop() error }

// none observes nothing.
type none struct{}

func (none) Stop() error { return nil }

// start starts an observer and returns once it is attached.
func (o options) start(ctx context.Context, mode string, s server) (tracer, error) {
	switch mode {
	case "agent":
		return agentproc.Start(ctx, o.agent, o.agentFlags...)
	case "bpftrace":
		return o.startBpftrace(ctx, s)
	}
	return none{}, nil
}

type bpftrace struct{ cmd *exec.Cmd }

func (o options) startBpftrace(ctx context.Context, s server) (tracer, error) {
	// Tracepoints need tracefs; it is mounted only for bpftrace's own view.
	shell := `mountpoint -q /sys/kernel/tracing || mount -t tracefs tracefs /sys/kernel/tracing; exec "$@"`
	cmd := exec.CommandContext(ctx, "unshare", "--mount", "sh", "-c", shell, "sh",
		o.bpftrace, "-e", strings.ReplaceAll(script, "SERVER", s.program))
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	cmd.Stderr = cmd.Stdout
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	t := &bpftrace{cmd}
	ready := make(chan error, 1)
	go func() {
		ready <- awaitReady(out)
		io.Copy(io.Discard, out)
	}()
	select {
	case err = <-ready:
	case <-time.After(attachTimeout):
		err = fmt.Errorf("bpftrace did not attach within %v", attachTimeout)
	}
	if err != nil {
		return nil, errors.Join(err, t.Stop())
	}
	return t, nil
}

// awaitReady reads what bpftrace says up to the script's own word that it is attached.
func awaitReady(out io.Reader) error {
	lines := bufio.NewScanner(out)
	var said []string
	for lines.Scan() {
		if strings.TrimSpace(lines.Text()) == "ready" {
			return nil
		}
		said = append(said, lines.Text())
	}
	return fmt.Errorf("bpftrace did not attach: %s", strings.Join(said, "; "))
}

// Stop ends the observer and waits for it.
func (t *bpftrace) Stop() error {
	if err := t.cmd.Process.Signal(syscall.SIGINT); err != nil {
		return err
	}
	done := make(chan struct{})
	go func() {
		t.cmd.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(20 * time.Second):
		t.cmd.Process.Kill()
		<-done
	}
	return nil
}
