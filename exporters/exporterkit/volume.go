package exporterkit

import "github.com/prometheus/client_golang/prometheus"

// What every exporter of a storage backend has of its volumes and their replicas, under names of their own beside the
// engine's. A value that the engine does not give is left out.
var (
	// ReplicaInfo is where a replica is.
	ReplicaInfo = prometheus.NewDesc("plumbline_volume_replica_info",
		"Where a replica is: node, kernel name of the disk that holds it (empty if unknown), and host:port at which it serves (of a Longhorn V1 replica its control server, whose data port is the next one; empty if unknown). Always 1.",
		[]string{"volume", "replica", "node", "device", "address", "backend"}, nil)
	// DesiredReplicas is how many replicas a volume is meant to have.
	DesiredReplicas = prometheus.NewDesc("plumbline_volume_desired_replicas",
		"Replicas the volume is meant to have.", []string{"volume", "backend"}, nil)
	// HealthyReplicas is how many have all data. Where it is not known of each, it is an upper bound, left out where
	// that bound is all of them.
	HealthyReplicas = prometheus.NewDesc("plumbline_volume_healthy_replicas",
		"Replicas of an attached volume that hold all data and take part in reads and writes.", []string{"volume", "backend"}, nil)
)
