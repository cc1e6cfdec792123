package query

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/bits"
	"slices"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	bpf "github.com/plumbline/plumbline/exporters/agent/bpf/query"
	"github.com/plumbline/plumbline/exporters/agent/collector"
	"github.com/plumbline/plumbline/exporters/agent/nativehist"
	"github.com/plumbline/plumbline/exporters/agent/server"
	"github.com/plumbline/plumbline/exporters/agent/untrusted"
)

// What is counted by query: by the identifier that the server itself gives to all statements of one form. The kernel
// counts a bounded number of each server's queries (bpf/query/query_id.h), of which those with the most time have
// series. All others are in queryid="other", which is what the server has beyond those that are listed: the rates of
// all queries add up to the server's.
//
// Which queries are tracked follows the Space-Saving algorithm (Metwally, Agrawal, El Abbadi: Efficient computation of
// frequent and top-k elements in data streams, 2005): where there is no more room, those with the least time make it,
// and what a new one may have had before is no more than that.
const (
	// otherQuery is the label value of queries that are not listed.
	otherQuery = "other"
	// DefaultTop is how many queries of each server have series unless it is configured otherwise.
	DefaultTop = 10
	// MaxTop bounds the queries of a server that have series: each has eleven.
	MaxTop = 256
	// entriesEach is how many queries are tracked for each that has series.
	entriesEach = 4
	// drainInterval is how often the kernel's counts are read, beside scrapes, and entries made free.
	drainInterval = 5 * time.Second
	// retireTime is for how long an entry that is to be emptied waits for programs that still count there.
	retireTime = time.Second
	// relistInterval is how often queries take others' series, and one in relistShare of the series goes to another
	// query then, at the most. The other one must have so many times the time.
	relistInterval = time.Minute
	relistShare    = 10
	relistLead     = 2
	// halfLife is after which time a query's past counts half when queries are compared.
	halfLife = time.Hour
)

// The label queryid is the identifier as pg_stat_statements and pg_stat_activity have it, or other.
var (
	queryIDStatements = prometheus.NewDesc("plumbline_query_id_statements_total",
		`Statements by query: by the identifier that PostgreSQL gives to all statements of one form (compute_query_id), as in pg_stat_statements; queryid="other" are those of queries without series of their own (--query.top) and without an identifier. A query's series begin when it is listed, in their first scrape with 0, and end when others take more time.`,
		[]string{"server", "db_system", "queryid"}, nil)
	queryIDPhase = prometheus.NewDesc("plumbline_query_id_phase_seconds_total",
		"Time of statements that ended, by query and by where it went, in seconds, as in plumbline_query_phase_seconds_total; all phases are the query's time.",
		[]string{"server", "db_system", "queryid", "phase"}, nil)
	queryIDDuration = prometheus.NewDesc("plumbline_query_id_duration_seconds",
		"Time of a query's statements, as in plumbline_query_duration_seconds, in seconds. A native histogram alone, with a bucket for each power of two; in the text format it has only the bucket +Inf.",
		[]string{"server", "db_system", "queryid"}, nil)
	queryIDReads = prometheus.NewDesc("plumbline_query_id_file_reads_total",
		"Read calls on files within statements, by query and by whether the page cache had the data (hit) or a device had to be waited for (miss).",
		[]string{"server", "db_system", "queryid", "cache"}, nil)
	queryIDUnknown = prometheus.NewDesc("plumbline_query_id_unknown_total",
		`Statements of PostgreSQL without a known query identifier, which are in queryid="other", by reason: the server has given none (none: compute_query_id is off, or the statement failed, was empty or a function call), or it could not be read (unread: the server's version or program is not known, the log has the reason).`,
		[]string{"server", "db_system", "reason"}, nil)
	queryIDError = prometheus.NewDesc("plumbline_query_id_error_seconds",
		`Time that a query with an identifier in queryid="other" may have had at the most while it was not tracked, in seconds, where an hour ago counts half: the error of the choice which queries have series. 0 while all of a server's queries are tracked.`,
		[]string{"server", "db_system"}, nil)
)

// queryEntries is how many queries of a server the kernel tracks where so many have series: a power of two, or 0.
func queryEntries(top int) uint32 {
	if top == 0 {
		return 0
	}
	return 1 << bits.Len32(uint32(top*entriesEach)-1)
}

