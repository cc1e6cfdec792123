package dashboards

import "fmt"

// ofServer keeps series of the servers whose data is on the selected volumes: a server's name
// alone may be used on several nodes.
const ofServer = ` and on (node, server) server:volume:info{` + ofVolume + `}`

func queryToDisk() page {
	return page{
		uid: "plumbline-query-to-disk", title: "Plumbline / Query to disk",
		text:      "Where the time of a database's statements goes, from the statement down to the slowest replica's disk, for a class, namespace, claim or server.",
		variables: append(volumeVariables(), serverVariable()),
		rows: []row{
			{"Now", querySummary()},
			{"Where the time goes", queryStacks()},
			{"Latency, one time axis: statement, volume, replica", latencyMaps()},
			{"Does the statement follow the storage?", queryCorrelation()},
		},
	}
}

// selected is the part of a query that selects the chosen servers' own series.
func selected(metric, more string) string {
	return fmt.Sprintf(`(rate(%s{server=~"$server"%s}[$__rate_interval])%s)`, metric, more, ofServer)
}

func querySummary() []panel {
	return []panel{
		{
			title: "Statements", text: "Statements per second of the selected servers. A fall together with a rise of the time beside it is a slow server, not less work.",
			width: 4, height: 4, unit: perSec,
			queries: []query{{`histogram_count(sum` + selected("plumbline_query_duration_seconds", "") + `)`, "statements"}},
			view:    number{},
		},
		{
			title: "Mean", text: "Mean time of a statement, commit included. The phases below add up to it.",
			width: 4, height: 4, unit: seconds,
			queries: []query{{`histogram_avg(sum` + selected("plumbline_query_duration_seconds", "") + `)`, "mean"}},
			view:    number{&limit{0.02, 0.2}},
		},
		{
			title: "99th percentile", text: "One statement in a hundred took longer. Far above the mean: stalls, see the heat maps.",
			width: 4, height: 4, unit: seconds,
			queries: []query{{`histogram_quantile(0.99, sum` + selected("plumbline_query_duration_seconds", "") + `)`, "p99"}},
			view:    number{&limit{0.1, 1}},
		},
		{
			title: "Asleep in storage", text: "Share of the statements' time spent asleep in reads, writes and syncs of files. Above a half, the storage decides how fast the database is.",
			width: 4, height: 4, unit: ratio,
			queries: []query{{`sum` + selected("plumbline_query_phase_seconds_total", `, phase=~"read|write|sync"`) + ` / sum` + selected("plumbline_query_phase_seconds_total", ""), "share"}},
			view:    number{&limit{0.5, 0.8}},
		},
		{
			title: "Sync overhead", text: "What a write to the volume takes beyond the fastest replica's own time; the largest of the selected volumes. No data where volumes have no replicas.",
			width: 4, height: 4, unit: seconds,
			queries: []query{{`max(volume:replica_sync_overhead_seconds:mean5m{volume=~"$volume"})`, "overhead"}},
			view:    number{&limit{0.005, 0.05}},
		},
		{
			title: "Slowest replica behind by", text: "How much longer a write's round trip to the slowest replica takes than to the fastest. Above some ms one replica is ill: open Replicas in this dashboard's head, which keeps the claim and the time.",
			width: 4, height: 4, unit: seconds,
			queries: []query{{`max(volume:replica_straggler_seconds:mean5m{volume=~"$volume"})`, "behind"}},
			view:    number{&limit{0.002, 0.02}},
		},
	}
}

func queryStacks() []panel {
	return []panel{
		{
			title: "Time per statement, by phase",
			text: "Measured statement by statement; the phases add up to the mean. sync is fsync and fdatasync, wait is any other sleep, such as locks and another session's flush of the log. " +
				"Good: cpu and client are the largest. sync or read: the volume, see the panel beside. wait: locks, see Databases. runqueue: too little CPU.",
			width: 12, height: 10, unit: seconds,
			queries: []query{{
				`sum by (phase) ` + selected("plumbline_query_phase_seconds_total", "") + `
/ on () group_left ()
  (histogram_count(sum` + selected("plumbline_query_duration_seconds", "") + `) > 0)`, "{{phase}}"}},
			view: graph{stacked: true, colours: phaseColours},
		},
		{
			title: "Time per statement, by layer",
			text: "The same mean over five minutes, with sync and read split over the volume's layers as its writes, flushes and reads divide. The split is a ratio of means, not measured per statement. " +
				"Good: disk is the largest of the storage's layers. network or replica: open Replicas. queue: more is sent than the device takes.",
			width: 12, height: 10, unit: seconds,
			queries: []query{{`avg by (layer) (sum by (node, server, layer) (server:query_layer_seconds:inferred5m{server=~"$server"}` + ofServer + `))`, "{{layer}}"}},
			view:    graph{stacked: true, colours: phaseColours},
		},
		{
			title: "One write, layer by layer",
			text: "A write to the volume from the kernel's queue to the disk of its slowest replica: differences of means over five minutes, the mean of the selected volumes. rest is what the layers do not explain, below 0 where they explain too much. " +
				"Good: disk is the largest. The layer that grew when the statements did is the cause.",
			width: 12, height: 9, unit: seconds,
			queries: []query{{`avg by (layer) (volume:write_layer_seconds:inferred5m{volume=~"$volume"})`, "{{layer}}"}},
			view:    graph{stacked: true, signed: true, colours: phaseColours},
		},
		{
			title: "Time per statement, by command",
			text:  "Mean time by the kind of statement. COMMIT slow alone: the log's sync. SELECT slow alone: reads, see the page-cache hits on Databases.",
			width: 12, height: 9, unit: seconds,
			queries: []query{{`histogram_avg(sum by (command) ` + selected("plumbline_query_duration_seconds", "") + `)`, "{{command}}"}},
			view:    graph{log: true},
		},
	}
}

