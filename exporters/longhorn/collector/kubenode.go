package collector

import (
	"context"
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/plumbline/plumbline/exporters/exporterkit"
	"github.com/plumbline/plumbline/exporters/exporterkit/disk"
)

// Metrics of the collector node, from the objects nodes.longhorn.io and
// instancemanagers.longhorn.io (v1beta2, Longhorn 1.8 to 1.12). Sizes and conditions of nodes and disks are
// longhorn-manager's (longhorn_node_*, longhorn_disk_*); this is what they lack.
var (
	diskInfo = prometheus.NewDesc("plumbline_longhorn_disk_info",
		"A disk Longhorn uses: its path, its type (filesystem or block), and the kernel's name for it where the exporter runs on the node, else empty. Always 1.",
		[]string{"node", "disk", "path", "type", "device"}, nil)
	diskReplicas = prometheus.NewDesc("plumbline_longhorn_disk_scheduled_replicas",
		"Replicas scheduled to the disk.", []string{"node", "disk"}, nil)
	managerRunning = prometheus.NewDesc("plumbline_longhorn_instance_manager_running",
		"Whether the instance manager, which runs the node's engines and replicas, is running: 1 yes, 0 no, or its node is gone or not ready.",
		[]string{"node", "instance_manager", "data_engine"}, nil)
)

type nodes struct {
	o        Options
	disks    *disk.Finder
	untraced *disk.Untraced
}

// NewNodes makes the collector of nodes, disks and instance managers.
func NewNodes(o Options) Collector { return &nodes{o, o.finder(), disk.NewUntraced(o.Log, "node")} }

func (c *nodes) Update(ch chan<- prometheus.Metric) error {
	objects := all[*nodeObject](c.o.Cluster, "nodes")
	for node, o := range objects {
		for name, s := range o.Status.DiskStatus {
			device := ""
			if node == c.o.Node && isFolder(s.DiskPath) {
				found, err := c.disks.Find(s.DiskPath)
				if errors.Is(err, disk.ErrPending) {
					continue
				}
				c.untraced.Note(s.DiskPath, err)
				device = found
			}
			exporterkit.Gauge(ch, diskInfo, 1, node, name, s.DiskPath, s.DiskType, device)
			exporterkit.Gauge(ch, diskReplicas, float64(len(s.ScheduledReplica)), node, name)
		}
	}
	c.untraced.Send(ch)
	away := c.o.Cluster.away()
	for name, m := range all[*managerObject](c.o.Cluster, "instancemanagers") {
		exporterkit.Gauge(ch, managerRunning, truth(m.Status.CurrentState == "running" && !away(m.Spec.NodeID)),
			m.Spec.NodeID, name, m.Spec.engine())
	}
	return c.o.Cluster.outcome(len(objects), []string{"nodes", "instancemanagers"})
}

func (c *nodes) Check(context.Context) []exporterkit.CheckResult { return nil }
