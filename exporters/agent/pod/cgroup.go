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

	"github.com/plumbline/plumbline/exporters/agent/foreign"
)

// ErrUntrusted is the error of a cgroup that has a pod's name and was not made by the kubelet.
var ErrUntrusted = errors.New("not trusted")

const (
	// maxCgroup bounds /proc/PID/cgroup, a line for each hierarchy; maxMembers the list of a cgroup's processes.
	maxCgroup  = 64 << 10
	maxMembers = 4 << 20
	// maxSearched bounds how many cgroups are looked through for a pod's, and maxDepth how deep: the kubelet's own root, which
	// may be some below the hierarchy's, kubepods, the class of service, the pod.
	maxSearched = 20000
	maxDepth    = 6
)

const uid = `([0-9a-f]{8}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{12}|[0-9a-f]{32})`

var (
	// podGroup is what the kubelet calls a pod's cgroup: pod0fe7f6e5-…, or kubepods-burstable-pod0fe7f6e5_….slice below systemd.
	podGroup = regexp.MustCompile(`^(?:pod` + uid + `|(?:[a-z0-9]+-)*kubepods(?:-besteffort|-burstable)?-pod` + uid + `\.slice)$`)
	// containerGroup is what runtimes call a container's.
	containerGroup = regexp.MustCompile(`^(?:[a-z]+-)*([0-9a-f]{64})(?:\.scope)?$`)
)

// cgroups finds the pods of processes by the kernel's cgroups, as PID 1 sees them.
//
// The names alone prove nothing: whoever may make cgroups of his own, as any user of a systemd session may, can call one as the
// kubelet calls a pod's, and move his process into it. So a process is in a pod only if
//
//   - the cgroup of the pod, of the container, and all above them belong to root and nobody else may write them: an
//     unprivileged process can neither make such a cgroup nor enter it. (On version 2 a container's own may belong to the root
//     of its user namespace: the kernel lets nobody enter it who may not write above it.);
//   - it is the outermost one with a pod's name, so that whoever may make cgroups within a pod stays in that pod;
//   - the kernel lists the process there, in the hierarchy that PID 1 has mounted. A path in /proc/PID/cgroup is relative to
//     the reader's own cgroup namespace, and says nothing of what is above it.
type cgroups struct{ procfs string }

// hierarchy is the place of a hierarchy below PID 1's mounts, and the path of a process in it.
type hierarchy struct {
	root, path string
	unified    bool // version 2
}

// of returns the pod and container that a process is in, or the zero ID. The error is ErrUntrusted if a cgroup only looks so.
func (c cgroups) of(pid int) (ID, error) {
	text, err := foreign.ReadProc(filepath.Join(c.procfs, strconv.Itoa(pid), "cgroup"), maxCgroup)
	switch {
	case errors.Is(err, os.ErrNotExist), errors.Is(err, syscall.ESRCH):
		return ID{}, nil // it has ended
	case err != nil:
		return ID{}, fmt.Errorf("cgroup of process %d: %w", pid, err)
	}
	var problem error
	for line := range strings.Lines(string(text)) {
		_, rest, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ":")
		controllers, at, ok := strings.Cut(rest, ":")
		if !ok || !strings.Contains(at, "pod") {
			continue
		}
		id, err := c.in(pid, hierarchy{c.mount(controllers), at, controllers == ""})
		if id != (ID{}) && err == nil {
			return id, nil
		}
		if problem == nil {
			problem = err
		}
	}
	return ID{}, problem
}

// Named tells whether a process is in a cgroup that is called as the kubelet calls a pod's. It proves nothing, and costs little.
func Named(procfs string, pid int) bool {
	text, err := foreign.ReadProc(filepath.Join(procfs, strconv.Itoa(pid), "cgroup"), maxCgroup)
	if err != nil {
		return false // it has ended
	}
	for line := range strings.Lines(string(text)) {
		if slices.ContainsFunc(strings.Split(strings.TrimSuffix(line, "\n"), "/"), podGroup.MatchString) {
			return true
		}
	}
	return false
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

// in returns the pod that a process is in by one hierarchy.
func (c cgroups) in(pid int, h hierarchy) (ID, error) {
	way, relative := h.path, false
	for strings.HasPrefix(way, "/../") {
		way, relative = way[len("/.."):], true
	}
	parts := strings.Split(strings.Trim(path.Clean(way), "/"), "/")
	n := slices.IndexFunc(parts, podGroup.MatchString)
	if n < 0 {
		return ID{}, nil
	}
	id := ID{UID: uidOf(parts[n])}
	end := n + 1 // of what the kubelet and the runtime made
	if len(parts) > end {
		if m := containerGroup.FindStringSubmatch(parts[end]); m != nil {
			id.Container = m[1]
			end++
		}
	}
	above := strings.Join(parts[:n], "/")
	if relative {
		found, err := search(h.root, parts[n])
		if err != nil {
			return ID{}, fmt.Errorf("cgroup of process %d: %w", pid, err)
		}
		above = found
	}
	made := path.Join(append([]string{above}, parts[n:end]...)...)
	must := made
	if h.unified {
		must = path.Join(above, parts[n])
	}
	if err := rootOnly(h.root, must); err != nil {
		return ID{}, fmt.Errorf("cgroup of process %d: %w", pid, err)
	}
	if err := member(filepath.Join(h.root, made, strings.Join(parts[end:], "/"), "cgroup.procs"), pid); err != nil {
		return ID{}, fmt.Errorf("cgroup of process %d: %w", pid, err)
	}
	return id, nil
}

// uidOf returns the pod's UID that a cgroup's name has.
func uidOf(group string) string {
	m := podGroup.FindStringSubmatch(group)
	return strings.ReplaceAll(m[1]+m[2], "_", "-")
}

// rootOnly tells whether all folders on the way belong to root, and nobody else may write them.
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

// ownedByRoot tells whether a folder belongs to root, and nobody else may write it.
func ownedByRoot(folder string) error {
	info, err := os.Lstat(folder)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUntrusted, err)
	}
	s, ok := info.Sys().(*syscall.Stat_t)
	if !ok || s.Uid != owner || !info.IsDir() || info.Mode().Perm()&0o022 != 0 {
		return fmt.Errorf("%w: %s is not a folder that only root may write", ErrUntrusted, foreign.Path(filepath.Base(folder)))
	}
	return nil
}

// owner is who makes the cgroups of pods; tests that are not run by root set their own.
var owner uint32

// member tells whether a cgroup has a process.
func member(list string, pid int) error {
	found := false
	want := strconv.Itoa(pid)
	err := foreign.Lines(list, maxMembers, func(line string) bool {
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

// search returns the way to the folder that has a pod's cgroup, from the root of a hierarchy: through root's folders only, and
// not into a pod's.
func search(root, group string) (string, error) {
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
			if e.Name() == group {
				return todo[n].way, nil
			}
			way := path.Join(todo[n].way, e.Name())
			if todo[n].depth+1 < maxDepth && !podGroup.MatchString(e.Name()) && ownedByRoot(filepath.Join(root, way)) == nil {
				todo = append(todo, folder{way, todo[n].depth + 1})
			}
		}
	}
	return "", fmt.Errorf("%w: %s is nowhere among root's", ErrUntrusted, foreign.Text(group, foreign.MaxLabel))
}
