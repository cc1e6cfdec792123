package disk

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strings"
	"time"
)

const (
	// halfLife is after which time a user's past counts half when the largest are chosen. Bursts of seconds change
	// nothing, and a job that begins is among them at the second sample.
	halfLife = 5 * time.Minute
	// idleTimeout is how long a user may have no request before it is forgotten and the kernel's count of it removed.
	idleTimeout = 15 * time.Minute
	// hysteresis is how many times as large as the smallest user with series of its own another one has to be to take
	// its place, so that two that are alike do not change places.
	hysteresis = 2
	// maxUsedDisks bounds the disks whose users have series.
	maxUsedDisks = 256
)

// Kinds of users, the label kind.
const (
	diskPod     = "pod"
	diskReplica = "replica"
	diskCgroup  = "cgroup"
	kernel      = "kernel"
	// rootCgroup is the name of the root cgroup as a user of the kind cgroup.
	rootCgroup = "/"
	// diskRest are all users without series of their own, unattributed what nobody is known to have done.
	diskRest     = "rest"
	unattributed = "unattributed"
)

// diskUse is what was done on a disk.
type diskUse struct{ requests, bytes, seconds float64 }

func (u *diskUse) add(v diskUse) {
	u.requests += v.requests
	u.bytes += v.bytes
	u.seconds += v.seconds
}

// part returns a part of the use.
func (u diskUse) part(of float64) diskUse {
	return diskUse{u.requests * of, u.bytes * of, u.seconds * of}
}

// diskUserID is a user of disks: a kind, and of pods the UID, of cgroups the path, of replicas and the kernel's work the
// name. volume is the replica's.
type diskUserID struct{ kind, id, volume string }

// nearest returns who is there of a user and, of a cgroup, those above it: the kernel charges requests to the nearest
// one that has the controller for them. ok is false if nobody is.
func nearest(id diskUserID, there func(diskUserID) bool) (_ diskUserID, ok bool) {
	for !there(id) {
		if id.kind != diskCgroup || id.id == rootCgroup {
			return id, false
		}
		id.id = id.id[:max(0, strings.LastIndexByte(id.id, '/'))]
		if id.id == "" {
			id.id = rootCgroup
		}
	}
	return id, true
}

// usedDisk is a disk with its users.
type usedDisk struct {
	users map[diskUserID]*diskUser
	// used is when somebody last did something.
	used time.Time
	rest diskUse
	// seen is all that was counted by user, own what the kernel has counted of the disk itself since the start, latest
	// its counts at the latest sample. without is the part of own that is nobody's.
	seen, own, without diskUse
	latest             deviceCounts
	known              bool
}

// diskUser is one user of one disk.
type diskUser struct {
	// since is when it got series of its own, zero if it has none; total is what it did from then on.
	since time.Time
	total diskUse
	// recent is its time in the device, which decays by halfLife. used is when it did something.
	recent float64
	used   time.Time
}

// listed reports whether it has series of its own.
func (u *diskUser) listed() bool { return !u.since.IsZero() }

// diskLedger adds up who used which disk.
type diskLedger struct {
	// most is how many users of a disk have series.
	most  int
	disks map[string]*usedDisk
	// overflow are disks whose users have no series.
	overflow int
	at       time.Time
}

func newLedger(most int) *diskLedger {
	return &diskLedger{most: most, disks: map[string]*usedDisk{}}
}

// add takes over what users did since the time before, by disk.
func (l *diskLedger) add(now time.Time, used map[string]map[diskUserID]diskUse) {
	keep := math.Exp2(-now.Sub(l.at).Seconds() / halfLife.Seconds())
	if l.at.IsZero() {
		keep = 1
	}
	l.at, l.overflow = now, 0
	for name, users := range used {
		disk := l.disks[name]
		if disk == nil {
			if len(l.disks) >= maxUsedDisks {
				l.overflow++
				continue
			}
			disk = &usedDisk{users: map[diskUserID]*diskUser{}}
			l.disks[name] = disk
		}
		for id, use := range users {
			disk.add(now, id, use)
		}
	}
	for name, disk := range l.disks {
		for id, user := range disk.users {
			user.recent *= keep
			if now.Sub(user.used) >= idleTimeout {
				delete(disk.users, id)
			}
		}
		disk.choose(now, l.most)
		if now.Sub(disk.used) >= idleTimeout {
			delete(l.disks, name)
		}
	}
}

