package volume

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/plumbline/plumbline/tests/testkit"
)

// A raw block volume is the device of its node, on any file system: by its path, over a link, and as the kubelet has it
// for a pod.
func TestRawBlock(t *testing.T) {
	testkit.NeedRoot(t) // to make nodes
	proc, sys := machine(t)
	rooted(t, proc)
	root := filepath.Join(proc, "1", "root")
	table := filepath.Join(proc, "1", "mountinfo")
	text, err := os.ReadFile(table)
	if err != nil {
		t.Fatal(err)
	}
	const plugins = " /var/lib/kubelet/plugins/"
	text = append(text, "40 22 0:6 / /dev rw - devtmpfs udev rw\n"+
		"41 22 0:6 /raw"+plugins+"kubernetes.io/csi/volumeDevices/pvc-7/dev/u1 rw - devtmpfs udev rw\n"+
		"42 22 0:6 /raw"+plugins+"kubernetes.io~local-volume/volumeDevices/pvc-8/u1 rw - devtmpfs udev rw\n"+
		"43 22 0:6 /raw"+plugins+"kubernetes.io/csi/volumeDevices/pvc-9/dev/u1 rw - devtmpfs udev rw\n"+
		"44 22 0:6 /other"+plugins+"kubernetes.io/csi/volumeDevices/pvc-9/dev/u2 rw - devtmpfs udev rw\n"...)
	if err := errors.Join(os.WriteFile(table, text, 0o644), os.Mkdir(filepath.Join(root, "dev"), 0o755),
		unix.Mknod(filepath.Join(root, "dev/raw"), unix.S_IFBLK|0o600, int(unix.Mkdev(7, 2))),
		unix.Mknod(filepath.Join(root, "dev/other"), unix.S_IFBLK|0o600, int(unix.Mkdev(254, 1))),
		os.Symlink("../dev/raw", filepath.Join(root, "links/raw"))); err != nil {
		t.Fatal(err)
	}
	n := withLongTimeout(NewNode(proc, sys, fixed{identities: []Identity{
		{Volume: "by-path", Kubelet: "pvc-1", Plugin: localPlugin, Directory: "/dev/raw"},
		{Volume: "by-link", Kubelet: "pvc-2", Plugin: localPlugin, Directory: "/links/raw"},
		{Volume: "csi", Kubelet: "pvc-7", Plugin: csiPlugin},
		{Volume: "other-label", Kubelet: "pvc-8", Plugin: localPlugin},
		{Volume: "two", Kubelet: "pvc-9", Plugin: csiPlugin},
		{Volume: "away", Kubelet: "pvc-6", Plugin: localPlugin},
		{Volume: "network", Mountpoint: "/srv/nfs"},
	}}))
	k := n.find()
	var got []string
	for _, f := range k.found {
		got = append(got, f.Volume+"="+f.Disk)
	}
	if text := strings.Join(got, " "); text != "by-path=loop2 by-link=loop2 csi=loop2 other-label=loop2" {
		t.Errorf("found %q", text)
	}
	if k.err == nil || !strings.Contains(k.err.Error(), "volume two: pods have two devices") || strings.Contains(k.err.Error(), "\n") {
		t.Errorf("error %v, want one of the volume two only", k.err)
	}
	if k.without != 1 {
		t.Errorf("%d volumes lie on no device, want that of the network", k.without)
	}
}
