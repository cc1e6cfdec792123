package pod

import "strings"

// Walk finds the containers of many processes, one after the other. What it remembers holds for a moment only: each
// scan of all processes has one of its own.
type Walk struct {
	cgroups cgroups
	// met are the containers that a process was proven to be in.
	met map[ID]bool
	// ways are the folders that have pods' cgroups, by the root of the hierarchy and the cgroup's name.
	ways map[string]map[string]string
}

// NewWalk returns a Walk for the procfs that PID 1 sees, which finds containers in cgroups of pods only.
func NewWalk(procfs string) *Walk { return cgroups{procfs: procfs}.walk() }

// Walk returns a Walk for the node's processes.
func (n *Node) Walk() *Walk { return n.cgroups.walk() }

func (c cgroups) walk() *Walk {
	return &Walk{cgroups: c, met: map[ID]bool{}, ways: map[string]map[string]string{}}
}

// Named reports whether a process is in a cgroup that has the name of a pod's or of a pod's container. It proves
// nothing, and costs little.
func (w *Walk) Named(pid int) bool {
	text, err := w.cgroups.text(pid)
	if err != nil {
		return false // it has ended
	}
	for line := range strings.Lines(text) {
		_, at := split(line)
		if _, ok := w.cgroups.named(at); ok {
			return true
		}
	}
	return false
}

// First reports whether a process is the first one met of a pod's container. Of the container's further processes it
// reads only the names of their cgroups, as there may be thousands. The error is ErrUntrusted if a process only seems
// to be in a container.
func (w *Walk) First(pid int) (bool, error) {
	text, err := w.cgroups.text(pid)
	if err != nil {
		return false, err
	}
	for line := range strings.Lines(text) {
		_, at := split(line)
		if n, ok := w.cgroups.named(at); ok && w.met[n.id] {
			return false, nil
		}
	}
	id, err := w.cgroups.proven(pid, text, w.find)
	if err != nil || id == (ID{}) {
		return false, err
	}
	w.met[id] = true
	return true, nil
}

// find is search, but walks a hierarchy once for all pods.
func (w *Walk) find(root, group string) (string, error) {
	ways, walked := w.ways[root]
	if !walked {
		ways = map[string]string{}
		eachGroup(root, func(name, way string) bool {
			if _, again := ways[name]; !again {
				ways[name] = way
			}
			return true
		})
		w.ways[root] = ways
	}
	way, ok := ways[group]
	if !ok {
		return "", nowhere(group)
	}
	return way, nil
}
