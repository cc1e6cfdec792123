package remote

import (
	"reflect"
	"testing"
)

// The attributes are as Linux 6.12 has them.
func TestReadNVMe(t *testing.T) {
	sysfs := tree(t, map[string]string{
		"class/nvme/nvme0/transport":               "pcie\n",
		"class/nvme/nvme0/nvme0n1/nsid":            "1\n",
		"class/nvme/nvme0/nvme0n1/diskseq":         "4\n",
		"class/nvme/nvme1/transport":               "tcp\n",
		"class/nvme/nvme1/address":                 "traddr=10.99.1.2,trsvcid=4420,src_addr=10.99.1.1\n",
		"class/nvme/nvme1/subsysnqn":               "nqn.2019-05.io.openebs:x\n",
		"class/nvme/nvme1/state":                   "live\n",
		"class/nvme/nvme1/nvme3c1n2/nsid":          "7\n",
		"class/nvme/nvme1/nvme3c1n2/ana_state":     "optimized\n",
		"class/nvme/nvme1/nvme3c1n2/inflight":      "       2        3\n",
		"class/nvme/nvme1/nvme3c1n2/queue/iostats": "1\n",
		"class/nvme/nvme1/nvme3c1n2/diskseq":       "8\n",
		"class/nvme/nvme1/hwmon1/name":             "nvme\n",
		"class/nvme/nvme2/transport":               "tcp\n",
		"class/nvme/nvme2/address":                 "traddr=fe80::1,trsvcid=4420\n",
		"class/nvme/nvme2/state":                   "connecting\n",
		"class/nvme/nvme4/transport":               "fc\n",
		"class/nvme/nvme4/address":                 "traddr=nn-0x1:pn-0x2,host_traddr=nn-0x3:pn-0x4\n",
		"class/nvme/nvme4/subsysnqn":               "nqn.x:y\n",
		"class/nvme/nvme4/nvme4n1/nsid":            "1\n",
		"class/nvme/nvme4/nvme4x1/nsid":            "1\n", // of another form
		"class/nvme/nvme4/nvme4n2/nsid":            "many\n",
		"class/nvme/nvme4/ng4n1/dev":               "1:1\n",
		"class/nvme/nvme5/state":                   "deleting\n", // its transport is gone already
		"class/nvme/nvme5/nvme5n1/nsid":            "1\n",
		"class/nvme/other/transport":               "tcp\n",
	})
	got, err := ReadNVMe(sysfs, &Known{})
	if err != nil {
		t.Fatal(err)
	}
	want := Paths{
		Connections: 3,
		Unread:      2,
		Local:       map[uint64]bool{4: true},
		Paths: []Path{
			{Disk: "nvme3c1n2", Head: "nvme3n2", Controller: "nvme1", Transport: "tcp", Address: "10.99.1.2:4420",
				Subsystem: "nqn.2019-05.io.openebs:x", Number: 7, State: "live", Live: true, Access: "optimized", InFlight: 5, CountsInFlight: true, Sequence: 8},
			{Disk: "nvme4n1", Head: "nvme4n1", Controller: "nvme4", Transport: "fc", Address: "nn-0x1:pn-0x2", Subsystem: "nqn.x:y", Number: 1},
		},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	if none, err := ReadNVMe(t.TempDir(), &Known{}); err != nil || none.Connections != 0 || none.Paths != nil {
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
