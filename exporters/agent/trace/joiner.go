package trace

import (
	"cmp"
	"encoding/binary"
	"encoding/hex"
	"hash/fnv"
	"maps"
	"math/rand/v2"
	"slices"

	"github.com/plumbline/plumbline/exporters/agent/bpf/replica"
)

// Bounds of what is kept; an event takes 100 bytes.
const (
	maxTasks    = 4096    // tasks with sleeps
	maxWaits    = 8192    // sleeps of one task
	maxAllWaits = 1 << 17 // sleeps of all tasks
	maxRequests = 65536   // block requests
	maxOps      = 16384   // operations of each view
	maxFlushes  = 32768   // flushes of devices
	maxPending  = 4096    // statements that wait for their events
	maxLosses   = 256     // times at which events were lost
	// maxKeptSpans bounds the steps of the slowest statements, and as many of the slowest requests to replicas.
	maxKeptSpans = 100000
	// settling is how long a statement waits for events that come after it, ns.
	settling = uint64(250e6)
	// taskKept is how long a task without sleeps is kept, ns.
	taskKept = uint64(60e9)
	// engineKept is how long the connection of an engine is remembered that makes no requests, ns.
	engineKept = uint64(600e9)
)

// Options select which statements are kept.
type Options struct {
	// Every is how many statements that waited there are to one that is sampled, on average; at least 1. Each is drawn
	// by itself, so that no pattern of the statements has a part in it.
	Every int
	// Random is what they are drawn with; nil is a source of its own, with a random seed.
	Random *rand.Rand
	// Slowest is how many of the slowest statements are kept, fewer if they have too many steps, and as many of the
	// slowest requests that replicas of this node serve for engines elsewhere.
	Slowest int
	// Keep is for how long they are kept, ns.
	Keep uint64
	// Replica names a replica by an operation's process and peer, as metrics do; empty if it is not known. nil knows none.
	Replica func(process, peer uint32) string
	// Followed reports whether an operation's process is there yet, and followed; nil is for always.
	Followed func(process uint32) bool
}

// Verdict is how much of a chain is known.
type Verdict string

// Verdicts.
const (
	// Exact is a chain each of whose steps is known.
	Exact Verdict = "exact"
	// Ambiguous is one in which several events would fit a step.
	Ambiguous Verdict = "ambiguous"
	// Incomplete is one in which a step's event is missing.
	Incomplete Verdict = "incomplete"
)

// Reason is why a chain is not exact.
type Reason string

// Reasons of incomplete and ambiguous chains.
const (
	LostEvents      Reason = "events_lost"        // the ring was full, or operations of a storage wire were not seen
	Forgotten       Reason = "events_forgotten"   // its events had to make room for later ones
	TakenOver       Reason = "taken_over"         // two tasks worked on the statement
	WakerUnknown    Reason = "waker_unknown"      // what ended a call's sleep was not seen, or is an interrupt
	HelperUnknown   Reason = "helper_unknown"     // a task that was waited for was not followed yet
	RequestUnseen   Reason = "request_unseen"     // a block request's end was seen, but there is no event of it
	RequestUnsplit  Reason = "request_unsplit"    // when the driver got a block request was not seen
	FlushUnseen     Reason = "flush_unseen"       // the flush that a request waited for was not seen
	OperationUnseen Reason = "operation_unseen"   // an engine serves the device, but no operation fits the request
	CopiesUnseen    Reason = "copies_unseen"      // a replica's request for the operation was not seen, or not answered
	ServiceUnseen   Reason = "service_unseen"     // a replica of this node served the request, but its operation was not seen
	TooLarge        Reason = "too_large"          // too many steps, or too many or too deeply nested waits for tasks
	TwoOperations   Reason = "several_operations" // ambiguous: several operations, of one or several volumes, fit a request
	TwoRequests     Reason = "several_requests"   // ambiguous: an operation fits requests of several devices
	TwoFrontends    Reason = "several_frontends"  // ambiguous: a replica's request fits several operations of the engine
	TwoServices     Reason = "several_services"   // ambiguous: several operations of a replica fit a request or a block request
)

