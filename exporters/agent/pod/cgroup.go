package pod

import (
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/plumbline/plumbline/exporters/agent/untrusted"
)

// ErrUntrusted is the error of a cgroup that has a pod's name and was not made by the kubelet.
var ErrUntrusted = errors.New("not trusted")

const (
	// maxCgroup bounds /proc/PID/cgroup, a line for each hierarchy; maxMembers the list of a cgroup's processes.
	maxCgroup  = 64 << 10
	maxMembers = 4 << 20
	// maxSearched bounds how many cgroups are searched for a pod's, and maxDepth how deep: the kubelet's own
	// root, which may be some below the hierarchy's, kubepods, the class of service, the pod.
	maxSearched = 20000
	maxDepth    = 6
)

const uid = `([0-9a-f]{8}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{12}|[0-9a-f]{32})`

var (
	// podGroup matches the kubelet's name of a pod's cgroup: pod0fe7f6e5-…, or kubepods-burstable-pod0fe7f6e5_….slice
	// below systemd. There the kubelet's own root precedes it (--cgroup-root), with each - as _. A runtime that does
	// not use systemd, below a kubelet that does, makes one cgroup of what it gets for systemd:
	// …-pod0fe7f6e5_….slice:cri-containerd:ID, which is the pod's and the container's.
	podGroup = regexp.MustCompile(`^(?:pod` + uid + `|(?:[^/:-]+-)*kubepods(?:-besteffort|-burstable)?-pod` + uid + `\.slice)(?::([^/:]*):([^/:]+))?$`)
	// containerGroup is what runtimes call a container's, with a prefix of their own.
	containerGroup = regexp.MustCompile(`^(?:[^/:]+\.slice:)?(?:[A-Za-z0-9_.]+[-:])*([0-9a-f]{64})(?:\.scope)?$`)
)

// cgroups finds the pods of processes by the kernel's cgroups, as PID 1 sees them.
//
// The names alone prove nothing: any user of a systemd session may make cgroups of his own, give one the name of the
// kubelet's for a pod, and move his process into it. So a process is in a pod only if
//
//   - the cgroup of the pod, of the container, and all above them belong to root and only root may write them: an
//     unprivileged process can neither make such a cgroup nor enter it. (On version 2 a container's own may belong to the root
//     of its user namespace: to enter it, a process needs the right to write above it.);
//   - it is the outermost one with a pod's name, so that cgroups made within a pod stay in that pod;
//   - the kernel lists the process there, in the hierarchy that PID 1 has mounted. A path in /proc/PID/cgroup is relative to
//     the reader's own cgroup namespace, and does not show what is above it.
type cgroups struct {
	procfs string
	// pods returns the UIDs of pods by the runtime's numbers of their containers; nil if these are not known. Pods have no cgroups if
	// the kubelet makes none for them (--cgroups-per-qos=false).
	pods func() map[string]string
}

// hierarchy is the place of a hierarchy below PID 1's mounts.
type hierarchy struct {
	root    string
	unified bool // version 2
}

// finder finds the way to the folder that has a pod's cgroup, see search.
type finder func(root, group string) (string, error)

// text returns the kernel's list of a process's cgroups; empty for one that has ended.
func (c cgroups) text(pid int) (string, error) {
	text, err := untrusted.ReadProc(filepath.Join(c.procfs, strconv.Itoa(pid), "cgroup"), maxCgroup)
	switch {
	case errors.Is(err, os.ErrNotExist), errors.Is(err, syscall.ESRCH):
		return "", nil
	case err != nil:
		return "", fmt.Errorf("cgroup of process %d: %w", pid, err)
	}
	return string(text), nil
}

// of returns the pod and container that a process is in, or the zero ID. The error is ErrUntrusted if a cgroup only
// looks so.
func (c cgroups) of(pid int) (ID, error) {
	text, err := c.text(pid)
	if err != nil {
		return ID{}, err
	}
	return c.proven(pid, text, search)
}

