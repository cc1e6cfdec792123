package pod

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/plumbline/plumbline/tests/testkit"
)

const (
	anyUID    = "0fe7f6e5-0a3e-4a3e-9a0e-5d1f6a2b3c4d"
	otherUID  = "11111111-2222-3333-4444-555555555555"
	staticUID = "0fe7f6e50a3e4a3e9a0e5d1f6a2b3c4d"
)

var (
	number     = strings.Repeat("ab", 32)
	underscore = strings.ReplaceAll(anyUID, "-", "_")
)

// A tree is a made-up procfs with PID 1's cgroups below it.
type tree struct {
	t    *testing.T
	proc string
}

func newTree(t *testing.T) tree {
	t.Helper()
	tr := tree{t, t.TempDir()}
	tr.folder("1/root/sys/fs/cgroup")
	owner = uint32(os.Geteuid())
	t.Cleanup(func() { owner = 0 })
	return tr
}

func (tr tree) folder(path string) string {
	tr.t.Helper()
	path = filepath.Join(tr.proc, path)
	if err := os.MkdirAll(path, 0o755); err != nil {
		tr.t.Fatal(err)
	}
	return path
}

func (tr tree) write(path, text string) {
	tr.t.Helper()
	tr.folder(filepath.Dir(path))
	if err := os.WriteFile(filepath.Join(tr.proc, path), []byte(text), 0o644); err != nil {
		tr.t.Fatal(err)
	}
}

// cgroup makes a cgroup with members below a hierarchy.
func (tr tree) cgroup(path string, members ...int) {
	text := ""
	for _, m := range members {
		text += fmt.Sprintln(m)
	}
	tr.write("1/root/sys/fs/cgroup/"+path+"/cgroup.procs", text)
}

// colon is what a runtime that does not use systemd makes of a class of pods' cgroup for systemd.
func colon(class string) string {
	if class != "" {
		class += "-"
	}
	return "kubepods-" + class + "pod" + underscore + ".slice:cri-containerd:" + number
}

