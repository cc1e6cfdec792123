package query

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	bpf "github.com/plumbline/plumbline/exporters/agent/bpf/query"
	"github.com/plumbline/plumbline/exporters/agent/collector"
	"github.com/plumbline/plumbline/exporters/agent/pod"
	"github.com/plumbline/plumbline/exporters/agent/server"
	"github.com/plumbline/plumbline/exporters/agent/untrusted"
	"github.com/plumbline/plumbline/exporters/exporterkit"
)

const (
	otherNumber = uint32(0)
	// settleTime is how long after its start a server may take to listen before it is named without a port, and how
	// long after it was found its name is waited for.
	settleTime = 30 * time.Second

	// rescanInterval is how long what is known of a server is taken to hold while it runs.
	rescanInterval = 5 * time.Minute
)

// kernel is the kernel side as a fleet uses it.
type kernel interface {
	adopt(s server.Server, number uint32) error
	// forget ends to follow all processes and threads with a server's number; with otherNumber those of this server.
	forget(s server.Server, number uint32) error
	// detachWakes detaches the program at wake-ups. No server is followed any more for which adopt attaches it.
	detachWakes() error
	// describe passes to the programs what they need to know of a server.
	describe(number uint32, s observation) error
	clear(number uint32) error
	// entries returns what was counted of a server's queries, of those that have an entry. retire makes the programs
	// ignore an entry, and empty makes it free.
	entries(number uint32) ([]entry, error)
	retire(number, index uint32) error
	empty(number, index uint32) error
	read(number uint32) (totals, error)
	// unmarked counts the processes and threads of a server that the kernel had no memory for.
	unmarked(number uint32) (uint64, error)
	// snapshot counts the processes and threads of all servers.
	snapshot() (snapshot, error)
}

// observation is what a scan of a server found; all of it was read without holding a lock.
type observation struct {
	server.Server
	// age is for how long it has run, 0 if that is not known.
	age time.Duration
	// waitEvent is the address, in each of its processes, of the pointer to where the process keeps its wait event. It
	// is 0 if that is not known; noWaitEvent is why.
	waitEvent   uint64
	noWaitEvent error
	// status is the address, in each of its processes, of the pointer to the process's status. It is 0 if that is not
	// known; noStatus is why.
	status   uint64
	noStatus error
	// places are where its files are; noPlaces is why that is not known.
	places   []serverPlace
	noPlaces error
	// pod is which pod it is in, if any; untrusted is true if it only seems to be in one.
	pod       pod.ID
	untrusted bool
}

// trackedServer is a running server that is followed.
type trackedServer struct {
	observation
	number uint32
	// label is the server label, or empty while it is not decided; candidate is what it was made from. See naming.
	label     string
	candidate candidate
	// since is when it was found, and began when its process did, or when it was found if that is not known.
	since, began time.Time
	// scanned is when the server was last scanned in full.
	scanned time.Time
	// probed is the TLS library that is probed for it, if tls.
	probed fileID
	tls    bool
	// uncounted is the CPU time, in nanoseconds, of its processes with a client that no program saw.
	uncounted uint64
	// unmarked is kernel.unmarked when all its processes and threads were last marked.
	unmarked uint64
	// tlsTried is the library that was tried last; it is tried again if nobody answered, or, tlsTries times, if it
	// failed otherwise but for one that is not trusted. A failure is logged once: tlsReported is the library that failed.
	tlsTried, tlsReported server.Library
	tlsTries              int
	// seen are its queries' entries as they were last. noQueryIDs is true if it was reported that there are none.
	seen       map[uint32]*seenEntry
	noQueryIDs bool
}

// account is what is counted for one server label, over the restarts of its server.
type account struct {
	dbSystem string
	ended    totals
	created  time.Time
	// shown is what was exported last, by command and phase: a counter never decreases.
	shown [bpf.QueryCommandCOMMANDS][bpf.QueryPhasePHASES]uint64
	// queries is what is counted by query; nil where no identifiers are read.
	queries *queries
	last    time.Time
	// owner is the server that goes on counting here: the one outside of pods that ended last; nil if none has.
	owner *identity
}

