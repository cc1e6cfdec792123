package collector

import (
	"fmt"
	"testing"
	"time"

	"github.com/plumbline/plumbline/tests/testkit"
)

// On a node that is itself a container, the agent's process ids are not the machine's.
func TestReplicaInPIDNamespace(t *testing.T) {
	testkit.NeedBPF(t)
	v := newTestVolume(t, 0)
	holder := startProcess(t, v.dir, testkit.Tool(t, "unshare"), "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "sleep", "infinity")
	v.procfs = fmt.Sprintf("/proc/%d/root/proc", holder.pid())
	own, err := shownNamespace("/proc")
	if err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, 30*time.Second, func() error {
		inner, err := shownNamespace(v.procfs)
		if err == nil && inner == own {
			err = fmt.Errorf("%s still shows the namespace of this test", v.procfs)
		}
		return err
	})
	v.within = []string{testkit.Tool(t, "nsenter"), fmt.Sprintf("--pid=/proc/%d/ns/pid_for_children", holder.pid())}
	v.addReplica()
	m := startReplicaCollector(t, v) // finds this one by its scan, the others by the kernel's notice
	v.addReplica()
	v.start()
	m.followed(3)
	v.exact(m, 500, v.addresses...)
	v.replicas[1].process.kill()
	m.followed(2)
	v.exact(m, 200, v.addresses[0])
	m.read().clean(t)
}
