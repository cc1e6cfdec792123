package query

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	bpf "github.com/plumbline/plumbline/exporters/agent/bpf/query"
	"github.com/plumbline/plumbline/exporters/agent/collector"
	"github.com/plumbline/plumbline/exporters/agent/pod"
	"github.com/plumbline/plumbline/exporters/agent/query/querytest"
	"github.com/plumbline/plumbline/exporters/agent/server"
	"github.com/plumbline/plumbline/exporters/agent/untrusted"
)

// fakeKernel counts selects per server number.
type fakeKernel struct {
	refuse  map[int]error
	selects map[uint32]uint64
	ports   map[uint32][]uint16
	waits   map[uint32]uint64 // where it writes what it waits for
	// missed are the tasks there was no memory for, by server number; adopted counts the asking, by process.
	missed  map[uint32]uint64
	adopted map[int]int
	// marked are the tasks that bear a number; walks counts the walks over them.
	marked map[uint32]uint64
	walks  int
	// forgotten are the numbers whose processes are followed no more, and the PIDs of those that share one.
	forgotten  []uint32
	forgetPIDs []int
	// wakes is true while wake-ups are followed.
	wakes bool
	// costs is what following a server costs, by number.
	costs map[uint32]time.Duration
	// queries are a server's entries, by number; retired and emptied are those of the calls.
	queries          map[uint32][]entry
	retired, emptied []uint32
}

func (k *fakeKernel) forget(s server.Server, number uint32) error {
	k.forgotten = append(k.forgotten, number)
	if number == otherNumber {
		k.forgetPIDs = append(k.forgetPIDs, s.PID)
	}
	return nil
}

func (k *fakeKernel) detachWakes() error {
	k.wakes = false
	return nil
}

func (k *fakeKernel) adopt(s server.Server, number uint32) error {
	k.adopted[s.PID]++
	k.wakes = k.wakes || s.DBSystem.SyncsForOthers()
	return k.refuse[s.PID]
}

func (k *fakeKernel) unmarked(number uint32) (uint64, error) { return k.missed[number], nil }

func (k *fakeKernel) snapshot() (snapshot, error) {
	k.walks++
	var snap snapshot
	for number, n := range k.marked {
		snap.tasks[number] = n
	}
	return snap, nil
}

func (k *fakeKernel) describe(number uint32, s observation) error {
	k.ports[number], k.waits[number] = s.Ports, s.waitEvent
	return nil
}

func (k *fakeKernel) entries(number uint32) ([]entry, error) { return k.queries[number], nil }

func (k *fakeKernel) retire(_, index uint32) error {
	k.retired = append(k.retired, index)
	return nil
}

func (k *fakeKernel) empty(_, index uint32) error {
	k.emptied = append(k.emptied, index)
	return nil
}

func (k *fakeKernel) clear(number uint32) error {
	delete(k.selects, number)
	delete(k.queries, number)
	return nil
}

func (k *fakeKernel) read(number uint32) (totals, error) {
	var t totals
	n := k.selects[number]
	s := &t.commands[bpf.QuerySqlCommandSELECT]
	s.All = bpf.QueryAmounts{Count: n, SumNs: n * 1000}
	s.Slots[10] = n
	t.own = uint64(k.costs[number])
	return t, nil
}

func testFleet(limit int) (*fleet, *fakeKernel) {
	k := &fakeKernel{refuse: map[int]error{}, selects: map[uint32]uint64{}, ports: map[uint32][]uint16{},
		waits: map[uint32]uint64{}, missed: map[uint32]uint64{}, adopted: map[int]int{}, marked: map[uint32]uint64{},
		costs: map[uint32]time.Duration{}, queries: map[uint32][]entry{}}
	return newFleet(slog.New(slog.DiscardHandler), k, limit), k
}

func running(pid int, name string, ports ...uint16) observation {
	return observation{Server: server.Server{ID: server.ID{PID: pid, StartTicks: uint64(pid)}, DBSystem: server.PostgreSQL, Name: name, Ports: ports}}
}

func (f *fleet) labels() []string {
	var l []string
	for _, srv := range f.tracked {
		l = append(l, srv.label)
	}
	slices.Sort(l)
	return l
}

var begin = time.Unix(1700000000, 0)

