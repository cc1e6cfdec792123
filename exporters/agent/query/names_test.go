package query

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/plumbline/plumbline/exporters/agent/collector"
	"github.com/plumbline/plumbline/exporters/agent/collector/collectortest"
	"github.com/plumbline/plumbline/exporters/agent/pod"
	"github.com/plumbline/plumbline/exporters/agent/query/querytest"
	"github.com/plumbline/plumbline/exporters/agent/server"
	"github.com/plumbline/plumbline/exporters/agent/server/servertest"
)

// in puts a server into a container of a pod.
func in(s observation, uid, container string) observation {
	s.pod = pod.ID{UID: uid, Container: container}
	return s
}

// at gives a server a data directory.
func at(s observation, directory, id string, apart bool) observation {
	s.DataDirectory, s.DataPath, s.DataID, s.Owned, s.Apart = directory, directory, id, true, apart
	return s
}

var (
	pg1 = pod.Pod{Namespace: "db", Name: "pg-1", OwnerKind: "Cluster", Owner: "pg", Complete: true}
	two = pod.Pod{Namespace: "db", Name: "two-0"}
)

// Whatever order servers begin in, they have the same names.
func TestNamesDoNotFollowOrder(t *testing.T) {
	for _, c := range []struct {
		name  string
		found []observation
		want  map[int]string // by PID
	}{
		{"data directories", []observation{at(running(1, "", 5432), "/var/lib/postgresql/15/main", "aaaa", false), at(running(2, "", 5433), "/var/lib/postgresql/16/main", "bbbb", false)},
			map[int]string{1: "postgresql:/var/lib/postgresql/15/main", 2: "postgresql:/var/lib/postgresql/16/main"}},
		{"the same path in two containers and on the host", []observation{at(running(1, "", 5432), "/data", "aaaa", true), at(running(2, "", 5432), "/data", "bbbb", true), at(running(3, "", 5432), "/data", "cccc", false)},
			map[int]string{1: "postgresql:/data-aaaa", 2: "postgresql:/data-bbbb", 3: "postgresql:/data"}},
		{"one name of their own", []observation{at(running(1, "main", 5432), "/a", "aaaa", false), at(running(2, "main", 5433), "/b", "bbbb", false)},
			map[int]string{1: "main-aaaa", 2: "main-bbbb"}},
		{"a directory where somebody only stands", []observation{at(running(1, "", 5432), "/a", "aaaa", false), func() observation {
			s := at(running(2, "", 5433), "/a", "aaaa", false)
			s.Owned = false
			return s
		}()}, map[int]string{1: "postgresql:/a", 2: "postgresql-5433"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, backwards := range []bool{false, true} {
				f, _ := testFleet(10)
				found := slices.Clone(c.found)
				if backwards {
					for i := range found {
						found[i].StartTicks = uint64(100 - found[i].PID)
					}
				}
				f.update(found, begin)
				for _, s := range found {
					if got := f.tracked[s.ID].label; got != c.want[s.PID] {
						t.Errorf("backwards %v: process %d is %q, want %q", backwards, s.PID, got, c.want[s.PID])
					}
				}
			}
		})
	}
}

// Names as they are made of what is known, and cut to what fits into a label.
func TestNames(t *testing.T) {
	long := strings.Repeat("x", 200)
	pods := map[string]pod.Pod{"u1": pg1, "u2": {Namespace: strings.Repeat("n", 63), Name: strings.Repeat("p", 253)}}
	for _, c := range []struct {
		name      string
		s         observation
		onCluster bool
		want      string
	}{
		{"a pod", in(running(1, "main", 5432), "u1", "c"), true, "db/pg-1"},
		{"a pod with the longest names", in(running(1, "", 5432), "u2", "c"), true, strings.Repeat("n", 63) + "/" + strings.Repeat("p", 253)},
		{"on the host", running(1, "main", 5432), true, "main"},
		{"a name like a pod's on the host", running(1, "db/pg-1", 5432), true, "host:db/pg-1"},
		{"a name like a nameless pod's on the host", running(1, "uid:u1", 5432), true, "host:uid:u1"},
		{"Debian's name where there is no Kubernetes", running(1, "15/main", 5432), false, "15/main"},
		{"a long one", running(1, long, 5432), false, long[:maxName-9] + "-ce5a7f0e"},
		{"another long one", running(1, long+"y", 5432), false, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			f, _ := testFleet(10)
			f.onCluster, f.pods = c.onCluster, pods
			f.update([]observation{c.s}, begin)
			got := f.labels()[0]
			switch {
			case strings.HasPrefix(c.want, "xxx"):
				if len(got) != maxName || got[:maxName-9] != c.want[:maxName-9] {
					t.Errorf("label %q", got)
				}
			case c.want == "":
				if len(got) != maxName || got == clean(long) {
					t.Errorf("label %q", got)
				}
			case got != c.want:
				t.Errorf("label %q, want %q", got, c.want)
			}
		})
	}
}

