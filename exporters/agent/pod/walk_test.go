package pod

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// Of a container's processes the first alone is proven, and a hierarchy is walked once for all pods.
func TestWalk(t *testing.T) {
	tr := newTree(t)
	tr.write("1/root/sys/fs/cgroup/cgroup.controllers", "")
	group := func(uid, number string) string {
		return "kubepods-pod" + strings.ReplaceAll(uid, "-", "_") + ".slice/crio-" + number + ".scope"
	}
	process := func(pid int, group string) {
		tr.write(fmt.Sprint(pid, "/cgroup"), "0::/../../"+group+"\n")
	}
	one, two, late := group(anyUID, number), group(anyUID, strings.Repeat("cd", 32)), group(otherUID, number)
	process(7, one)
	process(8, one+"/x") // not listed anywhere
	process(9, two)
	process(10, late)
	process(11, "system.slice/x.service")
	tr.cgroup("kubepods.slice/"+one, 7)
	tr.cgroup("kubepods.slice/"+two, 9)
	w := NewWalk(tr.proc)
	for _, c := range []struct {
		pid  int
		want bool
	}{{7, true}, {8, false}, {7, false}, {9, true}, {9, false}, {11, false}, {12, false}} {
		if first, err := w.First(c.pid); first != c.want || err != nil {
			t.Errorf("process %d is the first: %v, %v", c.pid, first, err)
		}
	}
	tr.cgroup("kubepods.slice/"+late, 10)
	if first, err := w.First(10); first || !errors.Is(err, ErrUntrusted) {
		t.Errorf("a pod that came since: %v, %v; the hierarchy was walked again", first, err)
	}
	if first, err := NewWalk(tr.proc).First(10); !first || err != nil {
		t.Errorf("the same, at the next scan: %v, %v", first, err)
	}
}
