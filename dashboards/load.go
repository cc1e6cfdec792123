package dashboards

import "fmt"

// ofLoad selects loads by the visible variables.
const ofLoad = `tool=~"$tool", storageclass=~"$storageclass", database=~"$database"`

// loads is a rate of one of loadgen's metrics, by load.
func loads(metric string) string {
	return fmt.Sprintf(`sum by (tool, database) (rate(loadgen_%s{%s}[$__rate_interval]))`, metric, ofLoad)
}

func load() page {
	return page{
		uid: "plumbline-load", title: "Plumbline / Load and soak",
		text: "What the load generators offer and get: response against service time, what was skipped or failed, and whether the generator itself was the limit. " +
			"Results of the matrix and change points of a soak are files, made by loadgen matrix and loadgen report, and not in Prometheus.",
		variables: []variable{
			choice("storageclass", "Storage class", `label_values(loadgen_offered_total, storageclass)`),
			choice("database", "Database", `label_values(loadgen_offered_total{storageclass=~"$storageclass"}, database)`),
			choice("tool", "Tool", `label_values(loadgen_offered_total{storageclass=~"$storageclass", database=~"$database"}, tool)`),
		},
		rows: []row{
			{title: "Offered and done", panels: loadRates()},
			{title: "Response and service", panels: loadTimes()},
			{title: "Is the generator the limit?", panels: loadLimits()},
			{title: "Against the baseline", panels: loadBaseline()},
			{title: "Soak (open it while one runs)", panels: loadSoak(), closed: true},
		},
	}
}

func loadRates() []panel {
	return []panel{
		{
			title:    "Offered and completed",
			question: "Does the server keep up with the load?", empty: "no loadgen runs",
			text:  "Transactions that were due, and those that ended well. Good: the lines lie on each other. Completed below offered: the server does not keep up, and the response times below show at what price.",
			width: 9, height: 9, unit: perSec,
			queries: []query{{loads("offered_total"), "offered {{tool}} {{database}}"}, {loads("completed_total"), "completed {{tool}} {{database}}"}},
			view:    graph{},
		},
		{
			title:    "Skipped, failed, late",
			question: "Which transactions did not go as planned?", empty: "no loadgen runs",
			text:  "Transactions never sent (late: past the limit; down: the server was away), failed ones, and ones sent more than 10 ms after their time. Good: 0. They count as slow in the response times.",
			width: 7, height: 9, unit: perSec,
			queries: []query{
				{fmt.Sprintf(`sum by (tool, database, reason) (rate(loadgen_skipped_total{%s}[$__rate_interval]))`, ofLoad), "skipped, {{reason}} {{tool}} {{database}}"},
				{fmt.Sprintf(`sum by (tool, database, kind) (rate(loadgen_errors_total{%s}[$__rate_interval]))`, ofLoad), "failed, {{kind}} {{tool}} {{database}}"},
				{loads("late_total"), "late {{tool}} {{database}}"},
			},
			view: graph{limit: &limit{0.1, 1}},
		},
		{
			title:    "Phase",
			question: "Is the load steady?", empty: "no loadgen runs",
			text:  "What each load is doing. Only steady numbers are fit for a comparison.",
			width: 8, height: 9, unit: times,
			queries: []query{{fmt.Sprintf(`sum by (tool, database) (
    loadgen_phase{phase="init", %[1]s}
  or
    2 * loadgen_phase{phase="warmup", %[1]s}
  or
    3 * loadgen_phase{phase="steady", %[1]s}
  or
    4 * loadgen_phase{phase="stopped", %[1]s}
)`, ofLoad), "{{tool}} {{database}}"}},
			view: states{[]state{{1, "init", purple}, {2, "warm-up", yellow}, {3, "steady", sky}, {4, "stopped", grey}}},
		},
	}
}

func loadTimes() []panel {
	histogram := func(name string) string {
		return fmt.Sprintf(`sum by (tool, database) (rate(loadgen_%s_seconds{%s}[$__rate_interval]))`, name, ofLoad)
	}
	return []panel{
		{
			title:    "Response against service, mean",
			question: "Do transactions queue before they are sent?", empty: "no loadgen runs",
			text:  "Response counts from the moment a transaction was due, service from its sending. Good: alike. Response far above service: transactions queue for a connection, and a closed-loop benchmark would not have shown it.",
			width: 8, height: 9, unit: seconds,
			queries: []query{
				{`histogram_avg(` + histogram("response") + `) >= 0`, "response {{tool}} {{database}}"},
				{`histogram_avg(` + histogram("service") + `) >= 0`, "service {{tool}} {{database}}"},
			},
			view: graph{log: true},
		},
		{
			title:    "Response, median and 99th percentile",
			question: "Do single transactions stall?", empty: "no loadgen runs",
			text:  "From the moment a transaction was due. A p99 that leaves the median: stalls, such as checkpoints or a replica that pauses.",
			width: 8, height: 9, unit: seconds,
			queries: []query{
				{`histogram_quantile(0.5, ` + histogram("response") + `) >= 0`, "p50 {{tool}} {{database}}"},
				{`histogram_quantile(0.99, ` + histogram("response") + `) >= 0`, "p99 {{tool}} {{database}}"},
			},
			view: graph{log: true},
		},
		{
			title:    "Response times",
			question: "Are all transactions slow, or a few?", empty: "no loadgen runs",
			text:  "How many transactions took how long, all selected loads. Good: one dark band. A second one above: some wait for something the others do not.",
			width: 8, height: 9, unit: seconds,
			queries: []query{{buckets(timeBounds, fmt.Sprintf(`sum(rate(loadgen_response_seconds{%s}[$__rate_interval]))`, ofLoad)), ""}},
			view:    heat{},
		},
	}
}

