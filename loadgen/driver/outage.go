package driver

import (
	"maps"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/plumbline/plumbline/loadgen/adapter"
	"github.com/plumbline/plumbline/loadgen/metrics"
	"github.com/plumbline/plumbline/loadgen/result"
	"github.com/plumbline/plumbline/loadgen/stats"
)

const (
	// longOutage is from when on what follows an outage is reported apart: below, it was one lost connection.
	longOutage = time.Second
	// aftermath is for how long what is due counts as after an outage.
	aftermath = time.Minute
	// refusedTimes is how often something has to fail, in adapter.RefusedFor or more, until errors of any kind are an
	// outage.
	refusedTimes = 10
	// keptOutages bounds the list of a run; the oldest are forgotten. The metrics know all.
	keptOutages = 100
)

// Outage is a time in which no transaction was committed although some were due.
type Outage struct {
	// Began is for comparisons with other moments of this process.
	Began time.Time
	// Took is how long it was, or has been until the load's end if it was not over then.
	Took time.Duration
	Over bool
	// Errors are the failures in it, of transactions and of connections.
	Errors map[metrics.ErrorKind]uint64
	// dated is Began by the wall clock as it was when the outage was seen.
	dated time.Time
}

// Result is the outage as results and soaks keep it.
func (o Outage) Result() result.Outage {
	errors := map[string]uint64{}
	for kind, n := range o.Errors {
		errors[string(kind)] = n
	}
	return result.Outage{Began: o.dated, Seconds: o.Took.Seconds(), Over: o.Over, Errors: errors}
}

// outages finds the outages of a load. One is what failed because no server, or its storage, took it, and whatever the
// error, adapter.RefusedFor without a commit. It begins at the intended start of the first failure since the last commit, or at
// that commit if it was later, and ends with the next commit.
type outages struct {
	without       prometheus.Counter
	length, after prometheus.Observer

	mu      sync.Mutex
	began   time.Time                    // of the outage under way; zero if there is none
	dated   time.Time                    // began by the wall clock
	counted time.Time                    // what of it is in the counter already
	first   time.Time                    // the intended start of the first failure since the last commit; zero if there is none
	refused uint64                       // failures since then that did not wait for the client's timeout
	errors  map[metrics.ErrorKind]uint64 // all failures since then
	commit  time.Time                    // the last one
	over    time.Time                    // the end of the last outage
	watched time.Time                    // the end of the last long one
	kept    []Outage
	settled stats.Distribution // response times after long outages
}

// failed notes that something failed, of a transaction that was due then. gaveUp: nothing answered, until the client's
// timeout. What another transaction was in the way of (a deadlock) or the statement itself was to blame for is no outage
// while others are committed.
func (o *outages) failed(kind metrics.ErrorKind, gaveUp bool, due, now time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.first.IsZero() {
		o.first, o.refused, o.errors = due, 0, map[metrics.ErrorKind]uint64{}
		if o.commit.After(due) {
			o.first = o.commit
		}
	}
	o.errors[kind]++
	if !gaveUp {
		o.refused++
	}
	if o.began.IsZero() && (adapter.Unserved(kind) || o.refuses(now)) {
		o.began, o.counted, o.dated = o.first, o.first, dated(o.first, now)
	}
	o.count(now)
}

// refuses reports whether for a while now everything has failed by an answer.
func (o *outages) refuses(now time.Time) bool {
	return !o.first.IsZero() && now.Sub(o.first) >= adapter.RefusedFor && o.refused >= refusedTimes
}

// refusing is refuses for other parts of the driver.
func (o *outages) refusing(now time.Time) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.refuses(now)
}

// dated is a moment's time by the wall clock as that is now, in UTC. An intended start counts from the load's
// beginning, by the clock of then: it does not know of a clock that was set meanwhile, nor of a machine that slept.
func dated(moment, now time.Time) time.Time { return now.Add(moment.Sub(now)).UTC() }

// committed notes a transaction that ended well.
func (o *outages) committed(end time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if end.After(o.commit) {
		o.commit = end
	}
	if o.first.IsZero() || !end.After(o.first) {
		return
	}
	if !o.began.IsZero() {
		o.end(end, true)
		o.over = end
	}
	o.first, o.errors = time.Time{}, nil
}

// end closes the outage under way.
func (o *outages) end(at time.Time, over bool) {
	o.count(at)
	took := at.Sub(o.began)
	if over {
		o.length.Observe(took.Seconds())
		if took >= longOutage {
			o.watched = at
		}
	}
	if len(o.kept) == keptOutages {
		o.kept = o.kept[1:]
	}
	o.kept = append(o.kept, Outage{o.began, took, over, o.errors, o.dated})
	o.began = time.Time{}
}

// count brings the counter up to now, while the outage goes on.
func (o *outages) count(now time.Time) {
	if !o.began.IsZero() && now.After(o.counted) {
		o.without.Add(now.Sub(o.counted).Seconds())
		o.counted = now
	}
}

// down reports whether, for a while now, all that is due fails by an answer, or for want of a server: none takes it.
// What only takes its time, until its timeout ends it, is slow.
func (o *outages) down(now time.Time) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.began.IsZero() || now.Sub(o.began) < longOutage {
		return false
	}
	for kind, n := range o.errors {
		if kind != metrics.Timeout && adapter.Unserved(kind) && n > 0 {
			return true
		}
	}
	return o.refuses(now)
}

// tick is for a scrape in the middle of an outage.
func (o *outages) tick(now time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.count(now)
}

// stop ends the run: an outage that is not over stays so.
func (o *outages) stop(now time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.began.IsZero() {
		o.end(now, false)
	}
}

// answered takes a response time. It counts for the server that took over if the transaction was due soon after a long
// outage.
func (o *outages) answered(due time.Time, response time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.watched.IsZero() || due.Before(o.watched) || due.Sub(o.watched) > aftermath {
		return
	}
	o.after.Observe(response.Seconds())
	o.settled.Observe(response)
}

// waitedIn reports whether what was due then had to wait for an outage, not for a connection.
func (o *outages) waitedIn(due time.Time) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return !o.began.IsZero() || due.Before(o.over)
}

// Outages are those of the run, the oldest first, and the response times of what was due in the
// minute after one of a second or more.
func (d *Driver) Outages() ([]Outage, stats.Distribution) {
	o := &d.own.outages
	o.mu.Lock()
	defer o.mu.Unlock()
	all := append([]Outage(nil), o.kept...)
	if !o.began.IsZero() {
		all = append(all, Outage{o.began, time.Since(o.began), false, maps.Clone(o.errors), o.dated})
	}
	return all, o.settled.Clone()
}