// Reasons are all reasons of chains that are not exact.
var Reasons = []Reason{LostEvents, Forgotten, TakenOver, WakerUnknown, HelperUnknown, RequestUnseen, RequestUnsplit, FlushUnseen,
	OperationUnseen, CopiesUnseen, ServiceUnseen, TooLarge, TwoOperations, TwoRequests, TwoFrontends, TwoServices}

// ambiguous reports whether the reason is one of ambiguous chains, not of incomplete ones.
func (r Reason) ambiguous() bool {
	return r == TwoOperations || r == TwoRequests || r == TwoFrontends || r == TwoServices
}

// Chain is one statement followed through the layers, or a replica's part of one whose engine is on another node.
type Chain struct {
	// Request is the chain's number as a trace, if it is a replica's request; a statement's is made of what follows.
	Request string
	Server  uint32 // the server's number
	Command uint8  // enum command of the server's protocol
	QueryID int64  // the server's identifier of the statement's query; 0 if it is not known
	// ServerName and CommandName are for reports; code that knows them sets them.
	ServerName, CommandName string
	PID                     uint32
	Root                    *Span
	// Woken is when the task was woken for the statement; its start if that is not known.
	Woken   uint64
	Reasons []Reason // each once
	// spans is how many steps it has, at most.
	spans int
	// Sampled chains are a random one in Options.Every of those that waited; others are here because they were slow.
	Sampled bool
}

// Verdict is how much is known: a chain with a missing step is always incomplete.
func (c *Chain) Verdict() Verdict {
	switch {
	case len(c.Reasons) == 0:
		return Exact
	case slices.ContainsFunc(c.Reasons, func(r Reason) bool { return !r.ambiguous() }):
		return Incomplete
	}
	return Ambiguous
}

// Duration is the statement's, ns.
func (c *Chain) Duration() uint64 { return c.Root.End - c.Root.Start }

// ID is the chain's number as a trace: 16 bytes in hexadecimal, the same for the same statement.
func (c *Chain) ID() string {
	if c.Request != "" {
		return c.Request
	}
	return newID(nil, uint64(c.Server), uint64(c.PID), c.Root.Start, c.Root.End)
}

func newID(name []byte, numbers ...uint64) string {
	h := fnv.New128a()
	h.Write(name)
	for _, v := range numbers {
		var b [8]byte
		binary.LittleEndian.PutUint64(b[:], v)
		h.Write(b[:])
	}
	return hex.EncodeToString(h.Sum(nil))
}

// Counts is what was seen so far.
type Counts struct {
	// Events are those that came, Lost those that did not.
	Events, Lost uint64
	// Waited are the statements that waited for a file or another session; Unfollowed those of the sample that had to go
	// because too many were under way.
	Waited, Unfollowed uint64
}

type requestKey struct{ address, end uint64 }

type task struct {
	history
	last uint64 // when it was seen to sleep last
}

type loss struct{ from, to uint64 }

type pending struct {
	event   Event
	sampled bool
}

// Joiner makes chains of events. It is not safe for use by several goroutines.
type Joiner struct {
	options Options
	counts  Counts
	tasks   map[uint32]*task
	waits   int // sleeps of all tasks
	// forgotten is the end of the latest sleep of a task that had to make room.
	forgotten uint64
	requests  history
	byEnd     map[requestKey]*Event
	flushes   history
	// operations by view, see below.
	operations [views]history
	// volumes are the slots of the engines whose operations were found under a device's requests. One whose engine has
	// ended is forgotten: the device's number may be another device's by now.
	volumes map[uint32]uint32
	pending []pending
	lost    []loss
	slow    ranking[*Chain]
	// writers are the replicas that each engine's writes go to, and unanswered its requests without an answer: see
	// copies.go.
	writers    map[uint32]*writer
	unanswered map[unansweredKey]*Event
	// services are the replicas of this node: see services.go.
	services map[serviceKey]*service
	// Of requests that replicas of this node serve, see served.go.
	candidates ranking[*Event]  // of which it has to show whose they are
	engines    map[ports]uint64 // connections of engines of this node, and when they were seen last
	slowServed ranking[*Chain]
	swept      uint64
}

