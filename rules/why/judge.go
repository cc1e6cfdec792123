package why

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/plumbline/plumbline/rules/layers"
)

// Reason is why a verdict names somebody. rules/verdict.rules.yaml describes and records each but Few.
type Reason string

// The reasons, from the surest.
const (
	// Stalled: something is stalled now.
	Stalled Reason = "stall"
	// Lock: sessions wait for each other's locks; storage is not to blame.
	Lock Reason = "lock"
	// SlowReplica: a replica is much slower than its volume's others.
	SlowReplica Reason = "replica"
	// CPU: the node has too little of it.
	CPU Reason = "cpu"
	// Neighbour: somebody else keeps a disk below it busy, far more than usual.
	Neighbour Reason = "neighbour"
	// Host: the control class of the node got slower, too.
	Host Reason = "host"
	// Rebuild: a replica is being rebuilt.
	Rebuild Reason = "rebuild"
	// Load: there is more to do than there was.
	Load Reason = "load"
	// Grown: the layer grew most within a day.
	Grown Reason = "grown"
	// Largest: nothing stands out; the layer is the largest part.
	Largest Reason = "largest"
	// Few: too little was measured to judge.
	Few Reason = "few"
)

// Reasons are all of them.
var Reasons = []Reason{Stalled, Lock, SlowReplica, CPU, Neighbour, Host, Rebuild, Load, Grown, Largest, Few}

// Culprit is one that a verdict names. Layer, Replica, Device and Node, the place, are as far as they are known. A
// neighbour has Kind and User, as the agent's collector disk has them.
type Culprit struct {
	Reason                       Reason
	Layer, Replica, Device, Node string
	Kind, User                   string
	// Confidence is how sure the verdict is, up to 1.
	Confidence float64
}

// Verdict is what explains the time, the surest culprit first.
type Verdict struct {
	// Culprit is the surest that is no rebuild; with nothing to judge, its reason alone is known.
	Culprit
	Culprits []Culprit
	// Text words it.
	Text string
}

// Same reports whether two verdicts name the same, whatever the figures.
func (v Verdict) Same(w Verdict) bool {
	return v.Reason == w.Reason && slices.EqualFunc(v.Culprits, w.Culprits, func(a, b Culprit) bool {
		return a.Reason == b.Reason && a.Layer == b.Layer && a.Replica == b.Replica && a.Device == b.Device && a.Kind == b.Kind && a.User == b.User
	})
}

// of returns the culprits of a reason.
func (v Verdict) of(r Reason) (found []Culprit) {
	for _, c := range v.Culprits {
		if c.Reason == r {
			found = append(found, c)
		}
	}
	return found
}

// word words the verdict of the culprits that the rules name.
func (f *Finding) word() {
	v := &f.Verdict
	chief := slices.IndexFunc(v.Culprits, func(c Culprit) bool { return c.Reason != Rebuild })
	if chief < 0 {
		if v.Reason = Few; f.main().Count >= leastSamples() || f.Target.Server == "" && f.Write.Count >= leastSamples() {
			v.Reason = Largest // and of nothing is it known how large it is
			return
		}
		v.Text = f.few()
		return
	}
	c := v.Culprits[chief]
	v.Culprit = c
	switch all := v.of(c.Reason); c.Reason {
	case Stalled:
		v.Text = f.stallText()
	case Lock:
		v.Text = f.lockText()
	case SlowReplica:
		v.Text = f.apartText(all)
	case CPU:
		v.Text = f.cpuText()
	case Host:
		v.Text = fmt.Sprintf("the control class on %s got slower, too: it is the host", f.Target.Node)
		if len(f.slowNeighbours) == 0 {
			v.Text += ", and storage is not to blame"
		}
	case Neighbour:
		v.Text = f.neighbourText(c)
	case Load:
		v.Text = "there is more to do than in the day's good times, and that explains it"
	case Grown:
		v.Text = f.layerWord(c.Layer) + " grew most against the day's good times" + f.replicasText(all)
	default:
		v.Text = f.largestText(c, all)
	}
	if n := v.of(Neighbour); len(n) > 0 && c.Reason != Neighbour {
		v.Text += "; " + f.neighbourText(n[0])
	} else if (c.Reason == Host || c.Reason == Largest && layers.OnDisk(layers.Of(c.Layer))) && len(f.slowNeighbours) > 0 {
		// It is not known whether the layer grew.
		v.Text += "; " + slices.MaxFunc(f.slowNeighbours, func(n, m neighbour) int { return cmp.Compare(n.share, m.share) }).text("its disk")
	}
	if !slices.Contains([]Reason{Stalled, Lock, CPU, Host}, c.Reason) {
		for _, l := range f.limits {
			v.Text += "; " + l.text()
		}
	}
	if c.Reason != Stalled && c.Reason != Lock && c.Reason != CPU && (f.cpuShort || len(v.of(CPU)) > 0) {
		v.Text += fmt.Sprintf("; besides, host %s is short of CPU", f.Target.Node)
	}
}

