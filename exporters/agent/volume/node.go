package volume

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/plumbline/plumbline/exporters/agent/pod"
	"github.com/plumbline/plumbline/exporters/agent/untrusted"
)

// Source names volumes: an identity file, or the Kubernetes API.
type Source interface {
	// Identities returns the volumes known; with an error, those it still knows. It may leave out what cannot be near.
	Identities(near Near) ([]Identity, error)
}

// Near is what shows which volumes of a cluster may be on this node.
type Near struct {
	// Mounted are the PersistentVolumes that the kubelet has mounted, by their names as mount tables have them.
	Mounted map[string]bool
	// Claims are those that pods of this node use, as NAMESPACE/NAME; nil if that is not known, and then any volume may
	// be near.
	Claims map[string]bool
}

func (n Near) equal(other Near) bool {
	return (n.Claims == nil) == (other.Claims == nil) && maps.Equal(n.Claims, other.Claims) && maps.Equal(n.Mounted, other.Mounted)
}

// Found is a volume that is on this node now.
type Found struct {
	Identity
	// Disk is the kernel's name of the whole disk the volume is on, or is.
	Disk string
	// Below are the disks at the bottom of the stack of devices that Disk is on top of.
	Below []string
	// Place is the volume's own root.
	Place Place
}

// Pods knows the pods of a node.
type Pods interface {
	// Walk returns what finds the containers of processes in one scan.
	Walk() *pod.Walk
	// Claims are the PersistentVolumeClaims that pods of the node use, as NAMESPACE/NAME, and whether one of the pods
	// is running; nil if that is not known.
	Claims() map[string]bool
	// Strays counts the processes that are in a cgroup of the kubelet's by its name, but in no pod's whose name can be
	// read (or in any container, if none is known to be in a pod), those in one of an unknown pod, and lines without a
	// cgroup.
	Strays(pids []int) (unread, unknown, lines int)
}

// Reasons why something is not identified.
const (
	// Of a claim that a running pod uses: that no bound volume of it is known, that it is not mounted where it is
	// looked for, that two are and either may be meant, and that its device cannot be found.
	ReasonUnknown    = "unknown"
	ReasonNotMounted = "not_mounted"
	ReasonAmbiguous  = "ambiguous"
	ReasonDevice     = "device"
	// Of a process in the kubelet's cgroups, or a container: the name of the cgroup is not understood, or its pod is not known.
	ReasonCgroup = "cgroup"
	ReasonPod    = "pod"
	// Of lines: those of mount tables, where one that cannot be read to its end counts as one. Of /proc/PID/cgroup it
	// is ReasonCgroup.
	ReasonMountinfo = "mountinfo"
)

// Unidentified are the counts of what was not identified at a scan, by reason; nil if there is nothing to report. Lines
// are those of the kernel's files.
type Unidentified struct{ Claims, Processes, Lines map[string]int }

// Node finds the volumes of one node.
type Node struct {
	// Pods, if not nil, is what the claims and processes of pods are compared with. It is set before the first scan.
	Pods Pods

	procfs  string
	devices Devices
	sources []Source
	mu      sync.Mutex // sources keep their last good answer
	// folders are find's, which runs once at a time.
	folders *folders

	start sync.Once
	known atomic.Pointer[knowledge]
}

// NewNode returns a Node that reads the given roots of procfs and sysfs for the volumes
// that the sources name.
func NewNode(procfs, sysfs string, sources ...Source) *Node {
	return &Node{procfs: procfs, devices: NewDevices(procfs, sysfs), sources: sources, folders: newFolders(procfs)}
}

// Find returns the volumes that are mounted now. The error reports what cannot be read or placed; the other volumes are
// returned all the same.
func (n *Node) Find() ([]Found, error) {
	k := n.find()
	return k.found, k.err
}

// WithoutDevice returns how many volumes are here and lie on no block device, such as those of a network file system.
func (n *Node) WithoutDevice() int {
	if k := n.known.Load(); k != nil {
		return k.without
	}
	return 0
}

// find is Find, and also returns what is needed to detect changes.
func (n *Node) find() *knowledge {
	k := &knowledge{at: time.Now()}
	if len(n.sources) == 0 && n.Pods == nil {
		return k
	}
	walk := pod.NewWalk(n.procfs)
	if n.Pods != nil {
		walk = n.Pods.Walk()
	}
	tables, noTables := ReadTables(n.procfs, walk)
	if noTables == nil {
		k.mounted = tables.volumes()
	}
	var err error
	k.identities, err = n.identities(k.mounted)
	if len(k.identities) == 0 && n.Pods == nil {
		k.err = err // without volumes no tables are missed
		return k
	}
	if noTables != nil {
		k.err = errors.Join(err, noTables)
		return k
	}
	n.folders.begin(k.identities)
	used, outcomes, problems := n.place(k, tables)
	k.err = errors.Join(err, problems)
	if n.Pods != nil {
		k.unidentified = n.compare(outcomes, tables)
	}
	if k.unidentified.Lines == nil {
		k.unidentified.Lines = map[string]int{}
	}
	k.unidentified.Lines[ReasonMountinfo] = tables.unread + tables.cutOff
	k.tables = tables.sources[:1]
	for i, table := range tables.Others {
		if slices.ContainsFunc(table, func(m Mount) bool { return slices.Contains(used, m) }) {
			k.tables = append(k.tables, tables.sources[i+1])
		}
	}
	return k
}

