package query

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/plumbline/plumbline/exporters/agent/collector"
	"github.com/plumbline/plumbline/exporters/agent/pod"
	"github.com/plumbline/plumbline/exporters/agent/server"
)

// A server's label is what the server is called:
//
//   - in a pod NAMESPACE/POD; with several servers in the pod NAMESPACE/POD/CONTAINER, and with several in that container
//     NAMESPACE/POD/CONTAINER:PORT. Once a pod has had two at a time its servers keep the longer names.
//   - elsewhere what it calls itself (PostgreSQL's cluster_name), else its engine and data directory.
//
// A server that has just begun may still get a port: that is waited for until it has run for settleTime. Names that are
// not known yet are waited for as long, from when the server was found; then the server is reported under a provisional
// name, uid:UID of a pod, engine and port elsewhere, or as the second of its name while it is not known whether it is the
// one that the name is kept for. When the name becomes known its counts go along: a provisional name never stays beside
// the other.
const (
	// maxName bounds a name that is not a pod's; Kubernetes bounds those of pods.
	maxName = 128
	// onHost is before the names of servers outside of pods that would look like a pod's.
	onHost = "host:"
	// ofPod is before the UID of a pod whose name is not known.
	ofPod = "uid:"
	// shortNumber is how much of a container's number stands for its name while that is not known.
	shortNumber = 12
	// shortGroup is how much of a cgroup's number stands for a data directory that is not known.
	shortGroup = 8
)

// candidate is what a server is to be called, before it is distinguished from others of the same name.
type candidate struct {
	name string
	// provisional is true if a better name may become known; only names of pods change otherwise.
	provisional bool
}

// identity distinguishes servers outside of pods that have one name, also after their ends.
type identity struct {
	user   uint32
	dataID string
	apart  bool
	// group is the number of its cgroup, and port the first one that it listens on, or 0: they identify a server whose
	// data directory nobody may read.
	group string
	port  uint16
}

// identity is who a server is, as far as that is known.
func (s observation) identity() *identity {
	i := &identity{user: s.User, dataID: s.DataID, apart: s.Apart, group: s.Group}
	if len(s.Ports) > 0 {
		i.port = s.Ports[0]
	}
	return i
}

// same reports whether two are one server, before and after a restart. On the host itself its user may have made the
// data directory anew; in a container it may be anybody's user. Two whose data directories are not known are one only
// by the same port and, in a container, if that is the same one: a neighbour chooses his user and port, but not his
// container.
func (i *identity) same(other *identity) bool {
	switch {
	case i.user != other.user:
		return false
	case i.dataID != "" && other.dataID != "":
		return i.dataID == other.dataID || !i.apart && !other.apart
	case i.dataID != other.dataID || i.apart != other.apart || i.port != other.port:
		return false
	}
	return !i.apart || i.group != "" && i.group == other.group
}

// identified takes over what is known of the pods of the servers, by UID. What was known stays while nobody reports it:
// the API server may be away, and it forgets a pod before its last process has ended.
func (f *fleet) identified(pods map[string]pod.Pod, now time.Time) {
	kept := map[string]pod.Pod{}
	for _, uid := range f.uids() {
		p, found := pods[uid]
		if before, known := f.pods[uid]; known && (!found || before.Complete && !p.Complete) {
			p, found = before, true
		}
		if found {
			kept[uid] = p
		}
	}
	f.pods = kept
	f.naming(now)
}

// uids returns the pods that the followed servers are in.
func (f *fleet) uids() []string {
	var uids []string
	for _, fo := range f.tracked {
		if fo.pod.UID != "" && !slices.Contains(uids, fo.pod.UID) {
			uids = append(uids, fo.pod.UID)
		}
	}
	return uids
}

