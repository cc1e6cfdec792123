package trace

import (
	"fmt"
	"slices"

	"github.com/plumbline/plumbline/exporters/agent/bpf/replica"
	"github.com/plumbline/plumbline/rules/layers"
)

// Operations of an engine's wire, enum wire_op of bpf/operation.h.
const (
	opRead  = uint8(replica.DataconnWireOpOP_READ)
	opWrite = uint8(replica.DataconnWireOpOP_WRITE)
	opUnmap = uint8(replica.DataconnWireOpOP_UNMAP)
	opSync  = uint8(replica.DataconnWireOpOP_SYNC)
)

// sameOp reports whether a block request and an operation are of the same kind.
func sameOp(r, o *Event) bool {
	return r.Subtype == blockRead && o.Subtype == opRead || r.Subtype == blockWrite && o.Subtype == opWrite || r.Subtype == blockDiscard && o.Subtype == opUnmap
}

// within reports whether an operation is about a part of a block request, and began while the driver had it. Its
// reported end may be a little later, as its answer is on its way before the call that sends it returns.
func within(r, o *Event) bool {
	return sameOp(r, o) && o.Size > 0 && o.Offset >= r.Offset && o.Offset+uint64(o.Size) <= r.Offset+uint64(r.Size) &&
		o.Start >= r.WokenOrIssued && o.Start <= r.End
}

// below puts the engine's operations for a request below the driver's time, if an engine of this node serves the
// device. A request may have been split: then its operations cover it, each part once.
func (b *builder) below(d *Span, r *Event) {
	if r.Size == 0 {
		return
	}
	b.forgot(&b.operations[viewFrontend], d.Start)
	bySlot := map[uint32][]*Event{}
	b.operations[viewFrontend].each(d.Start, d.End, func(o *Event) {
		if within(r, o) {
			bySlot[o.Owner] = append(bySlot[o.Owner], o)
		}
	})
	var parts []*Event
	fits := 0
	for _, ops := range bySlot {
		switch covers(r, ops) {
		case once:
			parts = ops
			fits++
		case oftener:
			fits += 2
		}
	}
	switch _, served := b.volumes[r.Owner]; {
	case fits > 1:
		b.missing(TwoOperations)
		return
	case fits == 0 && served:
		b.missing(OperationUnseen)
		return
	case fits == 0:
		return
	}
	for _, o := range parts {
		if b.requested(r, o) {
			b.missing(TwoRequests)
			return
		}
	}
	b.volumes[r.Owner] = parts[0].Owner
	for _, o := range parts {
		d.add(b.frontend(o))
	}
}

type coverage int

const (
	partly coverage = iota
	once
	oftener
)

// covers returns how often operations cover a request; it sorts them.
func covers(r *Event, ops []*Event) coverage {
	slices.SortFunc(ops, func(a, b *Event) int { return int(int64(a.Offset - b.Offset)) })
	at := r.Offset
	for _, o := range ops {
		if o.Offset < at {
			return oftener
		}
		if o.Offset > at {
			return partly
		}
		at += uint64(o.Size)
	}
	if at < r.Offset+uint64(r.Size) {
		return partly
	}
	return once
}

// requested reports whether an operation may be another device's request, too.
func (b *builder) requested(r, o *Event) bool {
	found := false
	b.requests.each(o.Start, o.Start+1, func(other *Event) {
		found = found || other != r && other.Owner != r.Owner && other.WokenOrIssued != 0 && within(other, o)
	})
	return found
}

