package remote

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func TestNames(t *testing.T) {
	names, err := NVMe(`lab=nqn\.2026-11\.io\.example:(?P<volume>[^/]+)/(?P<replica>\d+)`)
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		nqn       string
		namespace uint32
		want      Volume
	}{
		{"nqn.2023-01.io.longhorn.spdk:pvc-81bab972-8e6b-48be-b691-18eaa430a897-r-0881c7b4", 1,
			Volume{Backend: "longhorn-v2", Name: "pvc-81bab972-8e6b-48be-b691-18eaa430a897", Replica: "0881c7b4"}},
		{"nqn.2023-01.io.longhorn.spdk:pvc-81bab972-8e6b-48be-b691-18eaa430a897-e-0", 1,
			Volume{Backend: "longhorn-v2", Name: "pvc-81bab972-8e6b-48be-b691-18eaa430a897"}},
		{"nqn.2023-01.io.longhorn.spdk:pvc-2c1b459a-ef-0", 1, Volume{Backend: "longhorn-v2", Name: "pvc-2c1b459a"}},
		{"nqn.2023-01.io.longhorn.spdk:volume-pvc-2c1b459a", 1, Volume{Backend: "longhorn-v2", Name: "pvc-2c1b459a"}},
		{"nqn.2023-01.io.longhorn.spdk:volume-postgres-e-0", 1, Volume{Backend: "longhorn-v2", Name: "volume-postgres"}},
		{"nqn.2023-01.io.longhorn.spdk:volume-postgres-r-1a2b", 1, Volume{Backend: "longhorn-v2", Name: "volume-postgres", Replica: "1a2b"}},
		{"nqn.2023-01.io.longhorn.spdk:volume-volume-postgres", 1, Volume{Backend: "longhorn-v2", Name: "volume-postgres"}},
		{"nqn.2023-01.io.longhorn.spdk:db-e-1-e-0", 1, Volume{Backend: "longhorn-v2", Name: "db-e-1"}},
		{"nqn.2019-05.io.openebs:0f6b1e0c-7c9e-4f5a-9d5e-3a3b8f1c2d4e", 1,
			Volume{Backend: "mayastor", Name: "pvc-0f6b1e0c-7c9e-4f5a-9d5e-3a3b8f1c2d4e"}},
		{"nqn.2019-05.io.openebs:nexus-0f6b1e0c-7c9e-4f5a-9d5e-3a3b8f1c2d4e", 1,
			Volume{Backend: "mayastor", Name: "pvc-0f6b1e0c-7c9e-4f5a-9d5e-3a3b8f1c2d4e"}},
		{"nqn.2019-05.io.openebs:disk0", 1, Volume{Backend: "mayastor", Name: "disk0"}},
		{"nqn.2021-08.com.example:nvme:resource", 3, Volume{Backend: "nvme", Name: "nqn.2021-08.com.example:nvme:resource/3"}},
		{"nqn.2014-08.org.nvmexpress.uuid.x", 1, Volume{Backend: "nvme", Name: "nqn.2014-08.org.nvmexpress.uuid.x"}},
		{"nqn.2026-11.io.example:db/2", 1, Volume{Backend: "lab", Name: "db", Replica: "2"}},
		// Possible names of an unknown target.
		{"", 1, Volume{Backend: "nvme"}},
		{"nqn.x:", 1, Volume{Backend: "nvme", Name: "nqn.x:"}},
		{"nqn.x:a\xffb\n", 1, Volume{Backend: "nvme"}},
		{"nqn.x:" + strings.Repeat("v", 217), 1, Volume{Backend: "nvme"}},
	} {
		got := names.Of(test.nqn, test.namespace)
		if !utf8.ValidString(test.nqn) {
			if len(got.Name) == 0 || strings.ToValidUTF8(got.Name, "") != got.Name || strings.Contains(got.Name, "\n") {
				t.Errorf("%q: volume %q", test.nqn, got.Name)
			}
			continue
		}
		if len(test.nqn) > maxName {
			if len(got.Name) > maxName || got.Backend != "nvme" {
				t.Errorf("a name of %d bytes gives %d", len(test.nqn), len(got.Name))
			}
			continue
		}
		if got != test.want {
			t.Errorf("%q: %+v, want %+v", test.nqn, got, test.want)
		}
	}
}