type accountKey struct{ label, dbSystem string }

// fleet is the set of servers that are followed.
type fleet struct {
	log          *slog.Logger
	kernel       kernel
	limit        int
	tracked      map[server.ID]*trackedServer
	accounts     map[accountKey]*account
	hasOther     bool
	overflows    uint64
	attachErrors map[string]*attachError
	// free are the numbers that nobody has, and leaving the servers that ended whose numbers somebody may have.
	free    []uint32
	leaving []*leaving
	// walked is the time of the servers for whose numbers the tasks were walked over last.
	walked time.Time
	// otherUncounted is trackedServer.uncounted of the servers without series of their own.
	otherUncounted uint64
	// unfollowed are the processes that were not followed at the last walk, for there were too many, or whose turn to
	// be scanned has not come; folded are the accounts that went to server="other" before their time.
	unfollowed int
	folded     uint64
	// wanted are the servers whose TLS library is to be probed, and unwanted the probed libraries of servers that
	// ended. Both take time and are done where these are emptied.
	wanted   []server.Server
	unwanted []fileID
	// pods are those of the servers, by UID, as far as their names are known; shared are the pods, and their containers
	// as UID/CONTAINER, that have had several servers at once. onCluster is true if there are pods.
	pods      map[string]pod.Pod
	shared    map[string]bool
	onCluster bool
	// renamed counts the servers that got another label.
	renamed uint64
	// deny are the labels of servers that are not followed, nil of none, and denied those servers.
	deny   *regexp.Regexp
	denied map[server.ID]bool
	// torn are statements under way that could not be read.
	torn uint64
	// top is how many queries of each server have series of their own; 0: none, and they are not distinguished.
	top int
}

// attachError counts what went wrong with the servers of one label.
type attachError struct {
	count uint64
	last  time.Time
}

// perSlot bounds what is kept for servers without series of their own: as many times what may
// have such. It holds for servers that are followed, for accounts and for labels of errors.
const perSlot = 4

func newFleet(log *slog.Logger, k kernel, limit int) *fleet {
	f := &fleet{log: log, kernel: k, limit: limit,
		tracked: map[server.ID]*trackedServer{}, denied: map[server.ID]bool{}, shared: map[string]bool{}, accounts: map[accountKey]*account{}, attachErrors: map[string]*attachError{}}
	for n := otherNumber + 1; n <= uint32(limit); n++ {
		f.free = append(f.free, n)
	}
	return f
}

// update compares all servers found with those followed. It reports whether all there is to
// know of them is known.
func (f *fleet) update(found []observation, now time.Time) bool {
	there := map[server.ID]bool{}
	for _, s := range found {
		there[s.ID] = true
	}
	f.prune(there, now)
	f.applyObservations(found, now)
	return f.settled(now)
}

// prune untracks the servers that are not there any more, and forgets what is old.
func (f *fleet) prune(there map[server.ID]bool, now time.Time) {
	wakes := false
	for id, srv := range f.tracked {
		if !there[id] {
			f.untrack(srv, now)
			continue
		}
		f.adoptAgain(srv, now)
		wakes = wakes || srv.DBSystem.SyncsForOthers()
		if a := f.accounts[srv.key()]; a != nil {
			a.last = now
		}
	}
	// Here, so that processes that come and go do not have the program attached at each turn.
	if !wakes {
		if err := f.kernel.detachWakes(); err != nil {
			f.log.Error("the program at wake-ups cannot be detached", "err", err)
		}
	}
	maps.DeleteFunc(f.denied, func(id server.ID, _ bool) bool { return !there[id] })
	for key, a := range f.accounts {
		if now.Sub(a.last) > collector.KeepTime && key.label != collector.OtherServer {
			delete(f.accounts, key)
		}
	}
	for label, e := range f.attachErrors {
		if now.Sub(e.last) > collector.KeepTime && label != collector.OtherServer {
			delete(f.attachErrors, label)
		}
	}
}