// few words why there is nothing to judge.
func (f *Finding) few() string {
	switch {
	case f.Target.Server == "":
		return "no database server is known on it, and " + few("writes", f.Write.Count, f)
	case !Known(f.main().Count):
		return fmt.Sprintf("no statement of %s is measured: does the agent run on node %s, with BPF?", f.Target.Server, f.Target.Node)
	}
	return few(f.what()+"s", f.main().Count, f)
}

func few(what string, n float64, f *Finding) string {
	if !(n >= 0.5) {
		return fmt.Sprintf("no %s ended in the last %s", what[:len(what)-1], Span(f.Window))
	}
	return fmt.Sprintf("only %.0f %s ended in the last %s: too few to judge", n, what, Span(f.Window))
}

func (f *Finding) stallText() string {
	if f.Stall == nil {
		return fmt.Sprintf("a process of the server has been in one %s for %.0f s, and %ss do not end", f.InStorage.Name, f.InStorage.Seconds, f.what())
	}
	return f.Stall.text(f.Target)
}

func (f *Finding) lockText() string {
	if f.main().Count < leastSamples() {
		return fmt.Sprintf("%s statements wait for another session's lock, the oldest for %.0f s; storage is not to blame", number(f.Blocked), f.BlockedFor)
	}
	return fmt.Sprintf("sessions hold each other up: at any moment %s statements wait for another session's lock, and a statement spends %s waiting; storage is not to blame",
		number(f.Blocked), f.Statements.spends(layers.Wait))
}

func (f *Finding) cpuText() string {
	s, who := f.main(), "a "+f.what()
	if f.Control != nil && seconds(f.Control.Statement.Phases, layers.Runqueue) > seconds(s.Phases, layers.Runqueue) {
		s, who = f.Control.Statement, fmt.Sprintf("on %s, the control, a %s", f.Control.Class, f.what())
	}
	pressure := ""
	if Known(f.CPUWaiting) {
		pressure = fmt.Sprintf("; something waited for one %.0f %% of the time", 100*min(f.CPUWaiting, 1))
	}
	return fmt.Sprintf("host %s is short of CPU: %s waits %s for one%s; storage is not to blame",
		f.Target.Node, who, s.spends(layers.Runqueue), pressure)
}

// neighbour is who keeps a disk below a volume busy: its share of the disk's time, and how many times its usual work
// the disk does.
type neighbour struct {
	volume, node, device, kind, user string
	share, work                      float64
}

// diskLimit is a disk below a volume that does so many requests, or bytes, a second and no more.
type diskLimit struct {
	volume, node, device, of string
	rate                     float64
}

func (l diskLimit) text() string {
	does := number(l.rate) + " requests/s"
	if l.of == "bytes" {
		does = fmt.Sprintf("%.0f MiB/s", l.rate/(1<<20))
	}
	return fmt.Sprintf("disk %s on %s does %s and no more, as under a limit", l.device, l.node, does)
}

// neighbourText words who keeps a disk busy.
func (f *Finding) neighbourText(c Culprit) string {
	i := slices.IndexFunc(f.neighbours, func(n neighbour) bool { return n.node == c.Node && n.device == c.Device })
	below := "its disk"
	if c.Replica != "" {
		below = fmt.Sprintf("the disk of its replica %s,", c.Replica)
	}
	return f.neighbours[i].text(below) // the rules have it from there
}

// text words who keeps a disk busy that is called below.
func (n neighbour) text(below string) string {
	work := "more than"
	if Known(n.work) {
		work = number(n.work) + " times"
	}
	return fmt.Sprintf("%s %s on %s does %s its usual work; %.0f %% of its time is %s (%s)", below, n.device, n.node, work, 100*n.share, n.user, n.kind)
}

// replica returns the replica of a name.
func (f *Finding) replica(name string) Replica {
	if i := slices.IndexFunc(f.Replicas, func(r Replica) bool { return r.Name == name }); i >= 0 {
		return f.Replicas[i]
	}
	return slowestOf(nil)
}

// apartText words replicas that stand out.
func (f *Finding) apartText(all []Culprit) string {
	var names, times, places []string
	for _, c := range all {
		r := f.replica(c.Replica)
		names, times = append(names, c.Replica), append(times, ms(r.Time()))
		places = append(places, r.where(c))
	}
	var others []float64
	for _, r := range f.Replicas {
		if Known(r.Time()) && !slices.Contains(names, r.Name) {
			others = append(others, r.Time())
		}
	}
	slices.Sort(others)
	peers := "?"
	if len(others) > 0 {
		peers = ms(others[len(others)/2])
	}
	if len(all) == 1 {
		return fmt.Sprintf("replica %s stands out: a write takes %s ms there and %s on the others; %s", names[0], times[0], peers, places[0])
	}
	for i, name := range names {
		places[i] = name + ": " + places[i]
	}
	return fmt.Sprintf("replicas %s stand out: a write takes %s ms there and %s on the others; %s", and(names), and(times), peers, strings.Join(places, "; "))
}

