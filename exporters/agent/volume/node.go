package volume

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Source names volumes: an identity file, or the Kubernetes API.
type Source interface {
	// Identities returns the volumes known; with an error, those it still knows.
	Identities() ([]Identity, error)
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

// Node finds the volumes of one node.
type Node struct {
	procfs  string
	devices Devices
	sources []Source
	mu      sync.Mutex // sources keep their last good answer

	start sync.Once
	known atomic.Pointer[knowledge]
}

// NewNode returns a Node that looks below the given roots of procfs and sysfs for the volumes
// that the sources name.
func NewNode(procfs, sysfs string, sources ...Source) *Node {
	return &Node{procfs: procfs, devices: NewDevices(sysfs), sources: sources}
}

// Find returns the volumes that are mounted now. What cannot be read or placed is told by the
// error, and the other volumes are returned all the same.
func (n *Node) Find() ([]Found, error) {
	k := n.find()
	return k.found, k.err
}

// find is Find with what tells whether anything has changed since.
func (n *Node) find() *knowledge {
	k := &knowledge{at: time.Now()}
	var err error
	k.identities, err = n.identities()
	if len(k.identities) == 0 {
		k.err = err
		return k
	}
	tables, noTables := ReadTables(n.procfs)
	if noTables != nil {
		k.err = errors.Join(err, noTables)
		return k
	}
	var used []Mount
	k.found, used, k.err = n.place(k.identities, tables)
	k.err = errors.Join(err, k.err)
	k.tables = tables.sources[:1]
	for i, table := range tables.Others {
		if slices.ContainsFunc(table, func(m Mount) bool { return slices.Contains(used, m) }) {
			k.tables = append(k.tables, tables.sources[i+1])
		}
	}
	return k
}

// place finds where volumes are, and by which mounts.
func (n *Node) place(identities []Identity, tables *Tables) (found []Found, used []Mount, err error) {
	var errs []error
	for _, i := range identities {
		root, mount, ok := i.in(tables)
		if !ok {
			continue // not mounted: the volume is not here
		}
		disk, err := n.devices.Of(mount)
		if err != nil {
			errs = append(errs, fmt.Errorf("volume %s: %w", i.Volume, err))
			continue
		}
		used = append(used, mount)
		found = append(found, Found{Identity: i, Disk: disk, Below: n.devices.Below(disk, tables), Place: mount.place(root)})
	}
	return found, used, errors.Join(errs...)
}

func (n *Node) identities() ([]Identity, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	var all []Identity
	var errs []error
	for _, s := range n.sources {
		identities, err := s.Identities()
		all = append(all, identities...)
		errs = append(errs, err)
	}
	return all, errors.Join(errs...)
}

// in returns the volume's root and the mount that it is seen through.
func (i Identity) in(t *Tables) (string, Mount, bool) {
	switch {
	case i.Directory != "":
		m, ok := t.Holding(i.Directory)
		return i.Directory, m, ok
	case i.Kubelet != "":
		m, ok := t.kubelet(i.Kubelet)
		return m.Point, m, ok
	}
	m, ok := t.At(i.Mountpoint)
	return i.Mountpoint, m, ok
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
