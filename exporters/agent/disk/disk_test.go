package disk

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	osexec "os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	bpf "github.com/plumbline/plumbline/exporters/agent/bpf/disk"
	"github.com/plumbline/plumbline/exporters/agent/collector"
	"github.com/plumbline/plumbline/exporters/agent/collector/collectortest"
	"github.com/plumbline/plumbline/exporters/agent/pod"
	"github.com/plumbline/plumbline/exporters/agent/replica"
	"github.com/plumbline/plumbline/exporters/agent/volume"
	"github.com/plumbline/plumbline/tests/rig"
	"github.com/plumbline/plumbline/tests/testkit"
)

// blockHierarchy is where this machine has the hierarchy of cgroups that block requests are charged to.
func blockHierarchy(t *testing.T) string {
	t.Helper()
	const root = "/sys/fs/cgroup"
	if _, err := os.Stat(root + "/cgroup.controllers"); err == nil {
		if err := os.WriteFile(root+"/cgroup.subtree_control", []byte("+io +memory"), 0); err != nil {
			testkit.Skip(t, "needs the controllers io and memory: "+err.Error())
		}
		return root
	}
	if _, err := os.Stat(root + "/blkio"); err != nil {
		testkit.Skip(t, "needs a hierarchy of cgroups for block requests")
	}
	return root + "/blkio"
}

// ownCgroup makes a cgroup of the test's own and returns its name.
func ownCgroup(t *testing.T, root string) string {
	t.Helper()
	path, err := os.MkdirTemp(root, "plumbline-test-")
	if err != nil {
		testkit.Skip(t, "needs to make cgroups: "+err.Error())
	}
	forCgroupsBelow(root, path)
	t.Cleanup(func() { removeCgroup(t, path) })
	return filepath.Base(path)
}

// forCgroupsBelow turns the controllers on below a cgroup of version 2, which then takes no processes itself.
func forCgroupsBelow(root, path string) {
	if filepath.Base(root) == "cgroup" {
		_ = os.WriteFile(path+"/cgroup.subtree_control", []byte("+io +memory"), 0)
	}
}

func removeCgroup(t *testing.T, path string) {
	t.Helper()
	testkit.Eventually(t, 10*time.Second, func() error {
		if err := os.Remove(path); !errors.Is(err, os.ErrNotExist) {
			return err
		}
		return nil
	})
}

// newCgroup makes a cgroup below at, and those on the way; all are removed at the test's end.
func newCgroup(t *testing.T, root, at string) string {
	t.Helper()
	path := root
	for _, part := range strings.Split(at, "/") {
		if path != root {
			forCgroupsBelow(root, path)
		}
		path = filepath.Join(path, part)
		err := os.Mkdir(path, 0o755)
		if errors.Is(err, os.ErrExist) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		made := path
		t.Cleanup(func() { removeCgroup(t, made) })
	}
	return path
}

// fioDone is what a fio of a test did on its disk.
type fioDone struct{ requests, bytes float64 }

// fio runs in a cgroup and returns what it did; it is killed with the test.
func fio(t *testing.T, cgroup, device string, args ...string) func() fioDone {
	t.Helper()
	args = append([]string{"-c", `echo $$ > "$0/cgroup.procs" && exec "$@"`, cgroup, testkit.Tool(t, "fio"), "--name=load", "--output-format=json",
		"--filename=" + device, "--direct=1", "--ioengine=libaio", "--randrepeat=0"}, args...)
	ctx, cancel := context.WithCancel(context.Background())
	cmd := osexec.CommandContext(ctx, "sh", args...)
	var out, problems strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &problems
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cancel)
	return func() fioDone {
		t.Helper()
		if err := cmd.Wait(); err != nil {
			t.Fatalf("fio: %v: %s%s", err, problems.String(), out.String())
		}
		var result struct {
			Jobs []map[string]json.RawMessage `json:"jobs"`
		}
		text := out.String()
		if err := json.Unmarshal([]byte(text[strings.Index(text, "{"):]), &result); err != nil {
			t.Fatal(err)
		}
		var done fioDone
		for _, job := range result.Jobs {
			for _, what := range []string{"read", "write"} {
				var side struct {
					Bytes float64 `json:"io_bytes"`
					IOs   float64 `json:"total_ios"`
				}
				if err := json.Unmarshal(job[what], &side); err != nil {
					t.Fatal(err)
				}
				done.requests += side.IOs
				done.bytes += side.Bytes
			}
		}
		return done
	}
}

