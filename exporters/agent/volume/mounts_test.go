package volume

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/plumbline/plumbline/tests/testkit"
)

// What a user of the host's mounts with FUSE in his own folder is no PersistentVolume, wherever the kubelet has its
// folder; what the kubelet has there is.
func TestUsersMountIsNoVolume(t *testing.T) {
	const kubelet, home = "/var/snap/microk8s/common/var/lib/kubelet", "/home/u"
	tables := &Tables{Host: []Mount{
		{Point: home + "/pods/x/volumes/kubernetes.io~projected/kube-api-access-x", Device: "0:80", Type: "fuse.sshfs"},
		{Point: home + "/pods/x/volumes/kubernetes.io~csi/pvc-1/mount", Device: "0:81", Type: "fuse.x", Source: "/dev/sda"},
		{Point: home + "/pods/x/volumes/kubernetes.io~csi/pvc-2/mount", Device: "0:82", Type: "fuse", Source: "/dev/sda"},
		{Point: home + "/pods/x/volumes/kubernetes.io~local-volume/pvc-3", Device: "0:83", Type: "fuse", Source: "/dev/sda"},
		{Point: home + "/plugins/kubernetes.io/csi/volumeDevices/pvc-4/dev/x", Device: "0:84", Type: "fuse", Root: "/"},
		{Point: kubelet + "/pods/u1/volumes/kubernetes.io~projected/kube-api-access-y", Device: "0:85", Type: "tmpfs"},
		{Point: kubelet + "/pods/u1/volumes/kubernetes.io~csi/pvc-2/mount", Device: "8:16", Type: "ext4", Source: "/dev/sdb"},
		{Point: kubelet + "/pods/u1/volumes/kubernetes.io~csi/pvc-5/mount", Device: "0:86", Type: "fuse.juicefs", Source: "JuiceFS:x"},
		{Point: "/mnt/k0s/kubelet/pods/u2/volumes/kubernetes.io~csi/pvc-6/mount", Device: "7:1", Type: "fuseblk", Source: "/dev/loop1"},
	}}
	for _, c := range []struct{ plugin, name, want string }{
		{csiPlugin, "pvc-1", ""}, {csiPlugin, "pvc-2", "8:16"}, {localPlugin, "pvc-3", ""},
		{csiPlugin, "pvc-4", ""}, {csiPlugin, "pvc-5", "0:86"}, {csiPlugin, "pvc-6", "7:1"},
	} {
		var got []string
		for _, m := range tables.kubelet(c.plugin, c.name) {
			got = append(got, m.Device)
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%s of %s is on %q, want %q", c.name, c.plugin, got, c.want)
		}
	}
}

// blockDevice gives the made-up machine's PID 1 a root whose /dev has the node of a block device.
func blockDevice(t *testing.T, proc, name string, number uint64) {
	t.Helper()
	testkit.NeedRoot(t) // to make nodes
	rooted(t, proc)
	dev := filepath.Join(proc, "1", "root", "dev")
	if err := errors.Join(os.Mkdir(dev, 0o755), unix.Mknod(filepath.Join(dev, name), unix.S_IFBLK|0o600, int(number))); err != nil {
		t.Fatal(err)
	}
}

// A mount's source names its device only for some kinds of file systems; for others the user who mounted it chooses the
// source.
func TestSourceOfMount(t *testing.T) {
	proc, sys := machine(t)
	blockDevice(t, proc, "plumbline-disk", unix.Mkdev(7, 2))
	for kind, want := range map[string]string{"btrfs": "loop2", "": "loop2", "fuse": "", "fuse.btrfs": "", "tmpfs": "", "overlay": "", "nfs4": ""} {
		disk, err := NewDevices(proc, sys).Of(Mount{Point: "/x", Device: "0:99", Type: kind, Source: "/dev/plumbline-disk"})
		if disk != want || errors.Is(err, ErrNoDevice) != (want == "") {
			t.Errorf("%q by its source is on %q, %v; want %q", kind, disk, err, want)
		}
	}
	// One with a number of its own needs no source.
	if disk, err := NewDevices(proc, sys).Of(Mount{Point: "/x", Device: "7:2", Type: "fuseblk", Source: "/dev/sda"}); disk != "loop2" || err != nil {
		t.Errorf("by its number it is on %q, %v", disk, err)
	}
}

// An XFS that has its log on a device of its own is on that one, too.
func TestLogDeviceOfXFS(t *testing.T) {
	proc, sys := machine(t)
	blockDevice(t, proc, "fast1", unix.Mkdev(254, 1))
	line := "36 25 7:2 / /data rw,noatime - xfs /dev/loop2 rw,attr2,logbufs=8,logdev=/dev/fast1,rtdev=/dev/gone,noquota\n"
	if err := os.WriteFile(filepath.Join(proc, "8", "mountinfo"), []byte(line), 0o644); err != nil {
		t.Fatal(err)
	}
	found, err := NewNode(proc, sys, fixed{identities: []Identity{{Volume: "orders", Mountpoint: "/data"}}}).Find()
	if err != nil || len(found) != 1 || found[0].Disk != "loop2" || !slices.Equal(found[0].Below, []string{"loop2", "vda"}) {
		t.Errorf("%+v, %v", found, err)
	}
}
