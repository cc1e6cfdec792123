package main

import (
	"bufio"
	"context"
	_ "embed"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// attachTimeout is how long a tracer may take to attach.
const attachTimeout = 60 * time.Second

// script measures with bpftrace what the agent measures: the time of each query, of each
// block request and of each read, write and sync call.
//
//go:embed trace.bt
var script string

// tracer is a running observer; nil is none.
type tracer struct{ cmd *exec.Cmd }

// start starts an observer and returns once it is attached.
func (o options) start(ctx context.Context, mode string) (*tracer, error) {
	switch mode {
	case "agent":
		return o.startAgent(ctx)
	case "bpftrace":
		return o.startBpftrace(ctx)
	}
	return nil, nil
}

func (o options) startAgent(ctx context.Context) (*tracer, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	address := l.Addr().String()
	l.Close()
	cmd := exec.Command(o.agent, append([]string{"--web.listen-address=" + address, "--log.level=error"}, o.agentFlags...)...)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	t := &tracer{cmd}
	// It listens once its collectors are attached.
	deadline := time.Now().Add(attachTimeout)
	for {
		if text, err := scrape(ctx, address); err == nil {
			if !strings.Contains(text, `plumbline_scrape_collector_success{collector="query"} 1`) {
				t.stop()
				return nil, fmt.Errorf("the agent's query collector does not work")
			}
			return t, nil
		} else if time.Now().After(deadline) {
			t.stop()
			return nil, fmt.Errorf("the agent does not answer: %w", err)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func scrape(ctx context.Context, address string) (string, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/metrics", nil)
	if err != nil {
		return "", err
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	return string(text), err
}

func (o options) startBpftrace(ctx context.Context) (*tracer, error) {
	server, err := serverProgram()
	if err != nil {
		return nil, err
	}
	// Tracepoints need tracefs; it is mounted only for bpftrace's own view.
	shell := `mountpoint -q /sys/kernel/tracing || mount -t tracefs tracefs /sys/kernel/tracing; exec "$@"`
	cmd := exec.CommandContext(ctx, "unshare", "--mount", "sh", "-c", shell, "sh",
		o.bpftrace, "-e", strings.ReplaceAll(script, "SERVER", server))
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	cmd.Stderr = cmd.Stdout
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	t := &tracer{cmd}
	ready := make(chan error, 1)
	go func() {
		lines := bufio.NewScanner(out)
		var said []string
		for lines.Scan() {
			if strings.TrimSpace(lines.Text()) == "ready" {
				ready <- nil
				break
			}
			said = append(said, lines.Text())
		}
		if len(ready) == 0 {
			select {
			case ready <- fmt.Errorf("bpftrace did not attach: %s", strings.Join(said, "; ")):
			default:
			}
		}
		io.Copy(io.Discard, out)
	}()
	select {
	case err = <-ready:
	case <-time.After(attachTimeout):
		err = fmt.Errorf("bpftrace did not attach within %v", attachTimeout)
	}
	if err != nil {
		t.stop()
		return nil, err
	}
	return t, nil
}

// serverProgram returns the program file of a running PostgreSQL server.
func serverProgram() (string, error) {
	links, _ := filepath.Glob("/proc/[0-9]*/exe")
	for _, l := range links {
		if path, err := os.Readlink(l); err == nil && filepath.Base(path) == "postgres" {
			return path, nil
		}
	}
	return "", fmt.Errorf("no PostgreSQL server runs here")
}

// stop ends the observer and waits for it.
func (t *tracer) stop() error {
	if t == nil {
		return nil
	}
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
