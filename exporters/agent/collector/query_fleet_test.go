package collector

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	bpf "github.com/plumbline/plumbline/exporters/agent/bpf/query"
	"github.com/plumbline/plumbline/exporters/agent/server"
)

// fakeKernel counts selects per server number.
type fakeKernel struct {
	refuse  map[int]error
	selects map[uint32]uint64
	ports   map[uint32][]uint16
	tls     []string
	// noSymbol is what the search for a symbol gives.
	noSymbol error
}

func (k *fakeKernel) adopt(s server.Server, number uint32) error { return k.refuse[s.PID] }

func (k *fakeKernel) waitEvent(s server.Server) (uint64, error) { return 1, k.noSymbol }

func (k *fakeKernel) describe(number uint32, ports []uint16, waitEvent uint64) error {
	k.ports[number] = ports
	return nil
}

func (k *fakeKernel) readTLS(library string) (fileID, error) {
	k.tls = append(k.tls, library)
	return fileID{}, nil
}

func (k *fakeKernel) leaveTLS(fileID) error { return nil }

func (k *fakeKernel) clear(number uint32) error {
	delete(k.selects, number)
	return nil
}

func (k *fakeKernel) read(number uint32) (totals, error) {
	var t totals
	n := k.selects[number]
	s := &t.commands[bpf.QueryCommandSELECT]
	*s = total{Count: n, SumNs: n * 1000}
	s.Slots[10], s.Classic[0] = n, n
	return t, nil
}

func testFleet(limit int) (*fleet, *fakeKernel) {
	k := &fakeKernel{refuse: map[int]error{}, selects: map[uint32]uint64{}, ports: map[uint32][]uint16{}}
	return newFleet(slog.New(slog.DiscardHandler), k, limit), k
}

func running(pid int, name string, ports ...uint16) server.Server {
	return server.Server{ID: server.ID{PID: pid, StartTicks: uint64(pid)}, Engine: server.PostgreSQL, Name: name, Ports: ports}
}

func (f *fleet) labels() []string {
	var l []string
	for _, fo := range f.followers {
		l = append(l, fo.label)
	}
	slices.Sort(l)
	return l
}

var begin = time.Unix(1700000000, 0)