// proven is of, for a process with this text.
func (c cgroups) proven(pid int, text string, find finder) (ID, error) {
	var problem error
	for line := range strings.Lines(text) {
		controllers, at := split(line)
		n, ok := c.named(at)
		if !ok {
			continue
		}
		err := n.prove(pid, hierarchy{c.mount(controllers), controllers == ""}, find)
		if err == nil {
			return n.id, nil
		}
		if problem == nil {
			problem = err
		}
	}
	return ID{}, problem
}

// split takes a line of /proc/PID/cgroup apart.
func split(line string) (controllers, at string) {
	_, rest, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ":")
	controllers, at, _ = strings.Cut(rest, ":")
	return controllers, at
}

// hostRoot is the root of PID 1's files or, without the right to enter it (CAP_SYS_PTRACE), the agent's own.
func hostRoot(procfs string) string {
	root := filepath.Join(procfs, "1", "root")
	if _, err := os.Lstat(filepath.Join(root, "sys")); errors.Is(err, os.ErrPermission) {
		return "/"
	}
	return root
}

// mount is where PID 1 has a hierarchy.
func (c cgroups) mount(controllers string) string {
	root := filepath.Join(hostRoot(c.procfs), "sys/fs/cgroup")
	switch name := strings.TrimPrefix(controllers, "name="); {
	case controllers == "":
		if _, err := os.Lstat(filepath.Join(root, "cgroup.controllers")); err == nil {
			return root // cgroup v2 alone
		}
		return filepath.Join(root, "unified")
	case strings.ContainsAny(name, "/.\x00"):
		return filepath.Join(root, "unknown")
	default:
		return filepath.Join(root, name)
	}
}

// names are the parts of the path to a cgroup; one of them is a pod's.
type names struct {
	parts []string
	// pod is which of the parts is the pod's, and end where ends what the kubelet and the runtime made.
	pod, end int
	// both is set if the part is the container's cgroup, too, or instead.
	both bool
	id   ID
	// relative is set if it is not known what is above the parts.
	relative bool
}

// named parses the path of a cgroup; ok reports whether a part of it has a pod's name or, if none has, the number of a
// pod's container. It proves nothing.
func (c cgroups) named(at string) (n names, ok bool) {
	if c.pods == nil && !strings.Contains(at, "pod") {
		return n, false
	}
	for strings.HasPrefix(at, "/../") {
		at, n.relative = at[len("/.."):], true
	}
	n.parts = strings.Split(strings.Trim(path.Clean(at), "/"), "/")
	if n.pod = slices.IndexFunc(n.parts, podGroup.MatchString); n.pod < 0 {
		return n, c.pods != nil && n.numbered(c.pods())
	}
	n.id, n.both = idOf(n.parts[n.pod])
	n.end = n.pod + 1
	if !n.both && len(n.parts) > n.end {
		if m := containerGroup.FindStringSubmatch(n.parts[n.end]); m != nil {
			n.id.Container = m[1]
			n.end++
		}
	}
	return n, true
}

// numbered finds the outermost part that is the cgroup of one of these containers.
func (n *names) numbered(pods map[string]string) bool {
	for i, part := range n.parts {
		if m := containerGroup.FindStringSubmatch(part); m != nil && pods[m[1]] != "" {
			n.pod, n.end, n.both, n.id = i, i+1, true, ID{UID: pods[m[1]], Container: m[1]}
			return true
		}
	}
	return false
}

// prove returns an error unless these names are those of the process's cgroup in one hierarchy, and made by the
// kubelet.
func (n names) prove(pid int, h hierarchy, find finder) error {
	group := n.parts[n.pod]
	above := strings.Join(n.parts[:n.pod], "/")
	if n.relative {
		found, err := find(h.root, group)
		if err != nil {
			return fmt.Errorf("cgroup of process %d: %w", pid, err)
		}
		above = found
	}
	made := path.Join(append([]string{above}, n.parts[n.pod:n.end]...)...)
	must := made
	switch {
	case h.unified && n.both:
		must = above // without the right to write there a process can neither make the container's cgroup nor enter it
	case h.unified:
		must = path.Join(above, group)
	}
	if err := rootOnly(h.root, must); err != nil {
		return fmt.Errorf("cgroup of process %d: %w", pid, err)
	}
	if err := member(filepath.Join(h.root, made, strings.Join(n.parts[n.end:], "/"), "cgroup.procs"), pid); err != nil {
		return fmt.Errorf("cgroup of process %d: %w", pid, err)
	}
	return nil
}

