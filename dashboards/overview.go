package dashboards

import (
	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
)

// withClass gives series that know a volume only its labels, and keeps the selected classes'.
const withClass = `
* on (volume) group_left (storageclass, namespace, persistentvolumeclaim)
  max by (volume, storageclass, namespace, persistentvolumeclaim) (plumbline_volume_info{storageclass=~"$storageclass"})`

func overview() page {
	return page{
		uid: "plumbline-overview", title: "Plumbline / Overview",
		text:      "Storage classes side by side: which is slow, by how much, and what changed. Follow a link to see why.",
		variables: []cog.Builder[dashboard.VariableModel]{datasource(), classVariable()},
		rows: []row{
			{"Which class is slow", []panel{classTable(), firingAlerts()}},
			{"What the users of a class see", responseGraphs()},
			{"What the storage adds", storageGraphs()},
			{"What changed, and where to look", []panel{changes(), slowestVolumes(), stragglers()}},
		},
	}
}

func classTable() panel {
	return panel{
		title: "Storage classes now",
		text: "Means over the last five minutes. Response times are the load's, from the moment a transaction was due. " +
			"Good: a p99 your users accept, a ratio to the class local near 1, sync overhead below 1 ms, all replicas healthy. " +
			"Not so: follow the class's link to the queries; the column that stands out says where to look there. " +
			"The load's columns are empty where no loadgen runs.",
		width: 16, height: 8, unit: times,
		queries: []query{
			{`sum by (storageclass) (storageclass:transactions:rate5m{storageclass=~"$storageclass"})`, "Transactions/s"},
			{`max by (storageclass) (storageclass:query_seconds:mean5m{storageclass=~"$storageclass"})`, "Response mean"},
			{`max by (storageclass) (storageclass:query_seconds:p99_5m{storageclass=~"$storageclass"})`, "Response p99"},
			{`max by (storageclass) (storageclass:seconds:mean5m_ratio_to_local{storageclass=~"$storageclass", layer="query"})`, "To local"},
			{`max by (storageclass) (storageclass:block_write_seconds:mean5m{storageclass=~"$storageclass"})`, "Block write"},
			{`max by (storageclass) (storageclass:block_flush_seconds:mean5m{storageclass=~"$storageclass"})`, "Block flush"},
			{`avg by (storageclass) (volume:replica_sync_overhead_seconds:mean5m` + withClass + `)`, "Sync overhead"},
			{`min by (storageclass) (volume:healthy_replicas:count{storageclass=~"$storageclass"} / on (volume) group_left () max by (volume) (plumbline_volume_desired_replicas))`, "Healthy replicas"},
		},
		view: grid{
			labels: []labelColumn{{"storageclass", "Class", []link{classToQuery}}},
			columns: []valueColumn{
				{perSec, nil}, {seconds, nil}, {seconds, &limit{0.1, 1}}, {"x", &limit{2, 5}},
				{seconds, &limit{0.01, 0.1}}, {seconds, &limit{0.02, 0.2}}, {seconds, &limit{0.005, 0.05}}, {ratio, &limit{1, 0.6}},
			},
			sort: "Response p99",
		},
	}
}

func firingAlerts() panel {
	return panel{
		title: "Firing alerts",
		text: "Alerts that fire now, everybody's and not only Plumbline's. Good: empty. Each has a runbook, linked in Alertmanager; " +
			"start with the one that is about statements, the others are often its causes.",
		width: 8, height: 8, unit: times,
		queries: []query{{`count by (alertname, severity) (ALERTS{alertstate="firing"})`, "Alerts"}},
		view: grid{
			labels:  []labelColumn{{"alertname", "Alert", nil}, {"severity", "Severity", nil}},
			columns: []valueColumn{{times, nil}}, sort: "Alerts",
		},
	}
}

