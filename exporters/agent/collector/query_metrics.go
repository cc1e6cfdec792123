package collector

import (
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	bpf "github.com/plumbline/plumbline/exporters/agent/bpf/query"
	"github.com/plumbline/plumbline/exporters/agent/nativehist"
	"github.com/plumbline/plumbline/exporters/agent/volume"
)

// The query collector's metrics. server is the server's own name (PostgreSQL's cluster_name),
// else engine and port; engine is postgresql, mysql or mariadb.
var (
	// From the arrival of a statement (the wake-up for it) until the server is ready for the
	// next one, commit included.
	queryDuration = prometheus.NewDesc("plumbline_query_duration_seconds",
		"Time from a statement's arrival until the server is ready for the next one, commit included, in seconds.",
		[]string{"server", "engine", "command"}, nil)
	// The phases of a statement add up to its duration.
	queryPhase = prometheus.NewDesc("plumbline_query_phase_seconds_total",
		"Time of statements by where it went, in seconds: on a CPU (cpu), waiting for a CPU (runqueue), asleep in reads, writes or syncs of files, waiting for the client (client) or for anything else (wait).",
		[]string{"server", "engine", "command", "phase"}, nil)
	queryReads = prometheus.NewDesc("plumbline_query_file_reads_total",
		"Read calls on files within statements, by whether the page cache had the data (hit) or a device had to be waited for (miss).",
		[]string{"server", "engine", "cache"}, nil)
	queryLost = prometheus.NewDesc("plumbline_query_lost_total",
		"Events that are missing from a server's query metrics, by reason.", []string{"server", "engine", "reason"}, nil)
	queryNewsLost = prometheus.NewDesc("plumbline_query_news_lost_total",
		"Beginnings and ends of database servers that the kernel could not tell the agent of at once, but the next scan does.", nil, nil)
	queryServers = prometheus.NewDesc("plumbline_query_servers",
		"Database servers that are followed.", nil, nil)
	queryOverflows = prometheus.NewDesc("plumbline_query_servers_overflow_total",
		`Database servers that have no series of their own, because there are too many; they are in server="other".`, nil, nil)
	queryBackends = prometheus.NewDesc("plumbline_query_backends",
		"Processes (PostgreSQL) or threads (MySQL, MariaDB) of a database server that are followed, its background ones included.",
		[]string{"server", "engine"}, nil)
	queryAttachErrors = prometheus.NewDesc("plumbline_query_attach_errors_total",
		"Failures to follow a database server.", []string{"server"}, nil)
	serverInfo = prometheus.NewDesc("plumbline_server_info",
		"A database server that runs on this node; 1.",
		[]string{"server", "engine", "node", "version", "data_directory"}, nil)
	serverVolumeInfo = prometheus.NewDesc("plumbline_server_volume_info",
		"The block device, and the volume if it is a known one, that holds a database server's data or its write-ahead log; 1.",
		[]string{"server", "engine", "node", "device", "volume", "purpose"}, nil)
)

// Values of the command and phase labels and the reasons of losses, in the kernel side's order.
var (
	commandNames = [bpf.QueryCommandCOMMANDS]string{
		bpf.QueryCommandOTHER: "other", bpf.QueryCommandSELECT: "select", bpf.QueryCommandINSERT: "insert",
		bpf.QueryCommandUPDATE: "update", bpf.QueryCommandDELETE: "delete", bpf.QueryCommandBEGIN: "begin",
		bpf.QueryCommandCOMMIT: "commit", bpf.QueryCommandROLLBACK: "rollback", bpf.QueryCommandCOPY: "copy",
	}
	phaseNames = [bpf.QueryPhasePHASES]string{
		bpf.QueryPhasePHASE_CPU: "cpu", bpf.QueryPhasePHASE_RUNQUEUE: "runqueue", bpf.QueryPhasePHASE_READ: "read",
		bpf.QueryPhasePHASE_WRITE: "write", bpf.QueryPhasePHASE_SYNC: "sync", bpf.QueryPhasePHASE_CLIENT: "client",
		bpf.QueryPhasePHASE_WAIT: "wait",
	}
	lossNames = [bpf.QueryLossLOSSES]string{
		bpf.QueryLossLOST_PROTOCOL: "protocol", bpf.QueryLossLOST_PIPELINE: "pipeline",
		bpf.QueryLossLOST_ENCRYPTED: "encrypted", bpf.QueryLossLOST_SERIES: "series", bpf.QueryLossLOST_BACKEND: "backend",
	}
)