// Views of operations, enum view of bpf/replica/track.h.
const (
	viewRequest  = uint8(replica.DataconnViewVIEW_REQUEST)
	viewService  = uint8(replica.DataconnViewVIEW_SERVICE)
	viewFrontend = uint8(replica.DataconnViewVIEW_FRONTEND)
	views        = viewFrontend + 1
)

// NewJoiner returns a Joiner without events.
func NewJoiner(o Options) *Joiner {
	o.Every = max(o.Every, 1)
	if o.Random == nil {
		o.Random = rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64()))
	}
	j := &Joiner{options: o, tasks: map[uint32]*task{}, byEnd: map[requestKey]*Event{}, volumes: map[uint32]uint32{}, engines: map[ports]uint64{},
		writers: map[uint32]*writer{}, unanswered: map[unansweredKey]*Event{}, services: map[serviceKey]*service{}}
	j.requests.limit, j.flushes.limit = maxRequests, maxFlushes
	chainSpan := func(c *Chain) (start, end uint64) { return c.Root.Start, c.Root.End }
	j.slow, j.slowServed = newRanking(o.Slowest, chainSpan), newRanking(o.Slowest, chainSpan)
	for _, r := range []*ranking[*Chain]{&j.slow, &j.slowServed} {
		r.size, r.maxSize = func(c *Chain) int { return c.spans }, maxKeptSpans
	}
	j.candidates = newRanking(max(minCandidates, o.Slowest), func(v *Event) (start, end uint64) { return v.Start, v.End })
	for i := range j.operations {
		j.operations[i].limit = maxOps
	}
	return j
}

// Counts returns what was seen so far.
func (j *Joiner) Counts() Counts { return j.counts }

// Add takes the next event.
func (j *Joiner) Add(e Event) {
	j.counts.Events++
	switch e.Kind {
	case KindWait:
		j.addWait(&e)
	case KindRequest:
		j.addRequest(&e)
	case KindOperation:
		if int(e.ReasonOrView) < len(j.operations) {
			j.operations[e.ReasonOrView].add(&e)
		}
		switch e.ReasonOrView {
		case viewService:
			j.addService(&e)
			j.addServed(&e)
		case viewRequest:
			j.addCopy(&e)
			if e.LocalPort != 0 {
				j.addEngine(&e)
			}
		case viewFrontend:
			j.addWrite(&e)
		}
	case KindStatement:
		j.addStatement(e)
	}
}

func (j *Joiner) addWait(e *Event) {
	if j.tasks[e.Pid] == nil && len(j.tasks) >= maxTasks || j.waits >= maxAllWaits {
		j.forgetTasks()
	}
	t := j.tasks[e.Pid]
	if t == nil {
		t = &task{}
		t.limit = maxWaits
		j.tasks[e.Pid] = t
	}
	t.last = e.End
	if t.add(e) == nil {
		j.waits++
	}
}

// forgetTasks makes room: of the quarter of the tasks that slept longest ago.
func (j *Joiner) forgetTasks() {
	pids := slices.SortedFunc(maps.Keys(j.tasks), func(a, b uint32) int {
		return cmp.Or(cmp.Compare(j.tasks[a].last, j.tasks[b].last), cmp.Compare(a, b))
	})
	for _, pid := range pids[:len(pids)/4] {
		j.forgotten = max(j.forgotten, j.tasks[pid].last)
		j.forget(pid)
	}
}