func responseGraphs() []panel {
	return []panel{
		{
			title: "Response time, median",
			text:  "Half of the load's transactions were faster, from the moment they were due. Good: flat, and the classes in the order you pay for.",
			width: 6, height: 8, unit: seconds,
			queries: []query{{`histogram_quantile(0.5, sum by (storageclass) (rate(loadgen_response_seconds{storageclass=~"$storageclass"}[$__rate_interval])))`, "{{storageclass}}"}},
			view:    graph{log: true, links: []link{classToQuery}},
		},
		{
			title: "Response time, 99th percentile",
			text: "One transaction in a hundred was slower. Good: flat and below the line. A step in one class alone is its storage; " +
				"a step in all of them is the node, the network or the load.",
			width: 6, height: 8, unit: seconds,
			queries: []query{{`histogram_quantile(0.99, sum by (storageclass) (rate(loadgen_response_seconds{storageclass=~"$storageclass"}[$__rate_interval])))`, "{{storageclass}}"}},
			view:    graph{log: true, limit: &limit{0.1, 1}, links: []link{classToQuery}},
		},
		{
			title: "Responses slower than 100 ms",
			text: "Share of the load's transactions that took longer than 100 ms, those that failed or were skipped included. " +
				"Good: below 1 %. It moves before the mean does.",
			width: 6, height: 8, unit: ratio,
			queries: []query{{`1 - histogram_fraction(0, 0.1, sum by (storageclass) (rate(loadgen_response_seconds{storageclass=~"$storageclass"}[$__rate_interval])))`, "{{storageclass}}"}},
			view:    graph{max: 1, limit: &limit{0.01, 0.1}, links: []link{classToQuery}},
		},
		{
			title: "95th percentile against the pinned one",
			text: "The canary's p95 divided by that of the baseline, which loadgen baseline measured while all was well. Good: near 1. " +
				"Above 1.5 the class got slower than it was; the alert CanarySlow says which layer grew. Empty until a baseline is pinned.",
			width: 6, height: 8, unit: "x",
			queries: []query{{`max by (storageclass) (loadgen:response_per_pinned:ratio_p95_5m{storageclass=~"$storageclass"})`, "{{storageclass}}"}},
			view:    graph{limit: &limit{1.5, 3}, links: []link{classToQuery}},
		},
	}
}

func storageGraphs() []panel {
	return []panel{
		{
			title: "Time per statement, by layer",
			text: "Where a statement's time goes on each class: the measured phases, with reads and syncs split over the layers below them. " +
				"The split is a ratio of means. Good: cpu and client are the largest. The layer that is largest is the one to work on.",
			width: 12, height: 9, unit: seconds,
			queries: []query{{`avg by (storageclass, layer) (storageclass:query_layer_seconds:inferred5m{storageclass=~"$storageclass"})`, "{{storageclass}} {{layer}}"}},
			view:    graph{stacked: true, links: []link{classToQuery}},
		},
		{
			title: "Ratio to the class local",
			text: "How many times longer than on a directory of the node's own disk: responses, and writes, flushes and reads of the block device. " +
				"Good: the query ratio is far below the block ratios, so the database hides the storage.",
			width: 12, height: 9, unit: "x",
			queries: []query{{`max by (storageclass, layer) (storageclass:seconds:mean5m_ratio_to_local{storageclass=~"$storageclass", storageclass!="local"})`, "{{storageclass}} {{layer}}"}},
			view:    graph{log: true, links: []link{classToQuery}},
		},
		{
			title: "Block write", text: "Mean time of a write to the class's volumes, from its start to its completion. Good: below 2 ms on SSDs, below 10 ms replicated over a network.",
			width: 8, height: 7, unit: seconds,
			queries: []query{{`max by (storageclass) (storageclass:block_write_seconds:mean5m{storageclass=~"$storageclass"})`, "{{storageclass}}"}},
			view:    graph{log: true, limit: &limit{0.01, 0.1}, links: []link{classToQuery}},
		},
		{
			title: "Sync overhead of replication",
			text: "What a write takes beyond the fastest replica's own time: the price of waiting for the others. Differences of means over the class's volumes. " +
				"Good: about a network round trip. Higher: one replica is slow, see Replicas.",
			width: 8, height: 7, unit: seconds,
			queries: []query{{`avg by (storageclass) (volume:replica_sync_overhead_seconds:mean5m` + withClass + `)`, "{{storageclass}}"}},
			view:    graph{every: "5m", limit: &limit{0.005, 0.05}, links: []link{classToQuery}},
		},
		{
			title: "Volumes without all their replicas",
			text:  "Volumes with fewer healthy replicas than they are meant to have. Good: 0. If it lasts, look for a node or disk that is gone, and at the rebuilds on Replicas.",
			width: 8, height: 7, unit: count,
			queries: []query{{`count by (storageclass) (volume:healthy_replicas:count{storageclass=~"$storageclass"} < on (volume) group_left () max by (volume) (plumbline_volume_desired_replicas)) or 0 * count by (storageclass) (volume:healthy_replicas:count{storageclass=~"$storageclass"})`, "{{storageclass}}"}},
			view:    graph{every: "5m", limit: &limit{1, 10}, links: []link{classToQuery}},
		},
	}
}

