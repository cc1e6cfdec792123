package remote

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// link makes a symbolic link below a folder.
func link(t *testing.T, root, name, to string) {
	t.Helper()
	file := filepath.Join(root, name)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(to, file); err != nil {
		t.Fatal(err)
	}
}

// The attributes are as Linux 6.1 has them.
func TestReadISCSI(t *testing.T) {
	const (
		one = "devices/platform/host2/session1/"
		two = "devices/pci0000:00/0000:00:05.0/host3/session2/"
	)
	sysfs := tree(t, map[string]string{
		"class/iscsi_session/session1/state":                                               "",
		"class/iscsi_session/session2/state":                                               "",
		"class/iscsi_session/session3/state":                                               "", // without a disk
		"class/iscsi_session/power":                                                        "",
		"devices/platform/host2/scsi_host/host2/proc_name":                                 "iscsi_tcp\n",
		one + "iscsi_session/session1/targetname":                                          "iqn.2026-11.io.example:a\n",
		one + "iscsi_session/session1/state":                                               "LOGGED_IN\n",
		one + "connection1:0/iscsi_connection/connection1:0/persistent_address":            "10.99.1.2\n",
		one + "connection1:0/iscsi_connection/connection1:0/persistent_port":               "3260\n",
		one + "connection1:0/iscsi_connection/connection1:0/address":                       "10.99.1.3\n",
		one + "connection1:0/iscsi_connection/connection1:0/port":                          "3261\n",
		one + "connection1:0/iscsi_connection/connection1:0/local_port":                    "40123\n",
		"devices/platform/host2/iscsi_host/host2/ipaddress":                                "10.99.1.1\n",
		one + "target2:0:0/2:0:0:1/state":                                                  "running\n",
		one + "target2:0:0/2:0:0:1/vendor":                                                 "NETAPP  \n",
		one + "target2:0:0/2:0:0:1/wwid":                                                   "t10.NETAPP   LUN 80Tab\n",
		one + "target2:0:0/2:0:0:1/access_state":                                           "active/optimized\n",
		one + "target2:0:0/2:0:0:1/block/sda/inflight":                                     "       1        4\n",
		one + "target2:0:0/2:0:0:1/block/sda/queue/iostats":                                "1\n",
		one + "target2:0:0/2:0:0:1/block/sda/diskseq":                                      "12\n",
		one + "target2:0:0/2:0:0:1/block/sda/holders/dm-0/dm/uuid":                         "mpath-360000000000000000e00000000010001\n",
		"devices/pci0000:00/0000:00:05.0/host3/scsi_host/host3/proc_name":                  "iscsi_iser\n",
		two + "iscsi_session/session2/targetname":                                          strings.Repeat("i", 5000) + "\x00\xff",
		two + "iscsi_session/session2/state":                                               "FAILED\n",
		two + "connection2:0/iscsi_connection/connection2:0/persistent_address":            "storage.example\n",
		two + "connection2:0/iscsi_connection/connection2:0/persistent_port":               "3260\n",
		two + "connection2:0/iscsi_connection/connection2:0/address":                       "fe80::1%eth0\n",
		two + "connection2:0/iscsi_connection/connection2:0/port":                          "3260\n",
		two + "target3:0:0/3:0:0:0/state":                                                  "blocked\n",
		two + "target3:0:0/3:0:0:0/vendor":                                                 "IET     \n",
		two + "target3:0:0/3:0:0:0/wwid":                                                   "t10.IET     00010001\n",
		two + "target3:0:0/3:0:0:0/block/sdb/inflight":                                     "0 0\n",
		"devices/platform/host4/session9/target4:0:0/4:0:0:0/block/sde/inflight":           "0 0\n", // its session is going
		"devices/pci0000:00/0000:00:01.0/ata1/host0/target0:0:0/0:0:0:0/block/sdc/diskseq": "9\n",
		"devices/virtual/block/dm-0/diskseq":                                               "10\n", // no command of SCSI's is for it
		"devices/virtual/block/dm-0/dm/uuid":                                               "mpath-360000000000000000e00000000010001\n",
		"devices/platform/host5/session5/target5:0:0/5:0:0:99999999999/block/sdf/inflight": "",
	})
	for disk, to := range map[string]string{
		"sda": one + "target2:0:0/2:0:0:1/block/sda", "sdb": two + "target3:0:0/3:0:0:0/block/sdb",
		"sde": "devices/platform/host4/session9/target4:0:0/4:0:0:0/block/sde", "sdc": "devices/pci0000:00/0000:00:01.0/ata1/host0/target0:0:0/0:0:0:0/block/sdc",
		"sdf": "devices/platform/host5/session5/target5:0:0/5:0:0:99999999999/block/sdf", "dm-0": "devices/virtual/block/dm-0",
	} {
		link(t, sysfs, "block/"+disk, "../"+to)
	}
	got, err := ReadISCSI(sysfs, &Known{})
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Paths) != 2 {
		t.Fatalf("%d paths: %+v", len(got.Paths), got.Paths)
	}
	if n := len(got.Paths[1].Subsystem); n == 0 || n > 256 || strings.Contains(got.Paths[1].Subsystem, "\x00") {
		t.Errorf("a name of %d bytes", n)
	}
	got.Paths[1].Subsystem = ""
	want := Paths{
		Connections: 3,
		Unread:      1,
		Local:       map[uint64]bool{9: true},
		Paths: []Path{
			{Disk: "sda", Head: "dm-0", Controller: "session1", Transport: "tcp", Address: "10.99.1.2:3260", Came: "10.99.1.3:3261", Initiator: "10.99.1.1:40123", Subsystem: "iqn.2026-11.io.example:a",
				Number: 1, Unit: "t10.NETAPP_LUN_80Tab", State: "logged_in", Live: true, Access: "active/optimized", InFlight: 5, CountsInFlight: true, Sequence: 12},
			{Disk: "sdb", Head: "sdb", Controller: "session2", Transport: "iser", Address: "[fe80::1]:3260", Came: "[fe80::1]:3260", State: "failed", Closed: true},
		},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	if none, err := ReadISCSI(t.TempDir(), &Known{}); err != nil || none.Connections != 0 || none.Paths != nil {
		t.Errorf("a machine without iSCSI: %+v, %v", none, err)
	}
}

