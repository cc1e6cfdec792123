package operation

import "github.com/prometheus/client_golang/prometheus"

// viewDescs are the metrics of one view of operations. The frontend's have no label address.
type viewDescs struct {
	duration, bytes, errors, unanswered, Inflight, Oldest, Connections *prometheus.Desc
}

// Labels: volume is the storage backend's name of the volume; address is the replica's control address IP:PORT, by
// which its engine knows it (also on the replica's node), "local" or the engine's argument for a unix socket, "other"
// beyond the limit; op is one of operation.Ops. Only complete operations count: request and response both seen.
var (
	labelNames       = []string{"volume", "address", "backend"}
	volumeLabelNames = []string{"volume", "backend"}
	pathLabelNames   = []string{"volume", "path", "backend"}

	// Views are the metrics of each view.
	Views = map[View]viewDescs{
		ViewRequest: newViewDescs("plumbline_replica_request", "_duration_seconds", "plumbline_replica_requests_in_flight", "plumbline_replica_oldest_request_seconds", labelNames,
			"a request to a replica as the engine sees it, from its write to the read of the whole answer",
			"Age of the oldest request to a replica without an answer, in seconds; 0 if there is none. "+
				"Answers that have arrived and that the engine does not read are not waited for, nor those to requests of which it has sent a part only: then the engine is stalled, not the replica."),
		ViewService: newViewDescs("plumbline_replica_service", "_seconds", "plumbline_replica_services_in_flight", "plumbline_replica_oldest_service_seconds", labelNames,
			"a request within the replica, from the read of the whole request to the end of the answer's write",
			"Age of the oldest request that the replica has not answered, in seconds, as the replica's side sees it; 0 if there is none. "+
				"Of requests that it has not even read from its socket, for how long they lie there at least, sampled each second."),
		ViewFrontend: newViewDescs("plumbline_volume_frontend", "_seconds", "plumbline_volume_frontend_in_flight", "plumbline_volume_frontend_oldest_seconds", volumeLabelNames,
			"a request of the volume's user within the engine, all replicas included",
			"Age of the oldest request of the volume's user that the engine has not answered, in seconds; 0 if there is none. "+
				"Of requests that it has not even read from its socket, for how long they lie there at least, sampled each second. Not for engines whose user does not speak the replicas' wire."),
		ViewPath: newViewDescs("plumbline_volume_path", "_seconds", "plumbline_volume_path_in_flight", "plumbline_volume_path_oldest_seconds", pathLabelNames,
			"a request of this host to a volume's target over the network, on one path",
			"Age of the oldest request of this host to a volume's target on this path that has no answer, in seconds; 0 if there is none."),
		ViewTarget: newViewDescs("plumbline_volume_target", "_seconds", "plumbline_volume_target_in_flight", "plumbline_volume_target_oldest_seconds", volumeLabelNames,
			"a request within a volume's target in user space, the engine behind it included, from the read of its header to the end of the answer's write",
			"Age of the oldest request that a volume's target in user space has read and not answered, in seconds; 0 if there is none."),
	}

	ReplicaInfo = prometheus.NewDesc("plumbline_replica_info",
		"A replica process on this node; 1. replica is the storage backend's name of it, device the disk its directory is on.",
		[]string{"volume", "address", "backend", "node", "replica", "directory", "device"}, nil)
	Resyncs = prometheus.NewDesc("plumbline_replica_resyncs_total",
		"Streams that were understood until bytes came that are no message.", []string{"wire"}, nil)
	Unmatched = prometheus.NewDesc("plumbline_replica_unmatched_total",
		"Answers without a request.", []string{"wire"}, nil)
	LabelOverflow = prometheus.NewDesc("plumbline_replica_label_overflow_total",
		`Connections and processes counted under address="other" or volume="other" because there are too many.`, []string{"wire"}, nil)
	Count = prometheus.NewDesc("plumbline_replica_operations_total",
		"Operations in the histograms of replicas, frontends and paths on this node, in all of them together: what plumbline_replica_lost_total is compared with.", []string{"wire"}, nil)
	Lost = prometheus.NewDesc("plumbline_replica_lost_total",
		"Events that are missing from the replica metrics, by reason.", []string{"wire", "reason"}, nil)
	ProcessesRefused = prometheus.NewDesc("plumbline_replica_processes_refused_total",
		"Processes named like an engine or replica that are not followed because their user is not root: they could take any volume's name.", []string{"wire"}, nil)
)

func newViewDescs(prefix, unit, inflight, oldest string, labels []string, what, age string) viewDescs {
	withOp := append(labels[:len(labels):len(labels)], "op")
	return viewDescs{
		duration:    prometheus.NewDesc(prefix+unit, "Time of "+what+", in seconds.", withOp, nil),
		bytes:       prometheus.NewDesc(prefix+"_bytes_total", "Bytes read, written or unmapped; the operation is "+what+".", withOp, nil),
		errors:      prometheus.NewDesc(prefix+"_errors_total", "Operations answered by an error (they are in the histogram, too); the operation is "+what+".", withOp, nil),
		unanswered:  prometheus.NewDesc(prefix+"_unanswered_total", "Operations whose connection ended before their answer; the operation is "+what+".", labels, nil),
		Inflight:    prometheus.NewDesc(inflight, "Operations without an answer now; the operation is "+what+".", labels, nil),
		Oldest:      prometheus.NewDesc(oldest, age, labels, nil),
		Connections: prometheus.NewDesc(prefix+"_connections", "Connections now; the operation is "+what+".", labels, nil),
	}
}
