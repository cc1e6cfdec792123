package dashboards

import "fmt"

// ofServer keeps series of the servers whose data is on the selected volumes: a server's name
// alone may be used on several nodes.
const ofServer = ` and on (node, server) server:volume:info{` + ofVolume + `}`

func queryToDisk() page {
	return page{
		uid: "plumbline-query-to-disk", title: "Plumbline / Query to disk",
		text:      "Where the time of a database's statements goes, from the statement down to the slowest replica's disk, for a class, namespace, claim or server.",
		variables: append(volumeVariables(), serverVariables()...),
		rows: []row{
			{title: "Now (last 2 minutes)", panels: querySummary()},
			{title: "In flight and stalled", panels: inFlight()},
			{title: "Where the time goes", panels: queryStacks()},
			{title: "Latency, one time axis: statement, volume, replica", panels: latencyMaps()},
		},
	}
}

// ofStatements are the metrics of statements, and what is recorded of each in whole classes.
type ofStatements struct{ metric, recorded string }

var (
	statements = ofStatements{"plumbline_query_duration_seconds", "storageclass:query_duration_seconds:rate5m"}
	phases     = ofStatements{"plumbline_query_phase_seconds_total", "storageclass:query_phase_seconds:rate5m"}
)

// selected is the rate of the chosen servers' own series, and of whole classes whose servers are not listed.
func selected(of ofStatements, more string) string { return selectedOver(of, more, "$__rate_interval") }

// selectedOver is the same over a window.
func selectedOver(of ofStatements, more, window string) string {
	servers := fmt.Sprintf(`rate(%s{server=~"$listed_server"%s}[%s])%s`, of.metric, more, window, ofServer)
	return "(" + withMany(servers, of.recorded, ofManyServers+more) + ")"
}

func querySummary() []panel {
	return []panel{
		{
			title:    "Statements a second",
			question: "How much does the database do?", empty: "no statements",
			text:  "Statements per second of the selected servers. A fall together with a rise of the time beside it is a slow server, not less work.",
			width: 4, height: 4, unit: perSec,
			queries: []query{{`histogram_count(sum` + selectedOver(statements, "", nowWindow) + `)`, "statements"}},
			view:    number{},
		},
		{
			title:    "Mean statement time",
			question: "How long does a statement take?", empty: "no statements",
			text:  "Mean time of a statement, commit included. The phases below add up to it.",
			width: 4, height: 4, unit: seconds,
			queries: []query{{`histogram_avg(sum` + selectedOver(statements, "", nowWindow) + `) >= 0`, "mean"}},
			view:    number{&limit{0.02, 0.2}},
		},
		{
			title:    "99th percentile",
			question: "How long does the slowest hundredth take?", empty: "no statements",
			text:  "One statement in a hundred took longer. Far above the mean: stalls, see the heat maps.",
			width: 4, height: 4, unit: seconds,
			queries: []query{{`histogram_quantile(0.99, sum` + selectedOver(statements, "", nowWindow) + `) >= 0`, "p99"}},
			view:    number{&limit{0.1, 1}},
		},
		{
			title:    "Asleep in storage",
			question: "Is the storage what the statements wait for?", empty: "no statements",
			text:  "Share of the statements' time spent asleep in reads, writes and syncs of files. Above a half, the storage decides how fast the database is.",
			width: 4, height: 4, unit: ratio,
			queries: []query{{`sum` + selectedOver(phases, `, phase=~"read|write|sync"`, nowWindow) + ` / (sum` + selectedOver(phases, "", nowWindow) + ` > 0)`, "share"}},
			view:    number{&limit{0.5, 0.8}},
		},
		{
			title:    "Sync overhead, 5 min",
			question: "What does waiting for the other replicas cost?", empty: "no replicas",
			text:  "What a write to the volume takes beyond the fastest replica's own time; the largest of the selected volumes. Over five minutes.",
			width: 4, height: 4, unit: seconds,
			queries: []query{{`max(` + withClasses(`volume:replica_sync_overhead_seconds:mean5m{volume=~"$volume"}`, "storageclass:replica_sync_overhead_seconds:max5m") + `)`, "overhead"}},
			view:    number{&limit{0.005, 0.05}},
		},
		{
			title:    "Slow replica, 5 min",
			question: "Does one replica hold the others up?", empty: "no replicas",
			text:  "How much longer a write's round trip to the slowest replica takes than to the fastest, over five minutes. Above a few ms one replica is slow: open Replicas in the menu at the head, which keeps the claim and the time.",
			width: 4, height: 4, unit: seconds,
			queries: []query{{`max(` + withClasses(`volume:replica_straggler_seconds:mean5m{volume=~"$volume"}`, "storageclass:replica_straggler_seconds:max5m") + `)`, "behind"}},
			view:    number{&limit{0.002, 0.02}},
		},
	}
}