func TestFleetNames(t *testing.T) {
	for _, c := range []struct {
		name  string
		found []observation
		want  []string
	}{
		{"own names", []observation{running(1, "a"), running(2, "b", 5432)}, []string{"a", "b"}},
		{"ports", []observation{running(1, "", 5432), running(2, "", 5433)}, []string{"postgresql-5432", "postgresql-5433"}},
		{"the same name twice", []observation{running(1, "a"), running(2, "a"), running(3, "a")}, []string{"a", "a-2", "a-3"}},
		{"a name for the rest", []observation{running(1, "other")}, []string{"other-2"}},
		{"odd letters", []observation{running(1, "a\"b\nc d")}, []string{"a_b_c_d"}},
		{"not up yet", []observation{running(1, "")}, []string{""}},
	} {
		t.Run(c.name, func(t *testing.T) {
			f, _ := testFleet(10)
			f.update(c.found, begin)
			if got := f.labels(); !slices.Equal(got, c.want) {
				t.Errorf("labels %q, want %q", got, c.want)
			}
		})
	}
}

// Servers of one name and port whose data directories nobody may read get different names by their cgroups, whichever
// began first.
func TestFleetNamesByCgroup(t *testing.T) {
	for _, order := range [][2]int{{1, 2}, {2, 1}} {
		f, _ := testFleet(10)
		one, two := running(order[0], "", 5432), running(order[1], "", 5432)
		one.Group, two.Group = "aaaaaaaa00000000", "bbbbbbbb00000000"
		f.update([]observation{one, two}, begin)
		if a, b := f.tracked[one.ID].label, f.tracked[two.ID].label; a != "postgresql-5432-aaaaaaaa" || b != "postgresql-5432-bbbbbbbb" {
			t.Errorf("they are called %q and %q", a, b)
		}
	}
}

// A process without memory for it when it began is followed from the next scan on, and the scan after a failed one.
func TestFleetAdoptsAgain(t *testing.T) {
	f, k := testFleet(10)
	found := []observation{running(1, "a", 5432), running(2, "b", 5433)}
	f.update(found, begin)
	number := f.tracked[found[0].ID].number
	for step, c := range []struct {
		missed uint64
		refuse error
		want   int
	}{
		{0, nil, 1}, {3, errors.New("no memory"), 2}, {3, nil, 3}, {3, nil, 3}, {4, nil, 4},
	} {
		k.missed[number], k.refuse[1] = c.missed, c.refuse
		f.update(found, begin.Add(time.Duration(step+1)*time.Second))
		if k.adopted[1] != c.want || k.adopted[2] != 1 {
			t.Errorf("step %d: requested %d times, want %d; the other server %d times", step, k.adopted[1], c.want, k.adopted[2])
		}
	}
}

// A server is named once it listens, and keeps the name.
func TestFleetWaitsForAName(t *testing.T) {
	f, k := testFleet(10)
	if f.update([]observation{running(1, "")}, begin) {
		t.Error("all is known of a server that does not listen yet")
	}
	if !f.update([]observation{running(1, "", 5432)}, begin.Add(time.Second)) {
		t.Error("not all is known of a server that listens")
	}
	f.update([]observation{running(1, "", 1000, 5432)}, begin.Add(time.Minute))
	if got := f.labels(); !slices.Equal(got, []string{"postgresql-5432"}) {
		t.Errorf("labels %q", got)
	}
	if got := k.ports[f.tracked[server.ID{PID: 1, StartTicks: 1}].number]; !slices.Equal(got, []uint16{1000, 5432}) {
		t.Errorf("the kernel knows ports %v", got)
	}
	// One that never listens gets a name too.
	f, _ = testFleet(10)
	f.update([]observation{running(1, "")}, begin)
	f.update([]observation{running(1, "")}, begin.Add(settleTime))
	if got := f.labels(); !slices.Equal(got, []string{"postgresql"}) {
		t.Errorf("labels %q", got)
	}
	// At once if it has had the time before the agent began.
	f, _ = testFleet(10)
	old := at(running(1, ""), "/data", "aaaa", false)
	old.age = settleTime
	f.update([]observation{old}, begin)
	if got := f.labels(); !slices.Equal(got, []string{"postgresql:/data"}) {
		t.Errorf("a server that has run for %v without a port: labels %q", old.age, got)
	}
}

