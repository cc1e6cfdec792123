package collector

import (
	"maps"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
)

// Kinds of what is not identified.
const (
	kindClaim   = "claim"
	kindProcess = "process"
	kindServer  = "server"
)

var unidentifiedDesc = prometheus.NewDesc("plumbline_unidentified_objects",
	"Objects of this node that could not be identified, so that what is measured of them has no name, or is not measured: 0 where all is understood. "+
		"claim: PersistentVolumeClaims of running pods of which no bound volume is known (unknown), that are not mounted where the kubelet mounts volumes (not_mounted), "+
		"that may be either of two devices or folders (ambiguous), or whose device cannot be found (device); those on no block device are in plumbline_volumes_without_device. "+
		"process: containers, by a process of each, in a cgroup that has the kubelet's name but none of a pod's form (cgroup), or of a pod that neither the API server nor the kubelet's folders know (pod). "+
		"server: database servers that are followed whose data directory is not known (data_directory), is on no block device (device), or on one and in no known volume (volume), as on a disk of the machine's own. "+
		"claim and process are there with --kubernetes only, and as of the latest look, ten seconds ago at the most.",
	[]string{"node", "kind", "reason"}, nil)

// sendUnidentified sends what is not identified of a kind, by reason.
func sendUnidentified(ch chan<- prometheus.Metric, node, kind string, counts map[string]int) {
	for _, reason := range slices.Sorted(maps.Keys(counts)) {
		ch <- gauge(unidentifiedDesc, float64(counts[reason]), node, kind, reason)
	}
}

// Reasons why a server is not identified.
const (
	reasonDataDirectory = "data_directory"
	reasonDevice        = "device"
	reasonVolume        = "volume"
)
