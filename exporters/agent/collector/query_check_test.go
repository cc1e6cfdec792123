package collector

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"testing"

	"github.com/cilium/ebpf/btf"
	"golang.org/x/sys/unix"

	"github.com/plumbline/plumbline/tests/testkit"
)

// What --check says where everything works: each program by name, in order, and no failure.
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
	want := "socket_received socket_sent task_ended task_executed task_forked task_switched adopt census"
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

// An error is told with what the kernel lacks; one whose cause is unknown stays as it is.
func TestExplain(t *testing.T) {
	testkit.NeedBPF(t)
	plain := errors.New("plain")
	if got := explain(plain); got != plain {
		t.Errorf("%v became %v", plain, got)
	}
	if explain(nil) != nil {
		t.Error("an explanation of no error")
	}
	kernel, err := btf.LoadKernelSpec()
	if err != nil {
		t.Fatal(err)
	}
	if missing := missingTracepoints(kernel); missing != nil {
		t.Errorf("%v are said to be missing", missing)
	}
	old, err := btf.NewBuilder([]btf.Type{&btf.Typedef{Name: "btf_trace_sched_switch", Type: &btf.Void{}}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := old.Marshal(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	spec, err := btf.LoadSpecFromReader(strings.NewReader(string(raw)))
	if err != nil {
		t.Fatal(err)
	}
	got := strings.Join(missingTracepoints(spec), " ")
	if want := "sock_recv_length sock_send_length sched_process_fork sched_process_exec sched_process_exit"; got != want {
		t.Errorf("an old kernel lacks %s, want %s", got, want)
	}
}
