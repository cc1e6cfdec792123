package volume

import (
	"errors"
	"fmt"
	"hash/maphash"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"unsafe"

	"github.com/plumbline/plumbline/exporters/agent/pod"
	"github.com/plumbline/plumbline/exporters/agent/untrusted"
)

// Mount is one mounted file system.
type Mount struct {
	// Point is where it is mounted, in its namespace.
	Point string
	// Device is the file system's device number, as major:minor.
	Device string
	// Type is the kind of file system; empty if it is not known, and then Source is empty or one that names the device.
	Type string
	// Source is what was mounted, as the file system reports it.
	Source string
	// Root is the part of the file system that is seen at Point; not / for bind mounts.
	Root string
	// extra are the devices besides Source's that an XFS keeps its log or its files' data on, separated by commas.
	extra string
	// number is the mount's, and parent that of the mount that it is mounted on.
	number, parent int
	// raw is set if the node of a device is seen at Point, and no file system: Root is its name in /dev then.
	raw bool
}

// Tables are the mount tables of a node, one for each mount namespace.
type Tables struct {
	// Host is the table of PID 1.
	Host []Mount
	// Others are those of containers and other private namespaces, without the mounts that they only have copies of.
	Others [][]Mount
	// named reports for each of Others whether a process there is in a cgroup with a pod's name.
	named []bool
	// users are the tables of pods' containers with user namespaces of their own, one for each container. They only
	// show which of the host's folders are used.
	users [][]Mount
	// sources are where the tables were read, the host's first.
	sources []tableSource
	// unread counts lines that could not be understood, of all tables together, and cutOff tables that could not be
	// read to their end.
	unread, cutOff int
	// met are the processes in which the mount namespaces were first met, by the namespace: nearly always one of each
	// container.
	met map[string]int
	// pods are the kubelet's mounts of volumes into pods, set on first use.
	pods map[podVolume][]Mount
	// points are the host's mounts by their points, set on first use.
	points map[string]Mount
	// used are the places that containers use, by device, set on first use.
	used map[string][]string
	// own are the mountEdges of the host's mounts.
	own map[mountEdge]bool
}

// podVolume is a volume as the kubelet has it below a pod's folder.
type podVolume struct{ plugin, name string }

// The folders of the kubelet's plugins. Below most there are a pod's own volumes, too, by names that the pod chooses.
const (
	csiPlugin   = "kubernetes.io~csi"
	localPlugin = "kubernetes.io~local-volume"
	// anyPlugin is any plugin but those that have only a pod's own volumes.
	anyPlugin = "*"
)

// podsOwn are the folders of plugins that no PersistentVolume has.
var podsOwn = map[string]bool{
	"kubernetes.io~empty-dir": true, "kubernetes.io~configmap": true, "kubernetes.io~secret": true, "kubernetes.io~projected": true,
	"kubernetes.io~downward-api": true, "kubernetes.io~git-repo": true, "kubernetes.io~host-path": true,
}

// tableSource is a mount namespace by one of its processes, a digest of its table, and how many lines of that could not
// be understood.
type tableSource struct {
	pid       int
	namespace string
	digest    uint64
	unread    int
}

const (
	// maxHostTable and maxTable bound the host's mount table and each other one, in bytes.
	maxHostTable = 64 << 20
	maxTable     = 4 << 20
	// maxUsers bounds what is kept of tables of containers with users of their own, in bytes; of one container half of
	// what is left.
	maxUsers = 16 << 20
	// maxOthers bounds what is kept of all other tables together, in bytes; of one of them half of what is left.
	maxOthers = 16 << 20
	// maxDoubts bounds the mount namespaces of one user whose processes seem to be in a pod, and are not, before no
	// more of his are read, allDoubts those of all users.
	maxDoubts = 8
	allDoubts = 512
)

