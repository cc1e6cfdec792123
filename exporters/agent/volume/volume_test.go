package volume

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/plumbline/plumbline/exporters/agent/pod"
)

// machine makes a procfs and a sysfs with two mount namespaces: the host's, where the root
// disk's partition vda1 holds a local volume, and a container's, where a loop device is
// mounted and the local volume is seen by a bind mount.
func machine(t *testing.T) (proc, sys string) {
	t.Helper()
	proc, sys = t.TempDir(), t.TempDir()
	write := func(path, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	link := func(target, path string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(target, path); err != nil {
			t.Fatal(err)
		}
	}
	write(filepath.Join(proc, "1", "mountinfo"), `22 1 254:1 / / rw - ext4 /dev/vda1 rw
23 22 0:20 / /proc rw - proc proc rw
24 22 0:40 / /srv/btrfs rw - btrfs /dev/does-not-exist rw
25 22 0:41 / /srv/nfs rw - nfs4 files.example:/export rw
26 22 7:2 / /var/lib/kubelet/pods/u1/volumes/kubernetes.io~csi/pvc-2/mount rw - ext4 /dev/loop2 rw
27 22 254:1 / /var/lib/kubelet/pods/u2/volumes/kubernetes.io~csi/pvc-2/mount rw - ext4 /dev/vda1 rw
28 22 7:9 / /var/lib/kubelet/pods/u1/volumes/kubernetes.io~csi/pvc-3/mount rw - ext4 /dev/loop9 rw
29 22 7:2 / /var/lib/kubelet/pods/u2/volumes/kubernetes.io~csi/pvc-3/mount rw - ext4 /dev/loop2 rw
`)
	link("mnt:[1]", filepath.Join(proc, "1", "ns", "mnt"))
	write(filepath.Join(proc, "7", "mountinfo"), `32 1 254:1 /images/pg / rw - ext4 /dev/vda1 rw
33 32 254:1 /srv/local/one /data\040one rw - ext4 /dev/vda1 rw
34 32 7:1 / /mnt/longhorn rw - ext4 /dev/loop1 rw
35 32 7:2 / /mnt/longhorn rw - ext4 /dev/loop2 rw
`)
	link("mnt:[2]", filepath.Join(proc, "7", "ns", "mnt"))
	write(filepath.Join(proc, "7", "cgroup"), "0::"+podGroup+"\n")
	write(filepath.Join(proc, "8", "mountinfo"), "not a mount table\n")
	link("mnt:[3]", filepath.Join(proc, "8", "ns", "mnt"))

	write(filepath.Join(sys, "devices", "vda", "vda1", "partition"), "1\n")
	write(filepath.Join(sys, "devices", "loop2", "size"), "1\n")
	link("../../devices/vda/vda1", filepath.Join(sys, "dev", "block", "254:1"))
	link("../../devices/loop2", filepath.Join(sys, "dev", "block", "7:2"))
	return proc, sys
}

type fixed struct {
	identities []Identity
	err        error
}

func (f fixed) Identities(Near) ([]Identity, error) { return f.identities, f.err }

func TestFind(t *testing.T) {
	proc, sys := machine(t)
	node := NewNode(proc, sys, fixed{identities: []Identity{
		{Volume: "one", Directory: "/srv/local/one"},
		{Volume: "r3", Mountpoint: "/mnt/longhorn"},
		{Volume: "away", Mountpoint: "/mnt/detached"},
		{Volume: "odd", Mountpoint: "/srv/btrfs"},
		{Volume: "network", Mountpoint: "/srv/nfs"},
		{Volume: "two", Kubelet: "pvc-2", Plugin: csiPlugin},
		{Volume: "left", Kubelet: "pvc-3", Plugin: csiPlugin},
		{Volume: "used", Directory: "/srv/local/one", InUse: true},
		{Volume: "unused", Directory: "/srv/local/two", InUse: true},
	}}, fixed{err: errors.New("the API is away")})
	found, err := node.Find()
	// One source and one volume fail; the others are there, and both failures are reported.
	for _, want := range []string{"the API is away", "volume odd", "volume two: pods have two devices by this name, loop2 and vda"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
	// That a network's file system has no block device is no error.
	if err != nil && strings.Contains(err.Error(), "network") || node.find().without != 1 {
		t.Errorf("error %v, %d volumes without a device", err, node.find().without)
	}
	disks := map[string]string{}
	for _, f := range found {
		disks[f.Volume] = f.Disk
	}
	// A partition counts as its whole disk; of two mounts on one point the later one is seen.
	want := map[string]string{"one": "vda", "r3": "loop2", "left": "loop2", "used": "vda"}
	if !maps.Equal(disks, want) {
		t.Errorf("disks %v, want %v", disks, want)
	}
}

// A folder is the same place by every mount of it, and belongs to its volume only.
func TestPlace(t *testing.T) {
	proc, sys := machine(t)
	node := NewNode(proc, sys, fixed{identities: []Identity{
		{Volume: "one", Directory: "/srv/local/one"},
		{Volume: "two", Directory: "/srv/local/two"},
		{Volume: "r3", Mountpoint: "/mnt/longhorn"},
	}})
	found, err := node.Find()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		pid        int
		path, want string
	}{
		{7, "/data one/pgdata", "one"},
		{7, "/mnt/longhorn/pgdata", "r3"},
		{7, "/var/lib/postgresql", ""},
		{1, "/srv/local/two", "two"},
		{1, "/srv/local/twofold", ""},
	} {
		place, err := PlaceOf(proc, c.pid, c.path)
		if err != nil {
			t.Fatal(err)
		}
		if v, _ := Holding(found, place); v.Volume != c.want {
			t.Errorf("%s of process %d is on volume %q, want %q", c.path, c.pid, v.Volume, c.want)
		}
	}
}

// A changed file is read again; a bad version names its mistake and leaves the good one.
func TestIdentityFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "volumes.yaml")
	file := NewFile(path, "here")
	if _, err := file.Identities(Near{}); err == nil {
		t.Error("a missing file is no error")
	}
	put := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	put("volumes: [{volume: a, mountpoint: /a}]")
	if i, err := file.Identities(Near{}); err != nil || len(i) != 1 {
		t.Fatalf("%v %v", i, err)
	}
	for text, want := range map[string]string{
		"volumes: [{volume: a, mountpoint: /a, directory: /a}]":               "give either mountpoint or directory",
		"volumes: [{mountpoint: /a}]":                                         "entry 1: volume is empty",
		"volumes: [{volume: a, mountpoint: /a}, {volume: a, mountpoint: /b}]": "entry 2: volume a is named twice",
		"volumes: [{volume: a, mountpoint: /a}, {volume: b, mountpoint: /a}]": "entry 2: volume b: mountpoint /a is another volume's",
		"volumes: [{volume: a, mount: /a}]":                                   "field mount not found",
		"persistentvolumes: [{metadata: {name: p}, status: {phase: Bound}}]":  `persistentvolumes: entry 1: PersistentVolume "p" is not bound`,
		"persistentvolumes: [7]":                                              "persistentvolumes: entry 1: no PersistentVolume",
	} {
		put(text)
		i, err := file.Identities(Near{})
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s gave %v, want %q and the file's name", text, err, want)
		}
		if len(i) != 1 {
			t.Errorf("the last good version is lost: %v", i)
		}
	}
	put("volumes: [{volume: b, mountpoint: /b}, {volume: c, directory: /c}]")
	if i, err := file.Identities(Near{}); err != nil || len(i) != 2 {
		t.Errorf("a mended file: %v %v", i, err)
	}
	// As the API server has it: wherever the kubelet mounts it, by Longhorn's own name.
	put(`persistentvolumes: [{metadata: {name: pvc-1}, status: {phase: Bound}, spec: {storageClassName: fast, claimRef: {namespace: shop, name: data, uid: "1"},
		csi: {driver: driver.longhorn.io, volumeHandle: restored}}}]`)
	want := []Identity{{Volume: "restored", Namespace: "shop", PersistentVolumeClaim: "data", ClaimUID: "1", StorageClass: "fast", Backend: "longhorn-v1", Kubelet: "pvc-1", Plugin: csiPlugin}}
	if i, err := file.Identities(Near{}); err != nil || !slices.Equal(i, want) {
		t.Errorf("a PersistentVolume: %+v %v, want %+v", i, err, want)
	}
}

