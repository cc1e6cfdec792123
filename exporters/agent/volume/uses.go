package volume

import (
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// inUse reports whether a pod's container has a place (or, unless whole is set, a part of it) as a mount of its own.
func (t *Tables) inUse(p Place, whole bool) bool {
	if t.used == nil {
		t.used = t.uses()
	}
	used := t.used[p.Device]
	if _, ok := slices.BinarySearch(used, p.Path); ok || whole {
		return ok
	}
	below := strings.TrimSuffix(p.Path, "/") + "/"
	i, _ := slices.BinarySearch(used, below)
	return i < len(used) && strings.HasPrefix(used[i], below)
}

// uses are the places that pods' containers have as mounts, by device and sorted. A mount that a namespace only has a
// copy of is not in use: private namespaces begin with all mounts of the host, and a container that is given a folder
// of the host's is given the mounts below it, too. Containers outside of pods, such as a kubelet in a container, have
// folders of the host's for other reasons.
func (t *Tables) uses() map[string][]string {
	used := map[string][]string{}
	tables := slices.Clone(t.users)
	for i, table := range t.Others {
		if t.named[i] {
			tables = append(tables, table)
		}
	}
	for _, table := range tables {
		if t.seesHost(table) {
			continue
		}
		for _, s := range mountEdges(table) {
			// What is longer than a path can be is in no folder of a volume.
			if !t.own[s] && len(s.shows.Path) < unix.PathMax {
				used[s.shows.Device] = append(used[s.shows.Device], s.shows.Path)
			}
		}
	}
	for device, places := range used {
		slices.Sort(places)
		used[device] = slices.Compact(places)
	}
	return used
}

// mountEdge is what a mount shows (shows) and what it is mounted on (on): zero for the root of a namespace.
type mountEdge struct{ shows, on Place }

// mountEdges are those of a table's mounts.
func mountEdges(table []Mount) []mountEdge {
	numbers := map[int]Mount{}
	for _, m := range table {
		numbers[m.number] = m
	}
	var all []mountEdge
	for _, m := range table {
		s := mountEdge{shows: m.place(m.Point)}
		if parent, ok := numbers[m.parent]; ok && m.parent != m.number {
			s.on = parent.place(m.Point)
		}
		all = append(all, s)
	}
	return all
}
