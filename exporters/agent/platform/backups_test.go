package platform

import (
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"

	"github.com/plumbline/plumbline/exporters/agent/bpf/query"
	"github.com/plumbline/plumbline/exporters/agent/bpf/replica"
)

// The constants of this package match the compiled programs.
func TestProgramGroupsAsCompiled(t *testing.T) {
	for name, load := range map[string]func() (*ebpf.CollectionSpec, error){"query": query.LoadQuery, "replica": replica.LoadDataconn} {
		spec, err := load()
		if err != nil {
			t.Fatal(err)
		}
		states := spec.Maps[groupsMap]
		if int(states.MaxEntries) != len(groupOf) {
			t.Errorf("%s: %d program groups, want %d", name, states.MaxEntries, len(groupOf))
		}
		numbers := groupNumbers(spec)
		for tracepoint, group := range groupOf {
			if _, ok := numbers[group]; !ok {
				t.Errorf("%s: the programs know no %s of %s", name, group, tracepoint)
			}
		}
		state := states.Value.(*btf.Struct)
		if n := state.Members[0].Type.(*btf.Array).Nelems; n != maxBackups+1 || state.Size != uint32(9*(maxBackups+1)+4) {
			t.Errorf("%s: the state has %d ranks in %d bytes", name, n, state.Size)
		}
		var runState *btf.Enum
		if err := spec.Types.TypeByName("run_state", &runState); err != nil {
			t.Errorf("%s: %v", name, err)
		} else if last := runState.Values[len(runState.Values)-1]; last.Name != "RUNNING_LAST" || last.Value != runningLast {
			t.Errorf("%s: %s is %d, want %d", name, last.Name, last.Value, runningLast)
		}
		before := len(spec.Programs)
		if err := (&Kernel{}).AddBackups(spec); err != nil || len(spec.Programs) != before {
			t.Errorf("%s: where none are needed: %d programs of %d, %v", name, len(spec.Programs), before, err)
		}
		if err := (&Kernel{Backups: maxBackups}).AddBackups(spec); err != nil {
			t.Fatal(err)
		}
		for program, p := range spec.Programs {
			_, may := groupOf[p.AttachTo]
			may = may && p.AttachType == ebpf.AttachTraceRawTp
			if strings.Contains(program, backupMark) {
				continue
			}
			if has := spec.Programs[backup(program, maxBackups)] != nil; has != may {
				t.Errorf("%s: program %s has backup programs: %v, want %v", name, program, has, may)
			}
		}
	}
}

// How many events a program group may have missed: never more than any of them, nothing without a risk, and
// what comes after it not either.
func TestBound(t *testing.T) {
	var b bound
	for i, step := range []struct {
		missed   []uint64
		possible uint64
		now      bool
		want     uint64
	}{
		{[]uint64{0, 0, 0}, 0, false, 0},
		{[]uint64{50, 3, 2}, 0, false, 0},
		{[]uint64{60, 3, 5}, 1, false, 0},
		{[]uint64{70, 5, 6}, 1, false, 0},
		{[]uint64{90, 9, 9}, 1, true, 3},
		{[]uint64{99, 12, 11}, 2, false, 5},
		{[]uint64{99, 22, 21}, 3, true, 5},
	} {
		if got := b.add(step.missed, step.possible, step.now); got != step.want {
			t.Errorf("step %d: at most %d, want %d", i, got, step.want)
		}
	}
}
