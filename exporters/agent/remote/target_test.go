package remote

import (
	"os"
	"path/filepath"
	"testing"
)

// tree makes files below a folder.
func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		file := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func TestNVMeBacking(t *testing.T) {
	sysfs := tree(t, map[string]string{
		"kernel/config/nvmet/subsystems/nqn.x:a/namespaces/1/device_path": "/dev/sdb\n",
		"kernel/config/nvmet/subsystems/nqn.x:a/namespaces/2/device_path": "/dev/mapper/vg-lv\n",
		"kernel/config/nvmet/subsystems/nqn.x:a/namespaces/3/device_path": "/srv/file\n",
		"kernel/config/nvmet/subsystems/nqn.x:a/namespaces/4/device_path": "/dev/../etc/passwd\n",
		"kernel/config/nvmet/subsystems/nqn.x:a/namespaces/5/device_path": "/dev/cciss/c0d0\n",
		"class/block/sdb/size":        "8\n",
		"class/block/cciss!c0d0/size": "8\n",
		"block/dm-3/dm/name":          "vg-lv\n",
		"kernel/config/nvmet/subsystems/nqn.x:a/namespaces/7/device_path": "/dev/vg-a/lv\n",
		"block/dm-4/dm/name":               "vg--a-lv\n",
		"module/nvmet/holders/nvmet_tcp/x": "",
	})
	for namespace, want := range map[uint32][2]string{
		1: {"/dev/sdb", "sdb"}, 2: {"/dev/mapper/vg-lv", "dm-3"}, 3: {"/srv/file", ""}, 4: {"/dev/../etc/passwd", ""},
		5: {"/dev/cciss/c0d0", "cciss/c0d0"}, 6: {}, 7: {"/dev/vg-a/lv", "dm-4"},
	} {
		if b := NVMeBacking(t.TempDir(), sysfs, "nqn.x:a", namespace); b.Path != want[0] || b.Device != want[1] {
			t.Errorf("namespace %d: %+v, want %q", namespace, b, want)
		}
	}
	for _, nqn := range []string{"", "..", "../subsystems/nqn.x:a"} {
		if b := NVMeBacking(t.TempDir(), sysfs, nqn, 1); b.Path != "" {
			t.Errorf("subsystem %q has a disk %q", nqn, b.Path)
		}
	}
	if !ServingNVMe(sysfs) || ServingNVMe(t.TempDir()) {
		t.Error("ServingNVMe is wrong")
	}
}