// startDisk counts by user, without samples of its own.
func startDisk(t *testing.T, users int, change ...func(*disks)) *disks {
	t.Helper()
	testkit.NeedBPF(t)
	c, err := NewDisk(collector.Options{Node: "here", ProcFS: "/proc", SysFS: "/sys"}, Options{Users: users})
	if err != nil {
		t.Fatal(err)
	}
	d := c.(*disks)
	for _, c := range change {
		c(d)
	}
	if err := d.attach(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

// newLoop makes a loop device of 64 MB.
func newLoop(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "disk")
	if err := os.WriteFile(file, make([]byte, 64<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	device, err := rig.AttachLoop(t, file)
	if err != nil {
		testkit.Skip(t, err.Error())
	}
	return device
}

// diskUsers returns the users that are exported of a device, by kind and name.
func diskUsers(t *testing.T, d *disks, device string) map[string]diskUse {
	t.Helper()
	all := map[string]diskUse{}
	for _, f := range collectortest.Gather(t, d) {
		for _, m := range f.Metric {
			l := collectortest.Labels(m)
			if l["device"] != device {
				continue
			}
			key := l["kind"] + " " + l["user"]
			u := all[key]
			switch v := m.Counter.GetValue(); f.GetName() {
			case "plumbline_disk_user_requests_total":
				u.requests = v
			case "plumbline_disk_user_bytes_total":
				u.bytes = v
			case "plumbline_disk_user_seconds_total":
				u.seconds = v
			}
			all[key] = u
		}
	}
	return all
}

const (
	diskPodA = "aaaaaaaa-1111-2222-3333-444444444444"
	diskPodB = "bbbbbbbb-1111-2222-3333-444444444444"
)

// The truth is fio's own count: pods and a service that use one disk at the same time have the shares that their fio
// reports, to 3 points, and all users together have what the disk counts. One of the pods is gone, with its cgroups,
// before the next sample.
func TestDiskUsers(t *testing.T) {
	root := blockHierarchy(t)
	d := startDisk(t, 5)
	device := newLoop(t)
	name := filepath.Base(device)
	own := ownCgroup(t, root)
	podA := newCgroup(t, root, own+"/kubepods/burstable/pod"+diskPodA+"/"+strings.Repeat("ab", 32))
	podB := filepath.Join(root, own, "kubepods-pod"+strings.ReplaceAll(diskPodB, "-", "_")+".slice")
	service := newCgroup(t, root, own+"/containerd.service")

	// Each begins with a request, so that it has series when the counting begins.
	first := []string{"--rw=read", "--bs=4k", "--io_size=4k", "--size=4k"}
	if err := os.Mkdir(podB, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, group := range []string{podA, podB, service} {
		fio(t, group, device, first...)()
	}
	d.sample(time.Now())
	before := diskUsers(t, d, name)
	begin := diskstatsOf(t, name)
	missedBefore := missedRuns(t, d)

	jobs := map[string]func() fioDone{
		"pod uid:" + diskPodA:                   fio(t, podA, device, "--rw=randread", "--bs=4k", "--iodepth=8", "--size=64m", "--io_size=24m"),
		"pod uid:" + diskPodB:                   fio(t, podB, device, "--rw=randwrite", "--bs=64k", "--iodepth=2", "--size=64m", "--io_size=48m"),
		"cgroup " + own + "/containerd.service": fio(t, service, device, "--rw=randrw", "--bs=16k", "--iodepth=4", "--size=64m", "--io_size=32m"),
	}
	truth := map[string]fioDone{}
	var sum fioDone
	for user, wait := range jobs {
		truth[user] = wait()
		sum.requests += truth[user].requests
		sum.bytes += truth[user].bytes
	}
	removeCgroup(t, podB)
	d.sample(time.Now())
	after := diskUsers(t, d, name)
	end := diskstatsOf(t, name)

	// Runs that the kernel reports as skipped, of any disk, are unattributed.
	missed := missedRuns(t, d) - missedBefore
	t.Logf("the kernel skipped %v runs; lost: %v", missed, d.lost)
	var all diskUse
	for user, u := range after {
		u.add(before[user].part(-1))
		all.add(u)
		want := truth[user]
		t.Logf("%s: %.1f %% of the requests, fio %.1f %%; %.1f %% of the bytes, fio %.1f %%; %.2f s in the device", user,
			100*u.requests/sum.requests, 100*want.requests/sum.requests, 100*u.bytes/sum.bytes, 100*want.bytes/sum.bytes, u.seconds)
		const largest = 64 << 10 // the largest request of the jobs
		if math.Abs(u.requests-want.requests) > 0.03*sum.requests+missed || math.Abs(u.bytes-want.bytes) > 0.03*sum.bytes+missed*largest {
			t.Errorf("%s did %v, by fio %v", user, u, want)
		}
		if want.requests > 0 && u.seconds <= 0 {
			t.Errorf("%s was for %v s in the device", user, u.seconds)
		}
	}
	for user := range truth {
		if _, ok := after[user]; !ok {
			t.Errorf("%s has no series", user)
		}
	}
	if requests, bytes := float64(end.requests-begin.requests), float64(end.bytes-begin.bytes); all.requests != requests || all.bytes != bytes {
		t.Errorf("all users together did %v requests and %v bytes, the disk %v and %v", all.requests, all.bytes, requests, bytes)
	}
}

// missedRuns returns how many runs of the program the kernel has skipped.
func missedRuns(t *testing.T, d *disks) float64 {
	t.Helper()
	stats, err := d.stats.Programs[bpf.DiskProgDiskRequestEnds].Stats()
	if err != nil {
		t.Fatal(err)
	}
	return float64(stats.RecursionMisses)
}

func diskstatsOf(t *testing.T, device string) deviceCounts {
	t.Helper()
	all, _, err := diskstats("/proc")
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range all {
		if d.name == device {
			return d
		}
	}
	t.Fatalf("no counts of %s", device)
	return deviceCounts{}
}

// A process that moves to another cgroup is counted in each for what it did there, and cgroups cannot take the name of
// others: of one that another user owns, and so may fill with cgroups named at will, the name is that of the one above.
func TestDiskUsersHostile(t *testing.T) {
	root := blockHierarchy(t)
	d := startDisk(t, 20)
	device := newLoop(t)
	own := ownCgroup(t, root)
	users := own + "/user-1000.slice"
	folder := newCgroup(t, root, users+"/mine")
	if err := os.Chown(folder, 1000, 1000); err != nil {
		t.Fatal(err)
	}
	odd := newCgroup(t, root, own+"/a\t\"b\"\xff{}"+strings.Repeat("long", 50))
	deep := newCgroup(t, root, own+strings.Repeat("/d", 70))
	from, to := newCgroup(t, root, own+"/from"), newCgroup(t, root, own+"/to")
	read := []string{"--rw=randread", "--bs=4k", "--size=64m", "--io_size=1m"}
	spoofed := newCgroup(t, root, users+"/mine/kubepods/pod"+diskPodA)
	for range 2 { // the second time with series
		for _, group := range []string{odd, deep, spoofed, from} {
			fio(t, group, device, read...)()
		}
		d.sample(time.Now())
	}
	move := osexec.Command("sh", "-c", `echo $$ > "$1/cgroup.procs" && "$0" --output-format=json --name=a --filename="$3" --direct=1 --rw=randread --bs=4k --size=64m --io_size=512k &&
		echo $$ > "$2/cgroup.procs" && "$0" --output-format=json --name=b --filename="$3" --direct=1 --rw=randread --bs=4k --size=64m --io_size=768k`, testkit.Tool(t, "fio"), from, to, device)
	if out, err := move.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	d.sample(time.Now())
	fio(t, to, device, read...)()
	d.sample(time.Now())

	const request = 4096
	got := diskUsers(t, d, filepath.Base(device))
	t.Log(got)
	// The kernel does not show a program all requests on every machine (docs/understand/disks.md).
	unseen := 2 + got["unattributed "].requests
	for user, want := range map[string]float64{
		"cgroup " + own + "/from": (1 + 0.5) * (1 << 20) / request,
		"cgroup " + own + "/to":   1 << 20 / request,
		"cgroup " + users:         1 << 20 / request,
		"cgroup /":                0,
	} {
		if math.Abs(got[user].requests-want) > unseen {
			t.Errorf("%s did %v requests, want %v", user, got[user].requests, want)
		}
	}
	if _, spoofed := got["pod uid:"+diskPodA]; spoofed {
		t.Error("a cgroup that another user owns has a pod's name")
	}
	found := false
	for user := range got {
		found = found || strings.HasPrefix(user, "cgroup "+own+"/a") && len(user) < 200
	}
	if !found {
		t.Error("the cgroup with the odd name has no series")
	}
}

// With more cgroups than there is room for, those that find none are in the rest and counted, and no request is lost.
func TestDiskUsersOverflowed(t *testing.T) {
	const room, many = 64, 100
	root := blockHierarchy(t)
	d := startDisk(t, 5, func(d *disks) { d.maxUsages = room })
	device := newLoop(t)
	name := filepath.Base(device)
	own := ownCgroup(t, root)
	begin := diskstatsOf(t, name)
	read := osexec.Command("sh", "-c", `set -e; for n in $(seq 100); do mkdir "$0/$n"; (sh -c 'echo $$ > "$0/cgroup.procs" && exec dd if="$1" of=/dev/null bs=4k count=4 iflag=direct status=none' "$0/$n" "$1"); rmdir "$0/$n"; done`,
		filepath.Join(root, own), device)
	if out, err := read.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	d.sample(time.Now())
	end := diskstatsOf(t, name)
	disk := d.ledger.disks[name]
	if disk == nil || len(disk.users) > room {
		t.Fatalf("%v", disk)
	}
	unseen := float64(end.requests-begin.requests) - disk.seen.requests
	t.Logf("%d users, the rest did %v requests, %v are unseen, %v found no room", len(disk.users), disk.rest, unseen, d.lost)
	// Other disks of the machine, if they are used meanwhile, take room, too.
	if most := 0.05*4*many + float64(d.lost[bpf.DiskLostLOST_ALL]); unseen < 0 || unseen > most {
		t.Errorf("%v requests are counted, the disk has %d", disk.seen.requests, end.requests-begin.requests)
	}
	if d.lost[bpf.DiskLostLOST_USAGE] < many-room {
		t.Errorf("found no room: %v", d.lost)
	}
	// What is idle for long makes room.
	d.sample(time.Now().Add(2 * idleTimeout))
	counts, err := collector.ReadMap[bpf.DiskUsageKey, bpf.DiskUsage](d.collection.Maps[bpf.DiskMapUsages])
	maps.DeleteFunc(counts, func(k bpf.DiskUsageKey, _ bpf.DiskUsage) bool { return collector.Text(k.Device[:]) != name })
	if err != nil || len(counts) > room/2 {
		t.Errorf("%d pairs are left, %v", len(counts), err)
	}
	for range 2 {
		d.sample(time.Now().Add(2 * idleTimeout))
	}
	if left := groupsOf(t, d, own); len(left) > room/2 {
		t.Errorf("%d paths are left", len(left))
	}
}

// A cgroup whose path is not there while it has counts is named again.
func TestDiskUsersPathLost(t *testing.T) {
	root := blockHierarchy(t)
	d := startDisk(t, 5)
	device := newLoop(t)
	own := ownCgroup(t, root)
	group := newCgroup(t, root, own+"/again")
	read := func() {
		fio(t, group, device, "--rw=read", "--bs=4k", "--io_size=4k", "--size=4k")()
	}
	read()
	for _, group := range groupsOf(t, d, own) {
		if err := d.collection.Maps[bpf.DiskMapGroups].Delete(group); err != nil {
			t.Fatal(err)
		}
	}
	d.sample(time.Now())
	// The kernel may not show a program one of its requests.
	testkit.Eventually(t, testkit.DefaultTimeout, func() error {
		read()
		d.sample(time.Now())
		if users := d.ledger.disks[filepath.Base(device)].users; users[diskUserID{kind: diskCgroup, id: own + "/again"}] == nil {
			return fmt.Errorf("it has no name: %v", slices.Collect(maps.Keys(users)))
		}
		return nil
	})
}

// groupsOf returns the cgroups below one whose paths the kernel keeps.
func groupsOf(t *testing.T, d *disks, parent string) []uint64 {
	t.Helper()
	all, err := collector.ReadMap[uint64, bpf.DiskGroup](d.collection.Maps[bpf.DiskMapGroups])
	if err != nil {
		t.Fatal(err)
	}
	maps.DeleteFunc(all, func(_ uint64, g bpf.DiskGroup) bool {
		return !slices.ContainsFunc(g.Names[:], func(name [96]int8) bool { return collector.Text(name[:]) == filepath.Base(parent) })
	})
	return slices.Collect(maps.Keys(all))
}

// Names of pods, and the volumes of their claims on the disk, by their own devices or below these.
func TestPodOnDisk(t *testing.T) {
	shop := pod.New("shop", "db-1", nil)
	shop.Claims = []string{"data", "wal"}
	pods := map[string]pod.Pod{"1": shop}
	on := func(claim, disk string, below ...string) volume.Found {
		return volume.Found{Identity: volume.Identity{Volume: "pv-" + claim, Namespace: "shop", PersistentVolumeClaim: claim}, Disk: disk, Below: below}
	}
	other := on("data", "sda")
	other.Namespace = "bank"
	for _, c := range []struct {
		what, uid string
		volumes   []volume.Found
		name      string
		want      []string
	}{
		{"unknown", "2", nil, "uid:2", nil},
		{"no claim there", "1", []volume.Found{on("data", "sdb"), on("theirs", "sda"), other}, "shop/db-1", nil},
		{"its own device", "1", []volume.Found{on("data", "sda"), on("wal", "sdb")}, "shop/db-1", []string{"pv-data"}},
		{"below LVM", "1", []volume.Found{on("data", "dm-3", "sda")}, "shop/db-1", []string{"pv-data"}},
		{"both there", "1", []volume.Found{on("data", "sda"), on("wal", "dm-4", "sda")}, "shop/db-1", []string{"pv-data", "pv-wal"}},
	} {
		if name, of := podOnDisk(c.uid, pods, "sda", c.volumes); name != c.name || !slices.Equal(of, c.want) {
			t.Errorf("%s: %q, %q", c.what, name, of)
		}
	}
}

// Two pods of one name, as a StatefulSet's before and after a restart, share their series.
func TestDiskPodsOfOneName(t *testing.T) {
	c, err := NewDisk(collector.Options{Node: "here"}, Options{Users: 5})
	if err != nil {
		t.Fatal(err)
	}
	d := c.(*disks)
	now := time.Unix(1e9, 0)
	d.pods = map[string]pod.Pod{"1": pod.New("shop", "db-0", nil), "2": pod.New("shop", "db-0", nil)}
	for range 2 {
		now = now.Add(interval)
		d.ledger.add(now, usesOf(map[diskUserID]diskUse{podUser("1"): {requests: 1}, podUser("2"): {requests: 2}}))
	}
	series := func() float64 { return diskUsers(t, d, "sda")["pod shop/db-0"].requests }
	if got := series(); got != 3 {
		t.Errorf("both did %v requests, want 3", got)
	}
	// The first is forgotten, and the series go on.
	d.ledger.add(now.Add(idleTimeout), usesOf(map[diskUserID]diskUse{podUser("2"): {requests: 4}}))
	if _, there := d.ledger.disks["sda"].users[podUser("1")]; there {
		t.Error("the first pod is remembered")
	}
	if got := series(); got != 7 {
		t.Errorf("after the first is forgotten %v requests, want 7", got)
	}
	// The name of the third becomes known: what it had in series of its own is not counted again.
	d.ledger.add(now.Add(idleTimeout), usesOf(map[diskUserID]diskUse{podUser("3"): {requests: 100}}))
	d.ledger.add(now.Add(idleTimeout), usesOf(map[diskUserID]diskUse{podUser("3"): {requests: 200}}))
	if got := diskUsers(t, d, "sda")["pod uid:3"].requests; got != 200 {
		t.Errorf("the third did %v requests, want 200", got)
	}
	d.pods["3"] = d.pods["2"]
	if got := series(); got != 7 {
		t.Errorf("when the third has the name, %v requests, want 7", got)
	}
	// It ends with the last.
	d.ledger.add(now.Add(3*idleTimeout), nil)
	if got := series(); got != 0 {
		t.Errorf("after all are forgotten %v requests", got)
	}
}

// A pod with two claims on a disk has the volume of each in a series of its own.
func TestDiskPodOfTwoVolumes(t *testing.T) {
	c, err := NewDisk(collector.Options{Node: "here"}, Options{Users: 5})
	if err != nil {
		t.Fatal(err)
	}
	d := c.(*disks)
	files := pod.New("shop", "files", nil)
	files.Claims = []string{"one", "two"}
	d.pods = map[string]pod.Pod{"1": files}
	d.ledger.add(time.Unix(1e9, 0), usesOf(map[diskUserID]diskUse{podUser("1"): {requests: 1}}))
	on := func(claim string) volume.Found {
		return volume.Found{Identity: volume.Identity{Volume: "pv-" + claim, Namespace: "shop", PersistentVolumeClaim: claim}, Disk: "sda"}
	}
	for _, c := range []struct {
		volumes []volume.Found
		label   string
		want    map[diskSeries]bool
	}{
		{[]volume.Found{on("one"), on("two")}, "", map[diskSeries]bool{{"sda", diskPod, "shop/files", "pv-one"}: true, {"sda", diskPod, "shop/files", "pv-two"}: true}},
		{[]volume.Found{on("two")}, "pv-two", map[diskSeries]bool{}},
	} {
		if d.export(c.volumes); !maps.Equal(d.volumes, c.want) {
			t.Errorf("it has %v, want %v", d.volumes, c.want)
		}
		if _, there := d.exported[diskSeries{"sda", diskPod, "shop/files", c.label}]; !there {
			t.Errorf("its counters are %v, want volume %q", d.exported, c.label)
		}
	}
}

// A user that loses its series and gets them again between two scrapes goes on in them.
func TestDiskUserListedAgain(t *testing.T) {
	c, err := NewDisk(collector.Options{Node: "here"}, Options{Users: 1})
	if err != nil {
		t.Fatal(err)
	}
	d := c.(*disks)
	now := time.Unix(1e9, 0)
	add := func(user string, use diskUse) {
		now = now.Add(interval)
		d.ledger.add(now, usesOf(map[diskUserID]diskUse{podUser(user): use}))
	}
	want := func(want diskUse) {
		t.Helper()
		if got := diskUsers(t, d, "sda")["pod uid:a"]; got != want {
			t.Errorf("it did %v, want %v", got, want)
		}
	}
	add("a", diskUse{1, 1, 1})
	add("a", diskUse{10, 1000, 1})
	want(diskUse{10, 1000, 1})
	add("b", diskUse{1, 1, 100})
	add("a", diskUse{1, 1, 1000})
	add("a", diskUse{20, 10, 1})
	want(diskUse{30, 1010, 2})
}

// A server is the user that is its pod, or the nearest cgroup with requests.
func TestDiskServers(t *testing.T) {
	proc := t.TempDir()
	c, err := NewDisk(collector.Options{Node: "here", ProcFS: proc, Servers: &collector.Servers{}}, Options{Users: 9})
	if err != nil {
		t.Fatal(err)
	}
	d := c.(*disks)
	d.pods = map[string]pod.Pod{diskPodA: pod.New("shop", "db-0", nil)}
	var servers []collector.RunningServer
	for label, path := range map[string]string{
		"in a pod": "/kubepods/pod" + diskPodA + "/" + strings.Repeat("ab", 32), "in an idle pod": "/kubepods/pod" + diskPodB,
		"a service": "/system.slice/postgresql@16-main.service", "a service without io": "/machine.slice/pg.service/payload", "of the root": "/mysql",
	} {
		pid := len(servers) + 1
		folder := filepath.Join(proc, strconv.Itoa(pid))
		if err := errors.Join(os.Mkdir(folder, 0o755), os.WriteFile(filepath.Join(folder, "cgroup"), []byte("0::"+path+"\n"), 0o600)); err != nil {
			t.Fatal(err)
		}
		servers = append(servers, collector.RunningServer{Pid: pid, Label: label})
	}
	d.options.Servers.Add(func() []collector.RunningServer {
		return append(servers, collector.RunningServer{Pid: 99, Label: "has ended"})
	})
	uses := map[diskUserID]diskUse{}
	for _, id := range []diskUserID{podUser(diskPodA), {kind: diskCgroup, id: "system.slice/postgresql@16-main.service"}, {kind: diskCgroup, id: "system.slice/cron.service"},
		{kind: diskCgroup, id: "machine.slice"}, {kind: diskCgroup, id: rootCgroup}} {
		uses[id] = diskUse{requests: 1}
	}
	d.ledger.add(time.Unix(1e9, 0), usesOf(uses))
	d.servers = d.runningServers()
	got := map[string]string{}
	for _, f := range collectortest.Gather(t, d) {
		for _, m := range f.Metric {
			if l := collectortest.Labels(m); f.GetName() == "plumbline_disk_user_server_info" {
				got[l["server"]] = l["kind"] + " " + l["user"]
			}
		}
	}
	if want := map[string]string{"in a pod": "pod shop/db-0", "a service": "cgroup system.slice/postgresql@16-main.service", "a service without io": "cgroup machine.slice",
		"of the root": "cgroup /"}; !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// What the kernel has of a process: its bytes on storage and the cgroup that its requests are charged to.
func TestReplicaProcess(t *testing.T) {
	for _, c := range []struct {
		text, path string
		first      bool
	}{
		{"9:name=systemd:/x\n7:cpu,blkio:/kubepods/a\n0::/y\n", "/kubepods/a", true},
		{"0::/../../kubepods.slice/b\n", "/kubepods.slice/b", false},
		{"garbage\n", "", false},
	} {
		file := filepath.Join(t.TempDir(), "cgroup")
		if err := os.WriteFile(file, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		if path, first, err := blockCgroup(file); path != c.path || first != c.first || err != nil {
			t.Errorf("%q: %q, %t, %v", c.text, path, first, err)
		}
	}
	for text, want := range map[string]float64{
		"rchar: 9\nread_bytes: 4096\nwrite_bytes: 8192\ncancelled_write_bytes: 7\n": 12288,
		"rchar: 9\nread_bytes: many\nwrite_bytes: 8192\n":                           -1,
		"rchar: 9\n": -1,
	} {
		file := filepath.Join(t.TempDir(), "io")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := storageBytes(file)
		if (err != nil) != (want < 0) || err == nil && got != want {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
}

// startDiskOfReplicas starts a volume of real replicas, and collectors that follow them and who uses their disk.
func startDiskOfReplicas(t *testing.T, replicas int) (*rig.Volume, *disks) {
	t.Helper()
	testkit.Tool(t, "longhorn-engine")
	v := rig.NewVolume(t, replicas)
	d := startDisk(t, maxDiskUsers)
	d.options.Replicas = &collector.Replicas{}
	o := collectortest.Here()
	o.ProcFS, o.Replicas = v.ProcFS, d.options.Replicas
	collectortest.Start(t)(replica.New(o))
	v.Start()
	return v, d
}

// awaitPlaced waits until the disk of so many replicas and of their sync agents is known.
func awaitPlaced(t *testing.T, d *disks, replicas int) {
	t.Helper()
	testkit.Eventually(t, testkit.DefaultTimeout, func() error {
		if n := len(d.options.Replicas.All()); n != 2*replicas {
			return fmt.Errorf("%d replicas and sync agents have a disk", n)
		}
		return nil
	})
}

// What each real replica writes to its disk is its own, and not that of the cgroup that it shares with others.
func TestDiskReplicas(t *testing.T) {
	v, d := startDiskOfReplicas(t, 2)
	awaitPlaced(t, d, 2)
	const writes = 500
	write := func() {
		t.Helper()
		v.IO(writes, 4, func(i int) error { return v.Write(int64(i)*8192, 8192) })
		d.sample(time.Now())
	}
	write() // from here on the processes are known,
	write() // and here they get series
	all := func() map[string]diskUse {
		sums := map[string]diskUse{}
		for _, r := range d.options.Replicas.All() {
			sums[r.Name] = diskUsers(t, d, r.Device)["replica "+r.Name]
		}
		return sums
	}
	before := all()
	write()
	for name, u := range all() {
		u.add(before[name].part(-1))
		t.Logf("%s: %v", name, u)
		// The file system's own writes on a replica's behalf are among them, and not every machine shows a program all requests.
		if want := float64(writes * 8192); u.bytes < 0.8*want || u.bytes > 2*want || u.requests <= 0 || u.seconds <= 0 {
			t.Errorf("replica %s wrote %v bytes with %v requests in %v s, want %v bytes", name, u.bytes, u.requests, u.seconds, want)
		}
	}
}

// What a rebuild reads and writes is the replicas', although it is their sync agents that do it.
func TestDiskRebuild(t *testing.T) {
	v, d := startDiskOfReplicas(t, 1)
	const writes, size = 256, 64 << 10
	v.IO(writes, 4, func(i int) error { return v.Write(int64(i)*size, size) })
	fresh := v.AddReplica()
	awaitPlaced(t, d, 2)
	d.sample(time.Now()) // from here on the processes are known
	whole := fmt.Sprint(rig.VolumeSize)
	v.Control("add-replica", "--size", whole, "--current-size", whole, "tcp://"+fresh.Address)
	used, err := d.used(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	splitReplicas(used, d.replicas(used))
	for _, r := range d.options.Replicas.All() {
		u := used[r.Device][diskUserID{diskReplica, r.Name, r.Volume}]
		t.Logf("%s: %v", r.Name, u)
		// Not every machine shows a program all requests.
		if want := float64(writes * size); u.bytes < 0.8*want || u.bytes > 2*want {
			t.Errorf("replica %s read or wrote %v bytes, want %v", r.Name, u.bytes, want)
		}
	}
}