// idOf returns the pod's UID that a cgroup's name has and, if it is a container's too, the runtime's number of that.
func idOf(group string) (id ID, container bool) {
	m := podGroup.FindStringSubmatch(group)
	return ID{UID: strings.ReplaceAll(m[1]+m[2], "_", "-"), Container: m[4]}, m[4] != ""
}

// podPart is the part of a cgroup's name that all containers of its pod have.
func podPart(group string) string {
	name, _, _ := strings.Cut(group, ":")
	return name
}

// rootOnly returns an error unless all folders on the way belong to root and only root may write them.
func rootOnly(root, way string) error {
	at := root
	for _, part := range strings.Split(way, "/") {
		at = filepath.Join(at, part)
		if err := ownedByRoot(at); err != nil {
			return err
		}
	}
	return nil
}

// ownedByRoot returns an error unless a folder belongs to root and only root may write it.
func ownedByRoot(folder string) error {
	info, err := os.Lstat(folder)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUntrusted, err)
	}
	s, ok := info.Sys().(*syscall.Stat_t)
	if !ok || s.Uid != owner || !info.IsDir() || info.Mode().Perm()&0o022 != 0 {
		return fmt.Errorf("%w: %s is not a folder that only root may write", ErrUntrusted, untrusted.Path(filepath.Base(folder)))
	}
	return nil
}

// owner is the user that makes the cgroups of pods; tests that are not run by root set their own.
var owner uint32

// member returns an error unless a cgroup lists a process.
func member(list string, pid int) error {
	found := false
	want := strconv.Itoa(pid)
	err := untrusted.Lines(list, maxMembers, func(line string) bool {
		found = line == want
		return !found
	})
	if err == nil && !found {
		err = errors.New("the kernel does not list it there")
	}
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUntrusted, err)
	}
	return nil
}

// search returns the way to the folder that has a pod's cgroup, from the root of a hierarchy.
func search(root, group string) (string, error) {
	found, ok := "", false
	eachGroup(root, func(name, way string) bool {
		if ok = name == group; ok {
			found = way
		}
		return !ok
	})
	if !ok {
		return "", nowhere(group)
	}
	return found, nil
}

// nowhere is the error of a pod's cgroup that is not found.
func nowhere(group string) error {
	return fmt.Errorf("%w: %s is nowhere among root's", ErrUntrusted, untrusted.Text(group, untrusted.MaxLabel))
}

// eachGroup calls f with the name of each cgroup that is called as a pod's or a container's and the way to the folder
// that has it, until f returns false: through root's folders only, and not into a pod's.
func eachGroup(root string, f func(name, way string) bool) {
	type folder struct {
		way   string
		depth int
	}
	todo := []folder{{"", 0}}
	for n := 0; n < len(todo) && n < maxSearched; n++ {
		entries, err := os.ReadDir(filepath.Join(root, todo[n].way))
		if err != nil {
			continue // gone meanwhile
		}
		for _, e := range entries {
			if !e.IsDir() {
				continue
			}
			if contains(e.Name()) && !f(e.Name(), todo[n].way) {
				return
			}
			if podGroup.MatchString(e.Name()) {
				continue
			}
			way := path.Join(todo[n].way, e.Name())
			if todo[n].depth+1 < maxDepth && ownedByRoot(filepath.Join(root, way)) == nil {
				todo = append(todo, folder{way, todo[n].depth + 1})
			}
		}
	}
}
