package dashboards

import (
	"fmt"

	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
)

// ofLoad selects loads by the visible variables.
const ofLoad = `tool=~"$tool", storageclass=~"$storageclass", server=~"$server"`

// loads is a rate of one of loadgen's metrics, by load.
func loads(metric string) string {
	return fmt.Sprintf(`sum by (tool, server) (rate(loadgen_%s{%s}[$__rate_interval]))`, metric, ofLoad)
}

func load() page {
	return page{
		uid: "plumbline-load", title: "Plumbline / Load and soak",
		text: "What the load generators offer and get: response against service time, what was skipped or failed, and whether the generator itself was the limit. " +
			"Results of the matrix and change points of a soak are files, made by loadgen matrix and loadgen report, and not in Prometheus.",
		variables: []cog.Builder[dashboard.VariableModel]{
			datasource(),
			choice("storageclass", "Storage class", `label_values(loadgen_offered_total, storageclass)`),
			choice("server", "Server", `label_values(loadgen_offered_total{storageclass=~"$storageclass"}, server)`),
			choice("tool", "Tool", `label_values(loadgen_offered_total{storageclass=~"$storageclass", server=~"$server"}, tool)`),
		},
		rows: []row{
			{"Offered and done", loadRates()},
			{"Response and service", loadTimes()},
			{"Is the generator the limit?", loadLimits()},
			{"Against the baseline", loadBaseline()},
			{"Soak", loadSoak()},
		},
	}
}

func loadRates() []panel {
	return []panel{
		{
			title: "Offered and completed", text: "Transactions that were due, and those that ended well. Good: the lines lie on each other. Completed below offered: the server does not keep up, and the response times below say at what price.",
			width: 10, height: 9, unit: perSec,
			queries: []query{{loads("offered_total"), "offered {{tool}} {{server}}"}, {loads("completed_total"), "completed {{tool}} {{server}}"}},
			view:    graph{},
		},
		{
			title: "Skipped, failed, late", text: "Transactions never sent (late: past the limit; down: the server was away), failed ones, and ones sent more than 10 ms after their time. Good: 0. They count as slow in the response times.",
			width: 8, height: 9, unit: perSec,
			queries: []query{
				{fmt.Sprintf(`sum by (tool, server, reason) (rate(loadgen_skipped_total{%s}[$__rate_interval]))`, ofLoad), "skipped, {{reason}} {{tool}} {{server}}"},
				{fmt.Sprintf(`sum by (tool, server, kind) (rate(loadgen_errors_total{%s}[$__rate_interval]))`, ofLoad), "failed, {{kind}} {{tool}} {{server}}"},
				{loads("late_total"), "late {{tool}} {{server}}"},
			},
			view: graph{limit: &limit{0.1, 1}},
		},
		{
			title: "Phase", text: "What each load is doing. Only steady numbers are fit for a comparison.",
			width: 6, height: 9, unit: times,
			queries: []query{{fmt.Sprintf(`sum by (tool, server) (
    loadgen_phase{phase="init", %[1]s}
  or
    2 * loadgen_phase{phase="warmup", %[1]s}
  or
    3 * loadgen_phase{phase="steady", %[1]s}
  or
    4 * loadgen_phase{phase="stopped", %[1]s}
)`, ofLoad), "{{tool}} {{server}}"}},
			view: states{[]state{{1, "init", purple}, {2, "warm-up", yellow}, {3, "steady", sky}, {4, "stopped", grey}}},
		},
	}
}

func loadTimes() []panel {
	histogram := func(name string) string {
		return fmt.Sprintf(`sum by (tool, server) (rate(loadgen_%s_seconds{%s}[$__rate_interval]))`, name, ofLoad)
	}
	return []panel{
		{
			title: "Response against service, mean", text: "Response counts from the moment a transaction was due, service from its sending. Good: alike. Response far above service: transactions queue for a connection, and a closed-loop benchmark would not have shown it.",
			width: 8, height: 9, unit: seconds,
			queries: []query{
				{`histogram_avg(` + histogram("response") + `)`, "response {{tool}} {{server}}"},
				{`histogram_avg(` + histogram("service") + `)`, "service {{tool}} {{server}}"},
			},
			view: graph{log: true},
		},
		{
			title: "Response, median and 99th percentile", text: "From the moment a transaction was due. A p99 that leaves the median: stalls, such as checkpoints or a replica that pauses.",
			width: 8, height: 9, unit: seconds,
			queries: []query{
				{`histogram_quantile(0.5, ` + histogram("response") + `)`, "p50 {{tool}} {{server}}"},
				{`histogram_quantile(0.99, ` + histogram("response") + `)`, "p99 {{tool}} {{server}}"},
			},
			view: graph{log: true},
		},
		{
			title: "Response times", text: "How many transactions took how long, all selected loads. Good: one dark band. A second one above: some wait for something the others do not.",
			width: 8, height: 9, unit: seconds,
			queries: []query{{fmt.Sprintf(`sum(rate(loadgen_response_seconds{%s}[$__rate_interval]))`, ofLoad), ""}},
			view:    heat{},
		},
	}
}

