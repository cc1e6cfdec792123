package query

import (
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	bpf "github.com/plumbline/plumbline/exporters/agent/bpf/query"
	"github.com/plumbline/plumbline/exporters/agent/collector"
	"github.com/plumbline/plumbline/exporters/agent/nativehist"
	"github.com/plumbline/plumbline/exporters/agent/pod"
	"github.com/plumbline/plumbline/exporters/agent/server"
	"github.com/plumbline/plumbline/exporters/agent/volume"
	"github.com/plumbline/plumbline/rules/layers"
)

// The query collector's metrics. server is NAMESPACE/POD of a server in a pod, else the server's own name (PostgreSQL's
// cluster_name), else its db_system and data directory, see names.go; db_system is postgresql, mysql, mariadb or
// redis. command is select, insert, update, delete, begin, commit, rollback, copy or other; of Redis read, write, blocking,
// transaction, scripting, pubsub, connection, admin or other.
var (
	// From the arrival of a statement (the wake-up for it) until the server is ready for the
	// next one, commit included.
	queryDuration = prometheus.NewDesc("plumbline_query_duration_seconds",
		"Time from a statement's arrival until the server is ready for the next one, commit included, in seconds.",
		[]string{"server", "db_system", "command"}, nil)
	// The phases of a statement add up to its duration. Statements under way are in it, so that its
	// rate is the average number of active sessions; so are those whose session ended first.
	queryPhase = prometheus.NewDesc("plumbline_query_phase_seconds_total",
		"Time of statements, of those under way up to now, by where it went, in seconds: on a CPU (cpu), waiting for a CPU (runqueue), asleep in reads, writes or syncs of files (of MySQL and MariaDB also until another thread has synced the log), waiting for the client (client) or for anything else (wait).",
		[]string{"server", "db_system", "command", "phase"}, nil)
	queryReads = prometheus.NewDesc("plumbline_query_file_reads_total",
		"Read calls on files within statements, by whether the page cache had the data (hit) or a device had to be waited for (miss).",
		[]string{"server", "db_system", "cache"}, nil)
	// The statement was prepared before the agent began, or its name was one of too many, or its first word is behind a long comment or long query attributes;
	// and it is none of PostgreSQL's whose answer names the command.
	queryUnknown = prometheus.NewDesc("plumbline_query_commands_unknown_total",
		`Statements whose command is not known, because they were prepared unseen or begin with a long comment or long attributes; they are counted with command="other". Of PostgreSQL only those whose answer does not name it, as of one that failed.`, []string{"server", "db_system"}, nil)
	// Pipelining: clients that do not wait for an answer before they send more.
	queryPipelined = prometheus.NewDesc("plumbline_query_pipelined_total",
		"Statements that the server read from its connection together with an earlier one; those that waited in the socket are not seen.",
		[]string{"server", "db_system"}, nil)
	queryPipelinedSeconds = prometheus.NewDesc("plumbline_query_pipelined_wait_seconds_total",
		"Time that pipelined statements waited, once they were read, for earlier ones of their connection, in seconds; it is in no duration and no phase of theirs.",
		[]string{"server", "db_system"}, nil)
	queryOverhead = prometheus.NewDesc("plumbline_query_overhead_seconds_total",
		"CPU time that following a database server cost its own processes, in seconds: of the agent's programs at its calls and context switches, from one run in 32, which is timed. Without the kernel's way into the programs and out.",
		[]string{"server", "db_system"}, nil)
	// Not of Redis, whose one thread serves all. 0 of statements whose task was not asleep when they came, or was woken
	// by another process, too, and of those that another thread of a pool has read.
	queryWakeup = prometheus.NewDesc("plumbline_query_wakeup_seconds_total",
		"Time from when a statement's bytes woke the server's process or thread until the statement began, in seconds; with --collector.trace only: a CPU's way out of its idle state and the kernel's until the bytes are read. In no duration; the wait for a CPU is in the phase runqueue instead.",
		[]string{"server", "db_system", "command"}, nil)
	queryLost = prometheus.NewDesc("plumbline_query_lost_total",
		"Events that are missing from a server's query metrics, by reason.", []string{"server", "db_system", "reason"}, nil)
	processEventsLost = prometheus.NewDesc("plumbline_query_process_events_lost_total",
		"Beginnings and ends of database servers that the kernel could not report to the agent at once, but the next scan does.", nil, nil)
	queryServers = prometheus.NewDesc("plumbline_query_servers",
		"Database servers that are followed.", nil, nil)
	queryDenied = prometheus.NewDesc("plumbline_query_servers_denied",
		"Database servers that are not followed because the configuration or their pod's annotation leaves them out.", nil, nil)
	queryOverflows = prometheus.NewDesc("plumbline_query_servers_overflow_total",
		`Database servers that have no series of their own, because there are too many; they are in server="other".`, nil, nil)
	queryUnfollowed = prometheus.NewDesc("plumbline_query_servers_unfollowed",
		"Processes with a database server's name that were not followed at the last scan of all processes, because there are more than four times as many as may have series of their own, or more than are scanned at once (256): the turn of the latter comes with a later scan.", nil, nil)
	queryFolded = prometheus.NewDesc("plumbline_query_servers_folded_total",
		`Ended database servers whose counts went to server="other" before their time, because of the many that ended.`, nil, nil)
	queryProcesses = prometheus.NewDesc("plumbline_query_processes",
		"Processes (PostgreSQL) or threads (MySQL, MariaDB, Redis) of a database server that are followed, its background ones included.",
		[]string{"server", "db_system"}, nil)
	queryUncounted = prometheus.NewDesc("plumbline_query_uncounted_cpu_seconds_total",
		"CPU time of PostgreSQL processes that have a client's connection, ran without a statement under way and on whose socket the agent saw nothing between two scrapes, in seconds: their statements are not counted. Also those under way when the agent started.",
		[]string{"server", "db_system"}, nil)
	queryAttachErrors = prometheus.NewDesc("plumbline_query_attach_errors_total",
		`Failures to follow a database server, or to follow it in full; server="other" are those beyond the limit, and those of processes that claim another server's name.`, []string{"server"}, nil)
	serverInfo = prometheus.NewDesc("plumbline_server_info",
		"A database server that runs on this node; 1. In a pod with the pod's namespace, name, UID, container and owner, the controller that made it (a CloudNativePG Cluster, a StatefulSet, a Deployment); elsewhere these are empty, as is what is not known yet.",
		[]string{"server", "db_system", "node", "version", "data_directory", "namespace", "pod", "pod_uid", "container", "owner_kind", "owner"}, nil)
	serverAddressInfo = prometheus.NewDesc("plumbline_server_address_info",
		"An address and TCP port that a database server can be reached at; 1. In a pod the pod's addresses, and for MySQL its host name; elsewhere the addresses it listens on, wildcards left out. At most 8 a server.",
		[]string{"server", "node", "address", "port"}, nil)
	namesProvisional = prometheus.NewDesc("plumbline_server_names_provisional",
		"Database servers whose label may change, because their own name is not known yet: uid:UID of a pod that neither the API server nor the kubelet's folder of logs has, engine and port where the data directory cannot be read, or another name where that would show whether its own is kept for it.", nil, nil)
	podsUntrusted = prometheus.NewDesc("plumbline_server_pods_untrusted",
		"Database servers whose cgroup has a pod's name but was not made by the kubelet; they count as outside of pods.", nil, nil)
	serversRenamed = prometheus.NewDesc("plumbline_server_renamed_total",
		"Database servers that got another label while they ran, and their counts with it: a provisional name became known, or a pod's second server began.", nil, nil)
	serverVolumeInfo = prometheus.NewDesc("plumbline_server_volume_info",
		"The block device, and the volume if it is a known one, that holds a database server's files; 1. Its purpose is data, wal (the write-ahead or redo log), binlog (MySQL's binary log, by its open files) or tablespace: tables out of the data directory, by PostgreSQL's links in pg_tblspc and InnoDB's open files, on 16 volumes of a server at the most. A file system without a block device has no series, see plumbline_unidentified_objects.",
		[]string{"server", "db_system", "node", "device", "volume", "purpose"}, nil)
)

