package volume

import (
	"errors"
	"fmt"
	"github.com/plumbline/plumbline/exporters/agent/pod"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/plumbline/plumbline/tests/testkit"
)

// podGroup is the cgroup of a pod's container.
const podGroup = "/kubepods/pod0fe7f6e5-0a3e-4a3e-9a0e-5d1f6a2b3c4d/abababababababababababababababababababababababababababababababab"

// host has a file system of its own at /data, and a folder at /srv/one that is none.
const host = `22 1 254:1 / / rw - ext4 /dev/vda1 rw
23 22 8:16 / /data rw - ext4 /dev/sdb rw
24 22 0:20 / /proc rw - proc proc rw
`

// others makes the mount tables of pods' namespaces beside the host's.
func others(t *testing.T, tables ...string) (proc string) {
	t.Helper()
	proc = t.TempDir()
	for i, text := range append([]string{host}, tables...) {
		pid := filepath.Join(proc, fmt.Sprint(i+1))
		if err := os.MkdirAll(filepath.Join(pid, "ns"), 0o755); err != nil {
			t.Fatal(err)
		}
		for file, text := range map[string]string{"mountinfo": text, "cgroup": "0::" + podGroup + "\n"} {
			if err := os.WriteFile(filepath.Join(pid, file), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Symlink(fmt.Sprintf("mnt:[%d]", i), filepath.Join(pid, "ns", "mnt")); err != nil {
			t.Fatal(err)
		}
	}
	return proc
}

func read(t *testing.T, proc string) *Tables {
	t.Helper()
	all, err := ReadTables(proc, pod.NewWalk(proc))
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// A volume on a folder that each node has, also as a mount, is where a container uses it: not where its mount is only
// copied.
func TestInUse(t *testing.T) {
	const image = "32 1 0:50 / / rw - overlay overlay rw\n"
	for name, c := range map[string]struct {
		table     string
		data, one bool
	}{
		"nobody":                            {image, false, false},
		"a private namespace of the host's": {strings.ReplaceAll(strings.ReplaceAll(host, "22 ", "122 "), "23 ", "123 "), false, false},
		"a service that may write there": {strings.ReplaceAll(strings.ReplaceAll(host, "22 ", "122 "), "23 ", "123 ") +
			"140 123 8:16 / /data rw - ext4 /dev/sdb rw\n141 122 254:1 /srv/one /srv/one rw - ext4 /dev/vda1 rw\n", false, false},
		"a container that has the host's root": {image + "33 32 254:1 / /host ro - ext4 /dev/vda1 rw\n34 33 8:16 / /host/data ro - ext4 /dev/sdb rw\n", false, false},
		"a container that has its parent":      {image + "33 32 254:1 /srv /srv rw - ext4 /dev/vda1 rw\n", false, false},
		"a container":                          {image + "33 32 8:16 / /var/lib/postgresql rw - ext4 /dev/sdb rw\n", true, false},
		"a container that has it at its place": {image + "33 32 8:16 / /data rw - ext4 /dev/sdb rw\n", true, false},
		"a container that has a part of it":    {image + "33 32 8:16 /pg/main /x rw - ext4 /dev/sdb rw\n", true, false},
		"a container that has a folder":        {image + "33 32 254:1 /srv/one /x rw - ext4 /dev/vda1 rw\n", false, true},
		"a container that has one of its name": {image + "33 32 254:2 /srv/one /srv/one rw - ext4 /dev/vda2 rw\n", false, false},
	} {
		tables := read(t, others(t, c.table))
		data, one := Identity{Directory: "/data", InUse: true}, Identity{Directory: "/srv/one", InUse: true}
		if a, b := len(data.in(tables)) > 0, len(one.in(tables)) > 0; a != c.data || b != c.one {
			t.Errorf("%s: /data is used: %v, want %v; /srv/one: %v, want %v", name, a, c.data, b, c.one)
		}
	}
}

// A container that is no pod's, such as the kubelet's own, has folders of the host's for reasons of its own.
func TestInUseOutsideOfPods(t *testing.T) {
	for cgroup, want := range map[string]bool{podGroup: true, "/system.slice/docker-abab.scope": false, "/": false} {
		proc := others(t, "32 1 0:50 / / rw - overlay overlay rw\n33 32 8:16 / /data rw - ext4 /dev/sdb rw\n")
		if err := os.WriteFile(filepath.Join(proc, "2", "cgroup"), []byte("0::"+cgroup+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		if got := len((Identity{Directory: "/data", InUse: true}).in(read(t, proc))) > 0; got != want {
			t.Errorf("in %s: /data is used: %v, want %v", cgroup, got, want)
		}
	}
}

// A container with users of its own (hostUsers: false) uses a folder as any other does. A user with only such a
// namespace does not, under any name of the cgroup, and neither gives a mount its volume.
func TestInUseByOtherUsers(t *testing.T) {
	testkit.NeedRoot(t) // to own the cgroups of pods
	for name, c := range map[string]struct {
		cgroup string
		member int
		want   bool
	}{
		"a pod's container":          {podGroup, 2, true},
		"a user":                     {"/user.slice/user-1000.slice", 2, false},
		"a user who claims to be it": {podGroup, 3, false},
	} {
		proc := others(t, "32 1 0:50 / / rw - overlay overlay rw\n33 32 8:16 / /mnt/longhorn rw,idmapped - ext4 /dev/sdb rw\n")
		for file, text := range map[string]string{
			"2/cgroup": "0::" + c.cgroup + "\n",
			"1/root/sys/fs/cgroup/cgroup.controllers":           "",
			"1/root/sys/fs/cgroup" + podGroup + "/cgroup.procs": fmt.Sprintln(c.member),
		} {
			file = filepath.Join(proc, file)
			if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		for pid, users := range map[string]string{"1": "user:[1]", "2": "user:[2]"} {
			if err := os.Symlink(users, filepath.Join(proc, pid, "ns", "user")); err != nil {
				t.Fatal(err)
			}
		}
		tables := read(t, proc)
		if got := len((Identity{Directory: "/data", InUse: true}).in(tables)) > 0; got != c.want {
			t.Errorf("%s: /data is used: %v, want %v", name, got, c.want)
		}
		if m := (Identity{Mountpoint: "/mnt/longhorn"}).in(tables); len(m) > 0 {
			t.Errorf("%s: names the volume at %+v", name, m)
		}
	}
}

// users makes the namespaces of processes those of pod's containers with users of their own.
func users(t *testing.T, proc string, pids ...string) {
	t.Helper()
	testkit.NeedRoot(t) // to own the cgroups of pods
	files := map[string]string{"1/root/sys/fs/cgroup/cgroup.controllers": "", "1/root/sys/fs/cgroup" + podGroup + "/cgroup.procs": strings.Join(pids, "\n") + "\n"}
	for file, text := range files {
		file = filepath.Join(proc, file)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, pid := range append(pids, "1") {
		if err := os.Symlink("user:["+pid+"]", filepath.Join(proc, pid, "ns", "user")); err != nil {
			t.Fatal(err)
		}
	}
}

// A container that may make namespaces may make many, with any content: only the container's first process is read, and
// a table that cannot be read is read once.
func TestNamespacesWithinAContainer(t *testing.T) {
	const image, data = "32 1 0:50 / / rw - overlay overlay rw\n", "33 32 8:16 / /x rw - ext4 /dev/sdb rw\n"
	for name, c := range map[string]struct {
		first string
		want  int
	}{
		"others of the container": {image, 1},
		"a line without an end":   {image + strings.Repeat("x", 70<<10) + "\n", 0},
	} {
		t.Run(name, func(t *testing.T) {
			proc := others(t, c.first, image+data, image+data)
			users(t, proc, "2", "3", "4")
			tables := read(t, proc)
			if len(tables.users) != c.want || (Identity{Directory: "/data", InUse: true}).in(tables) != nil {
				t.Errorf("%d tables, want %d; /data is used: %v", len(tables.users), c.want, tables.inUse(Place{"8:16", "/"}, false))
			}
		})
	}
	// All in one namespace.
	proc := others(t, strings.Repeat("x", 70<<10)+"\n", image+data)
	file := filepath.Join(proc, "3", "ns", "mnt")
	if err := errors.Join(os.Remove(file), os.Symlink("mnt:[1]", file)); err != nil {
		t.Fatal(err)
	}
	if tables := read(t, proc); len(tables.Others) != 0 {
		t.Errorf("a namespace whose table cannot be read was read again: %+v", tables.Others)
	}
}

// However many namespaces a container has, of its further processes only the names of their cgroups are read. Whether
// the kernel lists them there is not checked, which takes the longer the more there are.
func TestManyNamespacesWithinAContainer(t *testing.T) {
	testkit.NeedRoot(t)
	const image, data = "32 1 0:50 / / rw - overlay overlay rw\n", "33 32 8:16 / /x rw - ext4 /dev/sdb rw\n"
	const many = 4 * maxDoubts
	tables := make([]string, many)
	for i := range tables {
		tables[i] = image
	}
	proc := others(t, append(tables, image+data)...)
	users(t, proc, "2") // the only one that is listed, so that each other one would be a doubt
	last := fmt.Sprint(many + 2)
	for pid := 3; pid <= many+2; pid++ {
		if err := os.Symlink("user:[9]", filepath.Join(proc, fmt.Sprint(pid), "ns", "user")); err != nil {
			t.Fatal(err)
		}
	}
	another := filepath.Join(filepath.Dir(podGroup), strings.Repeat("cd", 32))
	group := filepath.Join(proc, "1/root/sys/fs/cgroup", another)
	if err := errors.Join(os.MkdirAll(group, 0o755), os.WriteFile(filepath.Join(group, "cgroup.procs"), []byte(last+"\n"), 0o644),
		os.WriteFile(filepath.Join(proc, last, "cgroup"), []byte("0::"+another+"\n"), 0o644)); err != nil {
		t.Fatal(err)
	}
	if (Identity{Directory: "/data", InUse: true}).in(read(t, proc)) == nil {
		t.Error("another container of the same user was not read")
	}
}

// A process that only claims to be in a pod casts doubt on its own user's processes, not on everybody's.
func TestDoubtsOfOneUser(t *testing.T) {
	testkit.NeedRoot(t)
	const table = "32 1 0:50 / / rw - overlay overlay rw\n33 32 8:16 / /x rw - ext4 /dev/sdb rw\n"
	tables := make([]string, 80)
	for i := range tables {
		tables[i] = table
	}
	proc := others(t, tables...)
	users(t, proc, "81")
	for pid := 2; pid < 81; pid++ {
		at := filepath.Join(proc, fmt.Sprint(pid))
		if err := errors.Join(os.Symlink("user:[9]", filepath.Join(at, "ns", "user")), os.Chown(at, 1000, 1000)); err != nil {
			t.Fatal(err)
		}
	}
	if (Identity{Directory: "/data", InUse: true}).in(read(t, proc)) == nil {
		t.Error("the container behind the others was not read")
	}
}

// However deep the folders that a container has as mounts, each is one place.
func TestUsesOfDeepFolders(t *testing.T) {
	table := "32 1 0:50 / / rw - overlay overlay rw\n"
	const mounts = 20
	for i := range mounts {
		table += fmt.Sprintf("%d 32 254:1 /x%d%s /m%d rw - ext4 /dev/vda1 rw\n", 100+i, i, strings.Repeat("/a", 2000), i)
	}
	table += "90 32 254:1 /y" + strings.Repeat("/a", 20000) + " /n rw - ext4 /dev/vda1 rw\n"
	tables := read(t, others(t, table))
	if !tables.inUse(Place{"254:1", "/x7"}, false) || tables.inUse(Place{"254:1", "/x7"}, true) || tables.inUse(Place{"254:1", "/x"}, false) || tables.inUse(Place{"254:1", "/y"}, false) {
		t.Error("a folder above is used in part, and none that only begins so")
	}
	if n := len(tables.used["254:1"]); n != mounts {
		t.Errorf("%d places, want %d", n, mounts)
	}
}

// A volume of another node, by all that is known, is not here because a container has something below its folder, as
// the kubelet's and the runtime's are.
func TestElsewhereIsWhole(t *testing.T) {
	tables := read(t, others(t, "32 1 0:50 / / rw - overlay overlay rw\n33 32 8:16 /kubelet/pods/u/etc-hosts /etc/hosts rw - ext4 /dev/sdb rw\n"))
	if (Identity{Directory: "/data", InUse: true, elsewhere: true}).in(tables) != nil {
		t.Error("it is here")
	}
	if (Identity{Directory: "/data", InUse: true}).in(tables) == nil {
		t.Error("one of any node is not")
	}
}

// However many mounts one pod's containers have, the tables of others' containers are read.
func TestManyMountsOfContainers(t *testing.T) {
	testkit.NeedRoot(t)
	const image = "32 1 0:50 / / rw - overlay overlay rw\n"
	const hostile = 8
	line := "33 32 0:51 / /" + strings.Repeat("x", 4000) + " rw - tmpfs tmpfs rw\n"
	tables := make([]string, hostile)
	for i := range tables {
		tables[i] = image + strings.Repeat(line, (maxTable-len(image))/len(line))
	}
	proc := others(t, append(tables, image+"33 32 8:16 / /x rw - ext4 /dev/sdb rw\n")...)
	var pids []string
	for i := range hostile + 1 {
		pids = append(pids, fmt.Sprint(i+2))
	}
	users(t, proc, pids...)
	for i, pid := range pids {
		group := filepath.Join(filepath.Dir(podGroup), fmt.Sprintf("%064x", i))
		folder := filepath.Join(proc, "1/root/sys/fs/cgroup", group)
		if err := errors.Join(os.MkdirAll(folder, 0o755), os.WriteFile(filepath.Join(folder, "cgroup.procs"), []byte(pid+"\n"), 0o644),
			os.WriteFile(filepath.Join(proc, pid, "cgroup"), []byte("0::"+group+"\n"), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	if all := read(t, proc); (Identity{Directory: "/data", InUse: true}).in(all) == nil {
		t.Errorf("/data is used by nobody; %d tables are kept", len(all.users))
	}
}

// However many mounts leak on a node, and however many namespaces have copies of them, what is kept is bounded, and the
// containers' own mounts are among it.
func TestCopiesOfLeakedMounts(t *testing.T) {
	var leaked strings.Builder
	copies := func(first int, at string) string {
		leaked.Reset()
		for i := range 15000 {
			fmt.Fprintf(&leaked, "%d %d 0:%d / %s/run/containerd/sandboxes/%0120d/shm rw,nosuid - tmpfs shm rw\n", first+1000+i, first, 100+i, at, i)
		}
		return leaked.String()
	}
	tables := []string{}
	for range 20 {
		tables = append(tables, "32 1 254:1 / / rw - ext4 /dev/vda1 rw\n"+copies(32, ""),
			"32 1 0:50 / / rw - overlay overlay rw\n33 32 254:1 / /host rw - ext4 /dev/vda1 rw\n34 32 8:16 / /data rw - ext4 /dev/sdb rw\n"+copies(33, "/host"))
	}
	proc := others(t, tables...)
	if err := os.WriteFile(filepath.Join(proc, "1/mountinfo"), []byte(host+copies(22, "")), 0o644); err != nil {
		t.Fatal(err)
	}
	tables = nil
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	all := read(t, proc)
	if took := heap() - before; took > 32<<20 {
		t.Errorf("%d MiB are kept", took>>20)
	}
	if len(all.Others) != 40 || all.cutOff != 0 {
		t.Errorf("%d tables are kept, %d cut off", len(all.Others), all.cutOff)
	}
	if (Identity{Directory: "/data", InUse: true}).in(all) == nil {
		t.Error("/data is used by nobody")
	}
	if n := len(all.Others[1]); n != 3 {
		t.Errorf("of a container %d mounts are kept, want 3", n)
	}
}

// What namespaces have of their own is bounded, too, and what is left out counts.
func TestManyMountsOfNamespaces(t *testing.T) {
	line := "33 32 0:51 / /" + strings.Repeat("x", 4000) + " rw - tmpfs tmpfs rw\n"
	table := "32 1 0:50 / / rw - overlay overlay rw\n" + strings.Repeat(line, 900)
	var tables []string
	for range 16 {
		tables = append(tables, table)
	}
	all := read(t, others(t, append(tables, "32 1 0:50 / / rw - overlay overlay rw\n33 32 8:16 / /x rw - ext4 /dev/sdb rw\n")...))
	kept := 0
	for _, table := range all.Others {
		kept += bytesOf(table)
	}
	if kept > maxOthers || all.cutOff == 0 || len(all.Others)+all.cutOff != 17 {
		t.Errorf("%d bytes of %d tables are kept, %d cut off", kept, len(all.Others), all.cutOff)
	}
	if (Identity{Directory: "/data", InUse: true}).in(all) == nil {
		t.Error("/data is used by nobody")
	}
}

// A kubelet may mount volumes in a namespace of its own, which sees the host's files; a pod's container is none, and what
// another namespace has left of volumes is nobody's where the kubelet has none.
func TestKubeletsOwnNamespace(t *testing.T) {
	const volumes = "32 1 254:1 / / rw - ext4 /dev/vda1 rw\n33 32 0:60 / /var/lib/kubelet/pods/u/volumes/kubernetes.io~projected/token rw - tmpfs tmpfs rw\n" +
		"34 32 8:32 / /var/lib/kubelet/pods/u/volumes/kubernetes.io~csi/pvc-1/mount rw - ext4 /dev/sdc rw\n"
	proc, one := others(t, volumes), Identity{Plugin: csiPlugin, Kubelet: "pvc-1"}
	if found := one.in(read(t, proc)); found != nil {
		t.Errorf("in a pod's: %+v", found)
	}
	if err := os.WriteFile(filepath.Join(proc, "2/cgroup"), []byte("0::/system.slice/kubens.service\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if found := one.in(read(t, proc)); len(found) != 1 || found[0].Device != "8:32" {
		t.Errorf("in the kubelet's namespace: %+v", found)
	}
	own := host + "40 22 0:61 / /var/lib/kubelet/pods/v/volumes/kubernetes.io~projected/token rw - tmpfs tmpfs rw\n"
	if err := os.WriteFile(filepath.Join(proc, "1/mountinfo"), []byte(own), 0o644); err != nil {
		t.Fatal(err)
	}
	if found := one.in(read(t, proc)); found != nil {
		t.Errorf("left over in a service's: %+v", found)
	}
}