// The API server is away, and so are the folders of logs: nothing is reported under two names, nothing is lost. The
// server gets its name when that is known, and keeps it when nobody knows it any more.
func TestNameComesLate(t *testing.T) {
	f, k := testFleet(10)
	f.onCluster = true
	s := in(running(1, "", 5432), "u1", "c")
	f.update([]observation{s}, begin)
	number := f.tracked[s.ID].number
	k.selects[number] = 5
	if got := f.labels(); !slices.Equal(got, []string{""}) {
		t.Errorf("at first it is %q", got)
	}
	wants := func(when string, after time.Duration, pods map[string]pod.Pod, label string, count uint64, provisional int) {
		t.Helper()
		f.identified(pods, begin.Add(after))
		f.update([]observation{s}, begin.Add(after))
		if got := f.labels(); !slices.Equal(got, []string{label}) {
			t.Errorf("%s it is %q, want %q", when, got, label)
		}
		c := &collected{f: f}
		if got := querytest.Collect(t, c, label).Counts["select"]; got != count {
			t.Errorf("%s %d statements, want %d", when, got, count)
		}
		if len(f.accounts) != 1 {
			t.Errorf("%s there are accounts %v", when, f.accounts)
		}
		if got, _ := f.provisional(); got != provisional {
			t.Errorf("%s %d provisional names, want %d", when, got, provisional)
		}
	}
	wants("after half a minute", settleTime, nil, "uid:u1", 5, 1)
	k.selects[number] = 7
	wants("after ten minutes", 10*time.Minute, nil, "uid:u1", 7, 1)
	wants("by the logs", 11*time.Minute, map[string]pod.Pod{"u1": {Namespace: "db", Name: "pg-1"}}, "db/pg-1", 7, 0)
	wants("by the API", 12*time.Minute, map[string]pod.Pod{"u1": pg1}, "db/pg-1", 7, 0)
	wants("while it is away", 20*time.Minute, nil, "db/pg-1", 7, 0)
	wants("by the logs again", 21*time.Minute, map[string]pod.Pod{"u1": {Namespace: "db", Name: "pg-1"}}, "db/pg-1", 7, 0)
	if p := f.podOf(f.tracked[s.ID]); p == nil || p.Owner != "pg" {
		t.Errorf("what the API returned is forgotten: %+v", p)
	}
	if f.renamed != 1 {
		t.Errorf("renamed %d times, want once", f.renamed)
	}
	f.failed(s.Server, begin, errors.New("no"))
	if e := f.attachErrors["db/pg-1"]; e == nil || e.count != 1 {
		t.Errorf("attach errors %v", f.attachErrors)
	}
	// A new process of the pod, another pod of the name: a restart, a StatefulSet's pod made again. They go on counting.
	again := in(running(2, "", 5432), "u9", "d")
	f.update([]observation{again}, begin.Add(22*time.Minute))
	f.identified(map[string]pod.Pod{"u9": pg1}, begin.Add(22*time.Minute))
	k.selects[f.tracked[again.ID].number] = 3
	if got := querytest.Collect(t, &collected{f: f}, "db/pg-1").Counts["select"]; got != 10 {
		t.Errorf("%d statements after a restart, want 7 + 3", got)
	}
}

