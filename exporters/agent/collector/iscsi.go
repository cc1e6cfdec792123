package collector

import (
	"fmt"

	"github.com/plumbline/plumbline/exporters/agent/bpf/dispatcher"
	"github.com/plumbline/plumbline/exporters/agent/bpf/fabric"
	"github.com/plumbline/plumbline/exporters/agent/remote"
)

// iscsiWire is iSCSI. What ends comes before what begins, as with NVMe.
var iscsiWire = fabricWire{
	name: "iscsi", title: "iSCSI",
	load: fabric.LoadIscsi,
	initiator: []fabricProgram{
		{fabric.IscsiProgIscsiRequestEnds, "scsi_dispatch_cmd_done"},
		{fabric.IscsiProgIscsiRequestRefused, "scsi_dispatch_cmd_error"},
		{fabric.IscsiProgIscsiRequestLate, "scsi_dispatch_cmd_timeout"},
		{fabric.IscsiProgIscsiRequestBegins, "scsi_dispatch_cmd_start"},
	},
	target: []fabricProgram{
		{fabric.IscsiProgIscsiServiceEnds, "target_cmd_complete"},
		{fabric.IscsiProgIscsiServiceBegins, "target_sequencer_start"},
	},
	initiatorModule: "scsi_transport_iscsi", targetModule: "iscsi_target_mod",
	read: remote.ReadISCSI, serving: remote.ServingISCSI,
	export: func(_ *fabric.ExportKey, e *fabric.Export, p *fabricPeer) string {
		p.group, p.number = text(e.Service[:]), e.Inner
		return remote.SocketAddress(raw(e.Address[:]))
	},
	backing: func(procfs, sysfs string, p *fabricPeer) remote.Backing {
		return remote.ISCSIBacking(procfs, sysfs, p.subsystem, p.group, p.number)
	},
	aborts: true,
	server: &fabricServer{
		names:    iscsiServers,
		load:     fabric.LoadIscsiServer,
		follower: dispatcher.DispatcherFollowerFOLLOWS_ISCSI,
	},
}

// iscsiServers are the names of targets in user space that are known: tgt (Longhorn's first engine has one), istgt
// (cStor's is one), gotgt, which Jiva's controller has in it.
var iscsiServers = []string{"tgtd", "istgt", "gotgt", "jiva"}

// NewISCSI returns the collector of volumes over iSCSI, for the kernel's initiator and target, and for targets in user
// space.
func NewISCSI(o Options) (Collector, error) {
	names, err := remote.ISCSI(o.ISCSI.Names...)
	if err != nil {
		return nil, fmt.Errorf("--iscsi.name: %w", err)
	}
	wire, err := iscsiWire.withServers(o.ISCSI.Servers)
	if err != nil {
		return nil, err
	}
	return newFabric(o, wire, names), nil
}
