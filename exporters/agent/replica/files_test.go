package replica

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	bpf "github.com/plumbline/plumbline/exporters/agent/bpf/replica"
	"github.com/plumbline/plumbline/exporters/agent/collector/collectortest"
	"github.com/plumbline/plumbline/exporters/agent/untrusted"
	"github.com/plumbline/plumbline/tests/testkit"
)

// On each file system that the kernel has, the disk of a replica's folder is found.
func TestReplicaOnRealFileSystems(t *testing.T) {
	testkit.NeedRoot(t)
	for _, files := range collectortest.FileSystems(t) {
		t.Run(files.Name, func(t *testing.T) {
			folder, want, _ := files.Mount(t, t.TempDir())
			data := filepath.Join(folder, "replica")
			if err := os.Mkdir(data, 0o755); err != nil {
				t.Fatal(err)
			}
			o := collectortest.Here()
			// In the host's mount namespace and, as in a container, in one of its own, where each mount has another number.
			for where, flags := range map[string]uintptr{"the host's": 0, "its own": syscall.CLONE_NEWNS} {
				pid := collectortest.IdleIn(t, data, flags)
				f := &replicaFollower{options: o, disks: o.SharedCalls()}
				got, err := f.place(&followedProcess{pid: pid, replicaProcess: replicaProcess{Role: bpf.Replica, Directory: data}}, untrusted.Owner{})
				f.byPID = map[int]*followedProcess{pid: {pid: pid, replicaProcess: replicaProcess{Role: bpf.Replica}, device: got, placed: true}}
				if n := f.withoutDevice(); (n == 1) != (want == "") {
					t.Errorf("%d replicas are counted whose disk is not known, and it is %q", n, want)
				}
				if got != want || err != nil {
					t.Errorf("in %s namespace a replica's folder is on %q, %v; want %q", where, got, err, want)
				}
			}
		})
	}
}