func queryStacks() []panel {
	return []panel{
		{
			title:    "Time per statement, by phase",
			question: "What do the statements do with their time?", empty: "no statements",
			text: "Measured statement by statement; the phases add up to the mean. sync is fsync and fdatasync, wait is any other sleep, such as locks and another session's flush of the log. " +
				"Good: cpu and client are the largest. sync or read: the volume, see the panel beside. wait: locks, see Databases. runqueue: too little CPU.",
			width: 12, height: 10, unit: seconds,
			queries: []query{{
				`sum by (phase) ` + selected(phases, "") + `
/ on () group_left ()
  (histogram_count(sum` + selected(statements, "") + `) > 0)`, "{{phase}}"}},
			view: graph{stacked: true, colours: phaseColours},
		},
		{
			title:    "Time per statement, by layer (5 min)",
			question: "In which layer, down to the replica's disk, is the time spent?", empty: "no statements",
			text: "The same mean over five minutes, with sync and read split over the volume's layers as its writes, flushes and reads divide, as in the bars of Overview. The split is a ratio of means, not measured per statement. " +
				"Good: cpu is the largest, and of the storage's parts the replica's disk. network or replica: open Replicas. volume: see below whether queue or device.",
			width: 12, height: 10, unit: seconds,
			queries: []query{{`avg by (part) (sum by (node, server, storageclass, part) (` + inParts(`(`+classesWith(`server:query_layer_seconds:inferred5m{server=~"$listed_server"}`+ofServer, "storageclass:query_layer_seconds:inferred5m", ofManyServers)+`)`) + `))`, "{{part}}"}},
			view:    graph{stacked: true, colours: statementColours},
		},
		{
			title:    "One write, layer by layer (5 min)",
			question: "Which layer makes a write slow?",
			text: "A write to the volume from the kernel's queue to the disk of its slowest replica: differences of means over five minutes, the mean of the selected volumes. path is the way over the network to the storage backend, where there is one; rest is what the layers do not explain, below 0 where they explain too much. " +
				"Good: disk is the largest. The layer that grew when the statements did is the cause.",
			width: 8, height: 9, unit: seconds,
			queries: []query{{`avg by (layer) (` + withMany(`volume:write_layer_seconds:inferred5m{volume=~"$volume"}`, "storageclass:write_layer_seconds:inferred5m", ofMany) + `)`, "{{layer}}"}},
			view:    graph{stacked: true, signed: true, colours: layerColours},
		},
		{
			title:    "Time per statement, by command",
			question: "Which kind of statement is slow?", empty: "no statements",
			text:  "Mean time by the kind of statement. COMMIT slow alone: the log's sync. SELECT slow alone: reads, see the page-cache hits on Databases.",
			width: 8, height: 9, unit: seconds,
			queries: []query{{`histogram_avg(sum by (command) ` + selected(statements, "") + `) >= 0`, "{{command}}"}},
			view:    graph{log: true},
		},
		layersTogether(),
	}
}

func latencyMaps() []panel {
	return []panel{
		{
			title:    "Times of statements",
			question: "Are all statements slow, or a few?", empty: "no statements",
			text:  "How many statements took how long. Good: one dark band, flat. A second band above it is a second kind of work or a wait; a band that rises is what the panels above explain.",
			width: 24, height: 9, unit: seconds,
			queries: []query{{buckets(timeBounds, `sum`+selected(statements, "")), ""}},
			view:    heat{},
		},
		{
			title:    "Times of the volume's writes and flushes",
			question: "Does the volume slow down when the statements do?",
			text:     "How long writes and flushes took on the volume's block device, from their start to their completion. Bands that rise at the same time as the statements' do are the storage's.",
			width:    24, height: 9, unit: seconds,
			queries: []query{{buckets(blockBounds, `sum(`+onBlock(`op=~"write|flush"`)+`)`), ""}},
			view:    heat{},
		},
		{
			title:    "Times of writes to the replicas",
			question: "Do the replicas slow down when the volume does?", empty: "no replicas that the agent sees",
			text:  "How long a write's round trip to one replica took, all replicas of the volume together. Two bands: one replica is slower than the others. Empty for volumes without replicas that the agent sees.",
			width: 24, height: 9, unit: seconds,
			queries: []query{{buckets(timeBounds, `sum(`+withMany(onWire("plumbline_replica_request_duration_seconds", `, op="write"`), "storageclass:replica_write_seconds:rate5m", ofMany)+`)`), ""}},
			view:    heat{},
		},
	}
}

// layersTogether shows the statement's time with those below it.
func layersTogether() panel {
	return panel{
		title:    "Statement and layers together (5 min)",
		question: "Which layer moves when the statements do?",
		text:     "Means over five minutes of the statement and of what lies below it. The line that moves with the statement's is its likely cause, and the one that moves first is where it began.",
		width:    8, height: 9, unit: seconds,
		queries: []query{
			{`avg(server:query_seconds:mean5m{server=~"$server"}` + ofServer + `)`, "statement"},
			{`avg(volume:block_write_seconds:mean5m{` + ofVolume + `})`, "block write"},
			{`avg(volume:block_flush_seconds:mean5m{` + ofVolume + `})`, "block flush"},
			{`avg(` + withClasses(`volume:replica_sync_overhead_seconds:mean5m{volume=~"$volume"}`, "storageclass:replica_sync_overhead_seconds:avg5m") + `)`, "sync overhead"},
			{`avg(` + withClasses(`volume:replica_straggler_seconds:mean5m{volume=~"$volume"}`, "storageclass:replica_straggler_seconds:avg5m") + `)`, "straggler"},
		},
		view: graph{log: true, colours: map[string]string{
			"statement": blue, "block write": orange, "block flush": green, "sync overhead": vermillion, "straggler": purple}},
	}
}
