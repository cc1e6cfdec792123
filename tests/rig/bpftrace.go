package rig

import (
	"fmt"
	"os/exec"
	"strings"
	"syscall"
)

// Bpftrace is a running bpftrace script.
type Bpftrace struct {
	t T
	p *Process
}

// StartBpftrace runs a script and returns once it has printed "ready". Words of the script that
// values names are replaced; BLOCK_DONE is the tracepoint after which the kernel's own block
// statistics count a request as done.
func StartBpftrace(t T, program, script string, values map[string]string) *Bpftrace {
	t.Helper()
	done := "block_rq_complete" // before the handlers of a request's bios, where there is nothing better
	if HasIODone(t) {
		done = "block_io_done"
	}
	words := []string{"BLOCK_DONE", done}
	for word, value := range values {
		words = append(words, word, value)
	}
	// Tracepoints need tracefs; it is mounted only for bpftrace's own view.
	const shell = `mountpoint -q /sys/kernel/tracing || mount -t tracefs tracefs /sys/kernel/tracing; exec "$@"`
	b := &Bpftrace{t, Start(t, exec.Command("unshare", "--mount", "sh", "-c", shell, "sh", program, "-e", strings.NewReplacer(words...).Replace(script)))}
	b.p.Await(t, func() error {
		if !strings.Contains(b.p.Log.String(), "ready") {
			return fmt.Errorf("bpftrace is not attached")
		}
		return nil
	})
	return b
}

// Stop ends the script in order and returns all its output.
func (b *Bpftrace) Stop() string {
	b.t.Helper()
	if err := b.p.Cmd.Process.Signal(syscall.SIGINT); err != nil {
		b.t.Fatalf("bpftrace: %v", err)
	}
	<-b.p.Done
	return b.p.Log.String()
}
