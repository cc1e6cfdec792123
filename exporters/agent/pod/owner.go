package pod

import (
	"slices"
	"strings"
)

// Owner returns the owner of a process, as untrusted.Calls has owners, where the user does not identify it, such as root.
// It is the outermost cgroup with the name of a pod's or a container's, so that cgroups made within one do not change
// the owner. For a process outside of pods and containers it is all its cgroups, each up to its unit of systemd or
// container of LXC. Where a node is itself a container, the pod is the owner on cgroup version 1, where only privileged
// containers can make cgroups; on version 2 the node is, if seen from outside of it.
//
// It proves nothing, costs little and is never empty. Root of a service or of an LXC container that makes cgroups and
// calls them as containers is several owners.
func Owner(procfs string, pid int) string {
	text, err := cgroups{procfs: procfs}.text(pid)
	if err != nil || text == "" {
		return "no cgroup" // it has ended
	}
	all := "cgroups"
	for line := range strings.Lines(text) {
		controllers, at := split(line)
		parts := strings.Split(at, "/")
		if n := slices.IndexFunc(parts, contains); n >= 0 {
			if controllers != "" { // version 1
				n = podOfNode(parts, n)
			}
			if podGroup.MatchString(parts[n]) {
				parts[n] = podPart(parts[n])
			}
			return "cgroup " + strings.Join(parts[:n+1], "/")
		}
		if n := slices.IndexFunc(parts, started); n >= 0 {
			parts = parts[:n+1]
		}
		all += "\n" + controllers + ":" + strings.Join(parts, "/")
	}
	return all
}

// contains reports whether a cgroup has the name of a pod's or a container's.
func contains(group string) bool {
	return podGroup.MatchString(group) || containerGroup.MatchString(group)
}

// podOfNode returns which part of a way is the outermost pod's in a container, part n, that is a Kubernetes node; n if
// that is none.
func podOfNode(parts []string, n int) int {
	if podGroup.MatchString(parts[n]) {
		return n
	}
	within := parts[n+1:]
	pod := slices.IndexFunc(within, podGroup.MatchString)
	if pod < 0 || !strings.Contains(strings.Join(within[:pod+1], "/"), "kubepods") {
		return n
	}
	return n + 1 + pod
}

// started reports whether a cgroup has the name of a systemd unit with processes or of an LXC container: processes in
// it may make cgroups of their own.
func started(group string) bool {
	return strings.HasSuffix(group, ".service") || strings.HasSuffix(group, ".scope") || strings.HasPrefix(group, "lxc.payload.")
}