// entry is an entry of the kernel's hash table in which it counts a server's queries (bpf/query/query_id.h).
type entry struct {
	index   uint32
	id      uint64
	amounts bpf.QueryPerQuery
}

// seenEntry is an entry as it was at the latest read.
type seenEntry struct {
	id      uint64
	amounts bpf.QueryPerQuery
	// retired is when the programs began to ignore it, or zero.
	retired time.Time
}

// queries are those of one server label.
type queries struct {
	// tracked are those that have an entry or series. Of these listed have series; what these have had counted, also
	// those that are not listed any more, is in inListed.
	tracked  map[uint64]*trackedQuery
	listed   int
	inListed bpf.QueryPerQuery
	// other is what the server has beyond that.
	other bpf.QueryPerQuery
	began time.Time
	// floor is the most time that a query had that is not tracked any more. untracked is the time of statements whose
	// query found no free entry. Both are in nanoseconds and fade as the queries' own time. untrackedBefore is what the
	// kernel had counted of the latter.
	floor, untracked float64
	untrackedBefore  uint64
	relisted         time.Time
}

// trackedQuery is one query.
type trackedQuery struct {
	// time is its time, of which halfLife ago counts half; doubt is how much more it may have been.
	time, doubt float64
	// series is what was counted for its series since listed; nil if it is not listed. sent is how much of that the
	// latest scrape had, nothing in the first one: a rate needs a first value. It is nil before.
	series, sent *bpf.QueryPerQuery
	listed       time.Time
}

func newQueries(now time.Time) *queries {
	return &queries{tracked: map[uint64]*trackedQuery{}, began: now, relisted: now}
}

// add counts for a query. One that is new has series at once if there is room.
func (q *queries) add(id uint64, n *bpf.QueryPerQuery, top int, now time.Time) {
	t := q.tracked[id]
	if t == nil {
		t = &trackedQuery{doubt: q.floor}
		q.tracked[id] = t
		if q.listed < top {
			t.list(now)
			q.listed++
		}
	}
	t.time += float64(n.All.SumNs)
	if t.series != nil {
		combineQuery(t.series, n, plus)
		combineQuery(&q.inListed, n, plus)
	}
}

func (t *trackedQuery) list(now time.Time) {
	t.series, t.sent, t.listed = &bpf.QueryPerQuery{}, nil, now
}

// unlist ends a query's series. What no scrape had of them is in other.
func (q *queries) unlist(t *trackedQuery) {
	unsent := *t.series
	if t.sent != nil {
		combineQuery(&unsent, t.sent, saturatingSub)
	}
	combineQuery(&q.inListed, &unsent, saturatingSub)
	t.series, t.sent = nil, nil
}

// forget ends to track the queries that have neither series nor one of these entries.
func (q *queries) forget(withEntry map[uint64]bool) {
	for id, t := range q.tracked {
		if t.series == nil && !withEntry[id] {
			q.floor = max(q.floor, t.time+t.doubt)
			delete(q.tracked, id)
		}
	}
}

// rest finds what is in no query's series, by all that was counted of the server.
func (q *queries) rest(all *totals) {
	var sum bpf.QueryPerQuery
	for i := range all.commands {
		combine(&sum.All, &all.commands[i].All, plus)
		for slot, n := range all.commands[i].Slots {
			sum.Slots[nativehist.CoarseSlot(slot)] += n
		}
	}
	combineQuery(&sum, &q.inListed, saturatingSub)
	combineQuery(&q.other, &sum, func(before, now uint64) uint64 { return max(before, now) })
	untracked := all.lost[bpf.QueryLossNO_ID_ENTRY_NS]
	q.untracked += float64(saturatingSub(untracked, q.untrackedBefore))
	q.untrackedBefore = untracked
}

