package fabric

import (
	"fmt"

	"github.com/plumbline/plumbline/exporters/agent/bpf/dispatcher"
	bpf "github.com/plumbline/plumbline/exporters/agent/bpf/fabric"
	"github.com/plumbline/plumbline/exporters/agent/collector"
	"github.com/plumbline/plumbline/exporters/agent/remote"
)

// iscsiWire is iSCSI. What ends comes before what begins, as with NVMe.
var iscsiWire = fabricWire{
	name: "iscsi", title: "iSCSI",
	load: bpf.LoadIscsi,
	initiator: []fabricProgram{
		{bpf.IscsiProgIscsiRequestEnds, "scsi_dispatch_cmd_done"},
		{bpf.IscsiProgIscsiRequestRefused, "scsi_dispatch_cmd_error"},
		{bpf.IscsiProgIscsiRequestLate, "scsi_dispatch_cmd_timeout"},
		{bpf.IscsiProgIscsiRequestBegins, "scsi_dispatch_cmd_start"},
	},
	target: []fabricProgram{
		{bpf.IscsiProgIscsiServiceEnds, "target_cmd_complete"},
		{bpf.IscsiProgIscsiServiceBegins, "target_sequencer_start"},
	},
	initiatorModule: "scsi_transport_iscsi", targetModule: "iscsi_target_mod",
	read: remote.ReadISCSI, serving: remote.ServingISCSI,
	export: func(_ *bpf.ExportKey, e *bpf.Export, p *fabricPeer) string {
		p.group, p.number = collector.Text(e.Service[:]), e.Inner
		return remote.SocketAddress(collector.Raw(e.Address[:]))
	},
	backing: func(procfs, sysfs string, p *fabricPeer) remote.Backing {
		return remote.ISCSIBacking(procfs, sysfs, p.subsystem, p.group, p.number)
	},
	aborts: true,
	userTarget: &fabricUserTarget{
		names:    iscsiUserTargets,
		load:     bpf.LoadIscsiTarget,
		follower: dispatcher.DispatcherFollowerFOLLOWS_ISCSI,
	},
}

// iscsiUserTargets are the names of targets in user space that are known: tgt (Longhorn V1 has one), istgt
// (cStor's is one), gotgt, which Jiva's controller has in it.
var iscsiUserTargets = []string{"tgtd", "istgt", "gotgt", "jiva"}

// NewISCSI returns the collector of volumes over iSCSI, for the kernel's initiator and target, and for targets in user
// space.
func NewISCSI(o collector.Options, own Options) (collector.Collector, error) {
	names, err := remote.ISCSI(own.Names...)
	if err != nil {
		return nil, fmt.Errorf("--iscsi.name: %w", err)
	}
	wire, err := iscsiWire.withUserTargets(own.UserTargets)
	if err != nil {
		return nil, err
	}
	return newFabric(o, wire, names), nil
}
