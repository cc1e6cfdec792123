package trace

import "slices"

// A replica of this node serves engines of other nodes, too, whose statements are not known here. Both agents know such
// a request by the same number: it is a trace of its own here, and the step of the statement's trace there names it.

const (
	// minCandidates is how many replicas' operations may wait for it to show whose they are; as many as are kept, if
	// that is more.
	minCandidates = 256
	// maxEngines bounds the connections of engines of this node that are remembered.
	maxEngines = 4096
)

// ports are a connection's, the engine's first. Its addresses are not known here: a connection of another node's engine
// with the same two ports as one of this node's is taken for this node's.
type ports struct{ engine, replica uint16 }

// addEngine notes the connection of an engine of this node.
func (j *Joiner) addEngine(q *Event) {
	p := ports{q.LocalPort, q.RemotePort}
	if _, known := j.engines[p]; known || len(j.engines) < maxEngines {
		j.engines[p] = q.End
	}
}

// requestID is the number, as a trace, of an engine's request to a replica: the same at both ends of the connection.
// replica is its address as metrics have it, port the engine's.
func requestID(replica string, port uint16, o *Event) string {
	return newID([]byte(replica), uint64(port), o.Request, uint64(o.Subtype), o.Offset, uint64(o.Size))
}

// addServed takes a replica's operation for a candidate, if it is slow and no engine of this node is known at the other
// end.
func (j *Joiner) addServed(v *Event) {
	if v.RemotePort == 0 || j.isEngine(v) || !j.slowServed.admits(v.End-v.Start) {
		return
	}
	j.candidates.add(v)
}

// isEngine reports whether the other end of the connection of a replica's operation is an engine of this node.
func (j *Joiner) isEngine(v *Event) bool {
	_, here := j.engines[ports{v.RemotePort, v.LocalPort}]
	return here
}

// settleServed makes chains of the candidates whose events have all come, and returns those that are among the slowest.
func (j *Joiner) settleServed(now uint64) (chains []*Chain) {
	j.candidates.kept = slices.DeleteFunc(j.candidates.kept, func(v *Event) bool {
		if v.End+settling > now {
			return false
		}
		if !j.slowServed.admits(v.End - v.Start) {
			return true
		}
		if c := j.served(v); c != nil {
			j.slowServed.add(c)
			chains = append(chains, c)
		}
		return true
	})
	return chains
}

// served is a replica's operation for an engine elsewhere as a chain of its own; nil if the engine is here, or may be,
// as events were lost, and if the replica has no name yet.
func (j *Joiner) served(v *Event) *Chain {
	name := j.replicaName(v)
	if name == "" || j.isEngine(v) {
		return nil
	}
	c := &Chain{Request: requestID(name, v.RemotePort, v), ServerName: "replica " + name, CommandName: opName(v.Subtype), Woken: v.Start}
	b := &builder{Joiner: j, chain: c}
	b.losses(v.Start, v.End)
	if c.lost() {
		return nil
	}
	c.Root = b.service(v)
	c.spans = b.spans
	return c
}

// lost reports whether events were lost that may belong to the chain.
func (c *Chain) lost() bool { return slices.Contains(c.Reasons, LostEvents) }

// sameRequest reports whether an engine's request and a replica's operation are the two ends of one.
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
	case opSync:
		return "sync"
	}
	return "other"
}
