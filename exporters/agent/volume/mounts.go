package volume

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/prometheus/procfs"
)

// Mount is one mounted file system.
type Mount struct {
	// Point is where it is mounted, in its namespace.
	Point string
	// Device is the file system's device number, as major:minor.
	Device string
	// Source is what was mounted, as the file system tells it.
	Source string
	// Root is the part of the file system that is seen at Point; not / for bind mounts.
	Root string
}

// Tables are the mount tables of a node, one for each mount namespace.
type Tables struct {
	// Host is the table of PID 1.
	Host []Mount
	// Others are those of containers and other private namespaces.
	Others [][]Mount
}

// ReadTables reads the mount table of every mount namespace that a process lives in.
// Processes that end meanwhile are no error.
func ReadTables(root string) (*Tables, error) {
	proc, err := procfs.NewFS(root)
	if err != nil {
		return nil, fmt.Errorf("procfs %s: %w", root, err)
	}
	processes, err := proc.AllProcs()
	if err != nil {
		return nil, fmt.Errorf("procfs %s: %w", root, err)
	}
	t := &Tables{}
	if t.Host, err = readTable(proc, 1); err != nil {
		return nil, fmt.Errorf("procfs %s: no mount table of PID 1 (%w); is it the host's procfs?", root, err)
	}
	// Without leave to trace PID 1 its namespace is not known, and is read once more.
	host, _ := os.Readlink(filepath.Join(root, "1", "ns", "mnt"))
	seen := map[string]bool{host: true}
	for _, p := range processes {
		namespace, err := os.Readlink(filepath.Join(root, fmt.Sprint(p.PID), "ns", "mnt"))
		if err != nil || seen[namespace] {
			continue
		}
		if mounts, err := readTable(proc, p.PID); err == nil {
			seen[namespace] = true
			t.Others = append(t.Others, mounts)
		}
	}
	return t, nil
}

func readTable(proc procfs.FS, pid int) ([]Mount, error) {
	p, err := proc.Proc(pid)
	if err != nil {
		return nil, err
	}
	infos, err := p.MountInfo()
	if err != nil {
		return nil, err
	}
	mounts := make([]Mount, 0, len(infos))
	for _, i := range infos {
		mounts = append(mounts, Mount{Point: unescape(i.MountPoint), Device: i.MajorMinorVer, Source: unescape(i.Source), Root: unescape(i.Root)})
	}
	return mounts, nil
}

// unescape undoes the octal escapes of white space and backslash in mountinfo, see proc(5).
func unescape(s string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(s)
}

// At returns what is mounted exactly at point, in the host's namespace or in another. Of
// several mounts on top of each other the last is the one that is seen.
func (t *Tables) At(point string) (Mount, bool) {
	for _, table := range append([][]Mount{t.Host}, t.Others...) {
		for i := len(table) - 1; i >= 0; i-- {
			if table[i].Point == point {
				return table[i], true
			}
		}
	}
	return Mount{}, false
}

// kubelet returns the host's mount of a PersistentVolume into a pod. The kubelet names it
// <its folder>/pods/<pod's UID>/volumes/<plugin>/<volume>, with mount at the end for CSI.
func (t *Tables) kubelet(name string) (Mount, bool) {
	for _, m := range t.Host {
		parts := strings.Split(strings.TrimSuffix(m.Point, "/mount"), "/")
		n := len(parts)
		if n >= 6 && parts[n-1] == name && parts[n-3] == "volumes" && parts[n-5] == "pods" {
			return m, true
		}
	}
	return Mount{}, false
}

// Holding returns the host's mount that directory lies in.
func (t *Tables) Holding(directory string) (Mount, bool) { return holding(t.Host, directory) }

// holding returns the mount of a table that a path lies in: the innermost, and of several on
// one point the last.
func holding(table []Mount, path string) (Mount, bool) {
	var found Mount
	ok := false
	for _, m := range table {
		if within(path, m.Point) && (!ok || len(m.Point) >= len(found.Point)) {
			found, ok = m, true
		}
	}
	return found, ok
}

func within(path, point string) bool {
	return path == point || strings.HasPrefix(path, strings.TrimSuffix(point, "/")+"/")
}

// Place is where a file is on its file system, whatever it is called in a namespace: bind
// mounts of one folder into several containers are one Place.
type Place struct {
	// Device is the file system's device number, as major:minor.
	Device string
	// Path is the path from the file system's own root.
	Path string
}

// place returns where path is, seen through the mount m that holds it.
func (m Mount) place(path string) Place {
	relative := strings.TrimPrefix(path, strings.TrimSuffix(m.Point, "/"))
	return Place{m.Device, filepath.Join("/", m.Root, relative)}
}

// PlaceOf returns where path is, as the process pid sees it.
func PlaceOf(root string, pid int, path string) (Place, error) {
	proc, err := procfs.NewFS(root)
	if err != nil {
		return Place{}, fmt.Errorf("procfs %s: %w", root, err)
	}
	table, err := readTable(proc, pid)
	if err != nil {
		return Place{}, fmt.Errorf("mount table of process %d: %w", pid, err)
	}
	m, ok := holding(table, path)
	if !ok {
		return Place{}, fmt.Errorf("process %d has no mount that holds %s", pid, path)
	}
	return m.place(path), nil
}
