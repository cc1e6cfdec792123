package platform

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
)

// ProgramGroup is a program with its backup programs, if it has any.
type ProgramGroup struct {
	spec     *ebpf.ProgramSpec
	programs []*ebpf.Program // by rank
	number   uint32          // entry in states
	states   *ebpf.Map
	// sockets pass calls on to the program; nil if it is attached itself.
	dispatcher *Dispatcher
	follower   Follower

	mu     sync.Mutex
	misses bound
}

// PassedOn reports whether calls on sockets are passed on to the program, which the kernel does not run itself then: it
// has no statistics of its own.
func (c *ProgramGroup) PassedOn() bool { return c.dispatcher != nil }

// AttachTo is what the program is for: a tracepoint, or a function of the kernel.
func (c *ProgramGroup) AttachTo() string { return c.spec.AttachTo }

// Attach attaches the program as its section defines, except for iterators, and then its backup programs: the kernel
// runs them in the order in which they were attached.
func (c *ProgramGroup) Attach() (io.Closer, error) {
	return c.AttachSome(func(int) bool { return true })
}

// AttachSome is Attach without the others: as if they missed every event, which tests want.
func (c *ProgramGroup) AttachSome(there func(rank int) bool) (io.Closer, error) {
	if c.PassedOn() {
		return c.dispatcher.join(c, there)
	}
	var links closers
	for rank, program := range c.programs {
		if !there(rank) {
			continue
		}
		options := link.TracingOptions{Program: program}
		if rank > 0 {
			// Only a call that names the type takes a cookie, and only newer kernels have that call.
			options.AttachType, options.Cookie = c.spec.AttachType, uint64(rank)
		}
		l, err := link.AttachTracing(options)
		if err != nil {
			return nil, errors.Join(err, links.Close())
		}
		links = append(links, l)
	}
	return links, nil
}

// closers are closed together, the last one first: no backup program is left alone.
type closers []io.Closer

// Close implements io.Closer.
func (c closers) Close() error {
	var problems []error
	for _, one := range slices.Backward(c) {
		problems = append(problems, one.Close())
	}
	return errors.Join(problems...)
}

// Stats adds up what the program and its backup programs cost. RecursionMisses is how many events they have
// missed; where there are backup programs, at most how many.
func (c *ProgramGroup) Stats() (ebpf.ProgramStats, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var sum ebpf.ProgramStats
	var missed []uint64
	for _, p := range c.programs {
		one, err := p.Stats()
		if err != nil {
			return sum, err
		}
		sum.Runtime += one.Runtime
		sum.RunCount += one.RunCount
		missed = append(missed, one.RecursionMisses)
	}
	if len(missed) == 1 {
		sum.RecursionMisses = missed[0]
		return sum, nil
	}
	// After the misses: an event is missed only after the run that is the risk has begun, and that one is
	// in the state from then on.
	var states []groupState
	if err := c.states.Lookup(c.number, &states); err != nil {
		return sum, fmt.Errorf("map %s: %w", groupsMap, err)
	}
	var possible uint64
	var now bool
	for _, s := range states {
		possible += uint64(s.PossibleMisses)
		now = now || slices.Contains(s.Inside[:], runningLast)
	}
	sum.RecursionMisses = c.misses.add(missed, possible, now)
	return sum, nil
}

// groupState is struct group_state of bpf/backups.h.
type groupState struct {
	Inside         [maxBackups + 1]uint8
	PossibleMisses uint32
	Switches       [maxBackups + 1]uint64
}

// runningLast is RUNNING_LAST of enum run_state there.
const runningLast = 2

// bound counts at most how many events a program group missed. An event is missed if everyone misses it, so
// there are no more than the one with the fewest has missed; and none where there was no risk.
type bound struct {
	missed   []uint64
	possible uint64
	most     uint64
}

// add takes a sample: what each has missed so far, how often there was a risk that is over, and whether there is one
// now.
func (b *bound) add(missed []uint64, possible uint64, now bool) uint64 {
	if b.missed == nil {
		b.missed = make([]uint64, len(missed))
	}
	fewest := missed[0] - b.missed[0]
	for rank := range missed {
		fewest = min(fewest, missed[rank]-b.missed[rank])
	}
	if possible != b.possible || now {
		b.most += fewest
	}
	b.missed, b.possible = missed, possible
	return b.most
}
