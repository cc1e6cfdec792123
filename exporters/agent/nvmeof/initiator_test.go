package nvmeof

import (
	"os"
	"path/filepath"
	"reflect"
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

// The attributes are as Linux 6.12 has them.
func TestReadControllers(t *testing.T) {
	sysfs := tree(t, map[string]string{
		"class/nvme/nvme0/transport":               "pcie\n",
		"class/nvme/nvme0/nvme0n1/nsid":            "1\n",
		"class/nvme/nvme1/transport":               "tcp\n",
		"class/nvme/nvme1/address":                 "traddr=10.99.1.2,trsvcid=4420,src_addr=10.99.1.1\n",
		"class/nvme/nvme1/subsysnqn":               "nqn.2019-05.io.openebs:x\n",
		"class/nvme/nvme1/state":                   "live\n",
		"class/nvme/nvme1/nvme3c1n2/nsid":          "7\n",
		"class/nvme/nvme1/nvme3c1n2/ana_state":     "optimized\n",
		"class/nvme/nvme1/nvme3c1n2/inflight":      "       2        3\n",
		"class/nvme/nvme1/nvme3c1n2/queue/iostats": "1\n",
		"class/nvme/nvme1/hwmon1/name":             "nvme\n",
		"class/nvme/nvme2/transport":               "tcp\n",
		"class/nvme/nvme2/address":                 "traddr=fe80::1,trsvcid=4420\n",
		"class/nvme/nvme2/state":                   "connecting\n",
		"class/nvme/nvme4/transport":               "fc\n",
		"class/nvme/nvme4/address":                 "traddr=nn-0x1:pn-0x2,host_traddr=nn-0x3:pn-0x4\n",
		"class/nvme/nvme4/subsysnqn":               "nqn.x:y\n",
		"class/nvme/nvme4/nvme4n1/nsid":            "1\n",
		"class/nvme/nvme5/state":                   "deleting\n", // its transport is gone already
		"class/nvme/nvme5/nvme5n1/nsid":            "1\n",
		"class/nvme/other/transport":               "tcp\n",
	})
	got, err := ReadControllers(sysfs)
	if err != nil {
		t.Fatal(err)
	}
	want := Controllers{
		Remote: 3,
		Local:  map[string]bool{"nvme0n1": true},
		Paths: []Path{
			{Disk: "nvme3c1n2", Head: "nvme3n2", Controller: "nvme1", Transport: "tcp", Address: "10.99.1.2:4420",
				NQN: "nqn.2019-05.io.openebs:x", Namespace: 7, State: "live", ANA: "optimized", InFlight: 5, CountsInFlight: true},
			{Disk: "nvme4n1", Head: "nvme4n1", Controller: "nvme4", Transport: "fc", Address: "nn-0x1:pn-0x2", NQN: "nqn.x:y", Namespace: 1},
		},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	if none, err := ReadControllers(t.TempDir()); err != nil || none.Remote != 0 || none.Paths != nil {
		t.Errorf("a machine without NVMe: %+v, %v", none, err)
	}
}

func TestAddress(t *testing.T) {
	for _, test := range []struct{ host, port, other, want string }{
		{"10.0.0.1", "4420", "", "10.0.0.1:4420"},
		{"fe80::1", "4420", "", "[fe80::1]:4420"},
		{"nn-0x1:pn-0x2", "none", "", "nn-0x1:pn-0x2"},
		{"", "", "loop", "loop"},
	} {
		if got := Address(test.host, test.port, test.other); got != test.want {
			t.Errorf("%+v: %s", test, got)
		}
	}
}

func TestBacking(t *testing.T) {
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
		5: {"/dev/cciss/c0d0", "cciss!c0d0"}, 6: {}, 7: {"/dev/vg-a/lv", "dm-4"},
	} {
		if path, device := Backing(sysfs, "nqn.x:a", namespace); path != want[0] || device != want[1] {
			t.Errorf("namespace %d: %q, %q, want %q", namespace, path, device, want)
		}
	}
	for _, nqn := range []string{"", "..", "../subsystems/nqn.x:a"} {
		if path, _ := Backing(sysfs, nqn, 1); path != "" {
			t.Errorf("subsystem %q has a disk %q", nqn, path)
		}
	}
	if !Serving(sysfs) || Serving(t.TempDir()) {
		t.Error("Serving is wrong")
	}
}
