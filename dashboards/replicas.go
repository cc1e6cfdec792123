package dashboards

import "fmt"

// named adds to what the agent measures of a replica, by its address, the storage backend's name of it.
func named(expr string) string {
	return fmt.Sprintf(`%s
* on (volume, address) group_left (replica)
  max by (volume, address, replica) (plumbline_volume_replica_info{volume=~"$volume",address!=""})`, expr)
}

// onWire is a rate of the agent's replica metrics of the selected volumes.
func onWire(metric, more string) string { return onWireOver(metric, more, "$__rate_interval") }

// onWireOver is the same over a window.
func onWireOver(metric, more, window string) string {
	return fmt.Sprintf(`rate(%s{volume=~"$volume"%s}[%s])`, metric, more, window)
}

func replicas() page {
	return page{
		uid: "plumbline-replicas", title: "Plumbline / Replicas",
		text:      "What each replica adds to a write: round trip, its own time, the network between, and which one the others wait for.",
		variables: volumeVariables(),
		rows: []row{
			{title: "Which replica", panels: []panel{replicaTable(), replicaModes()}},
			{title: "A write's way to each replica", panels: replicaTimes()},
			{title: "Who is waited for", panels: replicaWaits()},
			{title: "CPU", panels: processCPU()},
			{title: "Slower than the peers", panels: slowdowns()},
			{title: "The wire", panels: replicaWire()},
			{title: "Rebuilds and space", panels: replicaSpace()},
		},
	}
}

func replicaTable() panel {
	return panel{
		title:    "Replicas now (last 2 minutes)",
		question: "Which replica is slow now, and is it the replica, its disk or the way to it?", empty: "no volume has replicas",
		text: "Round trip is the engine's view, own time is measured within the replica, alone is the time per write for which only this replica had not answered. The disk, and what the agent does not see on the wire, are means over five minutes. " +
			"Good: all alike, alone well below a ms. One stands out: if its own time does, its node or disk is slow; if only its round trip does, the network, or its process gets no CPU.",
		width: 15, height: 9, unit: seconds,
		queries: []query{
			{soon("plumbline_replica_request_duration_seconds", "replica:write_seconds:mean5m"), "Round trip"},
			{soon("plumbline_replica_service_seconds", "replica:write_service_seconds:mean5m"), "Own time"},
			{`max by (volume, replica) (replica:disk_write_seconds:mean5m{volume=~"$volume"})`, "Its disk"},
			{`max by (volume, replica) (` + waitedAlone(nowWindow) + `)`, "Alone"},
		},
		view: grid{
			labels: []labelColumn{{"replica", "Replica", 180, nil}, {"volume", "Volume", 150, nil}}, lead: 1,
			columns: []valueColumn{{seconds, &limit{0.01, 0.1}}, {seconds, &limit{0.01, 0.1}}, {seconds, &limit{0.01, 0.1}}, {seconds, &limit{0.002, 0.02}}},
			sort:    "Round trip",
		},
	}
}

// soon is the mean of a write's times on the wire over the last two minutes, else the recorded one.
func soon(metric, recorded string) string {
	return `max by (volume, replica) (` + named(`(histogram_avg(sum by (volume, address) (`+onWireOver(metric, `, op="write"`, nowWindow)+`)) >= 0)`) + `)
or on (volume, replica)
  max by (volume, replica) (` + recorded + `{volume=~"$volume"})`
}

func replicaModes() panel {
	const mode = `max by (volume, replica) (plumbline_longhorn_engine_replica_mode{volume=~"$volume", mode="%s"})`
	return panel{
		title:    "Modes",
		question: "Does the engine use every replica?", empty: "no Longhorn volume",
		text: "How the engine uses each replica (Longhorn). Good: read-write throughout. Write-only: it is being rebuilt. " +
			"Failed: the engine gave it up; see the events of its node, and whether the volume has another healthy replica before doing anything.",
		width: 9, height: 9, unit: times,
		queries: []query{{fmt.Sprintf(mode, "RW") + " + " + fmt.Sprintf("2 * "+mode, "WO") + " + " + fmt.Sprintf("3 * "+mode, "ERR"), "{{replica}}"}},
		view:    states{[]state{{1, "read-write", sky}, {2, "write-only", yellow}, {3, "failed", vermillion}}},
	}
}

