package dashboards

// ofOurs keeps the processes that are Plumbline's: those that export its scrape metrics, and
// ebpf_exporter. Names of jobs differ from one installation to the next.
const ofOurs = ` and on (instance, job) (plumbline_scrape_collector_success or ebpf_exporter_enabled_configs or loadgen_phase)`

// ourTargets are the targets that Plumbline needs: those that gave its exporters' metrics, the load's or the
// databases' within the last day. Of a target that is down nothing else is known.
const ourTargets = `last_over_time({__name__=~"plumbline_scrape_collector_success|ebpf_exporter_enabled_configs|loadgen_phase|pg_up|mysql_up|cnpg_backends_total"}[1d])`

func plumbline() page {
	return page{
		uid: "plumbline-itself", title: "Plumbline / Itself",
		text:      "What Plumbline costs and whether its numbers can be trusted: targets, lost events, CPU and memory, scrapes, rules, series.",
		variables: []variable{choice("node", "Node", `label_values(plumbline_volume_info, node)`)},
		rows: []row{
			{title: "Can the numbers be trusted?", panels: trust()},
			{title: "What it costs the nodes", panels: nodeCost()},
			{title: "What it costs Prometheus", panels: prometheusCost()},
		},
	}
}

func trust() []panel {
	return []panel{
		{
			title:    "Targets down",
			question: "Is something of Plumbline not scraped?", empty: "none",
			text:  "Targets that Prometheus cannot scrape now and that gave Plumbline's or a database's metrics within the last day. Good: 0. Panels whose data they give are empty or old; see Prometheus' page of targets for the reason.",
			width: 4, height: 8, unit: count,
			queries: []query{{`count((up == 0) and on (instance, job) (` + ourTargets + `)) or vector(0)`, "down"}},
			view:    number{&limit{1, 3}},
		},
		{
			title:    "Collectors that fail",
			question: "Does a part of an exporter fail?", empty: "no exporter of Plumbline is scraped",
			text:  "Collectors of Plumbline's exporters whose last scrape failed. Good: none at 0. The exporter's log has the reason; plumbline-agent --check reports what the node lacks.",
			width: 10, height: 8, unit: times,
			queries: []query{{`min by (job, collector) (plumbline_scrape_collector_success)`, "{{job}} {{collector}}"}},
			view:    states{[]state{{0, "failed", vermillion}, {1, "works", sky}}},
		},
		{
			title:    "Lost events",
			question: "Are the counts complete?",
			text:     "Events per second that are missing from the metrics, by collector and reason. Good: 0. Then latencies are right and counts too low; a full map wants a larger one, a lost stream heals by itself.",
			width:    10, height: 8, unit: perSec,
			queries: []query{
				{`sum by (reason) (rate(plumbline_query_lost_total{node=~"$node"}[$__rate_interval]))`, "query: {{reason}}"},
				{`sum by (reason) (rate(plumbline_replica_lost_total{node=~"$node"}[$__rate_interval]))`, "replica: {{reason}}"},
				{`sum(rate(plumbline_replica_unmatched_total{node=~"$node"}[$__rate_interval]))`, "replica: unmatched"},
				{`sum by (reason) (rate(ebpf_exporter_blkio_dropped_total{node=~"$node"}[$__rate_interval]))`, "block: {{reason}}"},
				{`sum by (collector) (rate(plumbline_bpf_missed_runs_total{node=~"$node"}[$__rate_interval]))`, "missed runs: {{collector}}"},
			},
			view: graph{limit: &limit{0.01, 1}},
		},
		{
			title:    "Features on the machines",
			question: "Is a part of the measurement missing on a machine?", empty: "no agent is scraped",
			text:  "Features of the agent, and whether the kernel and the rights of every machine meet their needs. Good: there everywhere. plumbline-agent --check on the machine reports why not, and what is lost.",
			width: 12, height: 10, unit: count,
			queries: []query{{`min by (feature) (plumbline_feature_available)`, "{{feature}}"}},
			view:    states{[]state{{0, "missing on a machine", vermillion}, {1, "there", sky}}},
		},
		{
			title:    "CPUs of statements that are not counted",
			question: "Does a server work for clients whose statements are not seen?",
			text:     "CPUs that PostgreSQL processes with a client use while the agent receives no events from their sockets. Good: 0. Above: their statements are missing from all panels.",
			width:    12, height: 10, unit: times,
			queries: []query{{`sum by (server) (rate(plumbline_query_uncounted_cpu_seconds_total{node=~"$node"}[$__rate_interval]))`, "{{server}}"}},
			view:    graph{limit: &limit{0.01, 0.1}},
		},
		{
			title:    "Servers and replicas followed",
			question: "Are all servers and replicas seen?",
			text:     "Database servers, engines and replicas the agents follow. Good: what you run. Fewer: errors beside.",
			width:    8, height: 8, unit: count,
			queries: []query{
				{`sum by (node) (plumbline_query_servers{node=~"$node"})`, "servers {{node}}"},
				{`sum by (node, role) (plumbline_replica_processes{node=~"$node"})`, "{{role}}s {{node}}"},
			},
			view: graph{},
		},
		{
			title:    "Things that could not be followed",
			question: "What is not seen?",
			text:     "Servers, engines and replicas the agents could not follow, and label limits that were reached, per second. Good: 0. See the agent's log.",
			width:    8, height: 8, unit: perSec,
			queries: []query{
				{`sum(rate(plumbline_query_attach_errors_total{node=~"$node"}[$__rate_interval])) or vector(0)`, "servers"},
				{`sum(rate(plumbline_replica_process_errors_total{node=~"$node"}[$__rate_interval]))`, "engines and replicas"},
				{`sum(rate(plumbline_query_servers_overflow_total{node=~"$node"}[$__rate_interval]))`, "too many servers"},
				{`sum(rate(plumbline_replica_label_overflow_total{node=~"$node"}[$__rate_interval]))`, "too many replicas"},
			},
			view: graph{limit: &limit{0.01, 1}},
		},
		{
			title:    "How full the kernel's maps are",
			question: "Will events be lost soon?",
			text:     "Entries of the agents' BPF maps against their limits. Above 80 %: events will be lost; raise the limit.",
			width:    8, height: 8, unit: ratio,
			queries: []query{{`clamp_max(topk(10, max by (collector, map) (plumbline_bpf_map_entries{node=~"$node"} / (plumbline_bpf_map_max_entries > 0))), 1)`, "{{collector}} {{map}}"}},
			view:    graph{max: 1, limit: &limit{0.8, 0.95}},
		},
		{
			title:    "Things that are not identified",
			question: "What has no name, or is not measured, as the agents do not understand it?", empty: "all is identified",
			text: "Claims, containers, servers, replicas, paths, listeners on databases' ports and lines of the kernel's files that the agents do not understand, by reason (METRICS.md has all). Good: none. " +
				"kubectl plumbline verify states what to do about each; plumbline-agent --check on the node names them.",
			width: 24, height: 8, unit: count,
			queries: []query{{`sum by (kind, reason) (plumbline_unidentified_objects{node=~"$node"}) > 0`, "{{kind}}: {{reason}}"}},
			view:    graph{limit: &limit{1, 100}},
		},
	}
}

