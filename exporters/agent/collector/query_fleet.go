package collector

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/plumbline/plumbline/exporters/agent/server"
	"github.com/plumbline/plumbline/exporters/exporterkit"
)

const (
	// otherServer is the label value that servers above the limit share, and its number.
	otherServer = "other"
	otherNumber = uint32(0)
	// settleTime is how long a server may take to listen before it is named without a port.
	settleTime = 30 * time.Second
	// keepTime is how long the series of a server that ended are kept, so that a scrape gets
	// its last statements and a restart goes on counting.
	keepTime = 15 * time.Minute
	// lookAgain is how long what is known of a server is taken to hold while it runs.
	lookAgain = 5 * time.Minute
	// maxName bounds a server's name, as a Kubernetes name is bounded.
	maxName = 63
)

// kernel is the kernel side as a fleet uses it.
type kernel interface {
	adopt(s server.Server, number uint32) error
	// waitEvent finds where a server's processes say what they wait for; 0 if they do not.
	waitEvent(s server.Server) (uint64, error)
	describe(number uint32, ports []uint16, waitEvent uint64) error
	readTLS(library string) (fileID, error)
	leaveTLS(id fileID) error
	clear(number uint32) error
	read(number uint32) (totals, error)
}

// follower is a running server that is followed.
type follower struct {
	server.Server
	number uint32
	// waitEvent is where its processes say what they wait for, or 0.
	waitEvent uint64
	// label is the server label, or empty while it is not decided; it never changes then.
	label string
	since time.Time
	// looked is when the server was last looked at in full.
	looked time.Time
	// library is the TLS library that is probed for it, if tls.
	library fileID
	tls     bool
	// tlsTried is the library that was tried last, so that a failure is told once.
	tlsTried string
}

// account is what is counted for one server label, over the restarts of its server.
type account struct {
	engine  string
	ended   totals
	created time.Time
	last    time.Time
}

type accountKey struct{ label, engine string }

// fleet is the set of servers that are followed.
type fleet struct {
	log          *slog.Logger
	kernel       kernel
	limit        int
	followers    map[server.ID]*follower
	free         []uint32
	accounts     map[accountKey]*account
	hasOther     bool
	overflows    uint64
	attachErrors map[string]uint64
}

func newFleet(log *slog.Logger, k kernel, limit int) *fleet {
	f := &fleet{log: log, kernel: k, limit: limit,
		followers: map[server.ID]*follower{}, accounts: map[accountKey]*account{}, attachErrors: map[string]uint64{}}
	for n := uint32(limit); n > otherNumber; n-- {
		f.free = append(f.free, n)
	}
	return f
}

// update compares the servers found with those followed. It reports whether all there is to
// know of them is known.
func (f *fleet) update(found []server.Server, now time.Time) bool {
	// The one that began first has the first claim on a name.
	slices.SortFunc(found, func(a, b server.Server) int {
		return int(int64(a.StartTicks) - int64(b.StartTicks))
	})
	known := f.known(now)
	there := map[server.ID]bool{}
	for _, s := range found {
		there[s.ID] = true
	}
	for id, fo := range f.followers {
		if !there[id] {
			f.leave(fo, now)
		}
	}
	settled := true
	for _, s := range found {
		fo := f.followers[s.ID]
		if fo == nil {
			fo = f.join(s, now)
		}
		if fo == nil {
			continue
		}
		if _, ok := known[s.ID]; !ok {
			fo.looked = now
		}
		f.learn(fo, s, now)
		settled = settled && fo.settled(now)
	}
	for key, a := range f.accounts {
		if now.Sub(a.last) > keepTime {
			delete(f.accounts, key)
		}
	}
	return settled
}

// known returns the servers that need not be looked at in full.
func (f *fleet) known(now time.Time) map[server.ID]server.Server {
	known := map[server.ID]server.Server{}
	for id, fo := range f.followers {
		complete := fo.label != "" && len(fo.Ports) > 0 && fo.DataDirectory != ""
		if complete && now.Sub(fo.looked) < lookAgain {
			known[id] = fo.Server
		}
	}
	return known
}

// join begins to follow a server; it returns nil if it cannot be.
func (f *fleet) join(s server.Server, now time.Time) *follower {
	fo := &follower{Server: s, number: otherNumber, since: now}
	if len(f.free) > 0 {
		fo.number = f.free[len(f.free)-1]
	}
	var noSymbol error
	if fo.number != otherNumber {
		fo.waitEvent, noSymbol = f.kernel.waitEvent(s)
	}
	if err := f.kernel.describe(fo.number, nil, fo.waitEvent); err != nil {
		f.failed(s, err)
	}
	if err := f.kernel.adopt(s, fo.number); err != nil {
		f.failed(s, err)
		return nil
	}
	if noSymbol != nil {
		f.failed(s, fmt.Errorf("its waits for I/O workers are told as other waits: %w", noSymbol))
	}
	if fo.number == otherNumber {
		f.hasOther = true
		f.overflows++
		fo.label = otherServer
		f.account(otherServer, otherServer, now)
		f.log.Warn("too many servers for series of their own", "engine", s.Engine, "pid", s.PID, "limit", f.limit)
	} else {
		f.free = f.free[:len(f.free)-1]
	}
	f.followers[s.ID] = fo
	return fo
}