// Values of the label phase and the reasons of losses, in the kernel side's order.
var (
	phaseNames = [bpf.QueryPhasePHASES]string{
		bpf.QueryPhasePHASE_CPU: layers.CPU, bpf.QueryPhasePHASE_RUNQUEUE: layers.Runqueue, bpf.QueryPhasePHASE_READ: layers.Read,
		bpf.QueryPhasePHASE_WRITE: layers.Write, bpf.QueryPhasePHASE_SYNC: layers.Sync, bpf.QueryPhasePHASE_CLIENT: layers.Client,
		bpf.QueryPhasePHASE_WAIT: layers.Wait,
	}
	lossNames = [bpf.QueryLossLOSSES]string{
		bpf.QueryLossLOST_PROTOCOL: "protocol", bpf.QueryLossLOST_PIPELINE: "pipeline",
		bpf.QueryLossLOST_ENCRYPTED: "encrypted", bpf.QueryLossLOST_SERIES: "series", bpf.QueryLossLOST_TASK: "task",
		bpf.QueryLossLOST_CONNECTION: "connection", bpf.QueryLossLOST_COMPRESSED: "compressed", bpf.QueryLossLOST_X_PROTOCOL: "x_protocol",
	}
)

// read returns what was counted of statements that ended, of the servers with a label, and of those that share
// server="other", nil if these cannot be read. A server that cannot be read whole is left out, so that no count seems
// to fall, and the error reports it.
func (f *fleet) read() (sums map[accountKey]*totals, rest *totals, err error) {
	var problems []error
	sums = map[accountKey]*totals{}
	for key, a := range f.accounts {
		ended := a.ended
		sums[key] = &ended
	}
	add := func(srv *trackedServer) {
		if srv.label == "" || srv.number == otherNumber {
			return
		}
		t, err := f.kernel.read(srv.number)
		if err != nil {
			problems = append(problems, fmt.Errorf("server %s: %w", srv.label, err))
			delete(sums, srv.key())
		} else if sum := sums[srv.key()]; sum != nil {
			sum.add(&t)
		}
	}
	for _, srv := range f.tracked {
		add(srv)
	}
	for _, l := range f.leaving {
		add(l.trackedServer)
	}
	// After the totals, so that a statement that ends in between is not taken for one of no query's series.
	f.drainAll(time.Now())
	for key, sum := range sums {
		if q := f.accounts[key].queries; q != nil {
			q.rest(sum)
		}
	}
	others := accountKey{collector.OtherServer, collector.OtherServer}
	t, err := f.kernel.read(otherNumber)
	if err != nil {
		delete(sums, others)
		return sums, nil, errors.Join(append(problems, fmt.Errorf("server %s: %w", collector.OtherServer, err))...)
	}
	if sum := sums[others]; sum != nil && f.hasOther {
		// Beside those that ended and were folded into it.
		sum.add(&t)
	}
	return sums, &t, errors.Join(problems...)
}