// What kubelets and runtimes call cgroups is understood, on both versions, and seen from within a cgroup namespace.
func TestPodOfProcess(t *testing.T) {
	in := ID{anyUID, number}
	for _, c := range []struct {
		name  string
		lines string
		group string // in the tree
		want  ID
	}{
		{"cgroupfs, version 1", "12:pids:/kubepods/burstable/pod" + anyUID + "/" + number, "pids/kubepods/burstable/pod" + anyUID + "/" + number, in},
		{"a named hierarchy", "2:cpuset:/\n1:name=systemd:/kubepods/pod" + anyUID + "/" + number, "systemd/kubepods/pod" + anyUID + "/" + number, in},
		{"two controllers", "4:cpu,cpuacct:/kubepods/besteffort/pod" + anyUID + "/" + number, "cpu,cpuacct/kubepods/besteffort/pod" + anyUID + "/" + number, in},
		{"a root of the kubelet's own", "8:pids:/test/kubepods/pod" + anyUID + "/" + number, "pids/test/kubepods/pod" + anyUID + "/" + number, in},
		{"version 2, systemd", "0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod" + underscore + ".slice/cri-containerd-" + number + ".scope",
			"kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod" + underscore + ".slice/cri-containerd-" + number + ".scope", in},
		{"guaranteed", "0::/kubepods.slice/kubepods-pod" + underscore + ".slice/crio-" + number + ".scope/container",
			"kubepods.slice/kubepods-pod" + underscore + ".slice/crio-" + number + ".scope/container", in},
		{"in kind", "0::/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod" + underscore + ".slice/cri-containerd-" + number + ".scope",
			"kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod" + underscore + ".slice/cri-containerd-" + number + ".scope", in},
		{"the agent in a cgroup namespace", "0::/../../../kubepods-burstable.slice/kubepods-burstable-pod" + underscore + ".slice/cri-containerd-" + number + ".scope",
			"kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod" + underscore + ".slice/cri-containerd-" + number + ".scope", in},
		{"beside it", "0::/../../kubepods-burstable-pod" + underscore + ".slice/cri-containerd-" + number + ".scope",
			"kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod" + underscore + ".slice/cri-containerd-" + number + ".scope", in},
		{"a static pod", "8:pids:/kubepods/burstable/pod" + staticUID + "/" + number, "pids/kubepods/burstable/pod" + staticUID + "/" + number, ID{staticUID, number}},
		{"the pod's own", "8:pids:/kubepods/pod" + anyUID, "pids/kubepods/pod" + anyUID, ID{UID: anyUID}},
		{"a cgroup that the container made", "0::/kubepods/pod" + anyUID + "/" + number + "/init/pod" + otherUID + "/x",
			"kubepods/pod" + anyUID + "/" + number + "/init/pod" + otherUID + "/x", in},
		{"containerd without systemd, below its unit, version 2", "0::/system.slice/containerd.service/" + colon("burstable"), "system.slice/containerd.service/" + colon("burstable"), in},
		{"the same at the root", "0::/" + colon("besteffort"), colon("besteffort"), in},
		{"the same, guaranteed, a cgroup that the container made", "0::/" + colon("") + "/init", colon("") + "/init", in},
		{"the same, seen from a cgroup namespace", "0::/../../../system.slice/containerd.service/" + colon("burstable"), "system.slice/containerd.service/" + colon("burstable"), in},
		{"the same, version 1", "11:perf_event:/" + colon("besteffort") + "\n10:blkio:/system.slice/containerd.service/" + colon("besteffort"),
			"blkio/system.slice/containerd.service/" + colon("besteffort"), in},
		{"the same, version 1, at the root", "11:perf_event:/" + colon("besteffort") + "\n10:blkio:/system.slice/containerd.service/" + colon("besteffort"),
			"perf_event/" + colon("besteffort"), in},
		{"the same, a static pod's", "0::/system.slice/containerd.service/kubepods-burstable-pod" + staticUID + ".slice:cri-containerd:" + number,
			"system.slice/containerd.service/kubepods-burstable-pod" + staticUID + ".slice:cri-containerd:" + number, ID{staticUID, number}},
		{"the same, another runtime and a root of the kubelet's own", "0::/my_root-kubepods-pod" + underscore + ".slice:my_runtime.v2:" + number,
			"my_root-kubepods-pod" + underscore + ".slice:my_runtime.v2:" + number, in},
		{"a root of the kubelet's with a dash", "0::/my_root.slice/my_root-kubepods.slice/my_root-kubepods-burstable.slice/my_root-kubepods-burstable-pod" + underscore + ".slice/cri-containerd-" + number + ".scope",
			"my_root.slice/my_root-kubepods.slice/my_root-kubepods-burstable.slice/my_root-kubepods-burstable-pod" + underscore + ".slice/cri-containerd-" + number + ".scope", in},
		{"a runtime's prefix with other signs", "0::/kubepods.slice/kubepods-pod" + underscore + ".slice/kata_v2.x-" + number + ".scope",
			"kubepods.slice/kubepods-pod" + underscore + ".slice/kata_v2.x-" + number + ".scope", in},
		{"docker without systemd", "0::/system.slice:docker:" + number, "system.slice:docker:" + number, ID{}},
		{"on the host", "0::/system.slice/postgresql@15-main.service", "system.slice/postgresql@15-main.service", ID{}},
		{"no UID", "0::/kubepods/podman/x", "kubepods/podman/x", ID{}},
		{"docker", "0::/system.slice/docker-" + number + ".scope", "system.slice/docker-" + number + ".scope", ID{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			tr := newTree(t)
			if strings.HasPrefix(c.lines, "0::") {
				tr.write("1/root/sys/fs/cgroup/cgroup.controllers", "")
			}
			tr.write("7/cgroup", c.lines+"\n")
			tr.cgroup(c.group, 70, 7)
			got, err := cgroups{procfs: tr.proc}.of(7)
			if got != c.want || err != nil {
				t.Errorf("%+v, %v; want %+v", got, err, c.want)
			}
			if named := NewWalk(tr.proc).Named(7); named != (c.want != ID{}) || NewWalk(tr.proc).Named(8) {
				t.Errorf("called as a pod's: %v", named)
			}
		})
	}
}