// More servers than there is room for share one series, and are counted.
func TestFleetOverflow(t *testing.T) {
	f, k := testFleet(2)
	var found []observation
	for pid := range 5 {
		found = append(found, running(pid+1, fmt.Sprintf("s%d", pid)))
	}
	f.update(found, begin)
	if got, want := f.labels(), []string{"other", "other", "other", "s0", "s1"}; !slices.Equal(got, want) {
		t.Errorf("labels %q, want %q", got, want)
	}
	if f.overflows != 3 {
		t.Errorf("%d overflows, want 3", f.overflows)
	}
	k.selects[otherNumber] = 7
	c := &collected{f: f}
	if got := querytest.Collect(t, c, "other").Counts["select"]; got != 7 {
		t.Errorf("%d statements of other servers, want 7", got)
	}
	// When one ends, its room is free for the next that begins.
	f.update(append(found[1:], running(9, "s9")), begin.Add(time.Minute))
	if got, want := f.labels(), []string{"other", "other", "other", "s1", "s9"}; !slices.Equal(got, want) {
		t.Errorf("labels %q, want %q", got, want)
	}
}

// A restart goes on counting under the same name, and a reused PID is another server.
func TestFleetRestart(t *testing.T) {
	f, k := testFleet(10)
	old := running(1, "a")
	f.update([]observation{old}, begin)
	k.selects[f.tracked[old.ID].number] = 5
	restarted := running(1, "a")
	restarted.StartTicks = 99
	f.update([]observation{restarted}, begin.Add(time.Second))
	k.selects[f.tracked[restarted.ID].number] = 2
	c := &collected{f: f}
	if got := querytest.Collect(t, c, "a").Counts["select"]; got != 7 {
		t.Errorf("%d statements after a restart, want 5 + 2", got)
	}
	f.update(nil, begin.Add(2*time.Second))
	if got := querytest.Collect(t, c, "a").Counts["select"]; got != 7 {
		t.Errorf("%d statements after the end, want 7", got)
	}
	f.update(nil, begin.Add(2*time.Second+collector.KeepTime+time.Second))
	if got := querytest.Collect(t, c, "a").Counts["select"]; got != 0 || len(f.accounts) != 0 {
		t.Errorf("series of a server that ended long ago: %d statements, %d accounts", got, len(f.accounts))
	}
}

// A server that ends while it is attached to is counted and leaves nothing behind.
func TestFleetAttachError(t *testing.T) {
	f, k := testFleet(1)
	k.refuse[1] = errNotThere
	f.update([]observation{running(1, "gone"), running(2, "b")}, begin)
	if got := f.labels(); !slices.Equal(got, []string{"b"}) {
		t.Errorf("labels %q, want b", got)
	}
	if f.attachErrors["gone"].count != 1 {
		t.Errorf("attach errors %v", f.attachErrors)
	}
	if k.walks != 0 || len(f.leaving) != 0 {
		t.Errorf("%d walks over the tasks, %d are leaving: want the number to be free at once", k.walks, len(f.leaving))
	}
	// A flood of them does not make a flood of series, and is forgotten.
	for pid := 100; pid < 400; pid++ {
		f.failed(running(pid, fmt.Sprint(pid)).Server, begin, errors.New("no"))
	}
	if got := len(f.attachErrors); got != perSlot*f.limit+1 {
		t.Errorf("%d series of attach errors, want %d", got, perSlot*f.limit+1)
	}
	if got := f.attachErrors[collector.OtherServer].count; got < 290 {
		t.Errorf("%d errors of other servers", got)
	}
	f.update(nil, begin.Add(collector.KeepTime+time.Second))
	if got := len(f.attachErrors); got != 1 {
		t.Errorf("%d series of attach errors long after, want that of other servers", got)
	}
}

// A server that calls itself like another one, and cannot be followed, fails for itself: no pod's, no running one's and
// none's that is kept counts it.
func TestFleetAttachErrorOfClaimedName(t *testing.T) {
	f, k := testFleet(4)
	f.onCluster, f.pods = true, map[string]pod.Pod{"u1": pg1}
	ended, running1 := at(running(1, "ended", 1), "/data", "aaaa", false), running(2, "runs", 2)
	inPod := in(running(3, "", 5432), "u1", "c")
	f.update([]observation{ended, running1, inPod}, begin)
	k.selects[f.tracked[ended.ID].number] = 1
	found := []observation{running1, inPod}
	for pid, name := range map[int]string{10: "ended", 11: "runs", 12: "db/pg-1"} {
		k.refuse[pid] = errNotThere
		found = append(found, running(pid, name, 3))
	}
	f.update(found, begin.Add(time.Second))
	for _, label := range []string{"ended", "runs", "db/pg-1"} {
		if e := f.attachErrors[label]; e != nil {
			t.Errorf("%d failures are reported of %s", e.count, label)
		}
	}
	if own, others := f.attachErrors["host:db/pg-1"], f.attachErrors[collector.OtherServer]; own == nil || own.count != 1 || others == nil || others.count != 2 {
		t.Errorf("failures %v: want one of host:db/pg-1 and two of others", f.attachErrors)
	}
}

