package volume

import (
	"fmt"
	"os"
	"path/filepath"
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
	all, err := ReadTables(proc)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// A volume on a folder that each node has, also as a mount, is where a container uses it: not where its mount is only copied.
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

// A container with users of its own (hostUsers: false) uses a folder as any other does. A user who only has such a namespace does not, whatever his
// cgroup is called, and neither gives a mount its volume.
func TestInUseByOtherUsers(t *testing.T) {
	testkit.NeedRoot(t) // to own the cgroups of pods
	for name, c := range map[string]struct {
		cgroup string
		member int
		want   bool
	}{
		"a pod's container":        {podGroup, 2, true},
		"a user":                   {"/user.slice/user-1000.slice", 2, false},
		"a user who says he is it": {podGroup, 3, false},
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