// adoptAgain marks processes or threads of a server that the kernel had no memory for when they began.
func (f *fleet) adoptAgain(srv *trackedServer, now time.Time) {
	n, err := f.kernel.unmarked(srv.number)
	if err == nil && n != srv.unmarked {
		err = f.kernel.adopt(srv.Server, srv.number)
		if errors.Is(err, errNotThere) {
			err = nil // they have ended, or there was no memory again, which was counted
		}
		if err == nil {
			srv.unmarked = n
		}
	}
	if err != nil {
		f.failed(srv.Server, now, err)
	}
}

// applyObservations updates the servers by what scans of them found.
func (f *fleet) applyObservations(found []observation, now time.Time) {
	// Age decides which ones get series of their own, if there are too many.
	slices.SortFunc(found, func(a, b observation) int { return compareIDs(a.ID, b.ID) })
	for _, s := range found {
		srv := f.tracked[s.ID]
		if srv == nil {
			srv = f.track(s, now)
		}
		if srv == nil {
			continue
		}
		srv.scanned = now
		f.learn(srv, s, now)
	}
	f.naming(now)
}

// compareIDs orders servers by their beginnings.
func compareIDs(a, b server.ID) int {
	return cmp.Or(cmp.Compare(a.StartTicks, b.StartTicks), cmp.Compare(a.PID, b.PID))
}

// full reports whether no more servers are followed.
func (f *fleet) full() bool { return len(f.tracked) >= perSlot*f.limit }

// settled reports whether all is known of each server.
func (f *fleet) settled(now time.Time) bool {
	for _, srv := range f.tracked {
		if !srv.settled(now) {
			return false
		}
	}
	return true
}

// due reports whether a server needs to be scanned: often while it comes up, else seldom.
func (f *fleet) due(id server.ID, now time.Time) bool {
	srv := f.tracked[id]
	if srv == nil {
		return !f.denied[id]
	}
	again := rescanInterval
	switch complete := srv.label != "" && len(srv.Ports) > 0 && !srv.Waits && srv.DataDirectory != "" && !srv.unanswered(); {
	case complete:
	case srv.Waits:
		// Its clients are not counted before their port is known.
		again = min(now.Sub(srv.since)/60, rescanInterval/30)
	case !srv.settled(now):
		// Most come up at once, and one that never does must not cost more and more.
		again = now.Sub(srv.since) / 4
	default:
		again = rescanInterval / 10 // something is missing that may yet come
	}
	return now.Sub(srv.scanned) >= again
}

// unanswered reports whether a read of a server's files timed out that the next scan retries.
func (srv *trackedServer) unanswered() bool {
	library := srv.TLSLibrary != (server.Library{}) && srv.TLSLibrary != srv.tlsTried && !srv.tls
	return library || srv.NoLibrary || srv.NoName || srv.MorePorts || untrusted.Unanswered(srv.noWaitEvent) || untrusted.Unanswered(srv.noStatus) || untrusted.Unanswered(srv.noPlaces)
}