// Names of cgroups prove nothing. A process in none of the kubelet's cgroups is in no pod, with any name of its own
// cgroups.
func TestFakePods(t *testing.T) {
	fake := "kubepods.slice/kubepods-pod" + underscore + ".slice/cri-containerd-" + number + ".scope"
	for _, c := range []struct {
		name string
		line string
		make func(tr tree)
	}{
		{"not there", "0::/" + fake, func(tree) {}},
		{"the process is not in it", "0::/" + fake, func(tr tree) { tr.cgroup(fake, 70, 77) }},
		{"below a user's own", "0::/user.slice/user-1000.slice/user@1000.service/" + fake, func(tr tree) {
			tr.cgroup("user.slice/user-1000.slice/user@1000.service/"+fake, 7)
			tr.chown("user.slice/user-1000.slice/user@1000.service", "")
		}},
		{"a user's own", "0::/" + fake, func(tr tree) {
			tr.cgroup(fake, 7)
			tr.chown("kubepods.slice", "/kubepods-pod"+underscore+".slice")
		}},
		{"a container of the user's own in a real pod, version 1", "5:pids:/kubepods/pod" + anyUID + "/" + number, func(tr tree) {
			tr.cgroup("pids/kubepods/pod"+anyUID+"/"+number, 7)
			tr.chown("pids/kubepods/pod"+anyUID, "/"+number)
		}},
		{"that everybody may write", "0::/" + fake, func(tr tree) {
			tr.cgroup(fake, 7)
			if err := os.Chmod(filepath.Join(tr.proc, "1/root/sys/fs/cgroup/kubepods.slice"), 0o777); err != nil {
				tr.t.Fatal(err)
			}
		}},
		{"the agent in a cgroup namespace, the real pod elsewhere", "0::/../../../user.slice/user-1000.slice/" + fake, func(tr tree) {
			tr.cgroup("user.slice/user-1000.slice/"+fake, 7)
			tr.chown("user.slice", "/user-1000.slice")
			tr.cgroup("kubepods.slice/kubepods-pod"+underscore+".slice/cri-containerd-"+number+".scope", 70)
		}},
		{"containerd without systemd, not there", "0::/" + colon("burstable"), func(tree) {}},
		{"the same below a user's own", "0::/user.slice/" + colon("burstable"), func(tr tree) {
			tr.cgroup("user.slice/"+colon("burstable"), 7)
			tr.chown("user.slice", "")
		}},
		{"the same, a user's own on version 1", "5:pids:/system.slice/" + colon("burstable"), func(tr tree) {
			tr.cgroup("pids/system.slice/"+colon("burstable"), 7)
			tr.chown("pids/system.slice", "/"+colon("burstable"))
		}},
		{"a way up", "5:../../../../7:/" + fake, func(tr tree) { tr.cgroup(fake, 7) }},
		{"a link", "0::/" + fake, func(tr tree) {
			tr.cgroup("mine/"+fake, 7)
			if err := os.Symlink("mine/kubepods.slice", filepath.Join(tr.proc, "1/root/sys/fs/cgroup/kubepods.slice")); err != nil {
				tr.t.Fatal(err)
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			testkit.NeedRoot(t) // to give cgroups away
			tr := newTree(t)
			tr.write("1/root/sys/fs/cgroup/cgroup.controllers", "")
			tr.write("7/cgroup", c.line+"\n")
			c.make(tr)
			got, err := cgroups{procfs: tr.proc}.of(7)
			if got != (ID{}) || !errors.Is(err, ErrUntrusted) {
				t.Errorf("%+v, %v; want none, and that it is not trusted", got, err)
			}
		})
	}
}

// A container with a user namespace of its own; the runtime has given it its cgroup.
func TestPodWithUserNamespace(t *testing.T) {
	testkit.NeedRoot(t)
	tr := newTree(t)
	tr.write("1/root/sys/fs/cgroup/cgroup.controllers", "")
	group := "kubepods.slice/kubepods-pod" + underscore + ".slice/cri-containerd-" + number + ".scope"
	tr.write("7/cgroup", "0::/"+group+"\n")
	tr.cgroup(group, 7)
	tr.chown(filepath.Dir(group), "/"+filepath.Base(group))
	tr.write("8/cgroup", "0::/system.slice/containerd.service/"+colon("burstable")+"\n")
	tr.cgroup("system.slice/containerd.service/"+colon("burstable"), 8)
	tr.chown("system.slice/containerd.service", "/"+colon("burstable"))
	for _, pid := range []int{7, 8} {
		if got, err := (cgroups{procfs: tr.proc}).of(pid); got != (ID{anyUID, number}) || err != nil {
			t.Errorf("process %d: %+v, %v", pid, got, err)
		}
	}
}

// chown gives a cgroup, and all below it, to a user.
func (tr tree) chown(path, below string) {
	tr.t.Helper()
	err := filepath.Walk(filepath.Join(tr.proc, "1/root/sys/fs/cgroup", path+below), func(p string, _ os.FileInfo, err error) error {
		return errors.Join(err, os.Chown(p, 1000, 1000))
	})
	if err != nil {
		tr.t.Fatal(err)
	}
}

// TestRealCgroups has the kernel's own: a pod's as the kubelet makes it, and one of the same name that belongs to a
// user.
func TestRealCgroups(t *testing.T) {
	testkit.NeedRoot(t)
	base := ""
	for _, root := range []string{"/sys/fs/cgroup/pids", "/sys/fs/cgroup"} {
		if _, err := os.Stat(filepath.Join(root, "cgroup.procs")); err == nil {
			base = root
			break
		}
	}
	if base == "" {
		testkit.Skip(t, "no cgroups")
	}
	top := fmt.Sprintf("plumbline-test-%d", os.Getpid())
	for _, c := range []struct {
		name string
		user int
		want ID
	}{{"the kubelet's", 0, ID{anyUID, number}}, {"a user's", 1000, ID{}}} {
		testRealCgroups(t, base, c.name, c.user, c.want, []string{top, top + "/kubepods", top + "/kubepods/pod" + anyUID, top + "/kubepods/pod" + anyUID + "/" + number})
		testRealCgroups(t, base, c.name+", containerd without systemd", c.user, c.want, []string{top, top + "/containerd.service", top + "/containerd.service/" + colon("burstable")})
	}
}

// testRealCgroups has a process in the last of these cgroups; the second is a user's.
func testRealCgroups(t *testing.T, base, name string, user int, want ID, ways []string) {
	t.Run(name, func(t *testing.T) {
		cmd := exec.Command("sleep", "600")
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			cmd.Process.Kill()
			cmd.Wait()
			for i := len(ways) - 1; i >= 0; i-- {
				if err := os.Remove(filepath.Join(base, ways[i])); err != nil {
					t.Error(err)
				}
			}
		})
		for _, way := range ways {
			if err := os.Mkdir(filepath.Join(base, way), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		if user != 0 {
			if err := os.Chown(filepath.Join(base, ways[1]), user, user); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.WriteFile(filepath.Join(base, ways[len(ways)-1], "cgroup.procs"), fmt.Append(nil, cmd.Process.Pid), 0o644); err != nil {
			t.Fatal(err)
		}
		got, err := cgroups{procfs: "/proc"}.of(cmd.Process.Pid)
		if got != want || errors.Is(err, ErrUntrusted) != (user != 0) {
			t.Errorf("%+v, %v; want %+v", got, err, want)
		}
	})
}
