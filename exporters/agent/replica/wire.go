package replica

import (
	"fmt"
	"net/netip"

	"github.com/cilium/ebpf"

	bpf "github.com/plumbline/plumbline/exporters/agent/bpf/replica"
	"github.com/plumbline/plumbline/exporters/agent/platform"
)

// replicaWire is a protocol between a volume's engine and its replicas. A second one is one
// more of these and one more BPF object that includes track.h; nothing else changes.
type replicaWire struct {
	name string
	load func() (*ebpf.CollectionSpec, error)
	// names are what the names of its programs begin with, as the kernel shows them; the
	// program replica_exec (processes.h) knows them, too.
	names []string
	// recognise returns what a process with this command line is to the wire; nil for nothing.
	recognise func(args []string, hostname func() string) (*replicaProcess, error)
	hooks     []replicaHook
	// dataPort is the port a replica takes data on, given its control port.
	dataPort func(control uint16) uint16
	// control is the address by which engines name a replica, given its data address.
	control func(data netip.AddrPort) netip.AddrPort
}

// replicaNeed is how long a program is attached: a node that has nothing to follow pays only for the programs that find
// something.
type replicaNeed int

const (
	always       replicaNeed = iota
	forProcesses             // while an engine or replica is followed
	forEngines               // while an engine is
	forLocal                 // while an engine is that talks to its replica on a unix socket
)

// replicaHook is a program and the kernel tracepoint it is for, or none.
type replicaHook struct {
	program, tracepoint string
	need                replicaNeed
	// by is the one way of watching sockets that it is for; empty for all.
	by platform.AttachMode
	// instead names the program this one replaces where the kernel lacks its tracepoint.
	instead string
	// optional is set if the collector works without it.
	optional bool
}

// dataconnWire is the wire of Longhorn V1 and Jiva.
func dataconnWire() replicaWire {
	return replicaWire{
		name:      "dataconn",
		load:      bpf.LoadDataconn,
		names:     []string{"longhorn", "jiva"},
		recognise: dataconnProcess,
		hooks: []replicaHook{
			{program: bpf.DataconnProgReplicaExec, tracepoint: "sched_process_exec"},
			{program: bpf.DataconnProgReplicaExit, tracepoint: "sched_process_exit"},

			{program: bpf.DataconnProgReplicaReceived, tracepoint: "sock_recv_length", need: forProcesses, by: platform.Tracepoints},
			{program: bpf.DataconnProgReplicaSent, tracepoint: "sock_send_length", need: forProcesses, by: platform.Tracepoints},
			{program: bpf.DataconnProgReplicaSending, tracepoint: "tcp_sendmsg_locked", need: forEngines, by: platform.Tracepoints, optional: true},
			{program: bpf.DataconnProgReplicaSendingLocal, tracepoint: "sk_data_ready", need: forLocal, by: platform.Tracepoints},

			{program: bpf.DataconnProgReplicaInetReceived, need: forProcesses, by: platform.Functions},
			{program: bpf.DataconnProgReplicaInet6Received, need: forProcesses, by: platform.Functions},
			{program: bpf.DataconnProgReplicaUnixReceived, need: forProcesses, by: platform.Functions},
			{program: bpf.DataconnProgReplicaInetSent, need: forProcesses, by: platform.Functions},
			{program: bpf.DataconnProgReplicaInet6Sent, need: forProcesses, by: platform.Functions},
			{program: bpf.DataconnProgReplicaUnixSent, need: forProcesses, by: platform.Functions},
			{program: bpf.DataconnProgReplicaUnixSending, need: forLocal, by: platform.Functions},

			// With soft interrupts disabled, so that no task is preempted within it.
			{program: bpf.DataconnProgReplicaSendingPacket, tracepoint: "net_dev_queue", need: forEngines, instead: bpf.DataconnProgReplicaSending},
		},
		// longhorn-engine pkg/util ParseAddresses: P control, P+1 data, P+2 sync agent.
		dataPort: func(control uint16) uint16 { return control + 1 },
		control: func(data netip.AddrPort) netip.AddrPort {
			return netip.AddrPortFrom(data.Addr(), data.Port()-1)
		},
	}
}

// hooksFor returns the hooks that a kernel needs, each in its place or in that of one it has not.
func (w replicaWire) hooksFor(k *platform.Kernel) ([]replicaHook, error) {
	var hooks []replicaHook
	has := map[string]bool{}
	for _, h := range w.hooks {
		switch missing := h.tracepoint != "" && len(k.Missing(h.tracepoint)) > 0; {
		case h.by != "" && h.by != k.AttachMode, h.instead != "" && has[h.instead], missing && h.optional:
		case missing:
			return nil, fmt.Errorf("the kernel has no tracepoint %s", h.tracepoint)
		default:
			has[h.program] = true
			hooks = append(hooks, h)
		}
	}
	return hooks, nil
}