func nodeCost() []panel {
	return []panel{
		{
			title:    "CPU",
			question: "How much CPU does Plumbline take?",
			text:     "CPUs used by each of Plumbline's processes. Good: the agent below a few hundredths of a CPU.",
			width:    8, height: 8, unit: times,
			queries: []query{{`sum by (job) (rate(process_cpu_seconds_total[$__rate_interval])` + ofOurs + `)`, "{{job}}"}},
			view:    graph{soft: 0.1},
		},
		{
			title:    "CPU within the kernel",
			question: "How much CPU do its BPF programs take?",
			text:     "Time of the agents' BPF programs per second. 0 while the kernel's statistics are off (kernel.bpf_stats_enabled). Above 1 % of a CPU: see which program.",
			width:    8, height: 8, unit: ratio,
			queries: []query{{`sum by (collector, program) (rate(plumbline_bpf_run_seconds_total{node=~"$node"}[$__rate_interval]))`, "{{collector}} {{program}}"}},
			view:    graph{soft: 0.02, stacked: true, limit: &limit{0.01, 0.1}},
		},
		{
			title:    "Memory",
			question: "How much memory does Plumbline take?",
			text:     "Resident memory of each of Plumbline's processes. Good: flat after an hour.",
			width:    8, height: 8, unit: byteCount,
			queries: []query{{`sum by (job) (process_resident_memory_bytes` + ofOurs + `)`, "{{job}}"}},
			view:    graph{},
		},
		{
			title:    "What following costs database servers",
			question: "How much of its own CPU time does being followed cost a server?",
			text:     "CPU time that the agents' programs take of a server's processes, per second, of one server each. Good: below 1 % of a CPU for each CPU that the server uses. Without the kernel's way into the programs and out.",
			width:    24, height: 8, unit: ratio,
			queries: []query{{`topk(10, sum by (server) (rate(plumbline_query_overhead_seconds_total{node=~"$node"}[$__rate_interval])))`, "{{server}}"}},
			view:    graph{soft: 0.02, limit: &limit{0.01, 0.1}},
		},
	}
}

