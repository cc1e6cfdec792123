package main

import (
	"github.com/plumbline/plumbline/exporters/agent/collector"
	"github.com/plumbline/plumbline/exporters/agent/disk"
	"github.com/plumbline/plumbline/exporters/agent/fabric"
	"github.com/plumbline/plumbline/exporters/agent/query"
	"github.com/plumbline/plumbline/exporters/agent/replica"
	"github.com/plumbline/plumbline/exporters/agent/tracer"
)

// settings are what the collectors are given: the options that all share, and each one's own.
type settings struct {
	collector.Options
	query       query.Options
	nvme, iscsi fabric.Options
	disk        disk.Options
	trace       tracer.Options
}

// entry is a collector that the agent knows.
type entry struct {
	name, help string
	byDefault  bool
	// make touches nothing outside before the collector's Start.
	make func(settings) (collector.Collector, error)
}

// collectors are all that the agent knows, in the order in which they start.
var collectors = []entry{
	// Before query and replica, whose programs write to its ring.
	{"trace", "Statements followed through the layers, one by one: which part of a commit is which layer's, and the slowest as pictures at /slowest. Needs the collector query; costs 1 us for each sleep and block request.", false,
		func(s settings) (collector.Collector, error) { return tracer.New(s.Options, s.trace) }},
	{"volume", "Which block device is which volume, claim and storage class.", true,
		func(s settings) (collector.Collector, error) { return disk.NewVolume(s.Options) }},
	{"device", "Which block devices have requests and complete none.", true,
		func(s settings) (collector.Collector, error) { return disk.NewDevice(s.Options) }},
	{"disk", "Who uses which disk: requests, bytes and time in the device by pod, replica and the kernel's own work.", true,
		func(s settings) (collector.Collector, error) { return disk.NewDisk(s.Options, s.disk) }},
	{"query", "How long database statements take and where their time goes.", true,
		func(s settings) (collector.Collector, error) { return query.New(s.Options, s.query) }},
	{"replica", "How long each replica of a volume takes, and what replication adds.", true,
		func(s settings) (collector.Collector, error) { return replica.New(s.Options) }},
	{"nvme", "How long volumes over NVMe over Fabrics take on each path, and where this node serves them.", true,
		func(s settings) (collector.Collector, error) { return fabric.NewNVMe(s.Options, s.nvme) }},
	{"iscsi", "How long volumes over iSCSI take in each session, and where this node serves them.", true,
		func(s settings) (collector.Collector, error) { return fabric.NewISCSI(s.Options, s.iscsi) }},
}