// relist lets the past fade, and gives series to the queries with the most time, from those with the least.
func (q *queries) relist(now time.Time, top int) {
	passed := now.Sub(q.relisted)
	if passed < relistInterval {
		return
	}
	q.relisted = now
	left := math.Exp2(-float64(passed) / float64(halfLife))
	q.floor *= left
	q.untracked *= left
	byTime := slices.SortedFunc(maps.Values(q.tracked), func(a, b *trackedQuery) int { return cmp.Compare(b.time, a.time) })
	for _, t := range byTime {
		t.time *= left
		t.doubt *= left
	}
	listed := slices.DeleteFunc(slices.Clone(byTime), func(t *trackedQuery) bool { return t.series == nil })
	others := slices.DeleteFunc(byTime, func(t *trackedQuery) bool { return t.series != nil })
	for range max(1, top/relistShare) {
		if len(others) == 0 || len(listed) == 0 {
			return
		}
		best, least := others[0], listed[len(listed)-1]
		if best.time <= relistLead*least.time {
			return
		}
		q.unlist(least)
		best.list(now)
		others, listed = others[1:], listed[:len(listed)-1]
	}
}

// drain takes over what the kernel has counted of a server's queries, and makes room for further ones.
func (f *fleet) drain(srv *trackedServer, now time.Time) {
	a := f.accounts[srv.key()]
	if f.top == 0 || srv.number == otherNumber || srv.DBSystem != server.PostgreSQL || a == nil {
		return
	}
	if a.queries == nil {
		a.queries = newQueries(now)
	}
	if srv.status == 0 || srv.StatusSize() == 0 {
		return
	}
	if err := f.takeEntries(srv, a.queries, now); err != nil {
		f.failed(srv.Server, now, fmt.Errorf("its queries: %w", err))
	}
	a.queries.relist(now, f.top)
}

func (f *fleet) takeEntries(srv *trackedServer, q *queries, now time.Time) error {
	entries, err := f.kernel.entries(srv.number)
	if err != nil {
		return err
	}
	if srv.seen == nil {
		srv.seen = map[uint32]*seenEntry{}
	}
	var grown []entry
	for _, p := range entries {
		seen := srv.seen[p.index]
		if seen == nil {
			// The programs do not find its earlier entries any more.
			for index, other := range srv.seen {
				if other.id == p.id && other.retired.IsZero() {
					if err := f.retireEntry(srv, index, now); err != nil {
						return err
					}
				}
			}
			seen = &seenEntry{id: p.id}
			srv.seen[p.index] = seen
		}
		more := entry{id: seen.id, amounts: p.amounts}
		combineQuery(&more.amounts, &seen.amounts, saturatingSub)
		grown = append(grown, more)
		seen.amounts = p.amounts
	}
	// In this order, so that of new ones those with the most time get what series are free.
	slices.SortFunc(grown, func(a, b entry) int { return cmp.Compare(b.amounts.All.SumNs, a.amounts.All.SumNs) })
	for _, p := range grown {
		if p.amounts.All.Count > 0 {
			q.add(p.id, &p.amounts, f.top, now)
		}
	}
	for index, seen := range srv.seen {
		if seen.retired.IsZero() || now.Sub(seen.retired) < retireTime {
			continue
		}
		if err := f.kernel.empty(srv.number, index); err != nil {
			return err
		}
		delete(srv.seen, index)
	}
	return f.makeRoom(srv, q, now)
}

// makeRoom retires the entries of the queries with the least time if few are free.
func (f *fleet) makeRoom(srv *trackedServer, q *queries, now time.Time) error {
	all, used := int(queryEntries(f.top)), 0
	upTo := map[uint32]float64{} // time of those without series
	for index, seen := range srv.seen {
		if !seen.retired.IsZero() {
			continue
		}
		used++
		if t := q.tracked[seen.id]; t == nil {
			upTo[index] = 0
		} else if t.series == nil {
			upTo[index] = t.time + t.doubt
		}
	}
	if used <= all*3/4 {
		return nil
	}
	unlisted := slices.SortedFunc(maps.Keys(upTo), func(a, b uint32) int { return cmp.Compare(upTo[a], upTo[b]) })
	for _, index := range unlisted[:min(len(unlisted), used-all/2)] {
		if err := f.retireEntry(srv, index, now); err != nil {
			return err
		}
	}
	return nil
}

// retireEntry makes the programs ignore an entry from now on.
func (f *fleet) retireEntry(srv *trackedServer, index uint32, now time.Time) error {
	err := f.kernel.retire(srv.number, index)
	if err == nil {
		srv.seen[index].retired = now
	}
	return err
}

