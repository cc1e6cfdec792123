package dashboards

import "fmt"

// named turns the agent's name of a replica, its address, into the storage engine's.
func named(expr string) string {
	return fmt.Sprintf(`label_replace(%s, "address", "$1", "replica", "(.*)")
* on (volume, address) group_left (replica)
  max by (volume, address, replica) (plumbline_volume_replica_info{volume=~"$volume",address!=""})`, expr)
}

// onWire is a rate of the agent's replica metrics of the selected volumes.
func onWire(metric, more string) string {
	return fmt.Sprintf(`rate(%s{volume=~"$volume"%s}[$__rate_interval])`, metric, more)
}

func replicas() page {
	return page{
		uid: "plumbline-replicas", title: "Plumbline / Replicas",
		text:      "What each replica adds to a write: round trip, its own time, the network between, and which one the others wait for.",
		variables: volumeVariables(),
		rows: []row{
			{"Which replica", []panel{replicaTable(), replicaModes()}},
			{"A write's way to each replica", replicaTimes()},
			{"Who is waited for", replicaWaits()},
			{"The wire", replicaWire()},
			{"Rebuilds and space", replicaSpace()},
		},
	}
}

func replicaTable() panel {
	return panel{
		title: "Replicas now",
		text: "Round trip is the engine's view, own time is measured within the replica, alone is the time per write for which only this replica had not answered. " +
			"Good: all alike, alone well below a ms. One stands out: if its own time does, its node or disk is slow; if only its round trip does, the network, or its process is not run.",
		width: 14, height: 9, unit: seconds,
		queries: []query{
			{`max by (volume, replica) (replica:write_seconds:mean5m{volume=~"$volume"})`, "Round trip"},
			{`max by (volume, replica) (replica:write_service_seconds:mean5m{volume=~"$volume"})`, "Own time"},
			{`max by (volume, replica) (replica:disk_write_seconds:mean5m{volume=~"$volume"})`, "Its disk"},
			{`max by (volume, replica) (` + waitedAlone() + `)`, "Alone"},
		},
		view: grid{
			labels:  []labelColumn{{"volume", "Volume", nil}, {"replica", "Replica", nil}},
			columns: []valueColumn{{seconds, &limit{0.01, 0.1}}, {seconds, &limit{0.01, 0.1}}, {seconds, &limit{0.01, 0.1}}, {seconds, &limit{0.002, 0.02}}},
			sort:    "Round trip",
		},
	}
}

func replicaModes() panel {
	const mode = `max by (volume, replica) (plumbline_longhorn_engine_replica_mode{volume=~"$volume", mode="%s"})`
	return panel{
		title: "Modes",
		text: "How the engine uses each replica (Longhorn). Good: read-write throughout. Write-only: it is being rebuilt. " +
			"Failed: the engine gave it up; see the events of its node, and whether the volume has another healthy replica before doing anything.",
		width: 10, height: 9, unit: times,
		queries: []query{{fmt.Sprintf(mode, "RW") + " + " + fmt.Sprintf("2 * "+mode, "WO") + " + " + fmt.Sprintf("3 * "+mode, "ERR"), "{{replica}}"}},
		view:    states{[]state{{1, "read-write", sky}, {2, "write-only", yellow}, {3, "failed", vermillion}}},
	}
}

func replicaTimes() []panel {
	return []panel{
		{
			title: "Round trip of a write", text: "From the engine's sending of a write to the replica's answer, measured on the wire. Good: the replicas lie on each other. The one above the others is the straggler.",
			width: 8, height: 9, unit: seconds,
			queries: []query{{named(`histogram_avg(sum by (volume, replica) (` + onWire("plumbline_replica_request_duration_seconds", `, op="write"`) + `))`), "{{replica}}"}},
			view:    graph{log: true},
		},
		{
			title: "Within the replica", text: "From the whole request's arrival in the replica's process to the end of its answer, measured on the replica's node. High here and in the round trip alike: that node's disk or CPU, see the disk beside.",
			width: 8, height: 9, unit: seconds,
			queries: []query{{named(`histogram_avg(sum by (volume, replica) (` + onWire("plumbline_replica_service_seconds", `, op="write"`) + `))`), "{{replica}}"}},
			view:    graph{log: true},
		},
		{
			title: "The replica's disk", text: "Mean time of a write on the disk that holds the replica; the disk's other users are in it, too. High: the disk is slow or busy, see Volumes.",
			width: 8, height: 9, unit: seconds,
			queries: []query{{`max by (volume, replica) (replica:disk_write_seconds:mean5m{volume=~"$volume"})`, "{{replica}}"}},
			view:    graph{log: true},
		},
		{
			title: "Network's share of the round trip",
			text:  "What is left of the round trip without the time within the replica: the network, and the sockets' queues at both ends. Differences of means. Good: steady. Growing alone: the network; it also grows when the replica's process is not scheduled or stopped.",
			width: 12, height: 8, unit: ratio,
			queries: []query{{`clamp_min(1 - max by (volume, replica) (replica:write_service_seconds:mean5m{volume=~"$volume"}) / max by (volume, replica) (replica:write_seconds:mean5m{volume=~"$volume"}), 0)`, "{{replica}}"}},
			view:    graph{max: 1},
		},
		{
			title: "Straggler and sync overhead",
			text:  "How far the slowest replica's round trip is behind the fastest one's, and what a write takes beyond the fastest replica's own time. Good: both below a few ms. Straggler high: one replica. Overhead high alone: engine or network.",
			width: 12, height: 8, unit: seconds,
			queries: []query{
				{`max by (volume) (volume:replica_straggler_seconds:mean5m{volume=~"$volume"})`, "straggler {{volume}}"},
				{`max by (volume) (volume:replica_sync_overhead_seconds:mean5m{volume=~"$volume"})`, "overhead {{volume}}"},
			},
			view: graph{limit: &limit{0.005, 0.05}},
		},
	}
}