// A binary without the symbol costs its server one detail and is counted, and nothing else.
func TestFleetWithoutSymbol(t *testing.T) {
	f, _ := testFleet(1)
	s := running(1, "a", 1)
	s.noWaitEvent = errors.New("no symbol")
	f.update([]observation{s}, begin)
	f.update([]observation{s}, begin)
	if got := f.labels(); !slices.Equal(got, []string{"a"}) || f.attachErrors["a"].count != 1 {
		t.Errorf("labels %q, attach errors %v", got, f.attachErrors)
	}
}

// A fully known server is scanned again only after a while, one that comes up often, and one that lacks something now
// and then.
func TestFleetDue(t *testing.T) {
	whole, starting, partial, waits := running(1, "a", 1), running(2, ""), running(3, "b", 2), running(4, "c", 4567)
	whole.DataDirectory, waits.DataDirectory, waits.Waits = "/data", "/data", true
	for _, c := range []struct {
		s     observation
		after time.Duration
		want  bool
	}{
		{whole, rescanInterval - time.Second, false}, {whole, rescanInterval, true},
		{starting, time.Millisecond, true},
		{partial, time.Second, false}, {partial, rescanInterval / 10, true},
		{waits, time.Millisecond, true}, {waits, time.Second, true}, {waits, rescanInterval / 10, true},
	} {
		f, _ := testFleet(3)
		if !f.due(c.s.ID, begin) {
			t.Errorf("%d is not due for a scan at once", c.s.PID)
		}
		f.update([]observation{c.s}, begin)
		if got := f.due(c.s.ID, begin.Add(c.after)); got != c.want {
			t.Errorf("%d is scanned after %v: %v, want %v", c.s.PID, c.after, got, c.want)
		}
	}
}

// The TLS library is probed once per server, when it is there; a failure is counted, and a probe
// whose server has gone meanwhile is given up.
func TestFleetTLS(t *testing.T) {
	f, _ := testFleet(2)
	s := running(1, "a", 1)
	f.update([]observation{s}, begin)
	s.TLSLibrary = server.Library{Path: "/lib/libssl.so.3", Inode: 7}
	f.update([]observation{s}, begin)
	f.update([]observation{s}, begin)
	if len(f.wanted) != 1 || f.wanted[0].TLSLibrary != s.TLSLibrary {
		t.Errorf("probes wanted: %+v", f.wanted)
	}
	f.probed(s.Server, fileID{}, server.ErrUntrusted, begin)
	if f.attachErrors["a"] == nil || f.tracked[s.ID].tls {
		t.Errorf("a refusal is not counted: %v", f.attachErrors)
	}
	f.probed(s.Server, fileID{inode: 7}, nil, begin)
	f.update(nil, begin)
	f.probed(s.Server, fileID{inode: 8}, nil, begin)
	if want := []fileID{{inode: 7}, {inode: 8}}; !slices.Equal(f.unwanted, want) {
		t.Errorf("libraries given up: %+v, want %+v", f.unwanted, want)
	}
}

