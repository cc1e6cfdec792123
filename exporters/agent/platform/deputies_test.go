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
func TestCrewsAsCompiled(t *testing.T) {
	for name, load := range map[string]func() (*ebpf.CollectionSpec, error){"query": query.LoadQuery, "replica": replica.LoadDataconn} {
		spec, err := load()
		if err != nil {
			t.Fatal(err)
		}
		states := spec.Maps[crewsMap]
		if int(states.MaxEntries) != len(crewOf) {
			t.Errorf("%s: %d crews, want %d", name, states.MaxEntries, len(crewOf))
		}
		numbers := crewNumbers(spec)
		for tracepoint, crew := range crewOf {
			if _, ok := numbers[crew]; !ok {
				t.Errorf("%s: the programs know no %s of %s", name, crew, tracepoint)
			}
		}
		state := states.Value.(*btf.Struct)
		if n := state.Members[0].Type.(*btf.Array).Nelems; n != maxDeputies+1 || state.Size != uint32(9*(maxDeputies+1)+4) {
			t.Errorf("%s: the state has %d ranks in %d bytes", name, n, state.Size)
		}
		var presence *btf.Enum
		if err := spec.Types.TypeByName("presence", &presence); err != nil {
			t.Errorf("%s: %v", name, err)
		} else if last := presence.Values[len(presence.Values)-1]; last.Name != "LAST" || last.Value != presenceLast {
			t.Errorf("%s: %s is %d, want %d", name, last.Name, last.Value, presenceLast)
		}
		before := len(spec.Programs)
		if err := (&Kernel{}).Deputise(spec); err != nil || len(spec.Programs) != before {
			t.Errorf("%s: where none are needed: %d programs of %d, %v", name, len(spec.Programs), before, err)
		}
		if err := (&Kernel{Deputies: maxDeputies}).Deputise(spec); err != nil {
			t.Fatal(err)
		}
		for program, p := range spec.Programs {
			_, may := crewOf[p.AttachTo]
			may = may && p.AttachType == ebpf.AttachTraceRawTp
			if strings.Contains(program, deputyMark) {
				continue
			}
			if has := spec.Programs[deputy(program, maxDeputies)] != nil; has != may {
				t.Errorf("%s: program %s has deputies: %v, want %v", name, program, has, may)
			}
		}
	}
}

// How many events a crew may have missed: never more than any of them, nothing without a risk, and
// what comes after it not either.
func TestBound(t *testing.T) {
	var b bound
	for i, step := range []struct {
		missed []uint64
		risks  uint64
		now    bool
		want   uint64
	}{
		{[]uint64{0, 0, 0}, 0, false, 0},
		{[]uint64{50, 3, 2}, 0, false, 0},
		{[]uint64{60, 3, 5}, 1, false, 0},
		{[]uint64{70, 5, 6}, 1, false, 0},
		{[]uint64{90, 9, 9}, 1, true, 3},
		{[]uint64{99, 12, 11}, 2, false, 5},
		{[]uint64{99, 22, 21}, 3, true, 5},
	} {
		if got := b.add(step.missed, step.risks, step.now); got != step.want {
			t.Errorf("step %d: at most %d, want %d", i, got, step.want)
		}
	}
}