// waitedAlone is the time per write for which only this replica had not answered.
func waitedAlone() string {
	return named(`(sum by (volume, replica) (` + onWire("plumbline_replica_last_ack_wait_seconds_total", "") +
		`) / on (volume) group_left () (sum by (volume) (` + onWire("plumbline_replica_last_ack_total", "") + `) > 0))`)
}

func replicaWaits() []panel {
	return []panel{
		{
			title: "Last to acknowledge", text: "Share of a volume's writes that this replica was the last to acknowledge. Near 1 for one: it is always slower than the others. A replica that pauses now and then hardly shows here, but beside: there count seconds, not writes.",
			width: 8, height: 8, unit: ratio,
			queries: []query{{named(`(sum by (volume, replica) (` + onWire("plumbline_replica_last_ack_total", "") + `) / on (volume) group_left () (sum by (volume) (` + onWire("plumbline_replica_last_ack_total", "") + `) > 0))`), "{{replica}}"}},
			view:    graph{max: 1},
		},
		{
			title: "Time waited for this replica alone", text: "Time per write for which every other replica had answered and only this one had not. It is what removing this replica would save. Good: well below a ms.",
			width: 8, height: 8, unit: seconds,
			queries: []query{{waitedAlone(), "{{replica}}"}},
			view:    graph{limit: &limit{0.002, 0.02}},
		},
		{
			title: "Oldest request without an answer", text: "Good: below 0.1 s. One that grows second by second: the replica hangs; the engine gives it up at its time-out (Longhorn: 8 s), until then every write waits.",
			width: 8, height: 8, unit: seconds,
			queries: []query{{named(`max by (volume, replica) (plumbline_replica_oldest_request_seconds{volume=~"$volume"})`), "{{replica}}"}},
			view:    graph{limit: &limit{1, 8}},
		},
	}
}

func replicaWire() []panel {
	return []panel{
		{
			title: "Requests", text: "Requests per second to each replica. Writes go to all, a read to one.",
			width: 8, height: 8, unit: perSec,
			queries: []query{{named(`sum by (volume, replica) (histogram_count(` + onWire("plumbline_replica_request_duration_seconds", "") + `))`), "{{replica}}"}},
			view:    graph{},
		},
		{
			title: "Bytes", text: "Bytes per second to and from each replica: what replication costs the network.",
			width: 8, height: 8, unit: bytesSec,
			queries: []query{{named(`sum by (volume, replica) (` + onWire("plumbline_replica_request_bytes_total", "") + `)`), "{{replica}}"}},
			view:    graph{},
		},
		{
			title: "Requests without an answer", text: "Requests in flight now. It grows with load; on one replica alone it grows because that one is slow.",
			width: 4, height: 8, unit: count,
			queries: []query{{named(`sum by (volume, replica) (plumbline_replica_requests_in_flight{volume=~"$volume"})`), "{{replica}}"}},
			view:    graph{},
		},
		{
			title: "Errors", text: "Requests answered by an error, and requests whose connection ended before the answer. Good: 0. Then look at the replica's own log.",
			width: 4, height: 8, unit: perSec,
			queries: []query{{named(`sum by (volume, replica) (` + onWire("plumbline_replica_request_errors_total", "") + ` or ` + onWire("plumbline_replica_request_unanswered_total", "") + `)`), "{{replica}}"}},
			view:    graph{limit: &limit{0.01, 1}},
		},
	}
}

func replicaSpace() []panel {
	return []panel{
		{
			title: "Healthy replicas", text: "Replicas that hold all data, against those the volume is meant to have. Good: the lines lie on each other.",
			width: 8, height: 8, unit: count,
			queries: []query{
				{`max by (volume) (plumbline_volume_healthy_replicas{volume=~"$volume"})`, "healthy {{volume}}"},
				{`max by (volume) (plumbline_volume_desired_replicas{volume=~"$volume"})`, "wanted {{volume}}"},
			},
			view: graph{},
		},
		{
			title: "Rebuild", text: "How much of a running rebuild is done. Empty: none runs. Writes are slower while it does. One that stands still: look at the source replica's disk and the network.",
			width: 8, height: 8, unit: ratio,
			queries: []query{{`max by (volume, replica) (replica:rebuild_progress:ratio{volume=~"$volume"})`, "{{replica}}"}},
			view:    graph{max: 1},
		},
		{
			title: "Space of snapshots", text: "Space the replicas' snapshots take on their disks (Longhorn). Grows with every snapshot kept; a rebuild has to read it all. Remove old snapshots before the disk fills.",
			width: 8, height: 8, unit: byteCount,
			queries: []query{{`max by (volume, replica) (plumbline_longhorn_replica_snapshot_bytes{volume=~"$volume"})`, "{{replica}}"}},
			view:    graph{},
		},
	}
}
