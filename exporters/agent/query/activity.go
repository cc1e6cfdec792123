package query

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"

	"github.com/cilium/ebpf/link"
	"github.com/prometheus/client_golang/prometheus"

	bpf "github.com/plumbline/plumbline/exporters/agent/bpf/query"
	"github.com/plumbline/plumbline/exporters/agent/collector"
)

// What goes on at this moment, by a walk over the tasks at each scrape; see
// bpf/query/activity.h. A gauge is 0 while there is nothing of its kind.
var (
	queryInFlight = prometheus.NewDesc("plumbline_query_in_flight",
		"Statements under way now, by the phase they are in at this moment; of Redis, connections that wait for the turn under way.", []string{"server", "db_system", "phase"}, nil)
	queryOldest = prometheus.NewDesc("plumbline_query_oldest_seconds",
		"Age of the oldest statement under way that is in this phase now, in seconds; 0 if there is none.",
		[]string{"server", "db_system", "phase"}, nil)
	serverLongestWait = prometheus.NewDesc("plumbline_server_longest_wait_seconds",
		"For how long the server's process that waits longest has been in one wait without a break, in seconds; 0 if none waits. Reads, writes and syncs are also those of the server's own processes, such as PostgreSQL's checkpointer; the other phases are statements' only.",
		[]string{"server", "db_system", "phase"}, nil)
	queryBlocked = prometheus.NewDesc("plumbline_query_blocked",
		"PostgreSQL's statements that wait now until another session gives up a lock on a row, a table or the like.",
		[]string{"server", "db_system"}, nil)
	queryBlockedOldest = prometheus.NewDesc("plumbline_query_blocked_oldest_seconds",
		"Age of the oldest of PostgreSQL's statements that wait for another session's lock now, in seconds; 0 if there is none.",
		[]string{"server", "db_system"}, nil)
	idleInTransaction = prometheus.NewDesc("plumbline_query_idle_in_transaction",
		"Sessions without a statement under way whose transaction is open.", []string{"server", "db_system"}, nil)
	idleInTransactionOldest = prometheus.NewDesc("plumbline_query_idle_in_transaction_oldest_seconds",
		"For how long the longest of them has had no statement under way, in seconds; 0 if there is none.",
		[]string{"server", "db_system"}, nil)
	stuckProcess = prometheus.NewDesc("plumbline_server_stuck_process_seconds",
		"For how long a process or thread has been in one read, write or sync, or has waited for another session's lock (phase lock), in seconds: the longest of a server, from 10 s on. pid is the host's number, server_pid the one that the server itself shows.",
		[]string{"server", "db_system", "phase", "pid", "server_pid"}, nil)
	queryTorn = prometheus.NewDesc("plumbline_query_activity_torn_total",
		"Statements under way that are missing from a scrape's gauges because they changed while they were read.", nil, nil)
)

const (
	// stuckAfter is the age from which a single process is reported.
	stuckAfter = 10 * time.Second
	// maxStuck bounds the processes of one server that are reported by number.
	maxStuck = 5
)

// snapshot is what a walk over the tasks found.
type snapshot struct {
	// tasks are the processes or threads that are followed, by server number.
	tasks [collector.MaxServers + 1]uint64
	// uncounted is the CPU time, in nanoseconds since the last snapshot, of processes whose client the programs on sockets
	// did not see, by server number.
	uncounted [collector.MaxServers + 1]uint64
	// torn are the statements that could not be read.
	torn       uint64
	activities []bpf.QueryActivity
}

// snapshot returns what is followed and what it does now.
func (k kernelSide) snapshot() (snapshot, error) {
	var snap snapshot
	var p bpf.QueryPopulation
	if err := k.programs.objects.Populations.Put(uint32(0), p); err != nil {
		return snap, fmt.Errorf("starting a snapshot of the tasks: %w", err)
	}
	records, err := readWalk(k.programs.snapshot)
	if err != nil {
		return snap, err
	}
	if err := k.programs.objects.Populations.Lookup(uint32(0), &p); err != nil {
		return snap, fmt.Errorf("reading the snapshot of the tasks: %w", err)
	}
	snap.tasks, snap.torn, snap.uncounted = p.Tasks, p.Torn, p.UncountedNs
	snap.activities, err = parseActivities(records)
	return snap, err
}

// readWalk runs a program once for each task and returns what it wrote.
func readWalk(iter *link.Iter) ([]byte, error) {
	tasks, err := iter.Open()
	if err != nil {
		return nil, fmt.Errorf("walking the tasks: %w", err)
	}
	defer tasks.Close()
	var text bytes.Buffer
	if _, err := io.Copy(&text, tasks); err != nil {
		return nil, fmt.Errorf("walking the tasks: %w", err)
	}
	return text.Bytes(), nil
}

func parseActivities(records []byte) ([]bpf.QueryActivity, error) {
	size := binary.Size(bpf.QueryActivity{})
	if len(records)%size != 0 {
		return nil, fmt.Errorf("snapshot: %d bytes are no whole number of records of %d", len(records), size)
	}
	activities := make([]bpf.QueryActivity, len(records)/size)
	for i := range activities {
		if _, err := binary.Decode(records[i*size:], binary.NativeEndian, &activities[i]); err != nil {
			return nil, fmt.Errorf("snapshot: %w", err)
		}
	}
	return activities, nil
}

