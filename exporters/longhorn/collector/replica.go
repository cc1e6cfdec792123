package collector

import (
	"context"
	"errors"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/plumbline/plumbline/exporters/exporterkit"
	"github.com/plumbline/plumbline/exporters/exporterkit/disk"
)

// Metrics of the collector replica, for Longhorn 1.8 to 1.12. They come from the replicas' own gRPC servers and sync
// agents (longhorn/types protobuf/ptypes/replica.proto, syncagent.proto); of a replica that
// does not answer only replica_up and its place remain.
var (
	replicaUp = prometheus.NewDesc("plumbline_longhorn_replica_up",
		"Whether the replica's process answered the last poll: 1 yes, 0 no. It can answer while the engine no longer uses it, and the other way round.", []string{"volume", "replica"}, nil)
	replicaRebuilding = prometheus.NewDesc("plumbline_longhorn_replica_rebuilding",
		"Whether the replica is being rebuilt from another one: 1 yes, 0 no.", []string{"volume", "replica"}, nil)
	replicaRebuildProgress = prometheus.NewDesc("plumbline_longhorn_replica_rebuild_progress_ratio",
		"How much of the replica's last or current rebuild is done, from 0 to 1, and the replica it reads from; absent if its process never was rebuilt.", []string{"volume", "replica", "source"}, nil)
	replicaRebuildFailed = prometheus.NewDesc("plumbline_longhorn_replica_rebuild_failed",
		"Whether the replica's last rebuild ended with an error: 1 yes, 0 no.", []string{"volume", "replica"}, nil)
	replicaHead = prometheus.NewDesc("plumbline_longhorn_replica_head_bytes",
		"Space the volume's head, what was written since the last snapshot, takes on the replica's disk, in bytes.", []string{"volume", "replica"}, nil)
	replicaSnapshots = prometheus.NewDesc("plumbline_longhorn_replica_snapshots",
		"Snapshots the replica holds.", []string{"volume", "replica"}, nil)
	replicaSnapshotBytes = prometheus.NewDesc("plumbline_longhorn_replica_snapshot_bytes",
		"Space the replica's snapshots take on its disk, in bytes.", []string{"volume", "replica"}, nil)
	replicaRevision = prometheus.NewDesc("plumbline_longhorn_replica_revision_counter",
		"The replica's count of writes, by which Longhorn decides which replica is newest; absent where it is disabled.", []string{"volume", "replica"}, nil)
	replicaSampledReads = prometheus.NewDesc("plumbline_longhorn_replica_sampled_reads_total",
		"V2 only: reads the engine sent to the replica, integrated from the rates the SPDK service publishes every 3 s.", []string{"volume", "replica"}, nil)
	replicaSampledWrites = prometheus.NewDesc("plumbline_longhorn_replica_sampled_writes_total",
		"V2 only: writes the engine sent to the replica, integrated from the rates the SPDK service publishes every 3 s.", []string{"volume", "replica"}, nil)
	replicaSampledReadSeconds = prometheus.NewDesc("plumbline_longhorn_replica_sampled_read_seconds_total",
		"V2 only: time reads took from engine to replica and back, summed over them and integrated from rates, in seconds.", []string{"volume", "replica"}, nil)
	replicaSampledWriteSeconds = prometheus.NewDesc("plumbline_longhorn_replica_sampled_write_seconds_total",
		"V2 only: time writes took from engine to replica and back, summed over them and integrated from rates, in seconds.", []string{"volume", "replica"}, nil)
)

type replicas struct {
	o        Options
	disks    *disk.Finder
	untraced *disk.Untraced
}

// NewReplica makes the collector of what replicas report and where they are.
func NewReplica(o Options) Collector {
	return &replicas{o, o.finder(), disk.NewUntraced(o.Log, "replica")}
}

