package trace

// Layer is where a part of a statement's time went.
type Layer string

// The layers, from the top. A span's own time is what none of those below it, on the critical path, has.
const (
	// Server is the server itself: on a CPU, or taken off it while it was ready to run.
	Server Layer = "server"
	// Runqueue is from a wake-up until the task had a CPU.
	Runqueue Layer = "runqueue"
	// Client is the wait for the client to take or send more.
	Client Layer = "client"
	// Other is a wait in no call on a file that no session of the server ended: a timer, a pipe.
	Other Layer = "other"
	// Session is the wait for another session of the server, while that one did not wait itself.
	Session Layer = "session"
	// FileSystem is the time in a call on a file, asleep without a block request to wait for.
	FileSystem Layer = "file_system"
	// Helper is the wait for a task of the kernel or a program, such as the journal's, while that did not wait itself.
	Helper Layer = "helper"
	// Queue is from when a block request was made until its driver got it.
	Queue Layer = "block_queue"
	// Device is from then to the request's end, without what an engine on this node took.
	Device Layer = "block_device"
	// Engine is the storage engine at a volume's operation, while no replica was waited for.
	Engine Layer = "engine"
	// Network is from an engine's request to a replica to its answer, without the replica's part where that is known.
	Network Layer = "replica_request"
	// Replica is a replica of this node at a request, while no disk was waited for.
	Replica Layer = "replica"
	// ReplicaQueue is Queue of a replica's own block requests.
	ReplicaQueue Layer = "replica_block_queue"
	// ReplicaDevice is Device of those.
	ReplicaDevice Layer = "replica_block_device"
)

// Layers are all layers, from the top.
var Layers = []Layer{Server, Runqueue, Client, Other, Session, FileSystem, Helper, Queue, Device, Engine, Network, Replica, ReplicaQueue, ReplicaDevice}

// Span is one step of a chain. Times are nanoseconds of CLOCK_MONOTONIC.
type Span struct {
	Layer Layer
	// What it is, in a few words without anything that others wrote.
	What       string
	Start, End uint64
	Below      []*Span
	// Elsewhere is the number, as a trace, of the same request as another node's agent sees it; empty if there is no other node.
	Elsewhere string
}

// add puts a span, if it is one, below another one, cut to its time; what lies outside is left away.
func (s *Span) add(below *Span) {
	if below == nil {
		return
	}
	if cut := below.cut(s.Start, s.End); cut != nil {
		s.Below = append(s.Below, cut)
	}
}

// cut returns the part of a span between two times, or nil.
func (s *Span) cut(from, to uint64) *Span {
	from, to = max(from, s.Start), min(to, s.End)
	if from >= to {
		return nil
	}
	if from == s.Start && to == s.End {
		return s
	}
	c := &Span{Layer: s.Layer, What: s.What, Start: from, End: to, Elsewhere: s.Elsewhere}
	for _, b := range s.Below {
		c.add(b)
	}
	return c
}

// shares gives every nanosecond of the span to one layer: what it waited for is found from its end backwards. At each moment
// that is the step below that ended last, as far as it lies before.
func (s *Span) shares(from, to uint64, into map[Layer]uint64) {
	for from < to {
		last := s.last(from, to)
		if last == nil {
			into[s.Layer] += to - from
			return
		}
		begin, end := max(last.Start, from), min(last.End, to)
		if end < to {
			into[s.Layer] += to - end
		}
		last.shares(begin, end, into)
		to = begin
	}
}

// last returns the step below that ends last between two times; of several the one that began first.
func (s *Span) last(from, to uint64) *Span {
	var last *Span
	for _, b := range s.Below {
		if max(b.Start, from) >= min(b.End, to) {
			continue
		}
		if last == nil || min(b.End, to) > min(last.End, to) || min(b.End, to) == min(last.End, to) && b.Start < last.Start {
			last = b
		}
	}
	return last
}

// Shares returns how long each layer was waited for; they add up to the span's time.
func (s *Span) Shares() map[Layer]uint64 {
	into := map[Layer]uint64{}
	s.shares(s.Start, s.End, into)
	return into
}
