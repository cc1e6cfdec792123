package replica

import (
	"fmt"

	"github.com/cilium/ebpf"

	"github.com/plumbline/plumbline/exporters/agent/operation"
)

const (
	// maxSeries bounds the volumes and replicas with series of their own, those that are gone but still reported
	// included; more are counted under replica "other".
	maxSeries = 16 * operation.MaxVolumes
	// maxRejected bounds the processes that are remembered as not understood.
	maxRejected = 1024
	// maxSockets bounds the sockets that are watched for what lies unread in them.
	maxSockets = 32 * operation.MaxVolumes
)

// mapSizes are the entries of the kernel's maps: what a node holds that has an engine and
// three replicas of each of the volumes, with room for those that are being replaced. In
// brackets is what a volume takes then.
var mapSizes = map[string]uint32{
	"processes":   8 * operation.MaxVolumes,  // 4: the engine and its replicas
	"connections": 24 * operation.MaxVolumes, // 14: two to each replica, seen from both ends, and two of the frontend
	"inflight":    64 * operation.MaxVolumes, // 7 for each operation of the volume's user: nine at a time of all volumes at once
	"writes":      16 * operation.MaxVolumes, // 1 for each write of the volume's user
	"peers":       12 * operation.MaxVolumes, // 6: each replica, seen from both ends
	"last_acks":   6 * operation.MaxVolumes,  // 3
	// 27: for each replica, from both ends, reads, writes, unmaps and pings, and for the
	// frontend all but pings. Allocated as they are needed, 2 KB each.
	"latencies": 36 * operation.MaxVolumes,
}

// sizeReplicaMaps gives the maps their sizes. One that is given already, as by a test, stays.
func sizeReplicaMaps(spec *ebpf.CollectionSpec) error {
	for name, entries := range mapSizes {
		m := spec.Maps[name]
		if m == nil {
			return fmt.Errorf("no map %s in the object", name)
		}
		if m.MaxEntries <= 1 {
			m.MaxEntries = entries
		}
	}
	return nil
}