// track begins to follow a server. It returns nil if that is not possible.
func (f *fleet) track(s observation, now time.Time) *trackedServer {
	if f.denied[s.ID] || f.full() {
		return nil // the walk counts the latter
	}
	srv := &trackedServer{observation: s, number: f.takeNumber(s.Server, now), since: now, began: now.Add(-s.age)}
	if srv.number == otherNumber {
		srv.shareNumber()
	}
	first := srv.observation
	first.Ports = nil
	if err := f.kernel.describe(srv.number, first); err != nil {
		f.failed(s.Server, now, err)
	}
	if err := f.kernel.adopt(s.Server, srv.number); err != nil {
		f.failed(s.Server, now, err)
		if errors.Is(err, errNotThere) && srv.number != otherNumber {
			f.release(&leaving{trackedServer: srv}, now) // nobody bears it
		} else {
			f.retire(srv) // some of its processes may be marked
		}
		return nil
	}
	f.reportNoWaitEvent(srv, now)
	if srv.number == otherNumber {
		f.hasOther = true
		f.overflows++
		srv.label = collector.OtherServer
		f.account(collector.OtherServer, collector.OtherServer, now)
		f.log.Warn("too many servers for series of their own", "db_system", s.DBSystem, "pid", s.PID, "limit", f.limit, "ended_with_processes_left", len(f.leaving))
	}
	f.tracked[s.ID] = srv
	return srv
}

// reportNoWaitEvent reports a server that does not show what it waits for.
func (f *fleet) reportNoWaitEvent(srv *trackedServer, now time.Time) {
	if srv.noWaitEvent != nil {
		f.failed(srv.Server, now, fmt.Errorf("its waits for I/O workers are reported as other waits: %w", srv.noWaitEvent))
	}
}

// shareNumber makes a server one of those that share a number, of whose processes nothing more is read.
func (s *observation) shareNumber() {
	s.waitEvent, s.noWaitEvent, s.status, s.noStatus = 0, nil, 0, nil
}

// settled reports whether a server has come up, or will not listen.
func (srv *trackedServer) settled(now time.Time) bool {
	return srv.label != "" && (len(srv.Ports) > 0 && !srv.Waits || now.Sub(srv.since) > settleTime)
}

// key is the account of the server.
func (srv *trackedServer) key() accountKey {
	if srv.number == otherNumber {
		return accountKey{collector.OtherServer, collector.OtherServer}
	}
	return accountKey{srv.label, string(srv.DBSystem)}
}

// maxTLSTries is how often a TLS library is tried that answers, and cannot be probed: what is in the way may go, such
// as others that are probed already.
const maxTLSTries = 10

// readTLS requests a probe on a server's TLS library once it has loaded one.
func (f *fleet) readTLS(srv *trackedServer, library server.Library) {
	if srv.tls || library == (server.Library{}) || library == srv.tlsTried {
		return
	}
	srv.tlsTried = library
	f.wanted = append(f.wanted, srv.Server)
}

// probed takes over the outcome of a requested probe.
func (f *fleet) probed(s server.Server, id fileID, err error, now time.Time) {
	srv := f.tracked[s.ID]
	switch {
	case err == nil && (srv == nil || srv.tls):
		f.unwanted = append(f.unwanted, id)
		return
	case err == nil:
		srv.probed, srv.tls = id, true
		return
	case srv == nil: // it has ended
		f.failed(s, now, noTLS(err))
		return
	}
	passing := untrusted.Unanswered(err)
	if srv.tlsTried == s.TLSLibrary && !passing && !errors.Is(err, server.ErrUntrusted) {
		srv.tlsTries++
		passing = srv.tlsTries < maxTLSTries
	}
	if srv.tlsTried == s.TLSLibrary && passing {
		srv.tlsTried = server.Library{}
	}
	if srv.tlsReported != s.TLSLibrary {
		srv.tlsReported = s.TLSLibrary
		f.failed(s, now, noTLS(err))
	}
}

// noTLS returns why encrypted connections are not read.
func noTLS(err error) error { return fmt.Errorf("its encrypted connections cannot be read: %w", err) }

