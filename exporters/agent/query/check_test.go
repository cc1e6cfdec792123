package query

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/plumbline/plumbline/exporters/agent/platform"
)

// What --check reports where everything works: each program by name, in order, and no failure.
func TestQueryCheck(t *testing.T) {
	q := startQuery(t)
	var programs []string
	for _, r := range q.Check() {
		if r.Err != nil && !r.Optional {
			t.Errorf("%s: %v", r.Part, r.Err)
		}
		if name, ok := strings.CutPrefix(r.Part, "query: program "); ok {
			programs = append(programs, name)
		}
	}
	want := map[platform.AttachMode]string{
		platform.Tracepoints: "socket_received socket_sent task_ended task_executed task_forked task_signalled task_switched adopt snapshot",
		platform.Functions:   "inet6_received inet6_sent inet_received inet_sent task_ended task_executed task_forked task_signalled task_switched unix_received unix_sent adopt snapshot",
	}[q.programs.kernel.AttachMode]
	if q.programs.kernel.StartUnderLock {
		want = strings.Replace(want, "task_forked", "task_started", 1)
	}
	if got := strings.Join(programs, " "); got != want {
		t.Errorf("programs %s, want %s", got, want)
	}
}

func TestInShort(t *testing.T) {
	denied := &fs.PathError{Op: "open", Path: "/proc/1/fd", Err: unix.EACCES}
	for _, c := range []struct {
		err  error
		want string
	}{
		{errors.New("one"), "one"},
		{errors.Join(errors.New("one"), errors.New("two"), errors.New("three")), "one (and 2 more)"},
		{fmt.Errorf("process 1: %w", denied), "needs CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH: process 1: open /proc/1/fd: permission denied"},
	} {
		if got := inShort(c.err).Error(); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}