func replicaTimes() []panel {
	return []panel{
		{
			title:    "Round trip of a write",
			question: "Which replica answers late?", empty: "no replicas that the agent sees",
			text:  "From the engine's sending of a write to the replica's answer, measured on the wire. Good: the replicas lie on each other. The one above the others is the straggler.",
			width: 8, height: 9, unit: seconds,
			queries: []query{{named(`(histogram_avg(sum by (volume, address) (` + onWire("plumbline_replica_request_duration_seconds", `, op="write"`) + `)) >= 0)`), "{{replica}}"}},
			view:    graph{log: true},
		},
		{
			title:    "Within the replica",
			question: "Is it the replica itself that takes long?", empty: "no replicas that the agent sees",
			text:  "From the whole request's arrival in the replica's process to the end of its answer, measured on the replica's node. High here and in the round trip alike: that node's disk or CPU, see the disk beside.",
			width: 8, height: 9, unit: seconds,
			queries: []query{{named(`(histogram_avg(sum by (volume, address) (` + onWire("plumbline_replica_service_seconds", `, op="write"`) + `)) >= 0)`), "{{replica}}"}},
			view:    graph{log: true},
		},
		{
			title:    "The replica's disk (5 min)",
			question: "Is it the disk below the replica?",
			text:     "Mean time of a write on the disk that holds the replica; the disk's other users are in it, too. High: the disk is slow or busy, see Volumes.",
			width:    8, height: 9, unit: seconds,
			queries: []query{{`max by (volume, replica) (replica:disk_write_seconds:mean5m{volume=~"$volume"})`, "{{replica}}"}},
			view:    graph{log: true},
		},
		{
			title:    "Network's share of the round trip (5 min)",
			question: "Is it the network?", empty: "no replicas that the agent sees",
			text:  "What is left of the round trip without the time within the replica: the network, and the sockets' queues at both ends. Differences of means. Good: steady. Growing alone: the network; it also grows when the replica's process is not scheduled or stopped.",
			width: 12, height: 8, unit: ratio,
			queries: []query{{`clamp(1 - max by (volume, replica) (replica:write_service_seconds:mean5m{volume=~"$volume"}) / (max by (volume, replica) (replica:write_seconds:mean5m{volume=~"$volume"}) > 0), 0, 1)`, "{{replica}}"}},
			view:    graph{max: 1},
		},
		{
			title:    "Straggler and sync overhead (5 min)",
			question: "What do the slowest replica and replication as a whole cost?", empty: "no volume has replicas",
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
func waitedAlone(window string) string {
	return named(`(sum by (volume, address) (` + onWireOver("plumbline_replica_last_ack_wait_seconds_total", "", window) +
		`) / on (volume) group_left () (sum by (volume) (` + onWireOver("plumbline_replica_last_ack_total", "", window) + `) > 0))`)
}

func replicaWaits() []panel {
	return []panel{
		{
			title:    "Last to acknowledge",
			question: "Which replica do the others wait for?", empty: "no replicas that the agent sees",
			text:  "Share of a volume's writes that this replica was the last to acknowledge. Near 1 for one: it is always slower than the others. A replica that pauses now and then hardly shows here, but beside: there count seconds, not writes.",
			width: 8, height: 8, unit: ratio,
			queries: []query{{named(`(sum by (volume, address) (` + onWire("plumbline_replica_last_ack_total", "") + `) / on (volume) group_left () (sum by (volume) (` + onWire("plumbline_replica_last_ack_total", "") + `) > 0))`), "{{replica}}"}},
			view:    graph{max: 1},
		},
		{
			title:    "Time waited for this replica alone",
			question: "How much would a write save without this replica?", empty: "no replicas that the agent sees",
			text:  "Time per write for which every other replica had answered and only this one had not. It is what removing this replica would save. Good: well below a ms.",
			width: 8, height: 8, unit: seconds,
			queries: []query{{waitedAlone("$__rate_interval"), "{{replica}}"}},
			view:    graph{limit: &limit{0.002, 0.02}},
		},
		{
			title:    "Oldest request without an answer",
			question: "Does a replica hang?", empty: "no replicas that the agent sees",
			text:  "Good: below 0.1 s. One that grows second by second: the replica hangs; the engine drops it at its time-out (Longhorn: 8 s), and until then every write waits.",
			width: 8, height: 8, unit: seconds,
			queries: []query{{named(`max by (volume, address) (plumbline_replica_oldest_request_seconds{volume=~"$volume"})`), "{{replica}}"}},
			view:    graph{limit: &limit{1, 8}},
		},
	}
}

func processCPU() []panel {
	each := func(metric string) []query {
		return []query{{`sum by (volume, role, address) (` + onWire(metric, "") + `)`, "{{role}} {{address}} of {{volume}}"}}
	}
	return []panel{
		{
			title:    "CPU of engines and replicas",
			question: "Which volume takes the CPU of an instance manager?", empty: "no engine or replica that the agent sees",
			text:  "CPUs that each engine's and replica's own process uses, not only the pod that they share. One far above the others at like load: a rebuild, a backup, or a volume that much is written to.",
			width: 12, height: 8, unit: count,
			queries: each("plumbline_storage_process_cpu_seconds_total"),
			view:    graph{},
		},
		{
			title:    "Engines and replicas that wait for a CPU",
			question: "Does an engine or replica get the CPU that it needs?", empty: "no engine or replica that the agent sees",
			text:  "How many of the process's threads are ready and wait for a CPU, on average. Good: far below the CPUs that it uses. As much or more: the node, or a limit of the pod, holds the volume up.",
			width: 12, height: 8, unit: count,
			queries: each("plumbline_storage_process_runqueue_seconds_total"),
			view:    graph{},
		},
	}
}

func slowdowns() []panel {
	return []panel{
		{
			title:    "Replicas against the volume's others",
			question: "Is a replica slower than its peers for long?", empty: "too few peers or too little past",
			text:  "How many times as long as on the volume's other replicas a write takes, at like load of their disks (median of the peers). Good: near 1. Lasting above 1.75 it is graded 2 of 4, above 3 it is fail-slow: move it before it fails. All slow together is no slowdown here.",
			width: 8, height: 8, unit: "x",
			queries: []query{{`max by (volume, replica) (replica:slowdown:ratio{volume=~"$volume"})`, "{{replica}}"}},
			view:    graph{log: true, limit: &limit{1.75, 3}},
		},
		{
			title:    "Disks against their peers",
			question: "Is a disk failing slowly?", empty: "too few disks that are alike",
			text:  "The ten disks that take longest for a request, as a multiple of what the other disks of the same use and model take at like load. Good: near 1. Lasting above 3 it is fail-slow: take it out of use. Empty with fewer than three peers.",
			width: 8, height: 8, unit: "x",
			queries: []query{{`topk(10, max by (node, device) (disk:slowdown:ratio))`, "{{node}} {{device}}"}},
			view:    graph{log: true, limit: &limit{1.75, 3}},
		},
		{
			title:    "Grades",
			question: "Is it time to replace a replica?", empty: "too few peers or too little past",
			text:  "How persistent and how large the slowdown is, from 0 to 4, of the volume's replicas. Good: 0. 1 and 2: watch it. 3 and 4: ReplicaFailSlow fires, see its runbook.",
			width: 8, height: 8, unit: times,
			queries: []query{{`max by (volume, replica) (replica:slowdown:grade{volume=~"$volume"})`, "{{replica}}"}},
			view:    states{[]state{{0, "as its peers", sky}, {1, "grade 1", blue}, {2, "grade 2", yellow}, {3, "grade 3", orange}, {4, "grade 4", vermillion}}},
		},
	}
}

func replicaWire() []panel {
	return []panel{
		{
			title:    "Requests",
			question: "Do all replicas get their share of the work?", empty: "no replicas that the agent sees",
			text:  "Requests per second to each replica. Writes go to all, a read to one.",
			width: 6, height: 8, unit: perSec,
			queries: []query{{named(`sum by (volume, address) (histogram_count(` + onWire("plumbline_replica_request_duration_seconds", "") + `))`), "{{replica}}"}},
			view:    graph{},
		},
		{
			title:    "Bytes",
			question: "What does replication cost the network?", empty: "no replicas that the agent sees",
			text:  "Bytes per second to and from each replica: what replication costs the network.",
			width: 6, height: 8, unit: bytesSec,
			queries: []query{{named(`sum by (volume, address) (` + onWire("plumbline_replica_request_bytes_total", "") + `)`), "{{replica}}"}},
			view:    graph{},
		},
		{
			title:    "Requests under way, mean",
			question: "Does work pile up at one replica?", empty: "no replicas that the agent sees",
			text:  "How many requests to each replica were under way at a time, on average: their seconds per second. It grows with load; on one replica alone it grows because that one is slow. Requests that never end are not in it, see Oldest request without an answer.",
			width: 6, height: 8, unit: count,
			queries: []query{{named(`sum by (volume, address) (histogram_sum(` + onWire("plumbline_replica_request_duration_seconds", "") + `))`), "{{replica}}"}},
			view:    graph{},
		},
		{
			title:    "Errors",
			question: "Do replicas fail requests?", empty: "no replicas that the agent sees",
			text:  "Requests answered by an error, and requests whose connection ended before the answer. Good: 0. Then look at the replica's own log.",
			width: 6, height: 8, unit: perSec,
			queries: []query{{named(`sum by (volume, address) (` + onWire("plumbline_replica_request_errors_total", "") + ` or ` + onWire("plumbline_replica_request_unanswered_total", "") + `)`), "{{replica}}"}},
			view:    graph{limit: &limit{0.01, 1}},
		},
	}
}

func replicaSpace() []panel {
	return []panel{
		{
			title:    "Healthy replicas",
			question: "Does every volume have all its copies?", empty: "no volume has replicas",
			text:  "Replicas that hold all data, against those the volume is meant to have. Good: the lines lie on each other.",
			width: 8, height: 8, unit: count,
			queries: []query{
				{`max by (volume) (plumbline_volume_healthy_replicas{volume=~"$volume"})`, "healthy {{volume}}"},
				{`max by (volume) (plumbline_volume_desired_replicas{volume=~"$volume"})`, "wanted {{volume}}"},
			},
			view: graph{},
		},
		{
			title:    "Rebuilds under way",
			question: "How far is a rebuild?", empty: "none",
			text:  "How much of a running rebuild is done. Writes are slower while it does. One that is stalled: look at the source replica's disk and the network.",
			width: 8, height: 8, unit: ratio,
			queries: []query{{`max by (volume, replica) (replica:rebuild_progress:ratio{volume=~"$volume"})`, "{{replica}}"}},
			view:    graph{max: 1},
		},
		{
			title:    "Space of snapshots",
			question: "Do snapshots fill the disks?", empty: "no Longhorn volume",
			text:  "Space the replicas' snapshots take on their disks (Longhorn). Grows with every snapshot kept; a rebuild has to read it all. Remove old snapshots before the disk fills.",
			width: 8, height: 8, unit: byteCount,
			queries: []query{{`max by (volume, replica) (plumbline_longhorn_replica_snapshot_bytes{volume=~"$volume"})`, "{{replica}}"}},
			view:    graph{},
		},
	}
}