func changes() panel {
	return panel{
		title: "Now against the whole time shown",
		text: "Each class's mean of the last five minutes, divided by its mean over the time shown. Good: near 1. " +
			"Above 1.5 it got slower; the column that moved most is the layer that did it.",
		width: 8, height: 9, unit: "x",
		queries: []query{
			{`max by (storageclass) (storageclass:query_seconds:mean5m{storageclass=~"$storageclass"} / avg_over_time(storageclass:query_seconds:mean5m{storageclass=~"$storageclass"}[$__range]))`, "Response"},
			{`max by (storageclass) (storageclass:block_write_seconds:mean5m{storageclass=~"$storageclass"} / avg_over_time(storageclass:block_write_seconds:mean5m{storageclass=~"$storageclass"}[$__range]))`, "Block write"},
			{`max by (storageclass) (storageclass:block_flush_seconds:mean5m{storageclass=~"$storageclass"} / avg_over_time(storageclass:block_flush_seconds:mean5m{storageclass=~"$storageclass"}[$__range]))`, "Block flush"},
			{`max by (storageclass) (storageclass:disk_write_seconds:mean5m{storageclass=~"$storageclass"} / avg_over_time(storageclass:disk_write_seconds:mean5m{storageclass=~"$storageclass"}[$__range]))`, "Disk write"},
		},
		view: grid{
			labels:  []labelColumn{{"storageclass", "Class", []link{classToQuery}}},
			columns: []valueColumn{{"x", &limit{1.5, 3}}, {"x", &limit{1.5, 3}}, {"x", &limit{1.5, 3}}, {"x", &limit{1.5, 3}}},
			sort:    "Response",
		},
	}
}

func slowestVolumes() panel {
	return panel{
		title: "Slowest volumes",
		text:  "The ten volumes with the slowest writes. Good: none stands out of its class. One that does has a cause of its own: follow its link.",
		width: 8, height: 9, unit: seconds,
		queries: []query{{`topk(10, max by (storageclass, namespace, persistentvolumeclaim) (volume:block_write_seconds:mean5m{storageclass=~"$storageclass"}))`, "Write"}},
		view: grid{
			labels: []labelColumn{
				{"persistentvolumeclaim", "Volume claim", []link{volumeToQuery, volumeToReplicas}},
				{"namespace", "Namespace", nil}, {"storageclass", "Class", nil},
			},
			columns: []valueColumn{{seconds, &limit{0.01, 0.1}}}, sort: "Write",
		},
	}
}

func stragglers() panel {
	return panel{
		title: "Volumes with a straggling replica",
		text: "The ten volumes whose slowest replica is farthest behind the fastest, in a write's mean round trip. " +
			"Good: below 1 ms. More: every write of that volume waits for one replica; follow the link to see which.",
		width: 8, height: 9, unit: seconds,
		queries: []query{{`topk(10, max by (storageclass, namespace, persistentvolumeclaim) (volume:replica_straggler_seconds:mean5m` + withClass + `))`, "Behind by"}},
		view: grid{
			labels: []labelColumn{
				{"persistentvolumeclaim", "Volume claim", []link{volumeToReplicas, volumeToQuery}},
				{"namespace", "Namespace", nil}, {"storageclass", "Class", nil},
			},
			columns: []valueColumn{{seconds, &limit{0.002, 0.02}}}, sort: "Behind by",
		},
	}
}
