package pod

import (
	"fmt"
	"testing"
)

// All of a pod is one owner, whatever cgroups are made in it, and so is a container outside of pods. A cgroup elsewhere by a pod's name is another one.
func TestOwner(t *testing.T) {
	tr := newTree(t)
	pod := "/kubepods.slice/kubepods-pod" + underscore + ".slice"
	docker := "/system.slice/docker-" + number + ".scope"
	for i, c := range []struct {
		one, two string
		same     bool
	}{
		{"0::" + pod + "/crio-" + number + ".scope", "0::" + pod + "/other", true},
		{"0::" + pod, "0::" + pod + "/x/pod" + otherUID + "/y", true},
		{"0::" + pod, "0::/user.slice/user-1000.slice" + pod, false},
		{"0::" + pod, "0::/kubepods.slice/kubepods-pod" + otherUID + ".slice", false},
		{"0::" + docker, "0::" + docker + "/mine/yours", true},
		{"12:pids:/docker/" + number + "\n0::/", "12:pids:/docker/" + number + "/x\n0::/", true},
		{"0::/system.slice/a.service", "0::/system.slice/b.service", false},
		{"0::/system.slice/a.service", "0::/system.slice/a.service", true},
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