func TestISCSINames(t *testing.T) {
	names, err := ISCSI(`lab=iqn\.2026-11\.io\.example:(?P<volume>.+)-r-(?P<replica>\d+)`)
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		iqn  string
		lun  uint32
		want Volume
	}{
		// LUN 0 of Longhorn's target is its controller.
		{"iqn.2019-10.io.longhorn:pvc-81bab972", 1, Volume{Backend: "longhorn-v1", Name: "pvc-81bab972"}},
		{"iqn.2016-09.com.openebs.cstor:pvc-1", 0, Volume{Backend: "cstor", Name: "pvc-1"}},
		{"iqn.2016-09.com.openebs.jiva:pvc-1", 0, Volume{Backend: "jiva", Name: "pvc-1"}},
		{"iqn.2003-01.org.linux-iscsi.host.x8664:sn.1a2b", 0, Volume{Backend: "iscsi", Name: "iqn.2003-01.org.linux-iscsi.host.x8664:sn.1a2b"}},
		{"iqn.2003-01.org.linux-iscsi.host.x8664:sn.1a2b", 1, Volume{Backend: "iscsi", Name: "iqn.2003-01.org.linux-iscsi.host.x8664:sn.1a2b/1"}},
		{"iqn.2026-11.io.example:db-r-2", 0, Volume{Backend: "lab", Name: "db", Replica: "2"}},
		{"eui.02004567A425678D", 0, Volume{Backend: "iscsi", Name: "eui.02004567A425678D"}},
		{"iqn.x:", 0, Volume{Backend: "iscsi", Name: "iqn.x:"}},
		{"eui.02004567A425678D", 2, Volume{Backend: "iscsi", Name: "eui.02004567A425678D/2"}},
	} {
		if got := names.Of(test.iqn, test.lun); got != test.want {
			t.Errorf("%q: %+v, want %+v", test.iqn, got, test.want)
		}
	}
	if got := names.Of("iqn.x:a\xffb\n", 0); strings.ToValidUTF8(got.Name, "") != got.Name || strings.Contains(got.Name, "\n") {
		t.Errorf("volume %q", got.Name)
	}
}

// A name's end is not an identity: what no rule names has a name of its own, with any end.
func TestNamesOfArrays(t *testing.T) {
	iscsi, err := ISCSI()
	if err != nil {
		t.Fatal(err)
	}
	nvme, err := NVMe()
	if err != nil {
		t.Fatal(err)
	}
	const one, two = "iqn.1992-08.com.netapp:sn.d724e00cffb611e6b9a3d039ea000001:vs.3", "iqn.1992-08.com.netapp:sn.aaaae00cffb611e6b9a3d039ea000002:vs.3"
	long := "iqn.x:" + strings.Repeat("v", 210)
	seen := map[string]string{}
	add := func(what, name string) {
		t.Helper()
		if len(name) > maxName {
			t.Errorf("%s: a name of %d bytes", what, len(name))
		}
		if other, twice := seen[name]; twice {
			t.Errorf("%s and %s are both called %s", what, other, name)
		}
		seen[name] = what
	}
	add("array 1, LUN 1", iscsi.Of(one, 1).Name)
	add("array 1, LUN 2", iscsi.Of(one, 2).Name)
	add("array 2, LUN 1", iscsi.Of(two, 1).Name)
	add("one domain", iscsi.Of("iqn.2016-01.lab.a:disk1", 0).Name)
	add("another domain", iscsi.Of("iqn.2016-01.lab.b:disk1", 0).Name)
	add("a long name", iscsi.Of(long+"1", 0).Name)
	add("another long name", iscsi.Of(long+"2", 0).Name)
	add("a long name's LUN 7", iscsi.Of(long+"1", 7).Name)
	add("a subsystem", nvme.Of("nqn.1992-08.com.netapp:sn.d724:subsystem.node", 1).Name)
	add("another array's", nvme.Of("nqn.1992-08.com.netapp:sn.aaaa:subsystem.node", 1).Name)
	add("its second namespace", nvme.Of("nqn.1992-08.com.netapp:sn.aaaa:subsystem.node", 2).Name)
	// LUN 1 of each node's own group, whose paths lead to two units; those of one lead to the same.
	path := func(unit string, address string) Path {
		return Path{Subsystem: one, Number: 1, Unit: unit, Address: address}
	}
	add("node A's LUN 1", iscsi.OfPath(path("naa.600a098038304437415d4b6a59676d51", "a")).Name)
	add("node B's LUN 1", iscsi.OfPath(path("naa.600a098038304437415d4b6a59676d52", "a")).Name)
	if a, b := iscsi.OfPath(path("naa.1", "a")), iscsi.OfPath(path("naa.1", "b")); a != b {
		t.Errorf("two paths to one unit: %+v and %+v", a, b)
	}
	// A rule names the volume for every initiator.
	if v := iscsi.OfPath(Path{Subsystem: "iqn.2019-10.io.longhorn:pvc-1", Number: 1, Unit: "naa.1"}); v.Name != "pvc-1" {
		t.Errorf("a known engine's volume is called %s", v.Name)
	}
}

func TestRulesThatAreNone(t *testing.T) {
	for rule, want := range map[string]string{
		"nqn.x:(.*)":          "ENGINE=REGEXP",
		"=(?P<volume>.*)":     "ENGINE=REGEXP",
		"x=nqn.x:(.*)":        "has no group",
		"x=nqn.x:(?P<volume>": "missing",
	} {
		for _, parse := range []func(...string) (Names, error){NVMe, ISCSI} {
			if _, err := parse(rule); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: error %v, want one with %q", rule, err, want)
			}
		}
	}
}