// A provisional name's counts join those that its name had before.
func TestNameComesBack(t *testing.T) {
	f, k := testFleet(10)
	f.onCluster = true
	f.pods = map[string]pod.Pod{"u1": pg1}
	first := in(running(1, "", 5432), "u1", "c")
	f.update([]observation{first}, begin)
	k.selects[f.tracked[first.ID].number] = 5
	querytest.Collect(t, &collected{f: f}, "db/pg-1")
	second := in(running(2, "", 5432), "u2", "d")
	f.update([]observation{second}, begin.Add(time.Minute))
	k.selects[f.tracked[second.ID].number] = 2
	f.update([]observation{second}, begin.Add(2*time.Minute))
	if got := querytest.Collect(t, &collected{f: f}, "uid:u2").Counts["select"]; got != 2 {
		t.Errorf("%d statements under the provisional name", got)
	}
	f.identified(map[string]pod.Pod{"u2": pg1}, begin.Add(3*time.Minute))
	if got := querytest.Collect(t, &collected{f: f}, "db/pg-1"); got.Counts["select"] != 7 || len(f.accounts) != 1 {
		t.Errorf("%d statements, want 5 + 2; accounts %v", got.Counts["select"], f.accounts)
	}
}

// Two servers in a pod, two in a container: each has a name that identifies it, whichever began first, also when the
// other ends.
func TestServersOfOnePod(t *testing.T) {
	f, k := testFleet(10)
	f.onCluster = true
	f.pods = map[string]pod.Pod{"u2": two}
	a := in(running(1, "", 5432), "u2", strings.Repeat("a", 64))
	f.update([]observation{a}, begin)
	k.selects[f.tracked[a.ID].number] = 4
	if got := f.labels(); !slices.Equal(got, []string{"db/two-0"}) {
		t.Errorf("alone: %q", got)
	}
	// What a server leaves behind for a moment, and never listens, is no second one.
	orphan := in(running(5, ""), "u2", strings.Repeat("a", 64))
	f.update([]observation{a, orphan}, begin.Add(time.Second))
	f.update([]observation{a}, begin.Add(2*time.Second))
	if got := f.labels(); !slices.Equal(got, []string{"db/two-0"}) {
		t.Errorf("with an orphan: %q", got)
	}
	b := in(running(2, "", 3306), "u2", strings.Repeat("b", 64))
	f.update([]observation{a, b}, begin.Add(time.Minute))
	if got := f.labels(); !slices.Equal(got, []string{"db/two-0/aaaaaaaaaaaa", "db/two-0/bbbbbbbbbbbb"}) {
		t.Errorf("before the containers are known: %q", got)
	}
	if n, _ := f.provisional(); n != 2 {
		t.Errorf("%d provisional names", n)
	}
	known := podWith("db", "two-0", map[string]string{strings.Repeat("a", 64): "one", strings.Repeat("b", 64): "other"})
	f.identified(map[string]pod.Pod{"u2": known}, begin.Add(2*time.Minute))
	if got := f.labels(); !slices.Equal(got, []string{"db/two-0/one", "db/two-0/other"}) {
		t.Errorf("two containers: %q", got)
	}
	if got := querytest.Collect(t, &collected{f: f}, "db/two-0/one").Counts["select"]; got != 4 {
		t.Errorf("%d statements, want 4", got)
	}
	c := in(running(3, "", 5433), "u2", strings.Repeat("a", 64))
	f.update([]observation{a, b, c}, begin.Add(3*time.Minute))
	want := []string{"db/two-0/one:5432", "db/two-0/one:5433", "db/two-0/other"}
	if got := f.labels(); !slices.Equal(got, want) {
		t.Errorf("two in a container: %q", got)
	}
	f.update([]observation{a}, begin.Add(4*time.Minute))
	if got := f.labels(); !slices.Equal(got, want[:1]) {
		t.Errorf("alone again: %q", got)
	}
	if got := querytest.Collect(t, &collected{f: f}, "db/two-0/one:5432").Counts["select"]; got != 4 {
		t.Errorf("%d statements, want 4", got)
	}
	f.update(nil, begin.Add(5*time.Minute))
	if len(f.shared) != 0 {
		t.Errorf("kept of a pod that is gone: %v", f.shared)
	}
	// The other order, all at once.
	f, _ = testFleet(10)
	f.onCluster, f.pods = true, map[string]pod.Pod{"u2": known}
	b.StartTicks, a.StartTicks = 1, 2
	f.update([]observation{b, a}, begin)
	if got := f.labels(); !slices.Equal(got, []string{"db/two-0/one", "db/two-0/other"}) {
		t.Errorf("backwards: %q", got)
	}
}