// send sends all that is known of servers.
func (f *fleet) send(ch chan<- prometheus.Metric, o collector.Options, sums map[accountKey]*totals, rest *totals) error {
	var problems []error
	var volumes []volume.Found
	if o.Volumes != nil {
		// The collector volume reports what cannot be found.
		volumes, _ = o.Volumes.Known()
	}
	unidentified := map[string]int{collector.ReasonDataDirectory: 0, collector.ReasonDevice: 0, collector.ReasonVolume: 0, collector.ReasonPorts: 0}
	for _, srv := range f.tracked {
		if srv.label == "" {
			continue // its statements are counted, and reported once it has a name
		}
		for _, reason := range srv.unidentified(volumes) {
			unidentified[reason]++
		}
		if srv.number != otherNumber {
			f.sendInfo(ch, srv, o.Node)
			f.sendEndpoints(ch, srv, o.Node)
		}
		srv.sendVolumes(ch, volumes, o.Node)
	}
	collector.SendUnidentified(ch, o.Node, collector.KindServer, unidentified)
	for key, t := range sums {
		account := f.accounts[key]
		if account == nil {
			continue
		}
		if err := t.send(ch, key, account, o.Tracing.On()); err != nil {
			problems = append(problems, err)
		}
		if f.top > 0 && key.dbSystem == string(server.PostgreSQL) {
			t.sendNoQueryIDs(ch, key)
		}
		if account.queries != nil {
			if err := account.queries.send(ch, key); err != nil {
				problems = append(problems, err)
			}
		}
	}
	if rest != nil {
		ch <- collector.Counter(processEventsLost, float64(rest.lost[bpf.QueryLossLOST_PROCESS_EVENTS]))
	}
	ch <- collector.Gauge(queryServers, float64(len(f.tracked)))
	ch <- collector.Gauge(queryDenied, float64(len(f.denied)))
	ch <- collector.Counter(queryOverflows, float64(f.overflows))
	ch <- collector.Gauge(queryUnfollowed, float64(f.unfollowed))
	ch <- collector.Counter(queryFolded, float64(f.folded))
	provisional, untrusted := f.provisional()
	ch <- collector.Gauge(namesProvisional, float64(provisional))
	ch <- collector.Gauge(podsUntrusted, float64(untrusted))
	ch <- collector.Counter(serversRenamed, float64(f.renamed))
	for label, e := range f.attachErrors {
		ch <- collector.Counter(queryAttachErrors, float64(e.count), label)
	}
	return errors.Join(problems...)
}