// addUnfinished adds the time so far of statements under way to what was counted of those that
// ended. What ended must have been read before the walk: a statement that ends in between is
// missing for one scrape, which send makes up for, instead of being there twice.
func (t *totals) addUnfinished(a *bpf.QueryActivity) {
	if int(a.Command) >= len(t.commands) {
		return
	}
	for phase, ns := range a.PhaseNs {
		t.commands[a.Command].All.PhaseNs[phase] += ns
	}
}

// activity sums up what one server does now.
type activity struct {
	inFlight, oldest, longest [bpf.QueryPhasePHASES]uint64
	blocked, blockedOldest    uint64
	idle, idleOldest          uint64
	stuck                     []bpf.QueryActivity
}

func (s *activity) add(a bpf.QueryActivity) {
	if int(a.Phase) >= len(s.inFlight) {
		return
	}
	switch bpf.QueryActivityKind(a.Kind) {
	case bpf.QueryActivityKindACTIVITY_IDLE:
		s.idle++
		s.idleOldest = max(s.idleOldest, a.AgeNs)
		return
	case bpf.QueryActivityKindACTIVITY_STATEMENT:
		s.inFlight[a.Phase] += max(1, uint64(a.Statements))
		s.oldest[a.Phase] = max(s.oldest[a.Phase], a.AgeNs)
		if isBlocked(&a) {
			s.blocked++
			s.blockedOldest = max(s.blockedOldest, a.WaitNs)
		}
	}
	s.longest[a.Phase] = max(s.longest[a.Phase], a.WaitNs)
	if stuckPhase(&a) != "" && a.WaitNs >= uint64(stuckAfter) {
		s.stuck = append(s.stuck, a)
	}
}

func isBlocked(a *bpf.QueryActivity) bool {
	return a.LockWait != 0 && bpf.QueryPhase(a.Phase) == bpf.QueryPhasePHASE_WAIT && a.WaitNs > 0
}

// stuckPhase is the label phase of a process that may be stuck, or "".
func stuckPhase(a *bpf.QueryActivity) string {
	switch phase := bpf.QueryPhase(a.Phase); phase {
	case bpf.QueryPhasePHASE_READ, bpf.QueryPhasePHASE_WRITE, bpf.QueryPhasePHASE_SYNC:
		return phaseNames[phase]
	}
	if isBlocked(a) {
		return "lock"
	}
	return ""
}

func (s *activity) send(ch chan<- prometheus.Metric, key accountKey) {
	seconds := func(ns uint64) float64 { return float64(ns) / 1e9 }
	l := []string{key.label, key.dbSystem}
	for phase, name := range phaseNames {
		ch <- collector.Gauge(queryInFlight, float64(s.inFlight[phase]), append(l[:2:2], name)...)
		ch <- collector.Gauge(queryOldest, seconds(s.oldest[phase]), append(l[:2:2], name)...)
		switch bpf.QueryPhase(phase) {
		case bpf.QueryPhasePHASE_CPU, bpf.QueryPhasePHASE_RUNQUEUE: // no waits for anything
		default:
			ch <- collector.Gauge(serverLongestWait, seconds(s.longest[phase]), append(l[:2:2], name)...)
		}
	}
	ch <- collector.Gauge(queryBlocked, float64(s.blocked), l...)
	ch <- collector.Gauge(queryBlockedOldest, seconds(s.blockedOldest), l...)
	ch <- collector.Gauge(idleInTransaction, float64(s.idle), l...)
	ch <- collector.Gauge(idleInTransactionOldest, seconds(s.idleOldest), l...)
	slices.SortFunc(s.stuck, func(a, b bpf.QueryActivity) int { return cmp.Compare(b.WaitNs, a.WaitNs) })
	for _, a := range s.stuck[:min(len(s.stuck), maxStuck)] {
		ch <- collector.Gauge(stuckProcess, seconds(a.WaitNs), key.label, key.dbSystem, stuckPhase(&a),
			strconv.Itoa(int(a.Pid)), strconv.Itoa(int(a.InnerPid)))
	}
}

// sendActivities reports what the servers with these labels do now.
func (f *fleet) sendActivities(ch chan<- prometheus.Metric, snap snapshot, keys map[uint32]accountKey) {
	byKey := map[accountKey]*activity{}
	for _, key := range keys {
		byKey[key] = &activity{}
	}
	for _, a := range snap.activities {
		if key, ok := keys[a.Server]; ok {
			byKey[key].add(a)
		}
	}
	for key, s := range byKey {
		s.send(ch, key)
	}
	f.torn += snap.torn
	ch <- collector.Counter(queryTorn, float64(f.torn))
}

// keys returns the labels of the servers that have some, by their number in the kernel.
func (f *fleet) keys() map[uint32]accountKey {
	keys := map[uint32]accountKey{}
	for _, srv := range f.tracked {
		if srv.label != "" && srv.number != otherNumber {
			keys[srv.number] = accountKey{srv.label, string(srv.DBSystem)}
		}
	}
	if f.hasOther {
		keys[otherNumber] = accountKey{collector.OtherServer, collector.OtherServer}
	}
	return keys
}