// Two servers of a pod that ran before the agent, and listen on no port, have the longer names at once.
func TestOldServersOfOnePod(t *testing.T) {
	f, _ := testFleet(10)
	f.onCluster = true
	one, other := strings.Repeat("a", 64), strings.Repeat("b", 64)
	f.pods = map[string]pod.Pod{"u2": podWith("db", "two-0", map[string]string{one: "one", other: "other"})}
	a, b := in(at(running(1, ""), "/a", "aaaa", true), "u2", one), in(at(running(2, ""), "/b", "bbbb", true), "u2", other)
	a.age, b.age = settleTime, settleTime
	f.update([]observation{a, b}, begin)
	if got := f.labels(); !slices.Equal(got, []string{"db/two-0/one", "db/two-0/other"}) {
		t.Errorf("labels %q", got)
	}
}

// The name of a server outside of pods that ended is kept for it: another one with the name adds nothing to its counts,
// and does not have the name when it comes back.
func TestNameIsKept(t *testing.T) {
	const database, neighbour = 70, 1000
	main := func(pid int, user uint32, id string, apart bool) observation {
		s := running(pid, "main", 5432)
		if id != "" {
			s = at(s, "/data", id, apart)
		}
		s.User = user
		return s
	}
	for _, c := range []struct {
		name string
		next observation
		want string
	}{
		{"it is started again", main(2, database, "aaaa", false), "main"},
		{"on a data directory that was made anew", main(2, database, "bbbb", false), "main"},
		{"another user", main(2, neighbour, "bbbb", false), "main-bbbb"},
		{"another user in its data directory", main(2, neighbour, "aaaa", false), "main-aaaa"},
		{"another user in none", main(2, neighbour, "", false), "main-2"},
		{"its user in none", main(2, database, "", false), "main-2"},
		{"its user in a container", main(2, database, "bbbb", true), "main-bbbb"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f, k := testFleet(10)
			first := main(1, database, "aaaa", false)
			f.update([]observation{first}, begin)
			k.selects[f.tracked[first.ID].number] = 5
			now := begin.Add(time.Minute)
			f.update([]observation{c.next}, now)
			now = now.Add(settleTime)
			f.update([]observation{c.next}, now)
			if got := f.labels(); !slices.Equal(got, []string{c.want}) {
				t.Fatalf("the next one is %q, want %q", got, c.want)
			}
			k.selects[f.tracked[c.next.ID].number] = 3
			want := uint64(5)
			if c.want == "main" {
				want += 3
			}
			if got := querytest.Collect(t, &collected{f: f}, "main").Counts["select"]; got != want {
				t.Errorf("%d statements of main, want %d", got, want)
			}
			if c.want == "main" {
				return
			}
			again := main(3, database, "aaaa", false)
			f.update([]observation{c.next, again}, now.Add(time.Second))
			if got := f.tracked[again.ID].label; got != "main" {
				t.Errorf("when it comes back it is %q", got)
			}
		})
	}
}

// The identity of a server may show later than what it calls itself: until then it does not lose its name.
func TestKeptNameWaits(t *testing.T) {
	f, _ := testFleet(10)
	first := at(running(1, "main", 5432), "/data", "aaaa", false)
	f.update([]observation{first}, begin)
	f.account("main", string(first.DBSystem), begin).ended.lost[0] = 1 // there is something to keep
	now := begin.Add(time.Minute)
	f.update([]observation{running(2, "main")}, now)
	if got := f.labels(); !slices.Equal(got, []string{""}) {
		t.Errorf("before its data directory is known it is %q", got)
	}
	f.update([]observation{at(running(2, "main", 5432), "/data", "aaaa", false)}, now.Add(time.Second))
	if got := f.labels(); !slices.Equal(got, []string{"main"}) {
		t.Errorf("then it is %q", got)
	}
}

