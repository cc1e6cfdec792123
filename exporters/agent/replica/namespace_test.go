package replica

import (
	"fmt"
	"testing"

	"github.com/plumbline/plumbline/exporters/agent/collector"
	"github.com/plumbline/plumbline/tests/rig"
	"github.com/plumbline/plumbline/tests/testkit"
)

// On a node that is itself a container, the agent's process ids are not the machine's.
func TestReplicaInPIDNamespace(t *testing.T) {
	testkit.NeedBPF(t)
	v := newTestVolume(t, 0)
	holder := rig.StartProcess(t, v.Dir, testkit.Tool(t, "unshare"), "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "sleep", "infinity")
	v.ProcFS = fmt.Sprintf("/proc/%d/root/proc", holder.PID())
	own, err := collector.ShownNamespace("/proc")
	if err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, testkit.DefaultTimeout, func() error {
		inner, err := collector.ShownNamespace(v.ProcFS)
		if err == nil && inner == own {
			err = fmt.Errorf("%s still shows the namespace of this test", v.ProcFS)
		}
		return err
	})
	v.Within = []string{testkit.Tool(t, "nsenter"), fmt.Sprintf("--pid=/proc/%d/ns/pid_for_children", holder.PID())}
	v.AddReplica()
	m := startReplicaCollector(t, v) // finds this one by its scan, the others by the kernel's process event
	v.AddReplica()
	v.Start()
	m.Followed(3)
	v.exact(m, 500, v.Addresses...)
	// Their sockets are sampled, too: the frontend's, and two of each replica from both ends.
	f := m.collector.wires[0]
	testkit.Eventually(t, testkit.DefaultTimeout, func() error {
		f.mu.Lock()
		defer f.mu.Unlock()
		if len(f.sockets) != 9 {
			return fmt.Errorf("%d sockets are watched, want 9", len(f.sockets))
		}
		return nil
	})
	v.Replicas[1].Process.Kill()
	m.Followed(2)
	v.exact(m, 200, v.Addresses[0])
	m.Read().Clean(t)
}
