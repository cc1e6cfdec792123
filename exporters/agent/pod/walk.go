package pod

import "strings"

// Walk finds the containers of many processes, one after the other. What it remembers holds for a moment only: each
// look at all processes has one of its own.
type Walk struct {
	cgroups cgroups
	// met are the containers that a process was proven to be in.
	met map[ID]bool
	// ways are the folders that have pods' cgroups, by the root of the hierarchy and the cgroup's name.
	ways map[string]map[string]string
}

// NewWalk returns a Walk for the procfs that PID 1 sees.
func NewWalk(procfs string) *Walk {
	return &Walk{cgroups: cgroups{procfs}, met: map[ID]bool{}, ways: map[string]map[string]string{}}
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
		if n, ok := named(at); ok && w.met[n.id] {
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

// find is search, but looks through a hierarchy once for all pods.
func (w *Walk) find(root, group string) (string, error) {
	ways, looked := w.ways[root]
	if !looked {
		ways = map[string]string{}
		eachPod(root, func(name, way string) bool {
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
