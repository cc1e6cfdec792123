package pod

import (
	"slices"
	"strings"
)

// Owner names whose a process is, as foreign.Calls has owners, for those whose user says nothing, such as root: the outermost cgroup on its way that is
// called as a pod's or a container's, so that whoever may make cgroups within one is still the same owner; of a process outside of them all its cgroups.
// It proves nothing, costs little and is never empty.
func Owner(procfs string, pid int) string {
	text, err := cgroups{procfs}.text(pid)
	if err != nil || text == "" {
		return "no cgroup" // it has ended
	}
	for line := range strings.Lines(text) {
		_, at := split(line)
		parts := strings.Split(at, "/")
		if n := slices.IndexFunc(parts, contains); n >= 0 {
			return "cgroup " + strings.Join(parts[:n+1], "/")
		}
	}
	return "cgroups " + text
}

// contains says whether a cgroup is called as a pod's or a container's.
func contains(group string) bool { return podGroup.MatchString(group) || containerGroup.MatchString(group) }