// A server whose data directory does not answer for long has another name until it does; then it gets its own, and its
// counts go along.
func TestKeptNameComesBack(t *testing.T) {
	f, k := testFleet(10)
	first := at(running(1, "main", 5432), "/data", "aaaa", false)
	f.update([]observation{first}, begin)
	k.selects[f.tracked[first.ID].number] = 5
	hung := running(2, "main", 5432)
	now := begin.Add(time.Minute)
	wants := func(s observation, label string, provisional int) {
		t.Helper()
		f.update([]observation{s}, now)
		if got := f.labels(); !slices.Equal(got, []string{label}) {
			t.Errorf("it is %q, want %q", got, label)
		}
		if got, _ := f.provisional(); got != provisional {
			t.Errorf("%d provisional names of %q, want %d", got, label, provisional)
		}
	}
	wants(hung, "", 0)
	now = now.Add(settleTime)
	wants(hung, "main-2", 1)
	k.selects[f.tracked[hung.ID].number] = 3
	now = now.Add(time.Minute)
	wants(at(hung, "/data", "aaaa", false), "main", 0)
	if got := querytest.Collect(t, &collected{f: f}, "main"); got.Counts["select"] != 8 || len(f.accounts) != 1 {
		t.Errorf("%d statements, want 5 + 3; accounts %v", got.Counts["select"], f.accounts)
	}
}

// A server that never shows its identity does not get the name when nothing is kept for it any more.
func TestKeptNameIsNotInherited(t *testing.T) {
	f, k := testFleet(10)
	first := at(running(1, "main", 5432), "/data", "aaaa", false)
	f.update([]observation{first}, begin)
	k.selects[f.tracked[first.ID].number] = 5
	other := running(2, "main", 5432)
	for _, after := range []time.Duration{0, settleTime, 2 * collector.KeepTime} {
		f.update([]observation{other}, begin.Add(after))
	}
	f.update([]observation{other}, begin.Add(2*collector.KeepTime))
	if got := f.labels(); !slices.Equal(got, []string{"main-2"}) {
		t.Errorf("it is %q", got)
	}
}

// podWith is a pod as the API server returns it.
func podWith(namespace, name string, containers map[string]string) pod.Pod {
	return pod.New(namespace, name, containers)
}

