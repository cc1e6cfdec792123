package query

import (
	"errors"
	"time"

	"github.com/plumbline/plumbline/exporters/agent/server"
)

// A server's number is where the kernel counts for it, and each of its processes or threads bears it. Some may outlive
// the main process that the server is known by: the sessions of a PostgreSQL whose postmaster was killed do, and a
// neighbour can make such ones. So a number goes to another server only after nobody was found to bear it, and the one
// that is free for longest first.

// goneAfter is how many walks over the tasks in a row must find nobody with a number: one walk may miss a process that
// begins behind its back while the one that made it ends before its eyes.
const goneAfter = 2

// leaving is a server that ended, whose number is not free yet.
type leaving struct {
	*trackedServer
	// unseen is how many walks in a row have found nobody with the number.
	unseen int
}

// takeNumber returns a number for a server, or otherNumber if none is free. For all servers that are taken over at one
// time it walks over the tasks once: others wait for the fleet meanwhile.
func (f *fleet) takeNumber(s server.Server, now time.Time) uint32 {
	again := f.walked.Equal(now)
	for range goneAfter {
		if again || len(f.free) > 0 || len(f.leaving) == 0 {
			break
		}
		f.walked = now
		snap, err := f.kernel.snapshot()
		if err != nil {
			f.failed(s, now, err)
			break
		}
		f.counted(&snap, now)
	}
	if len(f.free) == 0 {
		return otherNumber
	}
	number := f.free[0]
	f.free = f.free[1:]
	return number
}

// retire keeps the number of a server that is not followed any more until nobody bears it.
func (f *fleet) retire(srv *trackedServer) {
	if srv.number != otherNumber {
		f.leaving = append(f.leaving, &leaving{trackedServer: srv})
	}
}

// counted takes over the counts of a snapshot for each server, and frees the numbers that nobody bears any more.
func (f *fleet) counted(snap *snapshot, now time.Time) {
	for _, srv := range f.tracked {
		if srv.number != otherNumber {
			srv.uncounted += snap.uncounted[srv.number]
		}
	}
	f.otherUncounted += snap.uncounted[otherNumber]
	var stay []*leaving
	for _, l := range f.leaving {
		l.unseen++
		if snap.tasks[l.number] > 0 {
			l.unseen = 0
			if a := f.accounts[l.key()]; a != nil {
				a.last = now // it still counts
			}
		}
		if l.unseen >= goneAfter {
			f.release(l, now)
		} else {
			stay = append(stay, l)
		}
	}
	f.leaving = stay
}

// release frees a number. What was counted under it after its server's end is that server's or, if nothing is kept of
// that any more, in server="other".
func (f *fleet) release(l *leaving, now time.Time) {
	f.drain(l.trackedServer, now)
	t, err := f.kernel.read(l.number)
	switch a := f.accounts[l.key()]; {
	case a != nil:
		a.ended.add(&t)
	case !t.isZero():
		f.toOther(string(l.DBSystem), &t, now)
	}
	l.seen = nil
	if err := errors.Join(err, f.kernel.clear(l.number)); err != nil {
		f.failed(l.Server, now, err)
	}
	f.free = append(f.free, l.number)
}
