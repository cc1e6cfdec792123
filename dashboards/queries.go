package dashboards

// ofQueries are the chosen queries of the chosen servers.
const ofQueries = `{server=~"$server", queryid=~"$queryid"}`

// The chosen queries' time, in seconds per second by phase, and statements per second.
const (
	timeOf       = `rate(plumbline_query_id_phase_seconds_total` + ofQueries + `[$__rate_interval])`
	statementsOf = `rate(plumbline_query_id_statements_total` + ofQueries + `[$__rate_interval])`
)

// noQueries is why a server has none.
const noQueries = "no query identifiers: PostgreSQL with compute_query_id, and --query.top above 0"

// inLayer is a query's time in the chosen layers, in seconds per second: in each phase as much as of all of the server's
// statements there.
const inLayer = timeOf + ` * on (node, server, phase) group_left () ` +
	`sum by (node, server, phase) (server:phase_layer:share_inferred5m{server=~"$server", layer=~"$layer"})`

func queries() page {
	return page{
		uid: "plumbline-queries", title: "Plumbline / Queries",
		text: "Which of PostgreSQL's queries take time, and where: by the server's own identifier, as in pg_stat_statements. The time below a phase, down to the replicas, is inferred: " +
			"each query's as that of all statements of its server in that phase. Texts are shown if postgres_exporter exports them.",
		variables: []variable{
			choice("server", "Server", `label_values(plumbline_query_id_statements_total, server)`),
			choice("queryid", "Query", `label_values(plumbline_query_id_statements_total{server=~"$server"}, queryid)`),
			choice("layer", "Layer", `label_values(server:phase_layer:share_inferred5m{server=~"$server"}, layer)`),
		},
		rows: []row{
			{title: "Which query", panels: queryList()},
			{title: "Where its time goes", panels: queryTime()},
		},
	}
}

func queryList() []panel {
	const by = `sum by (node, server, queryid) `
	return []panel{
		{
			title:    "Queries",
			question: "Which queries take the time?", empty: noQueries,
			text: "The chosen queries by their time. Time is seconds per second: 1 is one session that does nothing else. Slowest 1 % is how long the slowest hundredth of its calls take, to a power of two, where Prometheus scrapes native histograms. Storage is the part of the time in reads, writes and syncs of files, and cold reads are those that waited for a device. " +
				"One that is new at the top after a deploy, with more time a call or more of it in storage: a plan that changed, such as a missed index.",
			width: 24, height: 10, unit: times,
			queries: []query{
				{by + `(` + timeOf + `)`, "Time"},
				{by + `(` + statementsOf + `)`, "Calls"},
				{by + `(` + timeOf + `) / on (node, server, queryid) (` + by + `(` + statementsOf + `) > 0)`, "A call"},
				{`histogram_quantile(0.99, ` + by + `(rate(plumbline_query_id_duration_seconds{server=~"$server", queryid=~"$queryid"}[$__rate_interval]))) > 0`, "Slowest 1 %"},
				{by + `(rate(plumbline_query_id_phase_seconds_total{server=~"$server", queryid=~"$queryid", phase=~"read|write|sync"}[$__rate_interval])) or ` + by + `(` + statementsOf + `) * 0`, "Storage"},
				{by + `(rate(plumbline_query_id_file_reads_total{server=~"$server", queryid=~"$queryid", cache="miss"}[$__rate_interval]))`, "Cold reads"},
			},
			view: grid{
				labels:  []labelColumn{{"server", "Server", 160, nil}, {"queryid", "Query", 180, nil}},
				columns: []valueColumn{{times, nil}, {perSec, nil}, {seconds, nil}, {seconds, nil}, {times, nil}, {perSec, nil}},
				lead:    2, sort: "Time",
			},
		},
		{
			title:    "Texts",
			question: "What is a query's text?", empty: "no texts: postgres_exporter with --collector.stat_statements.include_query exports them, or a query of CloudNativePG's exporter",
			text:  "The queries' texts without their constants, as pg_stat_statements keeps them. Whoever reads Prometheus reads them: the exporter exports none unless it is configured to. Join by the query's identifier.",
			width: 24, height: 8, unit: count,
			queries: []query{{`max by (server, queryid, query) (query:text:info` + ofQueries + `)`, "Known"}},
			view:    grid{labels: []labelColumn{{"server", "Server", 160, nil}, {"queryid", "Query", 180, nil}, {"query", "Text", 600, nil}}, columns: []valueColumn{{count, nil}}},
		},
	}
}

func queryTime() []panel {
	return []panel{
		{
			title:    "Time by query",
			question: "Which query's time has grown?", empty: noQueries,
			text:  "Seconds per second by query; all add up to the server's statements that ended. A band that grows while its calls do not is a query that got slower.",
			width: 12, height: 9, unit: times,
			queries: []query{{`sum by (server, queryid) (` + timeOf + `)`, "{{server}} {{queryid}}"}},
			view:    graph{stacked: true},
		},
		{
			title:    "Time by query in the chosen layers (inferred)",
			question: "Which query waits for this layer?", empty: noQueries,
			text:  "Seconds per second by query in the layers chosen above, such as sync, device or replica. Choose the layer that is to blame: the largest band is the query that waits most for it.",
			width: 12, height: 9, unit: times,
			queries: []query{{`sum by (server, queryid) (` + inLayer + `)`, "{{server}} {{queryid}}"}},
			view:    graph{stacked: true},
		},
		{
			title:    "Time by phase",
			question: "What do the chosen queries do with their time?", empty: noQueries,
			text:  "Seconds per second of the chosen queries by phase, measured statement by statement. Choose one query to see it over time. wait is locks and other sessions' syncs of the log.",
			width: 12, height: 9, unit: times,
			queries: []query{{`sum by (phase) (` + timeOf + `)`, "{{phase}}"}},
			view:    graph{stacked: true},
		},
		{
			title:    "Statements without an identifier",
			question: "Are all statements identified?", empty: "no PostgreSQL",
			text:  "Per second, by reason; these are in the query other. Good: only the few that fail. none: the server gives no identifiers, set compute_query_id or load pg_stat_statements. unread: see the agent's log.",
			width: 12, height: 9, unit: perSec,
			queries: []query{{`sum by (server, reason) (rate(plumbline_query_id_unknown_total{server=~"$server"}[$__rate_interval]))`, "{{server}} {{reason}}"}},
			view:    graph{},
		},
	}
}