// naming names the servers that can be named, and names again those whose name has become known.
func (f *fleet) naming(now time.Time) {
	f.share(now)
	var due []*trackedServer
	for _, fo := range f.tracked {
		if fo.number != otherNumber && f.nameable(fo, now) {
			due = append(due, fo)
		}
	}
	slices.SortFunc(due, func(a, b *trackedServer) int { return compareIDs(a.ID, b.ID) })
	due = slices.DeleteFunc(due, func(fo *trackedServer) bool {
		w := f.candidate(fo)
		if fo.label != "" && !fo.better(w) {
			return true
		}
		fo.candidate = w
		return false
	})
	claims := map[string]int{}
	for _, fo := range due {
		claims[fo.candidate.name]++
	}
	for _, fo := range due {
		label := f.apart(fo, claims[fo.candidate.name] > 1)
		if fo.label != "" {
			f.rename(fo, label, now)
			continue
		}
		fo.label = label
		f.account(fo.label, string(fo.DBSystem), now)
		f.log.Info("following a database server", "server", fo.label, "db_system", fo.DBSystem, "pid", fo.PID, "version", fo.Version)
	}
	for _, fo := range f.tracked {
		if fo.label != "" && f.excluded(fo) {
			f.exclude(fo, now)
		}
	}
}

// better reports whether a server that has a name is to get another one. One that is in no pod only gets the name that
// was waited for: its ports, and so a provisional name, may change.
func (fo *trackedServer) better(w candidate) bool {
	certain := fo.candidate.provisional && !w.provisional
	if fo.candidate.name == w.name && (!certain || fo.label == w.name) {
		fo.candidate.provisional = fo.candidate.provisional && w.provisional
		return false
	}
	return fo.pod.UID != "" || certain
}

// nameable reports whether a server has come up, or will not, and its name is known, or will not be.
func (f *fleet) nameable(fo *trackedServer, now time.Time) bool {
	if fo.label != "" || now.Sub(fo.since) >= settleTime {
		return true
	}
	if fo.pod.UID != "" {
		_, known := f.pods[fo.pod.UID]
		return known && fo.up(now)
	}
	if fo.DataID == "" && f.kept(f.candidate(fo).name, fo) {
		return false // it may be the one, and not be in its data directory yet
	}
	if fo.NoName {
		return false // it may call itself otherwise
	}
	return fo.Name != "" || fo.up(now)
}

// up reports whether a server listens, or has had the time to. A process that worked for longer before it became the
// server has no data directory yet.
func (fo *trackedServer) up(now time.Time) bool {
	return len(fo.Ports) > 0 || now.Sub(fo.since) >= settleTime || fo.DataDirectory != "" && now.Sub(fo.began) >= settleTime
}

// share notes the pods and containers that have several servers. What has never listened may be a process that a server
// left.
func (f *fleet) share(now time.Time) {
	servers := map[string]int{}
	there := map[string]bool{}
	for _, fo := range f.tracked {
		if fo.pod.UID == "" {
			continue
		}
		there[fo.pod.UID] = true
		if fo.up(now) {
			servers[fo.pod.UID]++
			servers[fo.pod.UID+"/"+fo.pod.Container]++
		}
	}
	for key, n := range servers {
		if n > 1 {
			f.shared[key] = true
		}
	}
	for key := range f.shared {
		if uid, _, _ := strings.Cut(key, "/"); !there[uid] {
			delete(f.shared, key)
		}
	}
}

// candidate returns what a server is to be called, by what is known now.
func (f *fleet) candidate(fo *trackedServer) candidate {
	if fo.pod.UID != "" {
		return f.podWish(fo)
	}
	if name := clean(fo.Name); name != "" {
		name = f.ofNoPod(name)
		w := candidate{name, true}
		// Whether the name is kept for it shows by its data directory. Until then the doubt stays, also when nothing is
		// kept any more.
		w.provisional = fo.NoName || fo.DataID == "" && (fo.candidate == w && fo.label != name || f.kept(name, fo))
		return w
	}
	return candidate{clean(fo.DefaultName()), fo.DataDirectory == "" || fo.NoName}
}

// ofNoPod makes a name that a server gave itself none of a pod's.
func (f *fleet) ofNoPod(name string) string {
	if f.onCluster && (strings.Contains(name, "/") || strings.HasPrefix(name, ofPod)) {
		return onHost + name
	}
	return name
}

// claimed is the label under which problems of a server without one are reported: what it calls itself or, as anybody
// may call himself so, that of others if another server has the name or it is kept for one.
func (f *fleet) claimed(s server.Server) string {
	name := clean(s.DefaultName())
	if own := clean(s.Name); own != "" {
		name = f.ofNoPod(own)
	}
	if f.taken(name, &trackedServer{observation: observation{Server: s}}) {
		return collector.OtherServer
	}
	return name
}

