package query

import (
	bpf "github.com/plumbline/plumbline/exporters/agent/bpf/query"
)

// total is what the kernel counted for one server and command.
type total bpf.QueryStats

// totals are a server's.
type totals struct {
	commands [bpf.QueryCommandCOMMANDS]total
	lost     [bpf.QueryLossLOSSES]uint64
	// own is what following the server cost, in nanoseconds of its CPU time.
	own uint64
}

// isZero reports whether nothing was counted of a server's statements. own, the cost of following it, does not matter.
func (t totals) isZero() bool {
	t.own = 0
	return t == totals{}
}

func (t *total) add(o *bpf.QueryStats) {
	combine(&t.All, &o.All, plus)
	t.Unknown += o.Unknown
	t.Pipelined += o.Pipelined
	t.PipelinedNs += o.PipelinedNs
	t.WakeupNs += o.WakeupNs
	for i, n := range o.Slots {
		t.Slots[i] += n
	}
}

// combine changes each amount of a by that of b.
func combine(a, b *bpf.QueryAmounts, how func(a, b uint64) uint64) {
	for _, p := range []struct{ a, b *uint64 }{
		{&a.Count, &b.Count}, {&a.SumNs, &b.SumNs}, {&a.ReadHits, &b.ReadHits}, {&a.ReadMisses, &b.ReadMisses},
	} {
		*p.a = how(*p.a, *p.b)
	}
	for i, n := range b.PhaseNs {
		a.PhaseNs[i] = how(a.PhaseNs[i], n)
	}
}

// combineQuery changes each amount of a query by that of another.
func combineQuery(a, b *bpf.QueryPerQuery, how func(a, b uint64) uint64) {
	combine(&a.All, &b.All, how)
	for i, n := range b.Slots {
		a.Slots[i] = how(a.Slots[i], n)
	}
}

func plus(a, b uint64) uint64 { return a + b }

// saturatingSub returns a - b, or 0 if b is greater. That happens with counts that were not read at the same time.
func saturatingSub(a, b uint64) uint64 { return a - min(a, b) }

func (t *totals) add(o *totals) {
	for i := range t.commands {
		t.commands[i].add((*bpf.QueryStats)(&o.commands[i]))
	}
	for i, n := range o.lost {
		t.lost[i] += n
	}
	t.own += o.own
}

// mergeCommands adds up all commands in the unknown one. The commands of one engine mean nothing beside another's.
func (t *totals) mergeCommands() {
	for i := range t.commands {
		if i != int(bpf.QueryCommandOTHER) {
			t.commands[bpf.QueryCommandOTHER].add((*bpf.QueryStats)(&t.commands[i]))
			t.commands[i] = total{}
		}
	}
}
