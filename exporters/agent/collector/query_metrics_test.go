package collector

import (
	"errors"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

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
	found := []sighting{running(1, "a"), running(2, "b")}
	f.update(found, begin)
	a, b := f.followers[found[0].ID].number, f.followers[found[1].ID].number
	fake.selects[a], fake.selects[b] = 5, 7
	k := partialKernel{fake, map[uint32]bool{}}
	f.kernel = k
	for _, c := range []struct {
		name  string
		fails uint32
		// series are those of statements, by their servers, and news whether the lost news are reported.
		series string
		news   bool
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
		if got := strings.Join(names, " "); got != c.series || (rest != nil) != c.news {
			t.Errorf("%s fails: counts of %q, want %q; those that share a name: %v", c.name, got, c.series, rest != nil)
		}
		if (err != nil) != (c.name != "none") || err != nil && !strings.Contains(err.Error(), "server "+c.name+": no memory") {
			t.Errorf("%s fails: %v", c.name, err)
		}
		ch := make(chan prometheus.Metric, 10000)
		if err := f.send(ch, Options{Node: "here", SysFS: "/sys"}, sums, rest); err != nil {
			t.Error(err)
		}
		close(ch)
		news := false
		for m := range ch {
			news = news || m.Desc() == queryNewsLost
		}
		if news != c.news {
			t.Errorf("%s fails: lost news are told of: %v", c.name, news)
		}
	}
}

// A server whose data is on no known volume is counted by what is missing.
func TestUnidentifiedServers(t *testing.T) {
	volumes := []volume.Found{{Identity: volume.Identity{Volume: "v"}, Disk: "sda", Place: volume.Place{Device: "8:0", Path: "/v"}}}
	known := sighting{Server: server.Server{DataDirectory: "/v/pg"}}
	place := func(path string) []serverPlace {
		return []serverPlace{{"wal", "sda", "8:0", volume.Place{Device: "8:0", Path: "/v/wal"}}, {"data", "sda", "8:0", volume.Place{Device: "8:0", Path: path}}}
	}
	for want, s := range map[string]func() sighting{
		"":                  func() sighting { s := known; s.places = place("/v/pg"); return s },
		reasonVolume:        func() sighting { s := known; s.places = place("/w/pg"); return s },
		reasonDevice:        func() sighting { return known },
		reasonDataDirectory: func() sighting { return sighting{} },
	} {
		if got := (&follower{sighting: s()}).unidentified(volumes); got != want {
			t.Errorf("%q is missing, want %q", got, want)
		}
	}
	// Several tablespaces on one volume are one series.
	s := known
	s.places = append(place("/v/pg"), serverPlace{"tablespace", "sda", "8:0", volume.Place{Device: "8:0", Path: "/v/one"}},
		serverPlace{"tablespace", "sda", "8:0", volume.Place{Device: "8:0", Path: "/v/two"}})
	ch := make(chan prometheus.Metric, 10)
	(&follower{sighting: s, label: "s", number: 1}).sendVolumes(ch, volumes, "n")
	if len(ch) != 3 {
		t.Errorf("%d series of places", len(ch))
	}
}