// A mountpoint that two containers have, with something else at each, is neither's.
func TestMountpointOfTwoContainers(t *testing.T) {
	proc, sys := machine(t)
	second := func(line string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(proc, "8", "mountinfo"), []byte(line), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	find := func() ([]Found, error) {
		return NewNode(proc, sys, fixed{identities: []Identity{{Volume: "r3", Mountpoint: "/mnt/longhorn"}}}).Find()
	}
	second("42 1 7:2 / /mnt/longhorn rw - ext4 /dev/loop2 rw\n")
	if found, err := find(); err != nil || len(found) != 1 || found[0].Disk != "loop2" {
		t.Errorf("the same in both: %+v, %v", found, err)
	}
	for _, line := range []string{"42 1 254:1 /srv/local/two /mnt/longhorn rw - ext4 /dev/vda1 rw\n", "42 1 7:2 /part /mnt/longhorn rw - ext4 /dev/loop2 rw\n"} {
		second(line)
		if found, err := find(); !errors.Is(err, errAmbiguous) || len(found) != 0 || !strings.Contains(err.Error(), "/mnt/longhorn") {
			t.Errorf("%s: %+v, %v", line, found, err)
		}
	}
}

// A stack of devices is followed down to its disks: a logical volume over a partition and an
// encrypted disk, and a loop device over a file.
func TestBelow(t *testing.T) {
	proc, sys := machine(t)
	dir := func(parts ...string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Join(append([]string{sys}, parts...)...), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	dir("class", "block")
	for _, device := range []string{"dm-0", "dm-1", "sda", "sdb", "loop3"} {
		dir("devices", device, "slaves")
		if err := os.Symlink("../../devices/"+device, filepath.Join(sys, "class", "block", device)); err != nil {
			t.Fatal(err)
		}
	}
	dir("devices", "sda", "sda2", "partition")
	if err := os.Symlink("../../devices/sda/sda2", filepath.Join(sys, "class", "block", "sda2")); err != nil {
		t.Fatal(err)
	}
	dir("devices", "dm-0", "slaves", "dm-1")
	dir("devices", "dm-0", "slaves", "sda2")
	dir("devices", "dm-1", "slaves", "sdb")
	dir("devices", "loop3", "loop")
	if err := os.WriteFile(filepath.Join(sys, "devices", "loop3", "loop", "backing_file"), []byte("/srv/image\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	tables, err := ReadTables(proc, pod.NewWalk(proc))
	if err != nil {
		t.Fatal(err)
	}
	for device, want := range map[string]string{"dm-0": "sda sdb", "sdb": "sdb", "loop3": "vda"} {
		if got := strings.Join(NewDevices(t.TempDir(), sys).Below(device, tables), " "); got != want {
			t.Errorf("below %s are %q, want %q", device, got, want)
		}
	}
}
