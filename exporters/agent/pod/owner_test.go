package pod

import (
	"fmt"
	"strings"
	"testing"
)

// All processes of a pod are one owner, in any cgroups made in it, and so are those of a container, a service or a
// session outside of pods. A cgroup elsewhere with the name of a pod's is another one. On version 1 the pods of a node
// that is a container are owners of their own.
func TestOwner(t *testing.T) {
	tr := newTree(t)
	pod := "/kubepods.slice/kubepods-pod" + underscore + ".slice"
	docker := "/system.slice/docker-" + number + ".scope"
	node := "/docker/" + number
	for i, c := range []struct {
		one, two string
		same     bool
	}{
		{"0::" + pod + "/crio-" + number + ".scope", "0::" + pod + "/other", true},
		{"0::" + pod, "0::" + pod + "/x/pod" + otherUID + "/y", true},
		{"0::" + pod, "0::/user.slice/user-1000.slice" + pod, false},
		{"0::" + pod, "0::/kubepods.slice/kubepods-pod" + otherUID + ".slice", false},
		{"0::/system.slice/containerd.service/" + colon("burstable"), "0::/system.slice/containerd.service/" + strings.Replace(colon("burstable"), number, strings.Repeat("cd", 32), 1) + "/x", true},
		{"0::/system.slice/containerd.service/" + colon("burstable"), "0::/system.slice/containerd.service/" + strings.Replace(colon("burstable"), underscore, otherUID, 1), false},
		{"5:pids:/system.slice/containerd.service/" + colon("") + "\n4:cpu:/" + colon(""), "5:pids:/system.slice/containerd.service/" + colon("") + "/x\n4:cpu:/" + colon(""), true},
		{"0::/system.slice:docker:" + number, "0::/system.slice:docker:" + strings.Repeat("cd", 32), false},
		{"0::" + docker, "0::" + docker + "/mine/yours", true},
		{"12:pids:/docker/" + number + "\n0::/", "12:pids:/docker/" + number + "/x\n0::/", true},
		{"0::/system.slice/a.service", "0::/system.slice/b.service", false},
		{"0::/system.slice/a.service", "0::/system.slice/a.service", true},
		{"0::/system.slice/a.service/one", "0::/system.slice/a.service/two.service", true},
		{"0::/user.slice/user-0.slice/session-1.scope/one", "0::/user.slice/user-0.slice/session-1.scope/two", true},
		{"0::/lxc.payload.a/one.service", "0::/lxc.payload.a/two", true},
		{"0::/lxc.payload.a/one.service", "0::/lxc.payload.b/one.service", false},
		{"5:pids:/a.service/one\n1:name=systemd:/c.service", "5:pids:/a.service/two\n1:name=systemd:/d.service", false},
		{"12:pids:" + node + "/kubepods/pod" + anyUID + "/x", "12:pids:" + node + "/kubepods/pod" + otherUID + "/x", false},
		{"12:pids:" + node + pod, "12:pids:" + node + pod + "/kubepods/pod" + otherUID, true},
		{"12:pids:" + node + "/pod" + anyUID, "12:pids:" + node + "/pod" + otherUID, true},
		{"0::" + node + "/kubepods/pod" + anyUID, "0::" + node + "/kubepods/pod" + otherUID, true},
	} {
		one, two := 2*i+1, 2*i+2
		tr.write(fmt.Sprint(one, "/cgroup"), c.one+"\n")
		tr.write(fmt.Sprint(two, "/cgroup"), c.two+"\n")
		a, b := Owner(tr.proc, one), Owner(tr.proc, two)
		if a == "" || (a == b) != c.same {
			t.Errorf("%q is of %q, %q of %q", c.one, a, c.two, b)
		}
	}
	if Owner(tr.proc, 1000) == "" {
		t.Error("a process that has ended has the agent's own calls")
	}
}
