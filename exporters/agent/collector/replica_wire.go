package collector

import (
	"net/netip"

	"github.com/cilium/ebpf"

	"github.com/plumbline/plumbline/exporters/agent/bpf/replica"
)

// replicaWire is a protocol between a volume's engine and its replicas. A second one is one
// more of these and one more BPF object that includes track.h; nothing else changes.
type replicaWire struct {
	name string
	load func() (*ebpf.CollectionSpec, error)
	// recognise says what a process with this command line is to the wire; nil for nothing.
	recognise func(args []string, hostname func() string) (*replicaProcess, error)
	hooks     []replicaHook
	// dataPort is the port a replica takes data on, given its control port.
	dataPort func(control uint16) uint16
	// control is the address by which engines name a replica, given its data address.
	control func(data netip.AddrPort) netip.AddrPort
}

// replicaNeed says how long a program is attached: a node that has nothing to follow pays
// only for the programs that find something.
type replicaNeed int

const (
	always       replicaNeed = iota
	forProcesses             // while an engine or replica is followed
	forEngines               // while an engine is
	forLocal                 // while an engine is that talks to its replica on a unix socket
)

// replicaHook is a program and the kernel tracepoint it is for.
type replicaHook struct {
	program, tracepoint string
	need                replicaNeed
	// instead names the program this one replaces where the kernel lacks its tracepoint.
	instead string
	// optional is set if the collector works without it.
	optional bool
}

// dataconnWire is the wire of Longhorn V1 and Jiva.
func dataconnWire() replicaWire {
	return replicaWire{
		name:      "dataconn",
		load:      replica.LoadDataconn,
		recognise: dataconnProcess,
		hooks: []replicaHook{
			{program: replica.DataconnProgReplicaExec, tracepoint: "sched_process_exec"},
			{program: replica.DataconnProgReplicaExit, tracepoint: "sched_process_exit"},
			{program: replica.DataconnProgReplicaReceived, tracepoint: "sock_recv_length", need: forProcesses},
			{program: replica.DataconnProgReplicaSent, tracepoint: "sock_send_length", need: forProcesses},
			{program: replica.DataconnProgReplicaSending, tracepoint: "tcp_sendmsg_locked", need: forEngines, optional: true},
			{program: replica.DataconnProgReplicaSendingPacket, tracepoint: "net_dev_queue", need: forEngines, instead: replica.DataconnProgReplicaSending},
			{program: replica.DataconnProgReplicaSendingLocal, tracepoint: "sk_data_ready", need: forLocal},
		},
		// longhorn-engine pkg/util ParseAddresses: P control, P+1 data, P+2 sync agent.
		dataPort: func(control uint16) uint16 { return control + 1 },
		control: func(data netip.AddrPort) netip.AddrPort {
			return netip.AddrPortFrom(data.Addr(), data.Port()-1)
		},
	}
}
