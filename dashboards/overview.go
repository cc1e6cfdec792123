package dashboards

// withClass gives series that know a volume only its labels, and keeps the selected classes'.
const withClass = `
* on (volume) group_left (storageclass, namespace, persistentvolumeclaim)
  max by (volume, storageclass, namespace, persistentvolumeclaim) (plumbline_volume_info{storageclass=~"$storageclass"})`

// withClassOfStalled is withClass for the few volumes that are stalled: they are selected before they are grouped and
// joined. For ten thousand volumes, grouping and joining at each step of a graph is most of the cost.
const withClassOfStalled = `
* on (volume) group_left (storageclass, namespace, persistentvolumeclaim)
  max by (volume, storageclass, namespace, persistentvolumeclaim) (plumbline_volume_info{storageclass=~"$storageclass"} and on (volume) volume:stalled_seconds:max)`

// ofControl keeps the classes that the others are compared with.
const ofControl = ` and on (storageclass) storageclass:control:info`

// responses are the load's response times of the chosen classes over a window.
func responses(by, window string) string {
	return `sum by (` + by + `) (rate(loadgen_response_seconds{storageclass=~"$storageclass"}[` + window + `]))`
}

// ratioToControl is the mean response time of each class as a multiple of that of its cluster's
// control classes under the same load, over a window.
func ratioToControl(window string) string {
	const load = clusterHere + `, tool, profile`
	return `avg by (storageclass) (
  (histogram_avg(sum by (` + load + `, storageclass) (rate(loadgen_response_seconds{storageclass=~"$storageclass"}[` + window + `]))) >= 0)
/ on (` + load + `) group_left ()
  (histogram_avg(sum by (` + load + `) (rate(loadgen_response_seconds[` + window + `])` + ofControl + `)) > 0)
)`
}

func overview() page {
	return page{
		uid: "plumbline-overview", title: "Plumbline / Overview",
		text:      "Storage classes side by side: which is slow, by how much, in which layer, and what changed. Follow a link to see why.",
		variables: []variable{classVariable()},
		rows: []row{
			{title: "Which class is slow, and in which layer (last 2 minutes)", panels: []panel{classTiles(), classBars(), firingAlerts()}},
			{title: "What changed", panels: []panel{changes(), suspectsOverTime()}},
			{title: "In flight and stalled", panels: stuckVolumes()},
			{title: "What the users of a class see", panels: responseGraphs()},
			{title: "What the storage adds", panels: storageGraphs()},
			{title: "Which volume", panels: []panel{slowestVolumes(), stragglers()}},
		},
	}
}

func classTiles() panel {
	return panel{
		title:    "$storageclass",
		question: "Is this class slow, how slow beside the plain disk, which layer is suspect, and are its replicas healthy?",
		text: "p99 is the load's response time from the moment a transaction was due, or without a load the statements' own; the ratio compares mean responses with the control class's. " +
			"Both over the last two minutes, and missing if those had no answer. The suspect is the rules' verdict (server:verdict:confidence), if anything stands out, " +
			"or what has answered nothing for over five seconds: it is stalled. Replicas are those of the volume with the least. " +
			"Good: a p99 that your users accept, a ratio near 1, none, 100 %. Not so: follow the tile's link. Of several clusters the worst is shown.",
		empty: "unknown", width: columns, height: 6, unit: times,
		queries: []query{
			{`max(histogram_quantile(0.99, ` + responses("storageclass", nowWindow) + `) >= 0)
or
  max(histogram_quantile(0.99, sum by (storageclass) (` + ofClass(`sum by (node, server) (rate(plumbline_query_duration_seconds[`+nowWindow+`]))`) + `)) >= 0)`, "p99"},
			{`max(` + ratioToControl(nowWindow) + `)`, "to control"},
			{`max(` + suspect() + `)`, "suspect"},
			{`min(volume:healthy_replicas:count{storageclass=~"$storageclass"} / on (volume) group_left () (max by (volume) (plumbline_volume_desired_replicas) > 0))`, "replicas"},
		},
		view: tile{
			variable: "storageclass",
			values:   []tileValue{{seconds, &limit{0.1, 1}, nil}, {"x", &limit{2, 5}, nil}, {times, nil, suspectStates()}, {ratio, &limit{1, 0.6}, nil}},
			links:    []link{classToQuery},
		},
	}
}