// Unidentified returns what the latest scan could not identify.
func (n *Node) Unidentified() Unidentified {
	if k := n.known.Load(); k != nil {
		return k.unidentified
	}
	return Unidentified{}
}

// compare counts what pods have that the scan did not find.
func (n *Node) compare(outcomes map[string]error, tables *Tables) (u Unidentified) {
	if claims := n.Pods.Claims(); claims != nil {
		u.Claims = map[string]int{ReasonUnknown: 0, ReasonNotMounted: 0, ReasonAmbiguous: 0, ReasonDevice: 0}
		for claim, running := range claims {
			switch err, known := outcomes[claim]; {
			case !running:
			case !known:
				u.Claims[ReasonUnknown]++
			case errors.Is(err, errAmbiguous):
				u.Claims[ReasonAmbiguous]++
			case errors.Is(err, errNotHere):
				u.Claims[ReasonNotMounted]++
			case err != nil && !errors.Is(err, ErrNoDevice): // those have a count of their own
				u.Claims[ReasonDevice]++
			}
		}
	}
	unread, unknown, lines := n.Pods.Strays(slices.Collect(maps.Values(tables.met)))
	u.Processes = map[string]int{ReasonCgroup: unread, ReasonPod: unknown}
	u.Lines = map[string]int{ReasonCgroup: lines}
	return u
}

// place finds where k's volumes are. It returns the mounts that show them, and the result of each claim.
func (n *Node) place(k *knowledge, tables *Tables) (used []Mount, outcomes map[string]error, err error) {
	var errs []error
	outcomes = map[string]error{}
	for _, i := range k.identities {
		f, mount, err := n.placeOne(i, tables)
		outcomes[i.Namespace+"/"+i.PersistentVolumeClaim] = err
		switch {
		case errors.Is(err, errNotHere):
		case errors.Is(err, ErrNoDevice):
			k.without++
		case err != nil:
			errs = append(errs, fmt.Errorf("volume %s: %w", i.Volume, err))
		default:
			used, k.found = append(used, mount), append(k.found, f)
		}
	}
	return used, outcomes, errors.Join(errs...)
}

var (
	// errNotHere is the error of a volume that is not mounted.
	errNotHere = errors.New("not mounted")
	// errAmbiguous is the error of a volume that may be either of two.
	errAmbiguous = errors.New("another volume")
)

// placeOne finds where a volume is, and the mount that shows it. If pods have several devices of its name, such as one
// left by a crash, those that still exist count.
func (n *Node) placeOne(i Identity, tables *Tables) (f Found, mount Mount, err error) {
	if i.ambiguous {
		return f, mount, fmt.Errorf("%w: %w", errNotHere, errAmbiguous)
	}
	at, device, err := n.folders.locate(i, tables)
	if err != nil {
		return f, mount, err
	}
	err = errNotHere
	for _, m := range at.in(tables) {
		root := m.Point
		if at.Directory != "" && within(at.Directory, m.Point) {
			root = at.Directory
		}
		place := m.place(root)
		disk, why := n.devices.Of(m)
		if device != "" {
			disk, why = n.devices.disk(device, m)
		}
		switch {
		case why != nil && f.Disk == "":
			err = why
		case why != nil:
		case f.Disk != "" && at.Mountpoint != "" && f.Place != place:
			return Found{}, mount, fmt.Errorf("containers have two at %s, on %s and %s: %w may be meant; give its directory on the host instead", untrusted.Path(at.Mountpoint), f.Disk, disk, errAmbiguous)
		case f.Disk != "" && (f.Place.Device != m.Device || m.raw && f.Place != place):
			return Found{}, mount, fmt.Errorf("pods have two devices by this name, %s and %s: one is %w, which a pod has named so", f.Disk, disk, errAmbiguous)
		default:
			mount, err = m, nil
			f = Found{Identity: i, Disk: disk, Below: n.devices.BelowMount(m, disk, tables), Place: place}
			f.Backend = i.backendOn(f.Below)
		}
	}
	return f, mount, err
}

func (n *Node) identities(mounted map[string]bool) ([]Identity, error) {
	near := Near{Mounted: mounted}
	if n.Pods != nil {
		near.Claims = n.Pods.Claims()
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	var all []Identity
	var errs []error
	for _, s := range n.sources {
		identities, err := s.Identities(near)
		all = append(all, identities...)
		errs = append(errs, err)
	}
	return all, errors.Join(errs...)
}

// in returns the mounts that the volume is seen through, none if it is not here.
func (i Identity) in(t *Tables) []Mount {
	if i.Kubelet != "" {
		if mounts := t.kubelet(i.Plugin, i.Kubelet); len(mounts) > 0 || i.Directory == "" {
			return mounts
		}
	}
	if i.Directory == "" {
		return t.At(i.Mountpoint)
	}
	m, ok := t.Holding(i.Directory)
	if !ok || i.InUse && !t.inUse(m.place(i.Directory), i.elsewhere) {
		return nil
	}
	return []Mount{m}
}

// Holding returns the volume among found that a place is on; of volumes within each other,
// the innermost.
func Holding(found []Found, p Place) (Found, bool) {
	var best Found
	ok := false
	for _, f := range found {
		if f.Place.Device == p.Device && within(p.Path, f.Place.Path) && (!ok || len(f.Place.Path) > len(best.Place.Path)) {
			best, ok = f, true
		}
	}
	return best, ok
}