func TestISCSIBacking(t *testing.T) {
	const iscsi, core = "kernel/config/target/iscsi/iqn.x:a/tpgt_1/lun/", "kernel/config/target/core/"
	sysfs := tree(t, map[string]string{
		core + "iblock_0/one/udev_path":    "/dev/sdb\n",
		core + "fileio_0/two/udev_path":    "/srv/file\n",
		core + "iblock_0/three/udev_path":  "/dev/../etc/passwd\n",
		iscsi + "lun_0/statistics/scsi_lu": "",
		iscsi + "lun_3/udev_path":          "/dev/sdb\n", // no link
		"class/block/sdb/inflight":         "0 2\n",
		"class/block/sdb/queue/iostats":    "1\n",
		"module/iscsi_target_mod/version":  "",
	})
	link(t, sysfs, iscsi+"lun_0/a0b1c2", "../../../../../core/iblock_0/one")
	link(t, sysfs, iscsi+"lun_1/a0b1c3", "../../../../../core/fileio_0/two")
	link(t, sysfs, iscsi+"lun_2/a0b1c4", "../../../../../core/iblock_0/three")
	for lun, want := range map[uint32]Backing{
		0: {Path: "/dev/sdb", Device: "sdb", InFlight: 2, CountsInFlight: true}, 1: {Path: "/srv/file"}, 2: {Path: "/dev/../etc/passwd"}, 3: {}, 4: {},
	} {
		if got := ISCSIBacking(t.TempDir(), sysfs, "iqn.x:a", "tpgt_1", lun); got != want {
			t.Errorf("LUN %d: %+v, want %+v", lun, got, want)
		}
	}
	for _, names := range [][2]string{{"", "tpgt_1"}, {"..", "tpgt_1"}, {"../iscsi/iqn.x:a", "tpgt_1"}, {"iqn.x:a", "."}, {"iqn.x:a", "tpgt_1/."}, {"iqn.x:a", ""}} {
		if got := ISCSIBacking(t.TempDir(), sysfs, names[0], names[1], 0); got != (Backing{}) {
			t.Errorf("target %q has a disk: %+v", names, got)
		}
	}
	if !ServingISCSI(sysfs) || ServingISCSI(t.TempDir()) {
		t.Error("ServingISCSI is wrong")
	}
}

func TestSocketAddress(t *testing.T) {
	pad := func(b ...byte) []byte { return append(b, make([]byte, 28-len(b))...) }
	for _, test := range []struct {
		raw  []byte
		want string
	}{
		{pad(2, 0, 0x0c, 0xbc, 10, 99, 1, 2), "10.99.1.2:3260"},
		{pad(10, 0, 0x0c, 0xbc, 0, 0, 0, 0, 0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1), "[fe80::1]:3260"},
		{pad(10, 0, 0x0c, 0xbc, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 1), "10.0.0.1:3260"},
		{pad(1, 0, '/', 'x'), ""},
		{make([]byte, 8), ""},
	} {
		if got := SocketAddress(test.raw); got != test.want {
			t.Errorf("%v: %q, want %q", test.raw, got, test.want)
		}
	}
}