// ReadTables reads the mount table of every mount namespace that a process lives in, but of those that belong to
// another user namespace than PID 1's: in such a one any user may mount what he likes, wherever he likes. Of a pod's
// containers with such a one the first process's table is read, for what it was given. Each namespace is read once,
// also one that cannot be. Processes that end meanwhile are no error. The walk, a new one, finds pods' containers.
func ReadTables(root string, walk *pod.Walk) (*Tables, error) {
	pids, err := untrusted.Processes(root)
	if err != nil {
		return nil, err
	}
	t := &Tables{met: map[string]int{}}
	mounts, source, err := readTable(root, 1, maxHostTable)
	if err != nil {
		return nil, fmt.Errorf("procfs %s: no mount table of PID 1 (%w); is it the host's procfs?", root, err)
	}
	t.Host, t.sources, t.unread = mounts, append(t.sources, source), source.unread
	t.own = map[mountEdge]bool{}
	for _, s := range mountEdges(t.Host) {
		t.own[s] = true
	}
	// Without leave to trace PID 1 its namespace is not known, and is read once more.
	seen := map[string]bool{source.namespace: true}
	users, _ := namespace(root, 1, "user")
	c := containers{procfs: root, walk: walk, doubts: map[uint32]int{}}
	left, leftOthers := maxUsers, maxOthers
	for _, pid := range pids {
		mnt, err := namespace(root, pid, "mnt")
		if err != nil || seen[mnt] {
			continue
		}
		if _, again := t.met[mnt]; !again {
			t.met[mnt] = pid
		}
		u, err := namespace(root, pid, "user")
		others := err == nil && users != "" && u != users
		named := !others && walk.Named(pid)
		if others && !c.first(pid) {
			seen[mnt] = !ended(root, pid)
			continue
		}
		mounts, source, err := readTable(root, pid, maxTable)
		// Where one process may not be read, another one may.
		seen[mnt] = err == nil || !errors.Is(err, os.ErrPermission) && !ended(root, pid)
		t.unread += source.unread
		switch {
		case err != nil && seen[mnt]:
			t.cutOff++
		case err != nil:
		case others:
			// Containers with many mounts leave room for others, which have few.
			if n := bytesOf(mounts); n <= left/2 {
				left -= n
				t.users = append(t.users, mounts)
			}
		default:
			mounts = t.without(mounts)
			n := bytesOf(mounts)
			if n > leftOthers/2 {
				t.cutOff++
				continue
			}
			leftOthers -= n
			t.Others, t.sources, t.named = append(t.Others, mounts), append(t.sources, source), append(t.named, named)
		}
	}
	return t, nil
}

// ended reports whether a process is gone: another one of its namespace may have the table then.
func ended(root string, pid int) bool {
	_, err := namespace(root, pid, "mnt")
	return err != nil
}

// bytesOf is about what a table takes.
func bytesOf(mounts []Mount) (n int) {
	for _, m := range mounts {
		n += len(m.Point) + len(m.Root) + len(m.Source) + int(unsafe.Sizeof(m))
	}
	return n
}

// without returns a table without the mounts that it only has copies of, the host's. Where a node's mounts leak, each private
// namespace and each container that is given a folder of the host's has a copy of them all. Roots remain, and what is below
// the namespace's own.
func (t *Tables) without(table []Mount) (own []Mount) {
	all, kept := mountEdges(table), map[int]bool{}
	for i, m := range table {
		if !t.own[all[i]] || m.Point == "/" {
			kept[m.number], kept[m.parent] = true, true
		}
	}
	for _, m := range table {
		if kept[m.number] {
			own = append(own, m)
		}
	}
	return own
}

// seesHost reports whether a table is of a namespace that sees the host's files.
func (t *Tables) seesHost(table []Mount) bool {
	root, rooted := holding(t.Host, "/")
	m, ok := holding(table, "/")
	return ok && rooted && m.Device == root.Device && m.Root == root.Root
}