func (d *usedDisk) add(now time.Time, id diskUserID, use diskUse) {
	if use == (diskUse{}) {
		return
	}
	d.used = now
	d.seen.add(use)
	if id.kind == diskRest {
		d.rest.add(use)
		return
	}
	user := d.users[id]
	if user == nil {
		user = &diskUser{}
		d.users[id] = user
	}
	user.recent += use.seconds
	user.used = now
	if user.listed() {
		user.total.add(use)
	} else {
		d.rest.add(use)
	}
}

// choose chooses the users with series of their own. A new one's counters begin at 0, so that no time counts twice.
func (d *usedDisk) choose(now time.Time, most int) {
	if most == 0 {
		return
	}
	bySize := func(a, b diskUserID) int {
		return cmp.Or(cmp.Compare(d.users[b].recent, d.users[a].recent), cmp.Compare(a.kind, b.kind), cmp.Compare(a.id, b.id))
	}
	ids := slices.SortedFunc(maps.Keys(d.users), bySize)
	var listed []diskUserID
	for _, id := range ids {
		if d.users[id].listed() {
			listed = append(listed, id)
		}
	}
	for _, id := range ids {
		user := d.users[id]
		if user.listed() {
			continue
		}
		if len(listed) >= most {
			last := d.users[listed[len(listed)-1]]
			if user.recent <= hysteresis*last.recent {
				break
			}
			last.since = time.Time{}
			listed = listed[:len(listed)-1]
		}
		user.since, user.total = now, diskUse{}
		listed = append(listed, id)
		slices.SortFunc(listed, bySize)
	}
}

// compare takes over the kernel's own counts of the disks, read after those by user. What a disk has beyond these is
// nobody's; requests that ended between the two reads are so for one sample at most, and are no more added.
func (l *diskLedger) compare(stats []deviceCounts) {
	for _, now := range stats {
		d := l.disks[now.name]
		if d == nil {
			continue
		}
		if d.known && now.requests >= d.latest.requests && now.bytes >= d.latest.bytes {
			d.own.add(diskUse{requests: float64(now.requests - d.latest.requests), bytes: float64(now.bytes - d.latest.bytes)})
		} else {
			// The first sample, or another disk of this name.
			d.own = diskUse{requests: d.seen.requests + d.without.requests, bytes: d.seen.bytes + d.without.bytes}
		}
		d.latest, d.known = now, true
		d.without.requests = max(d.without.requests, d.own.requests-d.seen.requests)
		d.without.bytes = max(d.without.bytes, d.own.bytes-d.seen.bytes)
	}
}

// splitReplicas gives each replica its part of what its process's cgroup did on the replica's disk: by the bytes that
// the process caused on storage. Requests and time are divided like the bytes.
func splitReplicas(used map[string]map[diskUserID]diskUse, replicas []replicaBytes) {
	type shared struct {
		device string
		user   diskUserID
	}
	sums := map[shared]float64{}
	for _, r := range replicas {
		sums[shared{r.device, r.group}] += r.bytes
	}
	whole := map[shared]diskUse{}
	for s := range sums {
		whole[s] = used[s.device][s.user]
	}
	for _, r := range replicas {
		s := shared{r.device, r.group}
		of := max(sums[s], whole[s].bytes)
		if r.bytes == 0 || whole[s].bytes == 0 {
			continue
		}
		part := whole[s].part(r.bytes / of)
		users := used[r.device]
		sum := users[r.replica]
		sum.add(part)
		users[r.replica] = sum
		left := users[r.group]
		left.add(part.part(-1))
		if sums[s] >= whole[s].bytes {
			left = diskUse{} // all of it is the replicas'
		}
		users[r.group] = left
	}
}

// replicaBytes is what a replica's process read from and wrote to storage since the sample before, and the cgroup that
// it is in.
type replicaBytes struct {
	device         string
	group, replica diskUserID
	bytes          float64
}