func classBars() panel {
	return panel{
		title:    "Time per statement, by layer",
		question: "Where does a statement's time go on each class, at this moment?",
		text: "One bar for each class, from the client to the slowest replica's disk, over the last two minutes; how syncs and reads divide into the layers below is as in the last five. " +
			"wait is for locks and for other sessions' flush of the log, volume the kernel's queue, the device and what nothing divides, replica's disk the layer disk. The split is a ratio of means, not measured per statement. " +
			"A class without a bar completes no statements: see what is stalled, below. Good: short bars, cpu the longest part. The part that makes one bar longer than the others is what to work on.",
		empty: "no statements: no agent beside a database, or no work", width: 14, height: 10, unit: seconds,
		queries: statementBars(),
		view:    bars{label: "storageclass", colours: statementColours, links: []link{classToQuery}},
	}
}

func firingAlerts() panel {
	return panel{
		title:    "Firing alerts",
		question: "What has Plumbline found?",
		text: "Plumbline's alerts that fire now, without those for information. Good: none. Each has a runbook, linked in Alertmanager; " +
			"start with the one on the lowest layer, which Stalled volumes names: DeviceStalled is the lowest if it is a replica's disk. Where is its node, database server and claim.",
		empty: "none", width: 10, height: 10, unit: times,
		queries: []query{{`count by (alertname, severity, where) (label_join(ALERTS{alertstate="firing", severity!="info", ` + ourAlerts + `}, "where", " ", "node", "server", "persistentvolumeclaim"))`, "Times"}},
		view: grid{
			labels:  []labelColumn{{"alertname", "Alert", 170, nil}, {"where", "Where", 120, nil}, {"severity", "Severity", 90, nil}},
			columns: []valueColumn{{times, nil}}, sort: "Times",
		},
	}
}

func suspectsOverTime() panel {
	return panel{
		title:    "Suspect layer of each class",
		question: "Since when is a layer suspect, and did it change?",
		text: "The layer in which a volume is stalled, else the rules' verdict, if anything stands out. Good: nothing. " +
			"host: the control class got slower, too. rebuild: a replica is being rebuilt. load: there is more to do, and storage is probably not to blame. another layer: storageclass:suspect:info or volume:stalled_seconds:max has its name. Growth is of means over five minutes: it begins some minutes after its cause and ends some minutes after it.",
		empty: "no volumes are known", width: 12, height: 8, unit: times,
		queries: []query{{suspect(), "{{storageclass}}"}},
		view:    states{append([]state{{0, "none", "transparent"}}, suspectStates()[1:]...)},
	}
}

func responseGraphs() []panel {
	return []panel{
		{
			title:    "Response time, 99th percentile",
			question: "How long does the slowest hundredth of the users wait?",
			text: "One of the load's transactions in a hundred was slower, from the moment it was due. Good: flat and below the line. A step in one class alone is its storage; " +
				"a step in all of them is the node, the network or the load.",
			empty: "no loadgen runs", width: 8, height: 8, unit: seconds,
			queries: []query{{`histogram_quantile(0.99, ` + responses("storageclass", "$__rate_interval") + `) >= 0`, "{{storageclass}}"}},
			view:    graph{log: true, limit: &limit{0.1, 1}, links: []link{classToQuery}},
		},
		{
			title:    "Responses slower than 100 ms",
			question: "How many users wait too long?",
			text: "Share of the load's transactions that took longer than 100 ms, those that failed or were skipped included. " +
				"Good: below 1 %. It moves before the mean does.",
			empty: "no loadgen runs", width: 8, height: 8, unit: ratio,
			queries: []query{{`1 - (histogram_fraction(0, 0.1, ` + responses("storageclass", "$__rate_interval") + `) >= 0)`, "{{storageclass}}"}},
			view:    graph{max: 1, limit: &limit{0.01, 0.1}, links: []link{classToQuery}},
		},
		{
			title:    "95th percentile against the baseline's",
			question: "Is a class slower than it was when all was well?",
			text: "The canary's p95 divided by that of the baseline, which loadgen baseline measured. Good: near 1. " +
				"Above 1.5 the class got slower than it was. The alert CanarySlow, which goes by more than this ratio, can fire from 1.15 on; its text names the layer that grew.",
			empty: "no baseline pinned: run loadgen baseline", width: 8, height: 8, unit: "x",
			queries: []query{{`max by (storageclass) (loadgen:response_per_pinned:ratio_p95_5m{storageclass=~"$storageclass"}) >= 0`, "{{storageclass}}"}},
			view:    graph{limit: &limit{1.5, 3}, links: []link{classToQuery}},
		},
	}
}