// Where a server can be reached.
func TestEndpoints(t *testing.T) {
	inPod := &pod.Pod{Hostname: "mysql-0", IPs: []string{"10.244.0.5", "fd00::5", "no address"}}
	for _, c := range []struct {
		name      string
		dbSystem  server.DBSystem
		listening []string
		pod       *pod.Pod
		apart     bool
		want      []string
	}{
		{"a pod", server.PostgreSQL, []string{"0.0.0.0:5432", "[::]:5432"}, inPod, true, []string{"10.244.0.5 5432", "fd00::5 5432"}},
		{"a pod, IPv4 alone", server.PostgreSQL, []string{"0.0.0.0:5432"}, inPod, true, []string{"10.244.0.5 5432"}},
		{"MySQL in a pod", server.MySQL, []string{"[::]:3306"}, inPod, true, []string{"10.244.0.5 3306", "fd00::5 3306", "mysql-0 3306"}},
		{"a pod's own loopback", server.MySQL, []string{"127.0.0.1:3306"}, inPod, true, nil},
		{"one address of a pod", server.PostgreSQL, []string{"10.244.0.5:5432"}, inPod, true, []string{"10.244.0.5 5432"}},
		{"a host", server.PostgreSQL, []string{"0.0.0.0:5432", "127.0.0.1:5433", "[::1]:5433", "192.0.2.1:5434"}, nil, false, []string{"127.0.0.1 5433", "::1 5433", "192.0.2.1 5434"}},
		{"a container without Kubernetes", server.PostgreSQL, []string{"127.0.0.1:5432", "172.17.0.2:5432"}, nil, true, []string{"172.17.0.2 5432"}},
		{"no port", server.PostgreSQL, nil, inPod, true, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := server.Server{DBSystem: c.dbSystem, Apart: c.apart}
			for _, l := range c.listening {
				s.Listening = append(s.Listening, netip.MustParseAddrPort(l))
			}
			var got []string
			for _, e := range endpoints(s, c.pod) {
				got = append(got, e.address+" "+e.port)
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
	many := server.Server{}
	for port := range 40 {
		many.Listening = append(many.Listening, netip.MustParseAddrPort(fmt.Sprintf("10.0.0.1:%d", port+1)))
	}
	if got := endpoints(many, nil); len(got) != maxAddresses {
		t.Errorf("%d addresses, want %d", len(got), maxAddresses)
	}
}

// A real server is called as it is configured, wherever that is, and is where it listens.
func TestNameByConfiguration(t *testing.T) {
	pg := servertest.StartPostgres(t, nil, func(data string) {
		files := map[string]string{"postgresql.conf": "include_if_exists 'none.conf'\ncluster_name = 'file'\n", "postgresql.auto.conf": "cluster_name = 'ours: 15/main' # by ALTER SYSTEM\n"}
		for name, text := range files {
			f, err := os.OpenFile(filepath.Join(data, name), os.O_APPEND|os.O_WRONLY, 0)
			if err != nil {
				t.Fatal(err)
			}
			_, err = f.WriteString(text)
			if err := errors.Join(err, f.Close()); err != nil {
				t.Fatal(err)
			}
		}
	})
	q := startQuery(t)
	const want = "ours:_15/main"
	if name := defaultName(t, q, pg.PID); name != want {
		t.Errorf("it is called %q, want %q", name, want)
	}
	var own string
	if err := pg.Connect(t).QueryRow(t.Context(), "show cluster_name").Scan(&own); err != nil || clean(own) != want {
		t.Errorf("it calls itself %q, %v", own, err)
	}
	found := false
	for _, f := range collectortest.Gather(t, q) {
		for _, m := range f.Metric {
			if l := collectortest.Labels(m); f.GetName() == "plumbline_server_address_info" && l["server"] == want {
				found = found || l["address"] == "127.0.0.1" && l["port"] == fmt.Sprint(pg.Port)
			}
		}
	}
	if !found {
		t.Error("no address of it is reported")
	}
}

// Two servers whose data directory nobody may read are one before and after a restart only if it shows otherwise: a
// neighbour has the user, the name and the port that he likes in his own container.
func TestOwnerOfUnknownDirectory(t *testing.T) {
	const database = 70
	unknown := func(pid int, group string, apart bool, port uint16) observation {
		s := running(pid, "main", port)
		s.User, s.Group, s.Apart = database, group, apart
		return s
	}
	for _, c := range []struct {
		name        string
		first, next observation
		owner       bool
	}{
		{"started again on the host", unknown(1, "service", false, 5432), unknown(2, "session", false, 5432), true},
		{"another port of the host", unknown(1, "service", false, 5432), unknown(2, "service", false, 5433), false},
		{"started again in its container", unknown(1, "docker-a", true, 5432), unknown(2, "docker-a", true, 5432), true},
		{"in another container", unknown(1, "docker-a", true, 5432), unknown(2, "docker-b", true, 5432), false},
		{"in containers that are not known", unknown(1, "", true, 5432), unknown(2, "", true, 5432), false},
		{"in a container after the host's", unknown(1, "", false, 5432), unknown(2, "", true, 5432), false},
	} {
		t.Run(c.name, func(t *testing.T) {
			f, k := testFleet(10)
			f.update([]observation{c.first}, begin)
			f.update([]observation{c.first}, begin.Add(settleTime))
			k.selects[f.tracked[c.first.ID].number] = 5
			now := begin.Add(time.Minute)
			f.update([]observation{c.next}, now)
			label := f.tracked[c.next.ID].label
			if (label == "main") != c.owner {
				t.Errorf("at first it is %q", label)
			}
			f.update([]observation{c.next}, now.Add(settleTime))
			k.selects[f.tracked[c.next.ID].number] = 3
			want, name := uint64(8), "main"
			if !c.owner {
				if want, name = 5, "main-2"; c.next.Group != "" {
					name = "main-" + c.next.Group
				}
			}
			if got := f.labels(); !slices.Equal(got, []string{name}) {
				t.Errorf("it is %q, want %q", got, name)
			}
			if got := querytest.Collect(t, &collected{f: f}, "main").Counts["select"]; got != want {
				t.Errorf("%d statements of main, want %d", got, want)
			}
		})
	}
}

// A server whose command line does not answer at first has its own name once it does, and its counts go along.
func TestNameAfterHungCommandLine(t *testing.T) {
	f, k := testFleet(10)
	s := at(running(1, "", 5432), "/data", "aaaa", false)
	s.NoName = true
	f.update([]observation{s}, begin)
	if got := f.labels(); !slices.Equal(got, []string{""}) {
		t.Errorf("at first it is %q", got)
	}
	f.update([]observation{s}, begin.Add(settleTime))
	if n, _ := f.provisional(); n != 1 || !slices.Equal(f.labels(), []string{"postgresql:/data"}) {
		t.Errorf("without an answer it is %q, %d provisional names", f.labels(), n)
	}
	k.selects[f.tracked[s.ID].number] = 5
	now := begin.Add(2 * settleTime)
	if !f.due(s.ID, now) {
		t.Error("it is not queried again")
	}
	s.Name, s.NoName = "main", false
	f.update([]observation{s}, now)
	n, _ := f.provisional()
	if got := querytest.Collect(t, &collected{f: f}, "main").Counts["select"]; got != 5 || n != 0 || len(f.accounts) != 1 {
		t.Errorf("%d statements, %d provisional names, accounts %v", got, n, f.accounts)
	}
	s.Name, s.NoName = "", true // and hangs again
	f.update([]observation{s}, now.Add(time.Minute))
	if srv := f.tracked[s.ID]; srv.label != "main" || srv.Name != "main" || srv.unanswered() {
		t.Errorf("later it is %q, called %q", srv.label, srv.Name)
	}
}

// What a server left behind goes on counting for the one that goes on counting there, also if that gets another name:
// nothing falls, nothing is reported twice, and nothing goes to the next owner of the name.
func TestRenameWithLeavingServer(t *testing.T) {
	f, k := testFleet(10)
	f.onCluster, f.pods = true, map[string]pod.Pod{"u2": two}
	first := in(running(1, "", 5432), "u2", strings.Repeat("a", 64))
	f.update([]observation{first}, begin)
	old := f.tracked[first.ID].number
	k.selects[old], k.marked[old] = 3, 1
	next := in(running(2, "", 5432), "u2", strings.Repeat("a", 64))
	f.update([]observation{next}, begin.Add(time.Minute))
	k.selects[f.tracked[next.ID].number] = 2
	k.selects[old] = 4 // by a session that is left
	c := &collected{f: f}
	if got := querytest.Collect(t, c, "db/two-0").Counts["select"]; got != 9 {
		t.Errorf("before %d statements, want 3 + 4 + 2", got)
	}
	beside := in(running(3, "", 3306), "u2", strings.Repeat("b", 64))
	f.update([]observation{next, beside}, begin.Add(2*time.Minute))
	label := f.tracked[next.ID].label
	if label == "db/two-0" || f.renamed == 0 {
		t.Fatalf("it is still %q", label)
	}
	if got := querytest.Collect(t, c, label).Counts["select"]; got != 9 {
		t.Errorf("as %q %d statements, want 9", label, got)
	}
	k.marked[old] = 0
	f.counted(&snapshot{}, begin.Add(3*time.Minute))
	f.counted(&snapshot{}, begin.Add(4*time.Minute))
	if got := querytest.Collect(t, c, label).Counts["select"]; got != 9 || f.hasOther {
		t.Errorf("when nobody is left %d statements, want 9; others are reported: %v", got, f.hasOther)
	}
}