// What timed out is retried soon: the TLS library, where the server writes what it waits for, and where its files are.
func TestFleetReadsAgain(t *testing.T) {
	for _, passing := range []error{untrusted.ErrUnanswered, untrusted.ErrTooMany} {
		f, k := testFleet(2)
		s := running(1, "a", 1)
		s.DataDirectory = "/data"
		s.TLSLibrary = server.Library{Path: "/lib/libssl.so.3", Inode: 7}
		s.noWaitEvent = fmt.Errorf("program: %w", passing)
		s.places = []serverPlace{{purpose: "data", device: "sda"}}
		f.update([]observation{s}, begin)
		f.probed(s.Server, fileID{}, fmt.Errorf("library: %w", passing), begin)
		if f.attachErrors["a"].count != 2 || len(f.wanted) != 1 {
			t.Errorf("%v: failures %+v, %d probes wanted", passing, f.attachErrors["a"], len(f.wanted))
		}
		soon := begin.Add(rescanInterval / 10)
		if !f.due(s.ID, soon) {
			t.Errorf("%v: it is not queried again", passing)
		}
		s.waitEvent, s.noWaitEvent = 0x1234, nil
		s.places, s.noPlaces = nil, fmt.Errorf("devices: %w", passing)
		f.update([]observation{s}, soon)
		srv := f.tracked[s.ID]
		if len(f.wanted) != 2 || k.waits[srv.number] != 0x1234 {
			t.Errorf("%v: %d probes wanted, it shows what it waits for at %#x", passing, len(f.wanted), k.waits[srv.number])
		}
		f.probed(s.Server, fileID{}, fmt.Errorf("library: %w", passing), soon)
		f.update([]observation{s}, soon)
		if f.attachErrors["a"].count != 2 || len(f.wanted) != 3 {
			t.Errorf("%v again: failures %+v, want it reported once; %d probes wanted", passing, f.attachErrors["a"], len(f.wanted))
		}
		if len(srv.places) != 1 || !f.due(s.ID, soon.Add(rescanInterval/10)) {
			t.Errorf("%v: places %+v: want what was known, and to query again", passing, srv.places)
		}
		s.noPlaces = nil
		f.probed(s.Server, fileID{inode: 7}, nil, soon)
		f.update([]observation{s}, soon)
		if f.due(s.ID, soon.Add(rescanInterval/10)) {
			t.Errorf("%v: it is queried again when all is known", passing)
		}
	}
}

// What is requested once is not requested again, unless it timed out.
func TestWaitEventIsReadAgain(t *testing.T) {
	f, _ := testFleet(2)
	q := &query{fleet: f, calls: untrusted.NewCalls(time.Minute, 8), kernel: kernelSide{procfs: "/proc"}}
	s := running(os.Getpid(), "a", 1)
	s.StartTicks = 1 // it began with the machine
	s.waitEvent = 0x1234
	f.update([]observation{s}, begin)
	if c := q.complete(s.Server); c.waitEvent != 0x1234 || c.noWaitEvent != nil {
		t.Errorf("%#x, %v: want what is known", c.waitEvent, c.noWaitEvent)
	}
	f.tracked[s.ID].noWaitEvent = untrusted.ErrUnanswered
	if c := q.complete(s.Server); c.age <= 0 {
		t.Errorf("it has run for %v", c.age)
	}
	// This program has no such variable.
	if c := q.complete(s.Server); c.waitEvent == 0x1234 || untrusted.Unanswered(c.noWaitEvent) {
		t.Errorf("%#x, %v: want another answer", c.waitEvent, c.noWaitEvent)
	}
}

// Servers without end, each with a name of its own: those with statements keep their counts as
// long as there is room, then server="other" has them, and none is lost.
func TestFleetAccountsBounded(t *testing.T) {
	f, k := testFleet(2)
	stays := running(1, "stays", 1)
	f.update([]observation{stays}, begin)
	k.selects[f.tracked[stays.ID].number] = 3
	const servers = 1000
	for pid := 2; pid < servers+2; pid++ {
		s := running(pid, fmt.Sprint("s", pid), 5000)
		now := begin.Add(time.Duration(pid) * time.Millisecond)
		f.update([]observation{stays, s}, now)
		if pid%2 == 0 { // every other one never has a statement
			k.selects[f.tracked[s.ID].number] = 1
		}
		f.update([]observation{stays}, now)
		if len(f.accounts) > perSlot*f.limit+1 {
			t.Fatalf("%d accounts after %d servers", len(f.accounts), pid)
		}
	}
	// Room for eight: the one in use, the others', and one for a server that begins.
	if want := uint64(servers/2 - (perSlot*2 - 3)); f.folded != want {
		t.Errorf("%d accounts folded, want %d", f.folded, want)
	}
	c := &collected{f: f}
	sum := uint64(0)
	for key := range f.accounts {
		sum += querytest.Collect(t, c, key.label).Counts["select"]
	}
	if sum != servers/2+3 {
		t.Errorf("%d statements in all series, want %d", sum, servers/2+3)
	}
	if got := querytest.Collect(t, c, "stays").Counts["select"]; got != 3 {
		t.Errorf("%d statements of the server that stays, want 3", got)
	}
	if want := uint64(servers/2 - (perSlot*2 - 3)); querytest.Collect(t, c, collector.OtherServer).Counts["select"] != want {
		t.Errorf("%d statements of other servers, want %d", querytest.Collect(t, c, collector.OtherServer).Counts["select"], want)
	}
}