// containers finds pods' containers with users of their own.
type containers struct {
	procfs string
	walk   *pod.Walk
	// doubts are the processes of each user that seemed to be in a pod, and all of them.
	doubts map[uint32]int
	all    int
}

// first reports whether a process is the first one met of a pod's container: a container that may make namespaces may
// make many.
func (c *containers) first(pid int) bool {
	var user uint32
	info, err := os.Stat(filepath.Join(c.procfs, strconv.Itoa(pid)))
	if err != nil {
		return false
	}
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		user = s.Uid
	}
	if c.doubts[user] >= maxDoubts || c.all >= allDoubts {
		return false
	}
	first, err := c.walk.First(pid)
	if err != nil {
		c.doubts[user]++
		c.all++
	}
	return first
}

func namespace(root string, pid int, kind string) (string, error) {
	return os.Readlink(filepath.Join(root, strconv.Itoa(pid), "ns", kind))
}

// readTable reads the mount table of a process.
func readTable(root string, pid, limit int) ([]Mount, tableSource, error) {
	var mounts []Mount
	source, err := eachMount(root, pid, limit, func(m Mount) { mounts = append(mounts, m) })
	return mounts, source, err
}

var seed = maphash.MakeSeed()

// eachMount calls f with each mount of a process's table, see proc_pid_mountinfo(5). A line that it does not understand
// is counted.
func eachMount(root string, pid, limit int, f func(Mount)) (tableSource, error) {
	source := tableSource{pid: pid}
	source.namespace, _ = namespace(root, pid, "mnt")
	var digest maphash.Hash
	digest.SetSeed(seed)
	err := untrusted.Lines(filepath.Join(root, strconv.Itoa(pid), "mountinfo"), limit, func(line string) bool {
		digest.WriteString(line)
		digest.WriteByte('\n')
		const number, parent, device, inner, point, least = 0, 1, 2, 3, 4, 6
		before, after, ok := strings.Cut(line, " - ")
		fields, rest := strings.Split(before, " "), strings.Split(after, " ")
		if !ok || len(fields) < least || len(rest) < 2 {
			source.unread++
			return true
		}
		if f != nil {
			m := Mount{Point: unescape(fields[point]), Device: fields[device], Type: unescape(rest[0]), Source: unescape(rest[1]), Root: unescape(fields[inner])}
			const options = 2
			if m.Type == "xfs" && len(rest) > options {
				m.extra = devicesOfXFS(unescape(rest[options]))
			}
			m.number, _ = strconv.Atoi(fields[number])
			m.parent, _ = strconv.Atoi(fields[parent])
			f(m)
		}
		return true
	})
	source.digest = digest.Sum64()
	return source, err
}

// devicesOfXFS returns the devices that an XFS' options name, see xfs(5).
func devicesOfXFS(options string) string {
	var devices []string
	for option := range strings.SplitSeq(options, ",") {
		name, device, _ := strings.Cut(option, "=")
		if name == "logdev" || name == "rtdev" {
			devices = append(devices, device)
		}
	}
	return strings.Join(devices, ",")
}

// unchanged reports whether a namespace still has the mounts that it had.
func (s tableSource) unchanged(root string) bool {
	now, err := eachMount(root, s.pid, maxHostTable, nil)
	return err == nil && now == s
}

// unescape undoes the octal escapes of white space and backslash in mountinfo, see proc(5).
func unescape(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	return unescaper.Replace(s)
}

