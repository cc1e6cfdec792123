package replica

import (
	bpf "github.com/plumbline/plumbline/exporters/agent/bpf/replica"
	"github.com/plumbline/plumbline/exporters/agent/collector"
)

// sockets returns the stream sockets of followed processes; none of one that has ended.
func (k *replicaKernel) sockets(pids []int) ([]bpf.SocketState, error) {
	return collector.SocketsOf[bpf.SocketState](k.collection.Programs["replica_sockets"], pids, k.otherNamespace)
}