// settled tells whether a server has come up, or will not listen.
func (fo *follower) settled(now time.Time) bool {
	return fo.label != "" && (len(fo.Ports) > 0 || now.Sub(fo.since) > settleTime)
}

// readTLS probes a server's TLS library once it has loaded one.
func (f *fleet) readTLS(fo *follower, library string) {
	if fo.tls || library == "" || library == fo.tlsTried {
		return
	}
	fo.tlsTried = library
	var err error
	if fo.library, err = f.kernel.readTLS(library); err != nil {
		f.failed(fo.Server, fmt.Errorf("its encrypted connections cannot be read: %w", err))
		return
	}
	fo.tls = true
}

// learn takes over what became known of a server since the last look.
func (f *fleet) learn(fo *follower, s server.Server, now time.Time) {
	f.readTLS(fo, s.TLSLibrary)
	if fo.number == otherNumber {
		fo.Server = s
		return
	}
	if !slices.Equal(fo.Ports, s.Ports) || fo.label == "" {
		if err := f.kernel.describe(fo.number, s.Ports, fo.waitEvent); err != nil {
			f.failed(s, err)
		}
	}
	fo.Server = s
	if fo.label != "" {
		f.accounts[accountKey{fo.label, string(s.Engine)}].last = now
		return
	}
	if s.Name == "" && len(s.Ports) == 0 && now.Sub(fo.since) < settleTime {
		return
	}
	fo.label = f.name(s)
	f.account(fo.label, string(s.Engine), now)
	f.log.Info("following a database server", "server", fo.label, "engine", s.Engine, "pid", s.PID, "version", s.Version)
}

func (f *fleet) account(label, engine string, now time.Time) {
	key := accountKey{label, engine}
	if f.accounts[key] == nil {
		f.accounts[key] = &account{engine: engine, created: now}
	}
	f.accounts[key].last = now
}

// leave ends to follow a server; what was counted stays with its label.
func (f *fleet) leave(fo *follower, now time.Time) {
	delete(f.followers, fo.ID)
	if fo.tls {
		if err := f.kernel.leaveTLS(fo.library); err != nil {
			f.failed(fo.Server, err)
		}
	}
	if fo.number == otherNumber {
		return
	}
	t, err := f.kernel.read(fo.number)
	if err != nil {
		f.failed(fo.Server, err)
	}
	if fo.label == "" {
		fo.label = f.name(fo.Server)
	}
	f.account(fo.label, string(fo.Engine), now)
	f.accounts[accountKey{fo.label, string(fo.Engine)}].ended.add(&t)
	if err := f.kernel.clear(fo.number); err != nil {
		f.failed(fo.Server, err)
	}
	f.free = append(f.free, fo.number)
	f.log.Info("a database server ended", "server", fo.label, "pid", fo.PID)
}

// name returns a label value for a server: its own name, else engine and port; with an
// ordinal if a running server has that one already.
func (f *fleet) name(s server.Server) string {
	base := clean(s.Name)
	if base == "" {
		base = s.DefaultName()
	}
	name := base
	for n := 2; f.taken(name); n++ {
		name = fmt.Sprintf("%s-%d", base, n)
	}
	return name
}

func (f *fleet) taken(name string) bool {
	if name == otherServer {
		return true
	}
	for _, fo := range f.followers {
		if fo.label == name {
			return true
		}
	}
	return false
}

// clean makes a name fit for a label that people type in queries.
func clean(name string) string {
	name = strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', strings.ContainsRune("-_.:/", r):
			return r
		}
		return '_'
	}, name)
	return name[:min(len(name), maxName)]
}

func (f *fleet) failed(s server.Server, err error) {
	label := clean(s.Name)
	if label == "" {
		label = s.DefaultName()
	}
	// The label's values are as many as servers come by: bounded by what they call themselves.
	if _, ok := f.attachErrors[label]; !ok && len(f.attachErrors) >= maxServers {
		label = otherServer
	}
	f.attachErrors[label]++
	level := slog.LevelError
	if errors.Is(err, errNotThere) {
		level = slog.LevelInfo
	}
	f.log.Log(nil, level, "a database server cannot be followed in full", "engine", s.Engine, "pid", s.PID, "err", err)
}

// check lists the servers for --check.
func (f *fleet) check() []exporterkit.CheckResult {
	var results []exporterkit.CheckResult
	for _, fo := range f.followers {
		label := fo.label
		if label == "" {
			label = fo.DefaultName()
		}
		results = append(results, exporterkit.CheckResult{Part: "query: server " + label,
			Note: strings.TrimSpace(fmt.Sprintf("%s %s, PID %d", fo.Engine, fo.Version, fo.PID))})
	}
	slices.SortFunc(results, func(a, b exporterkit.CheckResult) int { return strings.Compare(a.Part, b.Part) })
	return results
}