// frontend is an engine's operation, with its requests to replicas below; nil if there is no room for it.
func (b *builder) frontend(o *Event) *Span {
	if !b.room() {
		return nil
	}
	s := &Span{Layer: layers.Engine, What: fmt.Sprintf("the engine, %d bytes at %d", o.Size, o.Offset), Start: o.Start, End: o.End}
	same := 0
	b.operations[viewFrontend].each(o.Start, o.End, func(other *Event) {
		if sameExtent(o, other) && other.Owner == o.Owner {
			same++
		}
	})
	if same > 1 {
		b.missing(TwoFrontends)
		return s
	}
	b.forgot(&b.operations[viewRequest], o.Start)
	var copies []*Event
	b.operations[viewRequest].each(o.Start, o.End, func(q *Event) {
		if isCopy(o, q) && q.End <= o.End {
			copies = append(copies, q)
			s.add(b.replicaRequest(q))
		}
	})
	unanswered := b.unansweredCopies(s, o, copies)
	if len(copies) == 0 || unanswered || b.lacksCopies(o, copies) {
		b.missing(CopiesUnseen)
	}
	return s
}

// isCopy reports whether an engine's request to a replica is for its operation.
func isCopy(o, q *Event) bool {
	return q.Owner == o.Owner && sameExtent(o, q) && q.Start >= o.Start
}

func sameExtent(a, b *Event) bool {
	return a.Subtype == b.Subtype && a.Offset == b.Offset && a.Size == b.Size
}

// replicaName is what metrics call an operation's replica; empty if they do not yet.
func (j *Joiner) replicaName(o *Event) string {
	if j.options.Replica == nil {
		return ""
	}
	return j.options.Replica(o.Owner, o.Peer)
}

// replica is what to call an operation's replica: as metrics do, or else by its port.
func (b *builder) replica(o *Event, port uint16) string {
	if name := b.replicaName(o); name != "" {
		return "replica " + name
	}
	return fmt.Sprintf("replica at port %d", port)
}

// replicaRequest is an engine's request to a replica, with the replica's own time below if that is on this node: the
// two ends of one connection number it alike. It is nil if there is no room for it.
func (b *builder) replicaRequest(q *Event) *Span {
	if !b.room() {
		return nil
	}
	s := &Span{Layer: layers.Network, What: "request to " + b.replica(q, q.RemotePort), Start: q.Start, End: q.End}
	var services []*Event
	b.operations[viewService].each(q.Start, q.End, func(v *Event) {
		if sameRequest(q, v) {
			services = append(services, v)
		}
	})
	switch len(services) {
	case 0: // on another node, where it is a trace of its own, if it is slow
		name := b.replicaName(q)
		switch {
		case b.forgot(&b.operations[viewService], q.Start):
		case b.serves(name):
			b.missing(ServiceUnseen)
		case name != "" && q.LocalPort != 0 && !b.chain.lost():
			s.Elsewhere = requestID(name, q.LocalPort, q)
		}
	case 1:
		s.add(b.service(services[0]))
	default:
		b.missing(TwoServices)
	}
	return s
}

// service is a replica's operation, with its block requests below: those that its process made in calls at the
// operation's place in the file, which is that in the volume. It is nil if there is no room for it.
func (b *builder) service(v *Event) *Span {
	if !b.room() {
		return nil
	}
	s := &Span{Layer: layers.Replica, What: b.replica(v, v.LocalPort), Start: v.Start, End: v.End}
	b.forgot(&b.operations[viewService], v.Start)
	same := 0
	b.operations[viewService].each(v.Start, v.End, func(other *Event) {
		if other.Tgid == v.Tgid && other.Subtype == v.Subtype && other.Offset < v.Offset+uint64(v.Size) && v.Offset < other.Offset+uint64(other.Size) {
			same++
		}
	})
	b.requests.each(v.Start, v.End, func(r *Event) {
		if r.Tgid != v.Tgid || r.CallOffset == noOffset || r.CallOffset < v.Offset || r.CallOffset >= v.Offset+uint64(v.Size) || r.Start < v.Start || !sameOp(r, v) {
			return
		}
		if same > 1 {
			b.missing(TwoServices)
			return
		}
		s.add(b.request(r, layers.Disk, layers.Disk))
	})
	return s
}
