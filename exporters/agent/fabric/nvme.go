package fabric

import (
	"fmt"

	"github.com/plumbline/plumbline/exporters/agent/bpf/dispatcher"
	bpf "github.com/plumbline/plumbline/exporters/agent/bpf/fabric"
	"github.com/plumbline/plumbline/exporters/agent/collector"
	"github.com/plumbline/plumbline/exporters/agent/remote"
)

// nvmeWire is NVMe over Fabrics. The programs of each side are by the tracepoint of the kernel's module. The second of
// each comes first, so that of what is seen to begin the end is seen, too.
var nvmeWire = fabricWire{
	name: "nvme", title: "NVMe over Fabrics",
	load: bpf.LoadNvme,
	initiator: []fabricProgram{
		{bpf.NvmeProgNvmeRequestEnds, "nvme_complete_rq"},
		{bpf.NvmeProgNvmeRequestBegins, "nvme_setup_cmd"},
	},
	target: []fabricProgram{
		{bpf.NvmeProgNvmeServiceEnds, "nvmet_req_complete"},
		{bpf.NvmeProgNvmeServiceBegins, "nvmet_req_init"},
	},
	initiatorModule: "nvme_fabrics", targetModule: "nvmet",
	read: remote.ReadNVMe, serving: remote.ServingNVMe,
	export: func(key *bpf.ExportKey, e *bpf.Export, p *fabricPeer) string {
		p.number = key.Namespace
		return remote.Address(collector.Text(e.Address[:]), collector.Text(e.Service[:]), "loop")
	},
	backing: func(procfs, sysfs string, p *fabricPeer) remote.Backing {
		return remote.NVMeBacking(procfs, sysfs, p.subsystem, p.number)
	},
	userTarget: &fabricUserTarget{
		names:    nvmeUserTargets,
		load:     bpf.LoadNvmeTarget,
		follower: dispatcher.DispatcherFollowerFOLLOWS_NVME,
	},
}

// nvmeUserTargets are the names of targets in user space that are known, all SPDK's: Mayastor's io-engine, Longhorn's
// second engine (spdk_tgt), the target alone. SPDK calls its first thread reactor_ and the number of its CPU, and so
// the process.
var nvmeUserTargets = []string{"io-engine", "spdk_tgt", "nvmf_tgt", "reactor_*"}

// NewNVMe returns the collector of volumes over NVMe over Fabrics, for the kernel's initiator and target, and for
// targets in user space.
func NewNVMe(o collector.Options, own Options) (collector.Collector, error) {
	names, err := remote.NVMe(own.Names...)
	if err != nil {
		return nil, fmt.Errorf("--nvme.name: %w", err)
	}
	wire, err := nvmeWire.withUserTargets(own.UserTargets)
	if err != nil {
		return nil, err
	}
	return newFabric(o, wire, names), nil
}