func loadLimits() []panel {
	return []panel{
		{
			title: "Saturated", text: "1 while more than 5 % of the transactions were held up by over 5 ms. generator: too little CPU for the load, the numbers above are not the server's. connections: all were busy. Only the canary says it.",
			width: 8, height: 8, unit: times,
			queries: []query{{fmt.Sprintf(`max by (server, reason) (loadgen_saturated{%s})`, ofLoad), "{{server}} {{reason}}"}},
			view:    graph{max: 1, limit: &limit{1, 1}},
		},
		{
			title: "Transactions waiting for a connection", text: "Transactions that are due and not sent (the canary's). Good: 0 to 2. Growing: the server is slower than the load.",
			width: 8, height: 8, unit: count,
			queries: []query{{fmt.Sprintf(`max by (server) (loadgen_queue_length{%s})`, ofLoad), "{{server}}"}},
			view:    graph{},
		},
		{
			title: "Lost, not understood, restarted", text: "Transactions whose record was lost, lines of a tool that were not understood, restarts of tools, per second. Good: 0; else the load's own numbers miss something.",
			width: 8, height: 8, unit: perSec,
			queries: []query{
				{loads("lost_total"), "lost {{tool}} {{server}}"},
				{loads("parse_errors_total"), "not understood {{tool}} {{server}}"},
				{loads("restarts_total"), "restarted {{tool}} {{server}}"},
			},
			view: graph{limit: &limit{0.01, 1}},
		},
	}
}

func loadBaseline() []panel {
	return []panel{
		{
			title: "95th percentile against the pinned one", text: "Each load's p95 divided by its baseline's, which loadgen baseline pinned. Good: near 1. Only a steady load at the pinned rate is comparable. Empty until a baseline is pinned.",
			width: 12, height: 8, unit: "x",
			queries: []query{{fmt.Sprintf(`max by (tool, profile, server) (loadgen:response_per_pinned:ratio_p95_5m{%s})`, ofLoad), "{{tool}} {{profile}} {{server}}"}},
			view:    graph{limit: &limit{1.5, 3}},
		},
		{
			title: "Comparable with the baseline", text: "Where a load can be compared with its baseline: steady, at the pinned rate, the generator not the limit, no rebuild. Alerts about regressions hold back elsewhere. Empty until a baseline is pinned.",
			width: 12, height: 8, unit: times,
			queries: []query{{fmt.Sprintf(`max by (tool, profile, server) (loadgen:comparable:bool{%s})`, ofLoad), "{{tool}} {{profile}} {{server}}"}},
			view:    states{[]state{{0, "no", grey}, {1, "comparable", sky}}},
		},
	}
}

func loadSoak() []panel {
	return []panel{
		{
			title: "Faults in effect", text: "Faults of a soak's plan while they last. What the other panels show at these times is meant to happen.",
			width: 16, height: 7, unit: times,
			queries: []query{{`max by (fault) (loadgen_soak_fault)`, "{{fault}}"}},
			view:    states{[]state{{0, "no", grey}, {1, "in effect", vermillion}}},
		},
		{
			title: "Soak done", text: "Share of the soak's duration that is over, and samples that could not be written, per second (good: 0).",
			width: 8, height: 7, unit: ratio,
			queries: []query{
				{`max(loadgen_soak_progress_ratio)`, "done"},
				{`sum(rate(loadgen_soak_unsaved_total[$__rate_interval]))`, "unsaved"},
			},
			view: graph{max: 1},
		},
	}
}