func latencyMaps() []panel {
	return []panel{
		{
			title: "Times of statements",
			text:  "How many statements took how long. Good: one dark band, flat. A second band above it is a second kind of work or a wait; a band that rises is what the panels above explain.",
			width: 24, height: 7, unit: seconds,
			queries: []query{{`sum` + selected("plumbline_query_duration_seconds", ""), ""}},
			view:    heat{},
		},
		{
			title: "Times of the volume's writes and flushes",
			text:  "How long writes and flushes took on the volume's block device, from their start to their completion. Bands that rise at the same time as the statements' do are the storage's.",
			width: 24, height: 7, unit: seconds,
			queries: []query{{classicBuckets(`sum(rate(ebpf_exporter_blkio_total_seconds{op=~"write|flush", node=~"$node", device=~"$device"}[$__rate_interval]))`), ""}},
			view:    heat{classic: true},
		},
		{
			title: "Times of writes to the replicas",
			text:  "How long a write's round trip to one replica took, all replicas of the volume together. Two bands: one replica is slower than the others. Empty for volumes without replicas that the agent sees.",
			width: 24, height: 7, unit: seconds,
			queries: []query{{`sum(rate(plumbline_replica_request_duration_seconds{op="write", volume=~"$volume"}[$__rate_interval]))`, ""}},
			view:    heat{},
		},
	}
}

// correlation is Pearson's coefficient of two expressions over half an hour.
func correlation(a, b string) string {
	return fmt.Sprintf(`(
  avg_over_time((%[1]s * %[2]s)[30m:30s])
- avg_over_time((%[1]s)[30m:30s]) * avg_over_time((%[2]s)[30m:30s])
)
/ (stddev_over_time((%[1]s)[30m:30s]) * stddev_over_time((%[2]s)[30m:30s]) > 0)`, a, b)
}

func queryCorrelation() []panel {
	const (
		statement = `avg(server:query_seconds:mean5m{server=~"$server"} >= 0)`
		write     = `avg(volume:block_write_seconds:mean5m{volume=~"$volume"} >= 0)`
		flush     = `avg(volume:block_flush_seconds:mean5m{volume=~"$volume"} >= 0)`
		overhead  = `avg(volume:replica_sync_overhead_seconds:mean5m{volume=~"$volume"})`
		straggler = `avg(volume:replica_straggler_seconds:mean5m{volume=~"$volume"} >= 0)`
	)
	return []panel{
		{
			title: "Statement and layers together",
			text:  "Means over five minutes of the statement and of what lies below it. The line that moves with the statement's is its cause; the one that moves first is where it began.",
			width: 8, height: 9, unit: seconds,
			queries: []query{{statement, "statement"}, {write, "block write"}, {flush, "block flush"}, {overhead, "sync overhead"}, {straggler, "straggler"}},
			view: graph{log: true, colours: map[string]string{
				"statement": blue, "block write": orange, "block flush": green, "sync overhead": vermillion, "straggler": purple}},
		},
		{
			title: "Statement against block write",
			text:  "One point for each moment: the mean block write across, the mean statement and the sync overhead up. A rising line of points: the statements pay for the writes. A cloud: something else slows them.",
			width: 8, height: 9, unit: seconds,
			queries: []query{{write, "block write"}, {statement, "statement"}, {overhead, "sync overhead"}},
			view:    scatter{xTitle: "block write"},
		},
		{
			title: "Correlation with the statement, over 30 minutes",
			text:  "1: the layer's time and the statement's rise and fall together; 0: they have nothing to do with each other. Says where to look, not why. Needs some minutes of change; noise around 0 when nothing moves.",
			width: 8, height: 9, unit: times,
			queries: []query{
				{correlation(statement, write), "block write"}, {correlation(statement, flush), "block flush"},
				{correlation(statement, overhead), "sync overhead"}, {correlation(statement, straggler), "straggler"},
			},
			view: graph{colours: map[string]string{"block write": orange, "block flush": green, "sync overhead": vermillion, "straggler": purple}, signed: true, max: 1},
		},
	}
}