func (j *Joiner) forget(pid uint32) {
	j.waits -= len(j.tasks[pid].events)
	delete(j.tasks, pid)
}

func (j *Joiner) addRequest(e *Event) {
	if e.Subtype == blockFlush {
		j.flushes.add(e)
		return
	}
	if gone := j.requests.add(e); gone != nil {
		delete(j.byEnd, requestKey{gone.Request, gone.End})
	}
	j.byEnd[requestKey{e.Request, e.End}] = e
}

func (j *Joiner) addStatement(e Event) {
	if !j.waited(&e) {
		return
	}
	j.counts.Waited++
	sampled := j.options.Random.IntN(j.options.Every) == 0
	if !sampled && !j.slow.admits(e.End-e.Start) {
		return
	}
	if len(j.pending) >= maxPending {
		if sampled {
			j.counts.Unfollowed++
		}
		return
	}
	j.pending = append(j.pending, pending{e, sampled})
}

// waited reports whether a statement waited for a file or for another session.
func (j *Joiner) waited(e *Event) bool {
	t := j.tasks[e.Pid]
	if t == nil {
		return false
	}
	found := false
	t.each(e.Start, e.End, func(w *Event) { found = found || ofFile(w) || w.Flags&flagWakerServer != 0 })
	return found
}

// Lost notes that n events were lost between two times.
func (j *Joiner) Lost(n, from, to uint64) {
	if n == 0 {
		return
	}
	j.counts.Lost += n
	j.Missed(from, to)
}

// Missed notes that something may have happened without an event between two times.
func (j *Joiner) Missed(from, to uint64) {
	// It may be of an earlier time than what is known already: they stay in order, and those that meet are one.
	first, _ := slices.BinarySearchFunc(j.lost, from, func(l loss, from uint64) int { return cmp.Compare(l.to, from) })
	end := first
	for ; end < len(j.lost) && j.lost[end].from <= to; end++ {
		from, to = min(from, j.lost[end].from), max(to, j.lost[end].to)
	}
	j.lost = slices.Replace(j.lost, first, end, loss{from, to})
	if len(j.lost) > maxLosses {
		// Rather too many chains incomplete than one of them wrong.
		j.lost[1].from = j.lost[0].from
		j.lost = j.lost[1:]
	}
}

// Advance declares that all events and losses up to now have been added. It returns the chains that are complete with
// that, as far as they are.
func (j *Joiner) Advance(now uint64) []*Chain {
	var chains []*Chain
	j.pending = slices.DeleteFunc(j.pending, func(p pending) bool {
		if p.event.End+settling > now {
			return false
		}
		c := j.chain(&p.event)
		c.Sampled = p.sampled
		chains = append(chains, c)
		return true
	})
	for _, c := range chains {
		j.slow.add(c)
	}
	chains = append(chains, j.settleServed(now)...)
	if now > j.options.Keep {
		j.slow.expire(now - j.options.Keep)
		j.slowServed.expire(now - j.options.Keep)
	}
	if now > j.swept+taskKept {
		j.swept = now
		for pid, t := range j.tasks {
			if t.last+taskKept < now {
				j.forget(pid)
			}
		}
		if j.options.Followed != nil {
			maps.DeleteFunc(j.volumes, func(_, slot uint32) bool { return !j.options.Followed(slot) })
		}
		j.forgetUnanswered(now)
		maps.DeleteFunc(j.services, func(_ serviceKey, s *service) bool { return s.last+serviceKept < now })
		maps.DeleteFunc(j.engines, func(_ ports, last uint64) bool { return last+engineKept < now })
	}
	return chains
}

// Slowest returns the slowest statements' chains of the last Options.Keep, the slowest first.
func (j *Joiner) Slowest() []*Chain { return slices.Clone(j.slow.kept) }

// SlowestServed returns those of the requests that replicas of this node served for engines elsewhere.
func (j *Joiner) SlowestServed() []*Chain { return slices.Clone(j.slowServed.kept) }
