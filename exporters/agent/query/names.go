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
	for _, srv := range f.tracked {
		if srv.pod.UID != "" && !slices.Contains(uids, srv.pod.UID) {
			uids = append(uids, srv.pod.UID)
		}
	}
	return uids
}

// naming names the servers that can be named, and names again those whose name has become known.
func (f *fleet) naming(now time.Time) {
	f.share(now)
	var due []*trackedServer
	for _, srv := range f.tracked {
		if srv.number != otherNumber && f.nameable(srv, now) {
			due = append(due, srv)
		}
	}
	slices.SortFunc(due, func(a, b *trackedServer) int { return compareIDs(a.ID, b.ID) })
	due = slices.DeleteFunc(due, func(srv *trackedServer) bool {
		cand := f.candidate(srv)
		if srv.label != "" && !srv.better(cand) {
			return true
		}
		srv.candidate = cand
		return false
	})
	claims := map[string]int{}
	for _, srv := range due {
		claims[srv.candidate.name]++
	}
	for _, srv := range due {
		label := f.uniqueLabel(srv, claims[srv.candidate.name] > 1)
		if srv.label != "" {
			f.rename(srv, label, now)
			continue
		}
		srv.label = label
		f.account(srv.label, string(srv.DBSystem), now)
		f.log.Info("following a database server", "server", srv.label, "db_system", srv.DBSystem, "pid", srv.PID, "version", srv.Version)
	}
	for _, srv := range f.tracked {
		if srv.label != "" && f.excluded(srv) {
			f.exclude(srv, now)
		}
	}
}

// better reports whether a server that has a name is to get another one. One that is in no pod only gets the name that
// was waited for: its ports, and so a provisional name, may change.
func (srv *trackedServer) better(cand candidate) bool {
	certain := srv.candidate.provisional && !cand.provisional
	if srv.candidate.name == cand.name && (!certain || srv.label == cand.name) {
		srv.candidate.provisional = srv.candidate.provisional && cand.provisional
		return false
	}
	return srv.pod.UID != "" || certain
}

// nameable reports whether a server has come up, or will not, and its name is known, or will not be.
func (f *fleet) nameable(srv *trackedServer, now time.Time) bool {
	if srv.label != "" || now.Sub(srv.since) >= settleTime {
		return true
	}
	if srv.pod.UID != "" {
		_, known := f.pods[srv.pod.UID]
		return known && srv.up(now)
	}
	if srv.DataID == "" && f.kept(f.candidate(srv).name, srv) {
		return false // it may be the one, and not be in its data directory yet
	}
	if srv.NoName {
		return false // it may call itself otherwise
	}
	return srv.Name != "" || srv.up(now)
}

// up reports whether a server listens, or has had the time to. A process that worked for longer before it became the
// server has no data directory yet.
func (srv *trackedServer) up(now time.Time) bool {
	return len(srv.Ports) > 0 || now.Sub(srv.since) >= settleTime || srv.DataDirectory != "" && now.Sub(srv.began) >= settleTime
}

// share notes the pods and containers that have several servers. What has never listened may be a process that a server
// left.
func (f *fleet) share(now time.Time) {
	servers := map[string]int{}
	there := map[string]bool{}
	for _, srv := range f.tracked {
		if srv.pod.UID == "" {
			continue
		}
		there[srv.pod.UID] = true
		if srv.up(now) {
			servers[srv.pod.UID]++
			servers[srv.pod.UID+"/"+srv.pod.Container]++
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
func (f *fleet) candidate(srv *trackedServer) candidate {
	if srv.pod.UID != "" {
		return f.podCandidate(srv)
	}
	if name := clean(srv.Name); name != "" {
		name = f.ofNoPod(name)
		cand := candidate{name, true}
		// Whether the name is kept for it shows by its data directory. Until then the doubt stays, also when nothing is
		// kept any more.
		cand.provisional = srv.NoName || srv.DataID == "" && (srv.candidate == cand && srv.label != name || f.kept(name, srv))
		return cand
	}
	return candidate{clean(srv.DefaultName()), srv.DataDirectory == "" || srv.NoName}
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

func (f *fleet) podCandidate(srv *trackedServer) candidate {
	p, known := f.pods[srv.pod.UID]
	cand := candidate{ofPod + srv.pod.UID, !known}
	if known {
		cand.name = p.Namespace + "/" + p.Name
	}
	if !f.shared[srv.pod.UID] {
		return cand
	}
	container := p.Container(srv.pod.Container)
	if container == "" {
		container = srv.pod.Container[:min(shortNumber, len(srv.pod.Container))]
		cand.provisional = true
	}
	cand.name += "/" + container
	if f.shared[srv.pod.UID+"/"+srv.pod.Container] && len(srv.Ports) > 0 {
		cand.name += fmt.Sprintf(":%d", srv.Ports[0])
	}
	return cand
}

// uniqueLabel returns a label for a server that no other running one has, and that is kept for no other. Which one of
// several gets which label follows from their data directories or, where these are not known, from their cgroups. Only
// if neither is known, it follows from the order in which they began.
func (f *fleet) uniqueLabel(srv *trackedServer, several bool) string {
	base := srv.candidate.name
	if !several && !f.taken(base, srv) {
		return base
	}
	switch {
	case srv.DataID != "":
		base += "-" + srv.ShortDataID()
	case srv.Group != "":
		// Its cgroup is the same after a restart; which one began first need not be.
		base += "-" + srv.Group[:min(shortGroup, len(srv.Group))]
	}
	name := base
	for n := 2; f.taken(name, srv); n++ {
		name = fmt.Sprintf("%s-%d", base, n)
	}
	return name
}

// kept reports whether a name is kept for another server than the one at hand: one outside of pods that ended and may
// come back. A pod's name is the pod's, whatever runs in it.
func (f *fleet) kept(name string, srv *trackedServer) bool {
	a := f.accounts[accountKey{name, string(srv.DBSystem)}]
	return srv.pod.UID == "" && srv.label != name && a != nil && a.owner != nil && !a.owner.same(srv.identity())
}

// taken reports whether a name is another server's, which runs or may come back.
func (f *fleet) taken(name string, but *trackedServer) bool {
	if name == collector.OtherServer || f.kept(name, but) {
		return true
	}
	for _, srv := range f.tracked {
		if srv != but && srv.label == name {
			return true
		}
	}
	return false
}

// rename gives a server another label; what was counted goes along.
func (f *fleet) rename(srv *trackedServer, label string, now time.Time) {
	if label == srv.label {
		return
	}
	f.log.Info("a database server has another name now", "server", label, "before", srv.label, "pid", srv.PID)
	before := srv.key()
	srv.label = label
	f.renamed++
	// A server that ended under the name before counts for the same account, by what is left of its processes.
	for _, l := range f.leaving {
		if l.key() == before {
			l.label = label
		}
	}
	old := f.accounts[before]
	delete(f.accounts, before)
	a := f.accounts[srv.key()]
	if old == nil || a == nil {
		if a == nil && old != nil {
			f.accounts[srv.key()] = old
		}
		f.account(label, string(srv.DBSystem), now)
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
	for _, srv := range f.tracked {
		if srv.label != "" && srv.candidate.provisional {
			provisional++
		}
		if srv.untrusted {
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