func prometheusCost() []panel {
	return []panel{
		{
			title:    "Duration of scrapes",
			question: "Do scrapes take too long?",
			text:     "How long a target's slowest scrape takes. Near the scrape interval: gaps follow.",
			width:    8, height: 8, unit: seconds,
			queries: []query{{`max by (job) (scrape_duration_seconds)`, "{{job}}"}},
			view:    graph{},
		},
		{
			title:    "Samples per scrape",
			question: "What does each job cost Prometheus?",
			text:     "Samples a job's targets give in one scrape, all together: what each costs Prometheus. METRICS.md shows what a volume and a server cost.",
			width:    8, height: 8, unit: count,
			queries: []query{{`sum by (job) (scrape_samples_post_metric_relabeling)`, "{{job}}"}},
			view:    graph{stacked: true},
		},
		{
			title:    "Series",
			question: "Does the number of series grow?",
			text:     "Series in Prometheus' head. A steady rise: some label is unbounded; Prometheus' status page names it.",
			width:    8, height: 8, unit: count,
			queries: []query{{`max by (instance) (prometheus_tsdb_head_series)`, "{{instance}}"}},
			view:    graph{},
		},
		{
			title:    "Rule evaluation",
			question: "Do the rules keep up?",
			text:     "How long the last evaluation of each of Plumbline's rule groups took. Near its interval: values come late.",
			width:    12, height: 8, unit: seconds,
			queries: []query{{`max by (group) (label_replace(prometheus_rule_group_last_duration_seconds{rule_group=~".*;plumbline.*"}, "group", "$1", "rule_group", ".*;(.*)"))`, "{{group}}"}},
			view:    graph{},
		},
		{
			title:    "Rules that fail or are missed",
			question: "Are recorded values complete?",
			text:     "Evaluations of rules that failed, and of groups that were left out because the one before took too long, per second. Good: 0. Recorded panels are empty or old then.",
			width:    12, height: 8, unit: perSec,
			queries: []query{
				{`sum(rate(prometheus_rule_evaluation_failures_total[$__rate_interval]))`, "failed"},
				{`sum(rate(prometheus_rule_group_iterations_missed_total[$__rate_interval]))`, "missed"},
			},
			view: graph{limit: &limit{0.01, 0.1}},
		},
	}
}