func storageGraphs() []panel {
	return []panel{
		{
			title:    "Response time against the control",
			question: "How many times longer than on a plain disk does a user of the class wait?",
			text: "Mean response divided by that of the control class, which only the host can slow. One line for each class. " +
				"Good: near 1 and flat. A line that rises alone: that class's storage. All lines fall: the host, and with it the control, got slower.",
			empty: "no class is the control, or no loadgen runs", width: 8, height: 8, unit: "x",
			queries: []query{{ratioToControl("$__rate_interval"), "{{storageclass}}"}},
			view:    graph{log: true, limit: &limit{2, 5}, links: []link{classToQuery}},
		},
		{
			title:    "Mean block write (5 min)",
			question: "How long does a write to the class's volumes take?",
			text:     "Mean over five minutes, from the write's start to its completion on the block device. Good: below 2 ms on SSDs, below 10 ms replicated over a network.",
			width:    8, height: 8, unit: seconds,
			queries: []query{{`max by (storageclass) (storageclass:block_write_seconds:mean5m{storageclass=~"$storageclass"})`, "{{storageclass}}"}},
			view:    graph{log: true, limit: &limit{0.01, 0.1}, links: []link{classToQuery}},
		},
		{
			title:    "Sync overhead of replication (5 min)",
			question: "What does waiting for the other replicas cost?",
			text: "What a write takes beyond the fastest replica's own time. Differences of means over the class's volumes. " +
				"Good: about a network round trip. Higher: one replica is slow, see Replicas.",
			empty: "no volume has replicas", width: 8, height: 8, unit: seconds,
			queries: []query{{`max by (storageclass) (storageclass:replica_sync_overhead_seconds:avg5m{storageclass=~"$storageclass"})`, "{{storageclass}}"}},
			view:    graph{limit: &limit{0.005, 0.05}, links: []link{classToQuery}},
		},
	}
}

func changes() panel {
	change := func(metric string) string {
		of := metric + `{storageclass=~"$storageclass"}`
		return `max by (storageclass) (` + of + ` / (avg_over_time(` + of + `[$__range]) > 0))`
	}
	x := valueColumn{"x", &limit{1.5, 3}}
	return panel{
		title:    "Last 5 minutes against the whole time shown",
		question: "Which class got slower, and which of its layers moved?",
		text: "Each class's mean of the last five minutes, divided by its mean over the time shown. Good: near 1. " +
			"Above 1.5 it got slower; the column that moved most is the layer that did it.",
		width: 12, height: 8, unit: "x",
		queries: []query{
			{change("storageclass:query_seconds:mean5m"), "Response"},
			{change("storageclass:block_write_seconds:mean5m"), "Block write"},
			{change("storageclass:block_flush_seconds:mean5m"), "Flush"},
			{change("storageclass:disk_write_seconds:mean5m"), "Disk write"},
		},
		view: grid{
			labels: []labelColumn{{"storageclass", "Class", 150, []link{classToQuery}}}, lead: 1,
			columns: []valueColumn{x, x, x, x}, sort: "Response",
		},
	}
}

// ofClaim returns the columns that name a row's claim.
func ofClaim(links ...link) []labelColumn {
	return []labelColumn{{"persistentvolumeclaim", "Volume claim", 180, links}, {"namespace", "Namespace", 110, nil}, {"storageclass", "Class", 120, nil}}
}

func slowestVolumes() panel {
	return panel{
		title:    "Slowest volumes (5 min)",
		question: "Is one volume slower than the rest of its class?",
		text:     "The ten volumes with the slowest writes. Good: none stands out of its class. One that does has a cause of its own: follow its link.",
		width:    12, height: 9, unit: seconds,
		queries: []query{{`topk(10, max by (storageclass, namespace, persistentvolumeclaim) (volume:block_write_seconds:mean5m{storageclass=~"$storageclass"}))`, "Write"}},
		view: grid{
			labels:  ofClaim(volumeToQuery, volumeToReplicas),
			columns: []valueColumn{{seconds, &limit{0.01, 0.1}}}, sort: "Write",
		},
	}
}

func stragglers() panel {
	return panel{
		title:    "Volumes with a straggling replica (5 min)",
		question: "Does a volume wait for one slow replica?",
		text: "The ten volumes whose slowest replica is farthest behind the fastest, in a write's mean round trip. " +
			"Good: below 1 ms. More: every write of that volume waits for one replica; follow the link to see which.",
		empty: "no volume has replicas", width: 12, height: 9, unit: seconds,
		queries: []query{{`topk(10, max by (storageclass, namespace, persistentvolumeclaim) (volume:replica_straggler_seconds:mean5m` + withClass + `))`, "Behind by"}},
		view: grid{
			labels:  ofClaim(volumeToReplicas, volumeToQuery),
			columns: []valueColumn{{seconds, &limit{0.002, 0.02}}}, sort: "Behind by",
		},
	}
}