// learn takes over what became known of a server since the last scan.
func (f *fleet) learn(srv *trackedServer, s observation, now time.Time) {
	if s.DataDirectory == "" && srv.DataDirectory != "" {
		// Its file system does not answer now; the server has not moved.
		s.Version, s.DataDirectory, s.DataPath = srv.Version, srv.DataDirectory, srv.DataPath
		s.DBSystem, s.Data, s.WAL, s.Binlog, s.Tablespaces = srv.DBSystem, srv.Data, srv.WAL, srv.Binlog, srv.Tablespaces
		s.DataID, s.Owned, s.Apart = srv.DataID, srv.Owned, srv.Apart
		s.places, s.noPlaces = srv.places, srv.noPlaces
		if s.Name == "" {
			s.Name = srv.Name // by its configuration, which is there
		}
	}
	if untrusted.Unanswered(s.noPlaces) {
		s.places = srv.places
	}
	s.KeepPorts(srv.Server)
	if len(s.Ports) == 0 {
		s.Ports, s.Listening = srv.Ports, srv.Listening
	}
	if s.NoName && !srv.NoName {
		s.Name, s.NoName = srv.Name, false // its memory does not answer now; it was not renamed
	}
	if s.TLSLibrary == (server.Library{}) && srv.TLSLibrary != (server.Library{}) {
		s.NoLibrary = false
		s.TLSLibrary = srv.TLSLibrary // its memory does not answer now
	}
	if s.pod.UID == "" {
		s.pod = srv.pod // it is on its way out
	}
	if srv.number == otherNumber {
		s.shareNumber()
	}
	if srv.label != "" {
		s.DBSystem = srv.DBSystem // its series have it; MariaDB's own files may show only now which of the two it is
	}
	before := srv.observation
	srv.observation = s
	f.readTLS(srv, s.TLSLibrary)
	if srv.number == otherNumber {
		return
	}
	if untrusted.Unanswered(before.noWaitEvent) && !untrusted.Unanswered(s.noWaitEvent) {
		f.reportNoWaitEvent(srv, now)
	}
	f.reportNoQueryIDs(srv, now)
	described := slices.Equal(before.ClientPorts(), s.ClientPorts()) && before.waitEvent == s.waitEvent && before.status == s.status && before.Version == s.Version
	if !described || srv.label == "" {
		if err := f.kernel.describe(srv.number, s); err != nil {
			f.failed(s.Server, now, err)
		}
	}
}

// account returns what is counted for a label, and makes room for it: of those whose servers
// have ended the oldest goes to server="other".
func (f *fleet) account(label, dbSystem string, now time.Time) *account {
	key := accountKey{label, dbSystem}
	if f.accounts[key] == nil {
		f.accounts[key] = &account{dbSystem: dbSystem, created: now}
		if len(f.accounts) > perSlot*f.limit && label != collector.OtherServer {
			f.fold(key, now)
		}
	}
	f.accounts[key].last = now
	return f.accounts[key]
}

// fold gives the counts of the account that was needed longest ago, of those without a running
// server, to server="other".
func (f *fleet) fold(but accountKey, now time.Time) {
	running := map[accountKey]bool{but: true, {collector.OtherServer, collector.OtherServer}: true}
	for _, srv := range f.tracked {
		running[srv.key()] = true
	}
	var oldest accountKey
	var found *account
	for key, a := range f.accounts {
		if !running[key] && (found == nil || a.last.Before(found.last)) {
			oldest, found = key, a
		}
	}
	if found == nil {
		return
	}
	delete(f.accounts, oldest)
	f.folded++
	f.toOther(oldest.dbSystem, &found.ended, now)
}

// toOther gives an engine's counts to server="other".
func (f *fleet) toOther(engine string, t *totals, now time.Time) {
	f.hasOther = true
	if !server.DBSystem(engine).SpeaksSQL() {
		t.mergeCommands()
	}
	f.account(collector.OtherServer, collector.OtherServer, now).ended.add(t)
}

// untrack stops following a server that has ended; what was counted stays with its label.
func (f *fleet) untrack(srv *trackedServer, now time.Time) {
	f.drop(srv, now)
	level := slog.LevelInfo
	if srv.label == "" {
		level = slog.LevelDebug // it never came up
	}
	f.log.Log(context.Background(), level, "a database server ended", "server", srv.label, "pid", srv.PID)
}

