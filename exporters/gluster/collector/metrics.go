package collector

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/plumbline/plumbline/exporters/exporterkit"
)

// From `gluster --xml` of GlusterFS 10: pool list, volume info, volume status, and volume profile, which counts only
// after `gluster volume profile V start`. Replicas are bricks, as host:path. A command that fails leaves its series out
// until it answers again; all are left out where glusterd answers so slowly that they are older than three intervals
// and time-outs. Bricks count from their start on. Only volumes that are started are here.
var (
	up = prometheus.NewDesc("plumbline_gluster_up",
		"Whether glusterd answered the last poll with its list of volumes: 1 yes, 0 no.", nil, nil)
	lastPoll = prometheus.NewDesc("plumbline_gluster_last_poll_timestamp_seconds",
		"When the poll began that read the volumes and the states of the bricks that are shown, in seconds since 1970.", nil, nil)
	errorsTotal = prometheus.NewDesc("plumbline_gluster_errors_total",
		"Commands of GlusterFS's command line program that failed, timed out, or gave an answer that could not be used.", []string{"command"}, nil)
	profiled = prometheus.NewDesc("plumbline_gluster_volume_profiled",
		"Whether the volume counts its file operations (gluster volume profile V start): 1 yes, 0 no.", []string{"volume"}, nil)
	brickUp = prometheus.NewDesc("plumbline_gluster_brick_up",
		"Whether a brick's process runs, as its node's glusterd reports: 1 yes, 0 no or the node is away.", []string{"volume", "replica"}, nil)
	fops = prometheus.NewDesc("plumbline_gluster_fops_total",
		"File operations a brick has done, by kind (WRITE, READ, FSYNC and others).", []string{"volume", "replica", "fop"}, nil)
	fopSeconds = prometheus.NewDesc("plumbline_gluster_fop_seconds_total",
		"Time a brick took for its file operations, in seconds, without network and client: GlusterFS's mean times its count. Absent while GlusterFS's version, and so the unit, is not known.",
		[]string{"volume", "replica", "fop"}, nil)
	readBytes = prometheus.NewDesc("plumbline_gluster_brick_read_bytes_total",
		"Bytes read from a brick.", []string{"volume", "replica"}, nil)
	writtenBytes = prometheus.NewDesc("plumbline_gluster_brick_written_bytes_total",
		"Bytes written to a brick.", []string{"volume", "replica"}, nil)
	healEntries = prometheus.NewDesc("plumbline_gluster_brick_heal_entries",
		"Files and directories that a brick has and others still have to be given.", []string{"volume", "replica"}, nil)
)

func gauge(ch chan<- prometheus.Metric, d *prometheus.Desc, value float64, labels ...string) {
	exporterkit.Gauge(ch, d, value, labels...)
}

func counter(ch chan<- prometheus.Metric, d *prometheus.Desc, value float64, labels ...string) {
	exporterkit.Counter(ch, d, value, labels...)
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