// send sends all that is known of servers. A server that cannot be read is told by the error.
func (f *fleet) send(ch chan<- prometheus.Metric, o Options) error {
	var problems []error
	sums := map[accountKey]totals{}
	for key, a := range f.accounts {
		sums[key] = a.ended
	}
	devices := volume.NewDevices(o.SysFS)
	var volumes []volume.Found
	if o.Volumes != nil {
		// What cannot be found is told by the collector volume.
		volumes, _ = o.Volumes.Find()
	}
	for _, fo := range f.followers {
		if fo.label == "" {
			continue // its statements are counted, and told once it has a name
		}
		if fo.number != otherNumber {
			t, err := f.kernel.read(fo.number)
			if err != nil {
				problems = append(problems, err)
			}
			key := accountKey{fo.label, string(fo.Engine)}
			sum := sums[key]
			sum.add(&t)
			sums[key] = sum
			ch <- gauge(serverInfo, 1, fo.label, string(fo.Engine), o.Node, fo.Version, fo.DataDirectory)
		}
		fo.sendVolumes(ch, devices, volumes, o)
	}
	rest, err := f.kernel.read(otherNumber)
	if err != nil {
		problems = append(problems, err)
	}
	if f.hasOther {
		sums[accountKey{otherServer, otherServer}] = rest
	}
	for key, t := range sums {
		created := f.accounts[key]
		if created == nil {
			continue
		}
		if err := t.send(ch, key, created); err != nil {
			problems = append(problems, err)
		}
	}
	ch <- counter(queryNewsLost, float64(rest.lost[bpf.QueryLossLOST_NEWS]))
	ch <- gauge(queryServers, float64(len(f.followers)))
	ch <- counter(queryOverflows, float64(f.overflows))
	for label, n := range f.attachErrors {
		ch <- counter(queryAttachErrors, float64(n), label)
	}
	return errors.Join(problems...)
}

// sendBackends tells how many tasks of each server are followed, by a census.
func (f *fleet) sendBackends(ch chan<- prometheus.Metric, followed [maxServers + 1]uint64) {
	for _, fo := range f.followers {
		if fo.label != "" && fo.number != otherNumber {
			ch <- gauge(queryBackends, float64(followed[fo.number]), fo.label, string(fo.Engine))
		}
	}
	if f.hasOther {
		ch <- gauge(queryBackends, float64(followed[otherNumber]), otherServer, otherServer)
	}
}

// sendVolumes tells which devices a server lies on, as far as they are block devices.
func (fo *follower) sendVolumes(ch chan<- prometheus.Metric, devices volume.Devices, volumes []volume.Found, o Options) {
	if fo.number == otherNumber {
		return
	}
	for _, v := range []struct{ purpose, number, source string }{
		{"data", fo.Data, fo.DataSource}, {"wal", fo.WAL, fo.WALSource},
	} {
		if v.number == "" {
			continue
		}
		device, err := devices.Of(volume.Mount{Device: v.number, Source: v.source})
		if err != nil {
			continue // tmpfs, overlay, network file systems
		}
		ch <- gauge(serverVolumeInfo, 1, fo.label, string(fo.Engine), o.Node, device, fo.volumeOn(v.number, volumes, o), v.purpose)
	}
}

// volumeOn returns the volume that holds the server's files on the file system of the given
// number: the one its data directory is in, or, for a log elsewhere, the only one there.
func (fo *follower) volumeOn(number string, volumes []volume.Found, o Options) string {
	if number == fo.Data {
		place, err := volume.PlaceOf(o.ProcFS, fo.PID, fo.DataDirectory)
		if err != nil {
			return "" // the server has just ended
		}
		found, _ := volume.Holding(volumes, place)
		return found.Volume
	}
	name := ""
	for _, v := range volumes {
		if v.Place.Device == number {
			if name != "" {
				return ""
			}
			name = v.Volume
		}
	}
	return name
}

// send sends the series of one server; commands it never got are left out.
func (t *totals) send(ch chan<- prometheus.Metric, key accountKey, a *account) error {
	var reads, misses uint64
	var problems []error
	for reason, n := range t.lost {
		if name := lossNames[reason]; name != "" { // news are no server's
			ch <- counter(queryLost, float64(n), key.label, key.engine, name)
		}
	}
	for command := range t.commands {
		s := &t.commands[command]
		reads += s.Reads
		misses += s.ReadMisses
		if s.Count == 0 {
			continue
		}
		name := commandNames[command]
		h, err := nativehist.New(queryDuration, s.Slots[:], s.Classic[:], float64(s.SumNs)/1e9, a.created, key.label, key.engine, name)
		if err != nil {
			problems = append(problems, fmt.Errorf("durations of %s: %w", key.label, err))
			continue
		}
		ch <- h
		for phase, ns := range s.PhaseNs {
			ch <- counter(queryPhase, float64(ns)/1e9, key.label, key.engine, name, phaseNames[phase])
		}
	}
	// The kernel counts a read at its end, so that one under way may be among the misses only.
	ch <- counter(queryReads, float64(reads-min(reads, misses)), key.label, key.engine, "hit")
	ch <- counter(queryReads, float64(misses), key.label, key.engine, "miss")
	return errors.Join(problems...)
}

func gauge(d *prometheus.Desc, v float64, labels ...string) prometheus.Metric {
	return prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
}

func counter(d *prometheus.Desc, v float64, labels ...string) prometheus.Metric {
	return prometheus.MustNewConstMetric(d, prometheus.CounterValue, v, labels...)
}
