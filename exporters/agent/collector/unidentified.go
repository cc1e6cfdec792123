package collector

import (
	"maps"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
)

// Kinds of what is not identified.
const (
	KindClaim   = "claim"
	KindProcess = "process"
	KindServer  = "server"
	// KindListener are programs that listen where servers do and are none that is known, by the engine whose port it is.
	KindListener = "listener"
	// KindReplica are replicas whose disk is not known.
	KindReplica = "replica"
	// KindPath are disks of other hosts by the wire, such as nvme.
	KindPath = "path"
	// KindBlockDevice are block devices whose counts are wrong.
	KindBlockDevice = "block_device"
	// KindLine are lines of the kernel's files that were not understood.
	KindLine = "line"
)

var unidentifiedDesc = prometheus.NewDesc("plumbline_unidentified_objects",
	"Objects of this node that could not be identified, so that what is measured of them has no name, or is not measured: 0 where all is understood. "+
		"claim: PersistentVolumeClaims of running pods of which no bound volume is known (unknown), that are not mounted where the kubelet mounts volumes (not_mounted), "+
		"that may be either of two devices or folders (ambiguous), or whose device cannot be found (device); those on no block device are in plumbline_volumes_without_device. "+
		"process: containers, by a process of each, in a cgroup that has the kubelet's name but none of a pod's form, or in any container if none of the node is known to be in a pod (cgroup), or of a pod that neither the API server nor the kubelet's folders know (pod). "+
		"server: database servers that are followed whose data directory is not known (data_directory), is on no block device (device), or on one and in no known volume (volume), as on a disk of the machine's own; and those with more ports for clients than four, whose clients on the others are not measured (ports). "+
		"replica: replicas whose folder is on no block device that is known (device). "+
		"path: disks over NVMe over Fabrics (nvme) or iSCSI (iscsi) that are in sysfs in a form that is not understood. "+
		"listener: ports of network namespaces that are the usual one of an engine (postgresql, mysql, redis) and on which a program listens that is neither a known server nor a known proxy, "+
		"and network namespaces that are not scanned, as there are too many (namespace); the log names the programs at debug, and so does --check. "+
		"block_device: those that the kernel counts requests of which do not exist: their members have had none, and nobody has waited for I/O (in_flight). "+
		"line: lines of the kernel's files that are not understood and left out: of mount tables (mountinfo; one that cannot be read to its end counts as one), of processes' cgroups (cgroup), "+
		"processes by their stat (stat), network namespaces by their tables of sockets (tcp), block devices by diskstats (diskstats). "+
		"claim, process and cgroups' lines are there with --kubernetes only. All are as of the latest scan, ten seconds ago at the most; a listener may be as old as it takes to scan all network namespaces, 16 of them every ten seconds.",
	[]string{"node", "kind", "reason"}, nil)

// SendUnidentified sends what is not identified of a kind, by reason.
func SendUnidentified(ch chan<- prometheus.Metric, node, kind string, counts map[string]int) {
	for _, reason := range slices.Sorted(maps.Keys(counts)) {
		ch <- Gauge(unidentifiedDesc, float64(counts[reason]), node, kind, reason)
	}
}

const (
	// Reasons why a server is not identified.
	ReasonDataDirectory = "data_directory"
	// ReasonDevice is that its disk is not known.
	ReasonDevice = "device"
	// ReasonVolume is that its disk is no volume's.
	ReasonVolume = "volume"
	// ReasonPorts is that it has more ports for clients than are measured.
	ReasonPorts = "ports"
	// Of a listener: its network namespace is not scanned.
	ReasonNamespace = "namespace"
	// Of a block device: its requests.
	ReasonInFlight = "in_flight"
	// Of a line: the file it is in.
	ReasonStat = "stat"
	// ReasonTCP is a network namespace's list of sockets.
	ReasonTCP = "tcp"
	// ReasonDiskstats is /proc/diskstats.
	ReasonDiskstats = "diskstats"
)