// replicasText names the replicas of a layer that is theirs, and where their time is, once for those of which it is the
// same.
func (f *Finding) replicasText(all []Culprit) (text string) {
	var named []Culprit
	for _, c := range all {
		if c.Replica != "" {
			named = append(named, c)
		}
	}
	for len(named) > 0 {
		first := named[0]
		r := f.replica(first.Replica)
		text += fmt.Sprintf("; a write takes %s ms on replica %s: %s", ms(r.Time()), first.Replica, r.where(first))
		var alike []string
		named = slices.DeleteFunc(named, func(c Culprit) bool {
			other := f.replica(c.Replica)
			if c.Layer != first.Layer || !r.alike(other, c.Layer) {
				return false
			}
			if c.Replica != first.Replica {
				alike = append(alike, fmt.Sprintf("%s ms on %s", ms(other.Time()), c.Replica))
			}
			return true
		})
		if len(alike) > 0 {
			text += "; in the same way " + and(alike)
		}
	}
	return text
}

// alike reports whether where has the same words for another replica in that layer, but for the times.
func (r Replica) alike(other Replica, layer string) bool {
	if Known(r.Service) != Known(other.Service) {
		return false
	}
	return layer == layers.Network || r.Device == other.Device && r.Node == other.Node && Known(r.Disk) == Known(other.Disk) &&
		r.backlogged == other.backlogged && (r.Stopped > 0) == (other.Stopped > 0)
}

// largestText words the largest part where nothing stands out.
func (f *Finding) largestText(c Culprit, all []Culprit) string {
	text := "most of it is " + f.layerWord(c.Layer)
	if f.what() == "commit" && layers.InSync(layers.Of(c.Layer)) && seconds(f.main().Phases, layers.Wait) > seconds(f.main().Phases, layers.Sync) {
		text = "commits wait for their own sync and for each other's, most of which is " + f.layerWord(c.Layer)
	}
	n := 0
	for _, r := range f.Replicas {
		if Known(r.Time()) {
			n++
		}
	}
	switch {
	case n == 1 && c.Replica != "":
		return fmt.Sprintf("most of a write is replica %s: %s", c.Replica, f.replica(c.Replica).where(c))
	case len(all) > 1:
		return text + "; no replica stands out, all are slow" + f.replicasText(all)
	case n > 1:
		return text + "; no replica stands out"
	}
	return text
}

// and lists names.
func and(names []string) string {
	if len(names) < 2 {
		return strings.Join(names, "")
	}
	return strings.Join(names[:len(names)-1], ", ") + " and " + names[len(names)-1]
}

// where words where most of a replica's time is: in the layer that the rules name.
func (r Replica) where(c Culprit) string {
	network := r.RoundTrip - r.Service
	disk := min(first(r.Disk, 0), r.Service)
	switch {
	case !Known(r.Service):
		return "what of it is the network and what the replica is not measured"
	case c.Layer == layers.Network:
		ms := msBeside(network, r.Service)
		return fmt.Sprintf("%s ms of it pass between the engine and the replica, %s within it: the network, or a process that does not get to read", ms(network), ms(r.Service))
	case c.Layer == layers.Disk:
		return fmt.Sprintf("%s ms of it are %s's, the disk below it on %s", ms(disk), r.Device, r.Node)
	case r.backlogged && r.Stopped > 0:
		return fmt.Sprintf("its process was stopped for %s ms or more in a fifth of the samples, with requests waiting for it: it is the process, not its disk or the network", ms(r.Stopped))
	case r.backlogged:
		return fmt.Sprintf("%s kB of requests or more lay there unread in a fifth of the samples: its process does not get to them, it is not its disk or the network", number(r.Unread/1000))
	case !Known(r.Disk):
		return fmt.Sprintf("%s ms of it are the replica's own; the disk below it is not measured", ms(r.Service))
	}
	ms := msBeside(r.Service-disk, r.Disk)
	return fmt.Sprintf("%s ms of it pass within the replica, before its disk %s, which does a write in %s ms: its process waits, as under a limit of writes, or computes",
		ms(r.Service-disk), r.Device, ms(r.Disk))
}

// text words what is stalled.
func (s *Stall) text(t Target) string {
	what := map[string]string{
		layers.Disk:       fmt.Sprintf("the disk %s below replica %s on %s has completed nothing", s.Device, s.Replica, s.Node),
		layers.Replica:    fmt.Sprintf("replica %s on %s has answered nothing", s.Replica, s.Node),
		layers.Network:    fmt.Sprintf("nothing has come back from replica %s, which has no request that old: the network to it has been silent", s.Replica),
		layers.Engine:     "the storage backend of volume " + t.Volume + " has answered nothing, and no replica keeps it waiting,",
		layers.HostDisk:   fmt.Sprintf("the host's disk %s below its device has completed nothing", s.Device),
		layers.Device:     fmt.Sprintf("its block device %s on %s has completed nothing, and nothing below it is known to be stalled,", s.Device, s.Node),
		layers.FileSystem: "a process of the server has been in one read, write or sync, and no device is known to be stalled,",
	}[s.Layer]
	if what == "" {
		what = layers.Of(s.Layer).Words + " has been stalled"
	}
	return fmt.Sprintf("it is stalled: %s for %.0f s", what, s.Seconds)
}