// sendInfo reports who a server is.
func (f *fleet) sendInfo(ch chan<- prometheus.Metric, srv *trackedServer, node string) {
	var p pod.Pod
	var uid string
	if known := f.podOf(srv); known != nil {
		p, uid = *known, srv.pod.UID
	}
	ch <- collector.Gauge(serverInfo, 1, srv.label, string(srv.DBSystem), node, srv.Version, srv.DataDirectory,
		p.Namespace, p.Name, uid, p.Container(srv.pod.Container), p.OwnerKind, p.Owner)
}

// sendFollowed reports how many tasks of each server are followed, by a snapshot.
func (f *fleet) sendFollowed(ch chan<- prometheus.Metric, followed [collector.MaxServers + 1]uint64) {
	for _, srv := range f.tracked {
		if srv.label != "" && srv.number != otherNumber {
			ch <- collector.Gauge(queryProcesses, float64(followed[srv.number]), srv.label, string(srv.DBSystem))
		}
	}
	if f.hasOther {
		ch <- collector.Gauge(queryProcesses, float64(followed[otherNumber]), collector.OtherServer, collector.OtherServer)
	}
}

// sendUncounted reports for how long processes worked on what was not counted.
func (f *fleet) sendUncounted(ch chan<- prometheus.Metric) {
	for _, srv := range f.tracked {
		if srv.label != "" && srv.number != otherNumber {
			ch <- collector.Counter(queryUncounted, float64(srv.uncounted)/1e9, srv.label, string(srv.DBSystem))
		}
	}
	if f.hasOther {
		ch <- collector.Counter(queryUncounted, float64(f.otherUncounted)/1e9, collector.OtherServer, collector.OtherServer)
	}
}

// unidentified returns what is not known of a server: of the volume that its data is on, and of its ports.
func (srv *trackedServer) unidentified(volumes []volume.Found) (reasons []string) {
	if reason := srv.noVolume(volumes); reason != "" {
		reasons = append(reasons, reason)
	}
	if len(srv.ClientPorts()) > len(bpf.QueryServer{}.Ports) {
		reasons = append(reasons, collector.ReasonPorts)
	}
	return reasons
}