// No more servers are followed at once than there is room for, however many there are.
func TestFleetFull(t *testing.T) {
	f, _ := testFleet(2)
	var found []observation
	for pid := range 1000 {
		found = append(found, running(pid+1, ""))
	}
	f.update(found, begin)
	if len(f.tracked) != perSlot*f.limit || !f.full() {
		t.Errorf("%d servers are followed, want %d", len(f.tracked), perSlot*f.limit)
	}
}

// collected makes a fleet a Collector.
type collected struct {
	collector.Collector
	f *fleet
}

func (c *collected) Update(ch chan<- prometheus.Metric) error {
	sums, rest, err := c.f.read()
	return errors.Join(err, c.f.send(ch, collector.Options{Node: "here", SysFS: "/sys"}, sums, rest))
}

// A scan that could not see all that a server listens on neither takes a port from it nor is the last for long.
func TestFleetSomePorts(t *testing.T) {
	f, k := testFleet(2)
	s := running(1, "a", 5432, 6432)
	s.DataDirectory = "/data"
	f.update([]observation{s}, begin)
	srv := f.tracked[s.ID]
	some := s
	some.Ports, some.MorePorts = []uint16{6432}, true
	f.update([]observation{some}, begin.Add(time.Second))
	if want := []uint16{5432, 6432}; !slices.Equal(srv.Ports, want) || !slices.Equal(k.ports[srv.number], want) {
		t.Errorf("ports %v, the kernel knows %v; want %v", srv.Ports, k.ports[srv.number], want)
	}
	if !f.due(s.ID, begin.Add(time.Second+rescanInterval/10)) {
		t.Error("it is not scanned again soon")
	}
	one := s
	one.Ports = []uint16{6432}
	f.update([]observation{one}, begin.Add(time.Minute))
	if !slices.Equal(srv.Ports, one.Ports) || f.due(s.ID, begin.Add(time.Minute+rescanInterval/10)) {
		t.Errorf("by a whole scan ports %v, want %v", srv.Ports, one.Ports)
	}
}

// A server whose libraries could not be read at first is retried soon, and its library is probed when it shows.
func TestFleetLibraryComesLate(t *testing.T) {
	f, _ := testFleet(2)
	s := running(1, "a", 1)
	s.DataDirectory, s.NoLibrary = "/data", true
	f.update([]observation{s}, begin)
	soon := begin.Add(rescanInterval / 10)
	if !f.due(s.ID, soon) {
		t.Error("it is not queried again soon")
	}
	s.NoLibrary, s.TLSLibrary = false, server.Library{Path: "/lib/libssl.so.3", Inode: 7}
	f.update([]observation{s}, soon)
	f.probed(s.Server, fileID{inode: 7}, nil, soon)
	if len(f.wanted) != 1 || !f.tracked[s.ID].tls {
		t.Errorf("probes wanted: %+v", f.wanted)
	}
	s.NoLibrary, s.TLSLibrary = true, server.Library{}
	f.update([]observation{s}, soon)
	if f.tracked[s.ID].TLSLibrary.Inode != 7 || f.due(s.ID, soon.Add(rescanInterval/10)) {
		t.Errorf("when its memory does not answer its library is %+v", f.tracked[s.ID].TLSLibrary)
	}
}

// A library that cannot be probed now is retried, so often and no more, and logged once; one that is not trusted is
// not.
func TestFleetTLSAgain(t *testing.T) {
	for _, c := range []struct {
		err  error
		want int
	}{{errors.New("256 others are probed already"), maxTLSTries}, {fmt.Errorf("library: %w", server.ErrUntrusted), 1}} {
		f, _ := testFleet(2)
		s := running(1, "a", 1)
		s.DataDirectory, s.TLSLibrary = "/data", server.Library{Path: "/lib/libssl.so.3", Inode: 7}
		now, probes := begin, 0
		for range 3 * maxTLSTries {
			if f.due(s.ID, now) {
				f.update([]observation{s}, now)
			}
			probes += len(f.wanted)
			for range f.wanted {
				f.probed(s.Server, fileID{}, c.err, now)
			}
			f.wanted = nil
			now = now.Add(rescanInterval / 10)
		}
		if probes != c.want || f.attachErrors["a"].count != 1 {
			t.Errorf("%v: %d probes, reported %+v; want %d, reported once", c.err, probes, f.attachErrors["a"], c.want)
		}
	}
}