func TestFleetNames(t *testing.T) {
	for _, c := range []struct {
		name  string
		found []server.Server
		want  []string
	}{
		{"own names", []server.Server{running(1, "a"), running(2, "b", 5432)}, []string{"a", "b"}},
		{"ports", []server.Server{running(1, "", 5432), running(2, "", 5433)}, []string{"postgresql-5432", "postgresql-5433"}},
		{"the same name twice", []server.Server{running(1, "a"), running(2, "a"), running(3, "a")}, []string{"a", "a-2", "a-3"}},
		{"a name for the rest", []server.Server{running(1, "other")}, []string{"other-2"}},
		{"odd letters", []server.Server{running(1, "a\"b\nc d")}, []string{"a_b_c_d"}},
		{"not up yet", []server.Server{running(1, "")}, []string{""}},
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

// A server is named once it listens, and keeps the name.
func TestFleetWaitsForAName(t *testing.T) {
	f, k := testFleet(10)
	if f.update([]server.Server{running(1, "")}, begin) {
		t.Error("all is known of a server that does not listen yet")
	}
	if !f.update([]server.Server{running(1, "", 5432)}, begin.Add(time.Second)) {
		t.Error("not all is known of a server that listens")
	}
	f.update([]server.Server{running(1, "", 1000, 5432)}, begin.Add(time.Minute))
	if got := f.labels(); !slices.Equal(got, []string{"postgresql-5432"}) {
		t.Errorf("labels %q", got)
	}
	if got := k.ports[f.followers[server.ID{PID: 1, StartTicks: 1}].number]; !slices.Equal(got, []uint16{1000, 5432}) {
		t.Errorf("the kernel knows ports %v", got)
	}
	// One that never listens gets a name too.
	f, _ = testFleet(10)
	f.update([]server.Server{running(1, "")}, begin)
	f.update([]server.Server{running(1, "")}, begin.Add(settleTime))
	if got := f.labels(); !slices.Equal(got, []string{"postgresql"}) {
		t.Errorf("labels %q", got)
	}
}

// More servers than there is room for share one series, and are counted.
func TestFleetOverflow(t *testing.T) {
	f, k := testFleet(2)
	var found []server.Server
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
	if got := look(t, c, "other").counts["select"]; got != 7 {
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
	f.update([]server.Server{old}, begin)
	k.selects[f.followers[old.ID].number] = 5
	restarted := running(1, "a")
	restarted.StartTicks = 99
	f.update([]server.Server{restarted}, begin.Add(time.Second))
	k.selects[f.followers[restarted.ID].number] = 2
	c := &collected{f: f}
	if got := look(t, c, "a").counts["select"]; got != 7 {
		t.Errorf("%d statements after a restart, want 5 + 2", got)
	}
	f.update(nil, begin.Add(2*time.Second))
	if got := look(t, c, "a").counts["select"]; got != 7 {
		t.Errorf("%d statements after the end, want 7", got)
	}
	f.update(nil, begin.Add(2*time.Second+keepTime+time.Second))
	if got := look(t, c, "a").counts["select"]; got != 0 || len(f.accounts) != 0 {
		t.Errorf("series of a server that ended long ago: %d statements, %d accounts", got, len(f.accounts))
	}
}

// A server that ends while it is attached to is counted and leaves nothing behind.
func TestFleetAttachError(t *testing.T) {
	f, k := testFleet(1)
	k.refuse[1] = errNotThere
	f.update([]server.Server{running(1, "gone"), running(2, "b")}, begin)
	if got := f.labels(); !slices.Equal(got, []string{"b"}) {
		t.Errorf("labels %q, want b", got)
	}
	if f.attachErrors["gone"] != 1 {
		t.Errorf("attach errors %v", f.attachErrors)
	}
	// A flood of them does not make a flood of series.
	for pid := 100; pid < 400; pid++ {
		f.failed(running(pid, fmt.Sprint(pid)), errors.New("no"))
	}
	if len(f.attachErrors) > maxServers+1 {
		t.Errorf("%d series of attach errors", len(f.attachErrors))
	}
}

// A binary without the symbol costs its server one detail and is counted, and nothing else.
func TestFleetWithoutSymbol(t *testing.T) {
	f, k := testFleet(1)
	k.noSymbol = errors.New("no symbol")
	f.update([]server.Server{running(1, "a", 1)}, begin)
	if got := f.labels(); !slices.Equal(got, []string{"a"}) || f.attachErrors["a"] != 1 {
		t.Errorf("labels %q, attach errors %v", got, f.attachErrors)
	}
}

// A server of which all is known is looked at again only after a while.
func TestFleetKnown(t *testing.T) {
	f, _ := testFleet(3)
	whole, partial := running(1, "a", 1), running(2, "b", 2)
	whole.DataDirectory = "/data"
	found := []server.Server{whole, partial}
	for _, c := range []struct {
		after time.Duration
		want  int
	}{{0, 0}, {time.Second, 1}, {lookAgain - time.Second, 1}, {lookAgain, 0}, {lookAgain + time.Second, 1}} {
		now := begin.Add(c.after)
		if got := f.known(now); len(got) != c.want || (c.want == 1 && got[whole.ID].Name != "a") {
			t.Errorf("after %v, known are %v, want %d", c.after, got, c.want)
		}
		f.update(found, now)
	}
}

// The TLS library is probed once per server, when it is there.
func TestFleetTLS(t *testing.T) {
	f, k := testFleet(1)
	s := running(1, "a", 1)
	f.update([]server.Server{s}, begin)
	s.TLSLibrary = "/proc/1/root/libssl.so"
	f.update([]server.Server{s}, begin)
	f.update([]server.Server{s}, begin)
	if !slices.Equal(k.tls, []string{s.TLSLibrary}) {
		t.Errorf("probed %q", k.tls)
	}
}

// collected makes a fleet a Collector.
type collected struct {
	Collector
	f *fleet
}

func (c *collected) Update(ch chan<- prometheus.Metric) error {
	return c.f.send(ch, Options{Node: "here", SysFS: "/sys"})
}