func (c *replicas) Update(ch chan<- prometheus.Metric) error {
	volumes := c.o.Fleet.list()
	places := c.placesOfTargets(volumes)
	if c.o.Cluster != nil {
		// On a cluster a replica has a place whether its volume is attached or not.
		places = c.o.Cluster.places()
	}
	for _, p := range places {
		if p.device == "" && isFolder(p.directory) && p.node == c.o.Node {
			found, err := c.disks.Find(p.directory)
			if errors.Is(err, disk.ErrPending) {
				continue // it has no series before its disk is known, or known to be unknown
			}
			c.untraced.Note(p.directory, err)
			p.device = found
		}
		exporterkit.Gauge(ch, exporterkit.ReplicaInfo, 1,
			p.volume, p.replica, p.node, p.device, p.address, p.backend)
	}
	c.untraced.Send(ch)
	for _, v := range volumes {
		for _, r := range v.replicas() {
			r.collect(ch)
		}
	}
	return c.o.Cluster.outcome(len(places), []string{"replicas"})
}

// isFolder reports whether a disk of Longhorn's is a folder. Disks of the second engine are whole devices, named by
// their file or their bus address. Its SPDK uses them exclusively: no block device has a file system of theirs.
func isFolder(path string) bool {
	return strings.HasPrefix(path, "/") && !strings.HasPrefix(path, "/dev/")
}

// place is where a replica is.
type place struct {
	volume, replica, node, device, directory, address, backend string
}

// placesOfTargets are the places of the replicas that a targets file lists, and of those that only an engine lists: of
// these just the address is known.
func (c *replicas) placesOfTargets(volumes []*volume) []place {
	var places []place
	for _, v := range volumes {
		for _, r := range v.replicas() {
			p := place{volume: v.target.Volume, replica: r.name, address: r.address, backend: v.target.Backend}
			for _, t := range v.target.Replicas {
				if t.Address == r.address {
					p.node, p.device, p.directory = t.Node, t.Device, t.Directory
					if p.node == "" {
						p.node = c.o.Node
					}
				}
			}
			places = append(places, p)
		}
	}
	return places
}

func (r *replica) collect(ch chan<- prometheus.Metric) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.known {
		return
	}
	gauge := func(d *prometheus.Desc, value float64, labels ...string) {
		exporterkit.Gauge(ch, d, value, append([]string{r.volume.target.Volume, r.name}, labels...)...)
	}
	counter := func(d *prometheus.Desc, value float64) {
		exporterkit.Counter(ch, d, value, r.volume.target.Volume, r.name)
	}
	gauge(replicaUp, truth(r.seen.up))
	if r.seen.rebuild != nil {
		gauge(replicaRebuilding, truth(r.seen.rebuilding))
		gauge(replicaRebuildFailed, truth(r.seen.rebuild.Error != ""))
		if r.seen.rebuild.State != "" {
			source := bareAddress(r.seen.rebuild.FromReplicaAddress)
			if name := r.volume.nameAt(source); name != "" {
				source = name
			}
			gauge(replicaRebuildProgress, rebuildDone(r.seen.rebuild), source)
		}
	}
	if r.seen.disks != nil {
		gauge(replicaHead, r.seen.disks.head)
		gauge(replicaSnapshots, float64(r.seen.disks.snapshots))
		gauge(replicaSnapshotBytes, r.seen.disks.snapshotBytes)
	}
	if r.seen.revision != nil {
		gauge(replicaRevision, float64(*r.seen.revision))
	}
	if s := r.seen.sampled; s != nil {
		counter(replicaSampledReads, s.reads)
		counter(replicaSampledWrites, s.writes)
		counter(replicaSampledReadSeconds, s.readSeconds)
		counter(replicaSampledWriteSeconds, s.writtenSeconds)
	}
}

func (c *replicas) Check(ctx context.Context) []exporterkit.CheckResult {
	var results []exporterkit.CheckResult
	for _, v := range c.o.Fleet.list() {
		for _, r := range v.replicas() {
			result := exporterkit.CheckResult{Part: "replica " + r.name + " at " + r.address}
			select {
			case <-r.polled:
				r.mu.Lock()
				if r.seen.up {
					result.Note = "state " + r.seen.state
				} else {
					result.Err = errors.New("does not answer")
				}
				r.mu.Unlock()
			case <-ctx.Done():
				result.Err = ctx.Err()
			}
			results = append(results, result)
		}
	}
	return results
}