func loadLimits() []panel {
	return []panel{
		{
			title:    "Saturated",
			question: "Is the generator itself the limit?", empty: "no canary runs",
			text:  "Saturated while more than 5 % of the transactions were held up by over 5 ms. generator: too little CPU for the load, the numbers above are not the server's. connections: all were busy. Only the canary reports it.",
			width: 8, height: 8, unit: times,
			queries: []query{{fmt.Sprintf(`max by (database, reason) (loadgen_saturated{%s})`, ofLoad), "{{database}} {{reason}}"}},
			view:    states{[]state{{0, "no", grey}, {1, "saturated", vermillion}}},
		},
		{
			title:    "Transactions waiting for a connection",
			question: "Do transactions pile up?", empty: "no canary runs",
			text:  "Transactions that are due and not sent (the canary's). Good: 0 to 2. Growing: the server is slower than the load.",
			width: 8, height: 8, unit: count,
			queries: []query{{fmt.Sprintf(`max by (database) (loadgen_queue_length{%s})`, ofLoad), "{{database}}"}},
			view:    graph{},
		},
		{
			title:    "Lost, not understood, restarted",
			question: "Does the load's own count miss something?", empty: "no loadgen runs",
			text:  "Transactions whose record was lost, lines of a tool that were not understood, restarts of tools, per second. Good: 0; else the load's own numbers miss something.",
			width: 8, height: 8, unit: perSec,
			queries: []query{
				{loads("lost_total"), "lost {{tool}} {{database}}"},
				{loads("parse_errors_total"), "not understood {{tool}} {{database}}"},
				{loads("restarts_total"), "restarted {{tool}} {{database}}"},
			},
			view: graph{limit: &limit{0.01, 1}},
		},
	}
}

func loadBaseline() []panel {
	return []panel{
		{
			title:    "95th percentile against the baseline's",
			question: "Is a load slower than when all was well?", empty: "no baseline pinned: run loadgen baseline",
			text:  "Each load's p95 divided by its baseline's, which loadgen baseline pinned. Good: near 1. Only a steady load at the pinned rate is comparable.",
			width: 12, height: 8, unit: "x",
			queries: []query{{fmt.Sprintf(`max by (tool, profile, database) (loadgen:response_per_pinned:ratio_p95_5m{%s})`, ofLoad), "{{tool}} {{profile}} {{database}}"}},
			view:    graph{limit: &limit{1.5, 3}},
		},
		{
			title:    "Comparable with the baseline",
			question: "May a load be compared with its baseline?", empty: "no baseline pinned: run loadgen baseline",
			text:  "Where a load can be compared with its baseline: steady, at the pinned rate, the generator not the limit, no rebuild. Alerts about regressions hold back elsewhere.",
			width: 12, height: 8, unit: times,
			queries: []query{{fmt.Sprintf(`max by (tool, profile, database) (loadgen:comparable:bool{%s})`, ofLoad), "{{tool}} {{profile}} {{database}}"}},
			view:    states{[]state{{0, "no", grey}, {1, "comparable", sky}}},
		},
	}
}

func loadSoak() []panel {
	return []panel{
		{
			title:    "Faults in effect",
			question: "What was broken on purpose, and when?", empty: "no soak runs",
			text:  "Faults of a soak's plan while they last. What the other panels show at these times is meant to happen.",
			width: 12, height: 7, unit: times,
			queries: []query{{`max by (fault) (loadgen_soak_fault)`, "{{fault}}"}},
			view:    states{[]state{{0, "no", grey}, {1, "in effect", vermillion}}},
		},
		{
			title:    "Soak done",
			question: "How far is the soak?", empty: "no soak runs",
			text:  "Share of the soak's duration that is over. Good: it grows steadily.",
			width: 6, height: 7, unit: ratio,
			queries: []query{{`max(loadgen_soak_progress_ratio)`, "done"}},
			view:    graph{max: 1},
		},
		{
			title:    "Soak's samples not saved",
			question: "Is the soak's report complete?", empty: "no soak runs",
			text:  "Samples and events that could not be written to the soak's folder, per second; they are missing from its report. Good: 0. Else look at the disk that holds the folder.",
			width: 6, height: 7, unit: perSec,
			queries: []query{{`sum(rate(loadgen_soak_unsaved_total[$__rate_interval]))`, "not saved"}},
			view:    graph{limit: &limit{0.01, 1}},
		},
	}
}