// noVolume returns why it is not known on which volume a server's data is; empty if it is.
func (srv *trackedServer) noVolume(volumes []volume.Found) string {
	if srv.DataDirectory == "" {
		return collector.ReasonDataDirectory
	}
	for _, p := range srv.places {
		if p.purpose != "data" {
			continue
		}
		if p.volumeOf(volumes) == "" {
			return collector.ReasonVolume
		}
		return ""
	}
	return collector.ReasonDevice
}

// sendVolumes reports which devices a server lies on, as far as they are block devices.
func (srv *trackedServer) sendVolumes(ch chan<- prometheus.Metric, volumes []volume.Found, node string) {
	if srv.number == otherNumber {
		return
	}
	type series struct{ device, volume, purpose string }
	sent := map[series]bool{} // several tablespaces may be on one volume
	for _, p := range srv.places {
		s := series{p.device, p.volumeOf(volumes), p.purpose}
		if !sent[s] {
			sent[s] = true
			ch <- collector.Gauge(serverVolumeInfo, 1, srv.label, string(srv.DBSystem), node, s.device, s.volume, s.purpose)
		}
	}
}

// send sends the series of one server; those of commands that it has not got yet are 0, for a rate needs a first value.
// Wake-ups are known only where statements are traced.
func (t *totals) send(ch chan<- prometheus.Metric, key accountKey, a *account, traced bool) error {
	var hits, misses, unknown, pipelined, pipelinedNs uint64
	var problems []error
	for reason, n := range t.lost {
		if name := lossNames[reason]; name != "" { // process events are no server's
			ch <- collector.Counter(queryLost, float64(n), key.label, key.dbSystem, name)
		}
	}
	for i, command := range server.DBSystem(key.dbSystem).Commands() {
		if command == "" {
			continue
		}
		s := &t.commands[i]
		hits += s.All.ReadHits
		misses += s.All.ReadMisses
		unknown += s.Unknown
		pipelined += s.Pipelined
		pipelinedNs += s.PipelinedNs
		h, err := nativehist.New(queryDuration, s.Slots[:], float64(s.All.SumNs)/1e9, a.created, key.label, key.dbSystem, command)
		if err != nil {
			problems = append(problems, fmt.Errorf("durations of %s: %w", key.label, err))
			continue
		}
		ch <- h
		if traced && key.dbSystem != string(server.Redis) {
			ch <- collector.Counter(queryWakeup, float64(s.WakeupNs)/1e9, key.label, key.dbSystem, command)
		}
		for phase, name := range phaseNames {
			ns := s.All.PhaseNs[phase]
			if phase == int(bpf.QueryPhasePHASE_SYNC) && server.DBSystem(key.dbSystem).SyncsForOthers() {
				ns -= min(ns, a.shownTooMuch(i, s.All.PhaseNs[bpf.QueryPhasePHASE_WAIT]))
			}
			// A statement that ended while this scrape was made is in none of its parts.
			ns = max(ns, a.shown[i][phase])
			a.shown[i][phase] = ns
			ch <- collector.Counter(queryPhase, float64(ns)/1e9, key.label, key.dbSystem, command, name)
		}
	}
	ch <- collector.Counter(queryReads, float64(hits), key.label, key.dbSystem, "hit")
	ch <- collector.Counter(queryReads, float64(misses), key.label, key.dbSystem, "miss")
	ch <- collector.Counter(queryUnknown, float64(unknown), key.label, key.dbSystem)
	ch <- collector.Counter(queryPipelined, float64(pipelined), key.label, key.dbSystem)
	ch <- collector.Counter(queryPipelinedSeconds, float64(pipelinedNs)/1e9, key.label, key.dbSystem)
	ch <- collector.Counter(queryOverhead, float64(t.own)/1e9, key.label, key.dbSystem)
	return errors.Join(problems...)
}

// shownTooMuch is how much more was shown of a command's waits than there was: a wait that proves one for another
// thread's sync when it ends was shown as a wait before. It stays one, and is no sync.
func (a *account) shownTooMuch(command int, wait uint64) uint64 {
	shown := a.shown[command][bpf.QueryPhasePHASE_WAIT]
	return shown - min(shown, wait)
}