// drainAll drains all servers, and forgets the queries that no server of theirs has an entry for.
func (f *fleet) drainAll(now time.Time) {
	withEntry := map[*account]map[uint64]bool{}
	drain := func(srv *trackedServer) {
		f.drain(srv, now)
		a := f.accounts[srv.key()]
		if withEntry[a] == nil {
			withEntry[a] = map[uint64]bool{}
		}
		for _, seen := range srv.seen {
			withEntry[a][seen.id] = true
		}
	}
	for _, srv := range f.tracked {
		drain(srv)
	}
	for _, l := range f.leaving {
		drain(l.trackedServer)
	}
	for _, a := range f.accounts {
		if a.queries != nil {
			a.queries.forget(withEntry[a])
		}
	}
}

// occupied is how many entries are in use.
func (f *fleet) occupied() (n int) {
	for _, srv := range f.tracked {
		n += len(srv.seen)
	}
	return n
}

// drain is done at an interval, beside scrapes.
func (q *query) drain() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.fleet.drainAll(time.Now())
}

// errNoLayout is why query identifiers are not read of a version that is not known.
var errNoLayout = errors.New("the layout of its version's status is not known")

// reportNoQueryIDs reports, once, a server whose query identifiers are not read.
func (f *fleet) reportNoQueryIDs(srv *trackedServer, now time.Time) {
	err := srv.noStatus
	if err == nil && srv.status != 0 && srv.Version != "" && srv.StatusSize() == 0 {
		err = fmt.Errorf("%s %s: %w", srv.DBSystem, srv.Version, errNoLayout)
	}
	if err == nil || untrusted.Unanswered(err) || srv.noQueryIDs {
		return
	}
	srv.noQueryIDs = true
	f.failed(srv.Server, now, fmt.Errorf("its query identifiers are not read: %w", err))
}

// send sends the series of a server's queries.
func (q *queries) send(ch chan<- prometheus.Metric, key accountKey) error {
	errs := []error{sendQuery(ch, key, otherQuery, &q.other, q.began)}
	for id, t := range q.tracked {
		if t.series == nil {
			continue
		}
		if t.sent == nil {
			t.sent = &bpf.QueryPerQuery{}
		} else {
			*t.sent = *t.series
		}
		errs = append(errs, sendQuery(ch, key, strconv.FormatInt(int64(id), 10), t.sent, t.listed))
	}
	ch <- collector.Gauge(queryIDError, (q.floor+q.untracked)/1e9, key.label, key.dbSystem)
	return errors.Join(errs...)
}

// sendQuery sends a query's series. Without its histogram the others are sent all the same.
func sendQuery(ch chan<- prometheus.Metric, key accountKey, id string, q *bpf.QueryPerQuery, created time.Time) error {
	m := &q.All
	ch <- collector.Counter(queryIDStatements, float64(m.Count), key.label, key.dbSystem, id)
	for phase, name := range phaseNames {
		ch <- collector.Counter(queryIDPhase, float64(m.PhaseNs[phase])/1e9, key.label, key.dbSystem, id, name)
	}
	ch <- collector.Counter(queryIDReads, float64(m.ReadHits), key.label, key.dbSystem, id, "hit")
	ch <- collector.Counter(queryIDReads, float64(m.ReadMisses), key.label, key.dbSystem, id, "miss")
	h, err := nativehist.NewCoarse(queryIDDuration, q.Slots[:], float64(m.SumNs)/1e9, created, key.label, key.dbSystem, id)
	if err != nil {
		return fmt.Errorf("durations of query %s of %s: %w", id, key.label, err)
	}
	ch <- h
	return nil
}

// sendNoQueryIDs reports the statements of a server without a known identifier.
func (t *totals) sendNoQueryIDs(ch chan<- prometheus.Metric, key accountKey) {
	ch <- collector.Counter(queryIDUnknown, float64(t.lost[bpf.QueryLossNO_ID]), key.label, key.dbSystem, "none")
	ch <- collector.Counter(queryIDUnknown, float64(t.lost[bpf.QueryLossNO_ID_READ]), key.label, key.dbSystem, "unread")
}