func (f *fleet) podWish(fo *trackedServer) candidate {
	p, known := f.pods[fo.pod.UID]
	w := candidate{ofPod + fo.pod.UID, !known}
	if known {
		w.name = p.Namespace + "/" + p.Name
	}
	if !f.shared[fo.pod.UID] {
		return w
	}
	container := p.Container(fo.pod.Container)
	if container == "" {
		container = fo.pod.Container[:min(shortNumber, len(fo.pod.Container))]
		w.provisional = true
	}
	w.name += "/" + container
	if f.shared[fo.pod.UID+"/"+fo.pod.Container] && len(fo.Ports) > 0 {
		w.name += fmt.Sprintf(":%d", fo.Ports[0])
	}
	return w
}

// apart returns a label for a server that no other running one has, and that is kept for no other. Which one of several
// gets which label follows from their data directories or, where these are not known, their cgroups, not from the order
// in which they began, unless neither is known.
func (f *fleet) apart(fo *trackedServer, several bool) string {
	base := fo.candidate.name
	if !several && !f.taken(base, fo) {
		return base
	}
	switch {
	case fo.DataID != "":
		base += "-" + fo.ShortDataID()
	case fo.Group != "":
		// Its cgroup is the same after a restart; which one began first need not be.
		base += "-" + fo.Group[:min(shortGroup, len(fo.Group))]
	}
	name := base
	for n := 2; f.taken(name, fo); n++ {
		name = fmt.Sprintf("%s-%d", base, n)
	}
	return name
}

// kept reports whether a name is kept for another server than the one at hand: one outside of pods that ended and may
// come back. A pod's name is the pod's, whatever runs in it.
func (f *fleet) kept(name string, fo *trackedServer) bool {
	a := f.accounts[accountKey{name, string(fo.DBSystem)}]
	return fo.pod.UID == "" && fo.label != name && a != nil && a.owner != nil && !a.owner.same(fo.identity())
}

// taken reports whether a name is another server's, which runs or may come back.
func (f *fleet) taken(name string, but *trackedServer) bool {
	if name == collector.OtherServer || f.kept(name, but) {
		return true
	}
	for _, fo := range f.tracked {
		if fo != but && fo.label == name {
			return true
		}
	}
	return false
}

// rename gives a server another label; what was counted goes along.
func (f *fleet) rename(fo *trackedServer, label string, now time.Time) {
	if label == fo.label {
		return
	}
	f.log.Info("a database server has another name now", "server", label, "before", fo.label, "pid", fo.PID)
	before := fo.key()
	fo.label = label
	f.renamed++
	// A server that ended under the name before counts for the same account, by what is left of its processes.
	for _, l := range f.leaving {
		if l.key() == before {
			l.label = label
		}
	}
	old := f.accounts[before]
	delete(f.accounts, before)
	a := f.accounts[fo.key()]
	if old == nil || a == nil {
		if a == nil && old != nil {
			f.accounts[fo.key()] = old
		}
		f.account(label, string(fo.DBSystem), now)
		return
	}
	a.ended.add(&old.ended)
	for command := range a.shown {
		for phase := range a.shown[command] {
			a.shown[command][phase] += old.shown[command][phase]
		}
	}
	a.queries = cmp.Or(a.queries, old.queries)
	a.last = now
}

// provisional returns how many servers have a name that may change, and untrusted how many only seem to be in a pod.
func (f *fleet) provisional() (provisional, untrusted int) {
	for _, fo := range f.tracked {
		if fo.label != "" && fo.candidate.provisional {
			provisional++
		}
		if fo.untrusted {
			untrusted++
		}
	}
	return provisional, untrusted
}

// clean makes a name fit for a label that people type in queries.
func clean(name string) string {
	fit := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', strings.ContainsRune("-_.:/", r):
			return r
		}
		return '_'
	}, name)
	if len(fit) <= maxName {
		return fit
	}
	sum := sha256.Sum256([]byte(name))
	end := "-" + hex.EncodeToString(sum[:4])
	return fit[:maxName-len(end)] + end
}