// excluded reports whether a server is not to be followed. One without series of its own is meant by the name that it
// would have.
func (f *fleet) excluded(srv *trackedServer) bool {
	label := srv.label
	if srv.number == otherNumber {
		cand := f.candidate(srv)
		if label = cand.name; cand.provisional {
			label = ""
		}
	}
	return srv.pod.UID != "" && f.pods[srv.pod.UID].Unfollowed || f.deny != nil && label != "" && f.deny.MatchString(label)
}

// exclude stops following a server that runs. Nothing of it is reported but, of one without series of its own, what it
// did until then.
func (f *fleet) exclude(srv *trackedServer, now time.Time) {
	if err := f.kernel.forget(srv.Server, srv.number); err != nil {
		f.failed(srv.Server, now, err)
		return
	}
	f.denied[srv.ID] = true
	f.drop(srv, now)
	if srv.number != otherNumber {
		delete(f.accounts, srv.key())
	}
	f.log.Info("a database server is left out", "server", srv.label, "db_system", srv.DBSystem, "pid", srv.PID)
}

// drop gives up a server's number; what was counted stays with its label.
func (f *fleet) drop(srv *trackedServer, now time.Time) {
	delete(f.tracked, srv.ID)
	if srv.tls {
		f.unwanted = append(f.unwanted, srv.probed)
	}
	if srv.number == otherNumber {
		return
	}
	f.drain(srv, now)
	t, err := f.kernel.read(srv.number)
	if err != nil {
		f.failed(srv.Server, now, err)
	}
	if !t.isZero() {
		if srv.label == "" {
			srv.candidate = f.candidate(srv)
			srv.label = f.uniqueLabel(srv, false)
		}
		f.account(srv.label, string(srv.DBSystem), now).ended.add(&t)
	} else if a := f.accounts[srv.key()]; a != nil && a.ended.isZero() {
		// It never had a statement: nothing is to be scraped any more.
		delete(f.accounts, srv.key())
	}
	if a := f.accounts[srv.key()]; a != nil && srv.pod.UID == "" {
		a.owner = srv.identity()
	}
	if err := f.kernel.clear(srv.number); err != nil {
		f.failed(srv.Server, now, err)
	}
	srv.seen = nil
	f.retire(srv)
}

func (f *fleet) failed(s server.Server, now time.Time, err error) {
	label := ""
	if srv := f.tracked[s.ID]; srv != nil {
		label = srv.label
	}
	if label == "" {
		label = f.claimed(s) // it is not decided yet
	}
	// Servers may call themselves what they like.
	if f.attachErrors[label] == nil {
		if len(f.attachErrors) >= perSlot*f.limit {
			label = collector.OtherServer
		}
		if f.attachErrors[label] == nil {
			f.attachErrors[label] = &attachError{}
		}
	}
	f.attachErrors[label].count++
	f.attachErrors[label].last = now
	level := slog.LevelError
	if errors.Is(err, errNotThere) {
		level = slog.LevelInfo
	}
	f.log.Log(context.Background(), level, "a database server cannot be followed in full", "db_system", s.DBSystem, "pid", s.PID, "err", err)
}

// check lists the servers for --check.
func (f *fleet) check() []exporterkit.CheckResult {
	var results []exporterkit.CheckResult
	for _, srv := range f.tracked {
		label := srv.label
		if label == "" {
			label = srv.DefaultName()
		}
		results = append(results, exporterkit.CheckResult{Part: "query: server " + label,
			Note: strings.TrimSpace(fmt.Sprintf("%s %s, PID %d", srv.DBSystem, srv.Version, srv.PID))})
	}
	slices.SortFunc(results, func(a, b exporterkit.CheckResult) int { return strings.Compare(a.Part, b.Part) })
	return results
}