var unescaper = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\043`, "#", `\134`, `\`)

// At returns what is mounted exactly at point in the host's namespace or, if nothing is, all that others have there. Of
// several mounts on top of each other the last is the one that is seen.
func (t *Tables) At(point string) (mounts []Mount) {
	for n, table := range append([][]Mount{t.Host}, t.Others...) {
		for _, m := range slices.Backward(table) {
			if m.Point != point {
				continue
			}
			if n == 0 {
				return []Mount{m}
			}
			if !slices.ContainsFunc(mounts, func(other Mount) bool { return other.Device == m.Device && other.Root == m.Root }) {
				mounts = append(mounts, m)
			}
			break
		}
	}
	return mounts
}

// kubelet returns the kubelet's mounts of a PersistentVolume into pods, one for each device. The kubelet names them <its
// folder>/pods/<pod's UID>/volumes/<plugin>/<volume>, with mount at the end for CSI; any plugin will do for anyPlugin.
// Of a raw block volume it mounts the device's node at <its folder>/plugins/<plugin>/volumeDevices/<volume>/<pod's
// UID>, with dev before the UID for CSI. Its folder may be anywhere, see kubeletsOf.
func (t *Tables) kubelet(plugin, name string) []Mount {
	return t.podVolumes()[podVolume{plugin, name}]
}

// volumes are the names of all volumes that kubelet finds.
func (t *Tables) volumes() map[string]bool {
	names := map[string]bool{}
	for v := range t.podVolumes() {
		names[v.name] = true
	}
	return names
}

func (t *Tables) podVolumes() map[podVolume][]Mount {
	if t.pods == nil {
		t.pods = map[podVolume][]Mount{}
		table := t.Host
		kubelets := kubeletsOf(table)
		// A kubelet may have a mount namespace of its own (OpenShift's kubens.service). Where it has none, others' mounts
		// of volumes are left over.
		for i := 0; i < len(t.Others) && len(kubelets) == 0; i++ {
			if !t.named[i] && t.seesHost(t.Others[i]) {
				table, kubelets = t.Others[i], kubeletsOf(t.Others[i])
			}
		}
		for _, m := range table {
			v, folder, raw, ok := podVolumeOf(m.Point)
			if !ok || m.anybodys() && (raw || !kubelets[folder]) {
				continue
			}
			m.raw = raw
			plugin := v.plugin
			same := func(other Mount) bool { return other.Device == m.Device && (!m.raw || other.Root == m.Root) }
			for _, v := range []podVolume{v, {anyPlugin, v.name}} {
				if v.plugin == anyPlugin && podsOwn[plugin] || slices.ContainsFunc(t.pods[v], same) {
					continue
				}
				t.pods[v] = append(t.pods[v], m)
			}
		}
	}
	return t.pods
}

// kubeletsOf returns the folders of kubelets, which differ between distributions. They are found by a pod's volume that not
// every user may have mounted there, such as the token that nearly each pod has.
func kubeletsOf(table []Mount) map[string]bool {
	folders := map[string]bool{}
	for _, m := range table {
		if found := podFolder.FindString(m.Point); found != "" && !m.anybodys() {
			folders[strings.TrimSuffix(m.Point, found)] = true
		}
	}
	return folders
}

// anybodys reports whether any user of the host may have made the mount: with FUSE a user mounts any content, with any
// source, in any folder of his own. Only root may mount what needs a device (fuseblk).
func (m Mount) anybodys() bool { return m.Type == "fuse" || strings.HasPrefix(m.Type, "fuse.") }

var (
	// podFolder is where the kubelet mounts any volume of a pod's, below its folder.
	podFolder = regexp.MustCompile(`/pods/[^/]+/volumes/[^/]+/[^/]+(?:/mount)?$`)
	// podMount is where the kubelet mounts a volume of a plugin's: the plugin, the volume's name, and what CSI's has at
	// the end.
	podMount = regexp.MustCompile(`/pods/[^/]+/volumes/([^/]+)/([^/]+)(/mount)?$`)
	// podDevice is where it mounts the node of a raw block volume's device: the volume's name, of CSI's plugin or of
	// the local one.
	podDevice = regexp.MustCompile(`/plugins/(?:kubernetes\.io/csi/volumeDevices/([^/]+)/dev|` + regexp.QuoteMeta(localPlugin) + `/volumeDevices/([^/]+))/[^/]+$`)
)

// podVolumeOf takes a mount's point apart: folder is the kubelet's.
func podVolumeOf(point string) (v podVolume, folder string, raw, ok bool) {
	if m := podMount.FindStringSubmatch(point); m != nil && (m[1] == csiPlugin) == (m[3] != "") {
		return podVolume{m[1], m[2]}, strings.TrimSuffix(point, m[0]), false, true
	}
	switch m := podDevice.FindStringSubmatch(point); {
	case m == nil:
		return v, "", false, false
	case m[1] != "":
		return podVolume{csiPlugin, m[1]}, strings.TrimSuffix(point, m[0]), true, true
	default:
		return podVolume{localPlugin, m[2]}, strings.TrimSuffix(point, m[0]), true, true
	}
}

// Holding returns the host's mount that directory lies in: the innermost, and of several on one point the last.
func (t *Tables) Holding(directory string) (Mount, bool) {
	if t.points == nil {
		t.points = map[string]Mount{}
		for _, m := range t.Host {
			t.points[m.Point] = m
		}
	}
	for at := directory; ; {
		if m, ok := t.points[at]; ok {
			return m, true
		}
		end := strings.LastIndexByte(at, '/')
		if end < 0 || at == "/" {
			return Mount{}, false
		}
		at = at[:max(end, 1)]
	}
}

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

// Place is where a file is on its file system, under any name in a namespace: bind mounts of one folder into several
// containers are one Place.
type Place struct {
	// Device is the file system's device number, as major:minor.
	Device string
	// Path is the path from the file system's own root.
	Path string
}

// deleted is at the end of a mount's root that is no longer there; another folder may have its name by now.
const deleted = "//deleted"

// place returns where path is, seen through the mount m that holds it.
func (m Mount) place(path string) Place {
	relative := strings.TrimPrefix(path, strings.TrimSuffix(m.Point, "/"))
	if root, gone := strings.CutSuffix(m.Root, deleted); gone {
		// In front, so that it is within no folder that is there, but on the file system.
		return Place{m.Device, deleted + filepath.Join("/", root, relative)}
	}
	return Place{m.Device, filepath.Join("/", m.Root, relative)}
}

// At returns where path is, if it is seen through the mount.
func (m Mount) At(path string) (Place, bool) {
	if !within(path, m.Point) {
		return Place{}, false
	}
	return m.place(path), true
}

// MountOf returns the mount with the kernel's number (untrusted.File), as the table of a process has it or, if it is not
// in there, as for one below a root that is no mount, that of PID 1.
func MountOf(root string, pid int, number uint64) (Mount, error) {
	if number == 0 {
		return Mount{}, errors.New("the kernel does not report the mount")
	}
	var found Mount
	for _, table := range []int{pid, 1} {
		_, err := eachMount(root, table, maxHostTable, func(m Mount) {
			if uint64(m.number) == number {
				found = m
			}
		})
		if found.Point != "" {
			return found, nil
		}
		if err != nil && table == pid {
			return Mount{}, fmt.Errorf("mount table of process %d: %w", pid, err)
		}
	}
	return Mount{}, fmt.Errorf("no mount of process %d has the number %d", pid, number)
}

// PlaceOf returns where path is, as the process pid sees it.
func PlaceOf(root string, pid int, path string) (Place, error) {
	var m Mount
	ok := false
	_, err := eachMount(root, pid, maxTable, func(candidate Mount) {
		if within(path, candidate.Point) && (!ok || len(candidate.Point) >= len(m.Point)) {
			m, ok = candidate, true
		}
	})
	if err != nil {
		return Place{}, fmt.Errorf("mount table of process %d: %w", pid, err)
	}
	if !ok {
		return Place{}, fmt.Errorf("process %d has no mount that holds %s", pid, untrusted.Path(path))
	}
	return m.place(path), nil
}
