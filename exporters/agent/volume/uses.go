package volume

import (
	"path/filepath"
	"slices"

	"github.com/plumbline/plumbline/exporters/agent/pod"
)

// inUse says whether a pod's container has a place, or a part of it, as a mount that is its own.
func (t *Tables) inUse(p Place) bool {
	if t.used == nil {
		t.used = t.uses()
	}
	return t.used[p]
}

// uses are the places that pods' containers use: those that they have as mounts, and the folders that these are in. What a mount namespace only has a
// copy of is not used by anybody: private namespaces begin with all mounts of the host, and a container that is given a folder of the host's is
// given the mounts below it, too. What is no pod's, such as a kubelet in a container, has folders of the host's for other reasons.
func (t *Tables) uses() map[Place]bool {
	root, rooted := holding(t.Host, "/")
	own := map[seat]bool{}
	for _, s := range seats(t.Host) {
		own[s] = true
	}
	used := map[Place]bool{}
	tables := slices.Clone(t.users)
	for i, table := range t.Others {
		if pod.Named(t.procfs, t.sources[i+1].pid) {
			tables = append(tables, table)
		}
	}
	for _, table := range tables {
		if m, ok := holding(table, "/"); ok && rooted && m.Device == root.Device && m.Root == root.Root {
			continue // it sees the host's files
		}
		for _, s := range seats(table) {
			if own[s] {
				continue
			}
			for p := s.shows; !used[p]; p.Path = filepath.Dir(p.Path) {
				used[p] = true
			}
		}
	}
	return used
}

// seat is what a mount shows, and what it is mounted on: zero for the root of a namespace.
type seat struct{ shows, on Place }

// seats are those of a table's mounts.
func seats(table []Mount) []seat {
	numbers := map[int]Mount{}
	for _, m := range table {
		numbers[m.number] = m
	}
	var all []seat
	for _, m := range table {
		s := seat{shows: Place{m.Device, m.Root}}
		if parent, ok := numbers[m.parent]; ok && m.parent != m.number {
			s.on = parent.place(m.Point)
		}
		all = append(all, s)
	}
	return all
}
