package trace

import (
	"cmp"
	"slices"
)

// A replica of this node serves engines of other nodes, too, whose statements are not known here. Both agents know such a
// request by the same number: it is a trace of its own here, and the step of the statement's trace there names it.

// maxCandidates bounds the replicas' operations that wait for it to show whose they are: the slowest.
const maxCandidates = 256

// requestID is the number, as a trace, of an engine's request to a replica: the same at both ends of the connection. replica is its
// address as metrics have it, port the engine's.
func requestID(replica string, port uint16, o *Event) string {
	return newID([]byte(replica), uint64(port), o.Request, uint64(o.What), o.Offset, uint64(o.Size))
}

// addServed takes a replica's operation for a candidate, if it is slow.
func (j *Joiner) addServed(v *Event) {
	if v.RemotePort == 0 || !j.slowServed.admits(v.End-v.Start) {
		return
	}
	at, _ := slices.BinarySearchFunc(j.candidates, v, func(a, b *Event) int {
		return cmp.Or(cmp.Compare(b.End-b.Start, a.End-a.Start), cmp.Compare(a.Start, b.Start))
	})
	if at == maxCandidates {
		return
	}
	j.candidates = slices.Insert(j.candidates, at, v)
	if len(j.candidates) > maxCandidates {
		j.candidates = j.candidates[:maxCandidates]
	}
}

// settleServed makes chains of the candidates whose events have all come, of those whose engine is not on this node.
func (j *Joiner) settleServed(now uint64) (chains []*Chain) {
	j.candidates = slices.DeleteFunc(j.candidates, func(v *Event) bool {
		if v.End+settling > now {
			return false
		}
		if c := j.served(v); c != nil {
			chains = append(chains, c)
		}
		return true
	})
	return chains
}

// served is a replica's operation for an engine elsewhere as a chain of its own; nil if the engine is here, or the replica has no name
// yet.
func (j *Joiner) served(v *Event) *Chain {
	name := j.replicaName(v)
	if name == "" || j.requestOf(v) {
		return nil
	}
	c := &Chain{Request: requestID(name, v.RemotePort, v), ServerName: "replica " + name, CommandName: opName(v.What), Woken: v.Start}
	b := &builder{Joiner: j, chain: c}
	b.losses(v.Start, v.End)
	c.Root = b.service(v)
	return c
}

// requestOf tells whether an engine of this node made the request that a replica's operation serves.
func (j *Joiner) requestOf(v *Event) bool {
	found := false
	j.operations[viewRequest].each(v.Start, v.End, func(q *Event) { found = found || sameRequest(q, v) })
	return found
}

// sameRequest tells whether an engine's request and a replica's operation are the two ends of one.
func sameRequest(q, v *Event) bool {
	return v.Request == q.Request && sameExtent(q, v) && v.LocalPort == q.RemotePort && v.RemotePort == q.LocalPort && v.Start >= q.Start && v.Start <= q.End
}

func opName(op uint8) string {
	switch op {
	case opRead:
		return "read"
	case opWrite:
		return "write"
	case opUnmap:
		return "unmap"
	}
	return "other"
}
