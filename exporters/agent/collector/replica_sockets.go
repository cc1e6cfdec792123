package collector

import (
	"github.com/plumbline/plumbline/exporters/agent/bpf/replica"
)

// sockets returns the stream sockets of followed processes; none of one that has ended.
func (k *replicaKernel) sockets(pids []int) ([]replica.SocketState, error) {
	return socketsOf[replica.SocketState](k.collection.Programs["replica_sockets"], pids, k.otherNamespace)
}
