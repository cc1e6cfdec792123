package disk

import (
	"fmt"
	"math"
	"testing"
	"time"
)

// usesOf makes what one user did on disk "sda".
func usesOf(users map[diskUserID]diskUse) map[string]map[diskUserID]diskUse {
	return map[string]map[diskUserID]diskUse{"sda": users}
}

func podUser(name string) diskUserID { return diskUserID{kind: diskPod, id: name} }

// listed returns the users of sda with series of their own.
func (l *diskLedger) listed() map[string]float64 {
	all := map[string]float64{}
	for id, user := range l.disks["sda"].users {
		if user.listed() {
			all[id.id] = user.total.requests
		}
	}
	return all
}

// Without series for users all are in the rest; and so is a disk whose users have no names, until it is idle for long.
func TestDiskRestAlone(t *testing.T) {
	l := newLedger(0)
	now := time.Unix(1e9, 0)
	for _, id := range []diskUserID{podUser("a"), {kind: diskRest}, {kind: diskRest}} {
		l.add(now, usesOf(map[diskUserID]diskUse{id: {requests: 1}}))
	}
	l.add(now.Add(idleTimeout-1), nil)
	if got := l.disks["sda"].rest.requests; got != 3 || len(l.listed()) > 0 {
		t.Errorf("the rest did %v requests, want 3; listed are %v", got, l.listed())
	}
	if l.add(now.Add(idleTimeout), nil); len(l.disks) > 0 {
		t.Error("an idle disk is remembered")
	}
}

// The largest users have series; one that comes begins at 0, what it did before stays in the rest, and nothing counts
// twice. Two that are alike do not change places, one twice as large as the smallest takes its place.
func TestDiskUsersLargest(t *testing.T) {
	l := newLedger(2)
	now := time.Unix(1e9, 0)
	total := 0.0
	step := func(seconds map[string]float64) {
		t.Helper()
		now = now.Add(interval)
		users := map[diskUserID]diskUse{}
		for name, s := range seconds {
			users[podUser(name)] = diskUse{requests: 10, bytes: 4096, seconds: s}
			total += 10
		}
		before := l.disks["sda"]
		rest := 0.0
		if before != nil {
			rest = before.rest.requests
		}
		l.add(now, usesOf(users))
		if l.disks["sda"].rest.requests < rest {
			t.Fatal("the rest fell")
		}
		if got := l.disks["sda"].seen.requests; got != total {
			t.Fatalf("%v requests are counted, want %v", got, total)
		}
	}
	step(map[string]float64{"a": 3, "b": 2, "c": 1})
	if got := l.listed(); len(got) != 2 || got["a"] != 0 || got["b"] != 0 || l.disks["sda"].rest.requests != 30 {
		t.Fatalf("at first: %v, rest %v", got, l.disks["sda"].rest)
	}
	for range 10 {
		step(map[string]float64{"a": 3, "b": 2, "c": 2.2}) // within hysteresis
	}
	if got := l.listed(); len(got) != 2 || got["a"] != 100 || got["b"] != 100 {
		t.Fatalf("c is little larger than b: %v", got)
	}
	step(map[string]float64{"a": 3, "d": 90})
	step(map[string]float64{"a": 3, "d": 90})
	if got := l.listed(); len(got) != 2 || got["a"] != 120 || got["d"] != 10 {
		t.Fatalf("after d has come: %v", got)
	}
	// Without a request for long a user has no series any more.
	now = now.Add(idleTimeout)
	step(map[string]float64{"a": 3})
	if got := l.listed(); len(got) != 1 {
		t.Fatalf("after d has gone: %v", got)
	}
}

// However many users and disks there are, series are bounded, and nothing is lost of users without.
func TestDiskUsersBounded(t *testing.T) {
	l := newLedger(5)
	users := map[diskUserID]diskUse{}
	for i := range 10000 {
		users[podUser(fmt.Sprint(i))] = diskUse{requests: 1, seconds: float64(i)}
	}
	now := time.Unix(1e9, 0)
	l.add(now, usesOf(users))
	l.add(now.Add(interval), usesOf(users))
	got := l.listed()
	if _, largest := got["9999"]; len(got) != 5 || !largest {
		t.Errorf("of 10,000 users these have series: %v", got)
	}
	if rest := l.disks["sda"].rest.requests; rest != 20000-5 {
		t.Errorf("the rest did %v requests, want %v", rest, 20000-5)
	}
	used := map[string]map[diskUserID]diskUse{}
	for i := range maxUsedDisks + 10 {
		used[fmt.Sprint("sd", i)] = map[diskUserID]diskUse{podUser("a"): {requests: 1}}
	}
	l.add(now.Add(2*interval), used)
	if len(l.disks) != maxUsedDisks || l.overflow != 11 {
		t.Errorf("%d disks, %d without series", len(l.disks), l.overflow)
	}
}

// What a disk counts and no user did is nobody's: from the first sample on, and past a disk of the same name that
// begins anew. It never falls.
func TestDiskUnattributed(t *testing.T) {
	l := newLedger(5)
	now := time.Unix(1e9, 0)
	for i, step := range []struct{ mine, disk, nobody float64 }{
		{10, 1000, 0}, // what was before is not known
		{10, 1010, 0},
		{10, 1025, 5},
		{10, 1031, 1}, // the disk's count was read before the users'
		{10, 3, 5},    // another disk
		{10, 20, 12},
	} {
		now = now.Add(interval)
		l.add(now, usesOf(map[diskUserID]diskUse{podUser("a"): {requests: step.mine}}))
		l.compare([]deviceCounts{{name: "sda", requests: uint64(step.disk)}})
		d := l.disks["sda"]
		want := step.nobody
		if i == 3 {
			want = 5
		}
		if d.without.requests != want {
			t.Errorf("step %d: %v requests are nobody's, want %v", i, d.without.requests, want)
		}
	}
}

// Replicas get their part of their pod's by what their processes did on storage, and never more than there is.
func TestSplitReplicas(t *testing.T) {
	manager := podUser("instance-manager")
	a, b := diskUserID{diskReplica, "r-a", "pvc-a"}, diskUserID{diskReplica, "r-b", "pvc-b"}
	for _, c := range []struct {
		what              string
		a, b              float64
		wantA, wantB, own float64
	}{
		{"a part is the manager's own", 500, 250, 50, 25, 25},
		{"more than is complete by now", 3000, 1000, 75, 25, 0},
		{"nothing", 0, 0, 0, 0, 100},
	} {
		used := usesOf(map[diskUserID]diskUse{manager: {requests: 100, bytes: 1000, seconds: 10}})
		splitReplicas(used, []replicaBytes{{"sda", manager, a, c.a}, {"sda", manager, b, c.b}, {"sdb", manager, b, 1}})
		got := used["sda"]
		if got[a].requests != c.wantA || got[b].requests != c.wantB || got[manager].requests != c.own {
			t.Errorf("%s: %v", c.what, got)
		}
		sum := got[a].seconds + got[b].seconds + got[manager].seconds
		if math.Abs(sum-10) > 1e-9 {
			t.Errorf("%s: %v seconds in all", c.what, sum)
		}
	}
}
