package query

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	bpf "github.com/plumbline/plumbline/exporters/agent/bpf/query"
	"github.com/plumbline/plumbline/exporters/agent/collector"
	"github.com/plumbline/plumbline/exporters/agent/collector/collectortest"
	"github.com/plumbline/plumbline/exporters/agent/server"
	"github.com/plumbline/plumbline/exporters/agent/volume"
)

// partialKernel is a fake that cannot read some servers whole.
type partialKernel struct {
	*fakeKernel
	fails map[uint32]bool
}

func (k partialKernel) read(number uint32) (totals, error) {
	t, err := k.fakeKernel.read(number)
	if k.fails[number] {
		return totals{lost: t.lost}, errors.New("no memory")
	}
	return t, err
}

// No count is reported of a server that cannot be read whole, as a part of it would look like a counter's reset. The
// others' are.
func TestFleetReadsNotWhole(t *testing.T) {
	f, fake := testFleet(10)
	found := []observation{running(1, "a"), running(2, "b")}
	f.update(found, begin)
	a, b := f.tracked[found[0].ID].number, f.tracked[found[1].ID].number
	fake.selects[a], fake.selects[b] = 5, 7
	k := partialKernel{fake, map[uint32]bool{}}
	f.kernel = k
	for _, c := range []struct {
		name  string
		fails uint32
		// series are those of statements, by their servers, and events whether the lost process events are reported.
		series string
		events bool
	}{{"a", a, "b", true}, {"other", otherNumber, "a b", false}, {"none", 1 << 20, "a b", true}} {
		clear(k.fails)
		k.fails[c.fails] = true
		sums, rest, err := f.read()
		var names []string
		for _, name := range []string{"a", "b"} {
			if sums[accountKey{name, "postgresql"}] != nil {
				names = append(names, name)
			}
		}
		if got := strings.Join(names, " "); got != c.series || (rest != nil) != c.events {
			t.Errorf("%s fails: counts of %q, want %q; those that share a name: %v", c.name, got, c.series, rest != nil)
		}
		if (err != nil) != (c.name != "none") || err != nil && !strings.Contains(err.Error(), "server "+c.name+": no memory") {
			t.Errorf("%s fails: %v", c.name, err)
		}
		ch := make(chan prometheus.Metric, 10000)
		if err := f.send(ch, collector.Options{Node: "here", SysFS: "/sys"}, sums, rest); err != nil {
			t.Error(err)
		}
		close(ch)
		events := false
		for m := range ch {
			events = events || m.Desc() == processEventsLost
		}
		if events != c.events {
			t.Errorf("%s fails: lost process events are reported: %v", c.name, events)
		}
	}
}

// A server whose data is on no known volume, or with more ports than are compared, is counted by what is missing.
func TestUnidentifiedServers(t *testing.T) {
	volumes := []volume.Found{{Identity: volume.Identity{Volume: "v"}, Disk: "sda", Place: volume.Place{Device: "8:0", Path: "/v"}}}
	known := observation{Server: server.Server{DataDirectory: "/v/pg"}}
	place := func(path string) []serverPlace {
		return []serverPlace{{"wal", "sda", "8:0", volume.Place{Device: "8:0", Path: "/v/wal"}}, {"data", "sda", "8:0", volume.Place{Device: "8:0", Path: path}}}
	}
	for want, s := range map[string]func() observation{
		"":                            func() observation { s := known; s.places = place("/v/pg"); return s },
		collector.ReasonVolume:        func() observation { s := known; s.places = place("/w/pg"); return s },
		collector.ReasonDevice:        func() observation { return known },
		collector.ReasonDataDirectory: func() observation { return observation{} },
		collector.ReasonPorts: func() observation {
			s := known
			s.places, s.Ports, s.UnsupportedPorts = place("/v/pg"), []uint16{1, 2, 3, 4}, []uint16{5}
			return s
		},
	} {
		if got := strings.Join((&trackedServer{observation: s()}).unidentified(volumes), " "); got != want {
			t.Errorf("%q is missing, want %q", got, want)
		}
	}
	// Several tablespaces on one volume are one series.
	s := known
	s.places = append(place("/v/pg"), serverPlace{"tablespace", "sda", "8:0", volume.Place{Device: "8:0", Path: "/v/one"}},
		serverPlace{"tablespace", "sda", "8:0", volume.Place{Device: "8:0", Path: "/v/two"}})
	ch := make(chan prometheus.Metric, 10)
	(&trackedServer{observation: s, label: "s", number: 1}).sendVolumes(ch, volumes, "n")
	if len(ch) != 3 {
		t.Errorf("%d series of places", len(ch))
	}
}

// A wait that proves a sync when it ends was shown as a wait while it went on. It is not shown twice.
func TestWaitsThatProveSyncs(t *testing.T) {
	const commit = int(bpf.QuerySqlCommandCOMMIT)
	for _, c := range []struct {
		dbSystem server.DBSystem
		sync     float64 // shown at the end
	}{{server.MySQL, 8}, {server.PostgreSQL, 10}} {
		a := &account{}
		shown := func(wait, sync uint64) (seconds map[string]float64) {
			var sums totals
			sums.commands[commit].All.PhaseNs[bpf.QueryPhasePHASE_WAIT] = wait * uint64(time.Second)
			sums.commands[commit].All.PhaseNs[bpf.QueryPhasePHASE_SYNC] = sync * uint64(time.Second)
			ch := make(chan prometheus.Metric, 1000)
			if err := sums.send(ch, accountKey{"s", string(c.dbSystem)}, a, false); err != nil {
				t.Fatal(err)
			}
			close(ch)
			seconds = map[string]float64{}
			for m := range ch {
				var d dto.Metric
				if m.Desc() != queryPhase {
					continue
				}
				if err := m.Write(&d); err != nil {
					t.Fatal(err)
				}
				if l := collectortest.Labels(&d); l["command"] == "commit" {
					seconds[l["phase"]] = d.Counter.GetValue()
				}
			}
			return seconds
		}
		shown(5, 0) // 3 of it goes on
		got := shown(2, 3)
		if got["wait"] != 5 || c.dbSystem == server.MySQL && got["sync"] != 0 {
			t.Errorf("%s: a wait of 3 s that was shown as one: %v", c.dbSystem, got)
		}
		got = shown(3, 10)
		if got["wait"] != 5 || got["sync"] != c.sync {
			t.Errorf("%s: %v", c.dbSystem, got)
		}
		if got = shown(6, 11); got["wait"] != 6 || got["sync"] != 11 {
			t.Errorf("%s: in the end %v", c.dbSystem, got)
		}
	}
}
