package dashboards

import "fmt"

// stuckVolumes returns the overview's panels of what is stalled anywhere.
func stuckVolumes() []panel {
	return []panel{
		{
			title:    "Stalled volumes",
			question: "Is anything stalled, and where?", empty: "none",
			text: "The lowest layer of each volume that has had requests for over five seconds and answers none, and where it is. Good: none. " +
				"An alert names it within a minute, or 100 s where only node_exporter runs; its runbook has what to type. Nothing in a volume's own status needs to be wrong.",
			width: columns, height: 6, unit: times,
			queries: []query{{`max by (storageclass, namespace, persistentvolumeclaim, layer, replica, node, device) (volume:stalled_seconds:max` + withClassOfStalled + `)`, "For"}},
			view: grid{
				labels: append(ofClaim(volumeToQuery, volumeToReplicas),
					labelColumn{"layer", "Layer", 120, nil}, labelColumn{"replica", "Replica", 180, nil},
					labelColumn{"node", "Node", 130, nil}, labelColumn{"device", "Device", 90, nil}),
				columns: []valueColumn{{seconds, &limit{5, 15}}}, sort: "For",
			},
		},
		{
			title:    "Longest read, write or sync under way",
			question: "Which database server is stalled?",
			text:     "For how long a process of a database server has been in one read, write or sync, the ten longest. Good: well below a second. One that grows second by second is stalled: other panels move only when something ends.",
			width:    12, height: 8, unit: seconds,
			queries: []query{{`topk(10, max by (node, server) (plumbline_server_longest_wait_seconds{phase=~"read|write|sync"}))`, "{{server}} {{node}}"}},
			view:    graph{limit: &limit{5, 15}, links: []link{serverToDatabase}},
		},
		{
			title:    "Devices that complete nothing",
			question: "Which block device hangs?",
			text:     "For how long a block device has had requests and completed none, the ten longest. Good: 0. One that grows: see what lies on it in its alert; all that does is stalled.",
			width:    12, height: 8, unit: seconds,
			queries: []query{{`topk(10, max by (node, device) (plumbline_device_stalled_seconds))`, "{{node}} {{device}}"}},
			view:    graph{limit: &limit{5, 15}},
		},
	}
}

// now selects the chosen servers' gauges.
func now(metric, more string) string {
	return fmt.Sprintf(`(%s{server=~"$listed_server"%s}%s)`, metric, more, ofServer)
}

// nowWithMany is the same with what is recorded of whole classes whose servers are not listed.
func nowWithMany(metric, recorded string) string {
	return "(" + withMany(now(metric, ""), recorded, ofManyServers) + ")"
}

// inFlight are the panels of what the chosen servers and volumes have begun and not ended.
func inFlight() []panel {
	return []panel{
		{
			title:    "Average active sessions, by phase",
			question: "How busy is the database, and with what?", empty: "no statements",
			text: "How many sessions were at work at each moment, by what they did: the statements' seconds per second, which go on while a statement runs. " +
				"Good: fewer than the node's CPUs, mostly cpu. A layer of sync, read or write as high as there are sessions: the storage is stalled. wait: locks.",
			width: 12, height: 9, unit: times,
			queries: []query{{`sum by (phase) ` + selected(phases, ""), "{{phase}}"}},
			view:    graph{stacked: true, colours: phaseColours},
		},
		{
			title:    "Statements under way, by phase",
			question: "How many statements are under way at this moment?", empty: "no statements",
			text:  "The same as counted at each scrape. Good: as beside. Where the two differ for long, statements end in bursts.",
			width: 6, height: 9, unit: count,
			queries: []query{{`sum by (phase) ` + nowWithMany("plumbline_query_in_flight", "storageclass:query_in_flight:sum"), "{{phase}}"}},
			view:    graph{stacked: true, colours: phaseColours},
		},
		{
			title:    "Oldest statement, by phase",
			question: "Is a statement older than it should be, and what does it do?", empty: "no statements",
			text:  "The age of the oldest statement that is in a phase now. A long query may be old and healthy; see the panel below for what is stalled. Old in client: nobody fetches its rows.",
			width: 6, height: 9, unit: seconds,
			queries: []query{{`max by (phase) ` + nowWithMany("plumbline_query_oldest_seconds", "storageclass:query_oldest_seconds:max"), "{{phase}}"}},
			view:    graph{log: true, colours: phaseColours},
		},
		{
			title:    "Longest single wait, by server",
			question: "Is a process of the server stalled in one call?", empty: "none waits",
			text:  "For how long a process of the server, background ones included, has been in one uninterrupted read, write or sync. Good: well below a second. Above 15 s StatementStuck fires.",
			width: 8, height: 8, unit: seconds,
			queries: []query{{`max by (node, server, phase) ` + now("plumbline_server_longest_wait_seconds", `, phase=~"read|write|sync"`), "{{server}} {{phase}}"}},
			view:    graph{limit: &limit{5, 15}},
		},
		{
			title:    "Oldest request below the volume",
			question: "At which layer does a request wait for its answer?", empty: "no engine or replica that the agent sees",
			text:  "The oldest request without an answer at the storage backend, over the network on each path to it and within its target there, at each replica as the engine sees it, and within the replica. Good: well below a second. The lowest that grows is the place; replica old and within young, or path old and target young: the network.",
			width: 8, height: 8, unit: seconds,
			queries: []query{
				{`max by (volume, seen) (
    label_replace(plumbline_volume_frontend_oldest_seconds{volume=~"$volume"}, "seen", "engine", "", "")
  or
    label_replace(plumbline_volume_path_oldest_seconds{volume=~"$volume"}, "seen", "path $1", "path", "(.*)")
  or
    label_replace(plumbline_volume_target_oldest_seconds{volume=~"$volume"}, "seen", "target on $1", "node", "(.*)")
)`, "{{seen}} {{volume}}"},
				{named(`max by (volume, address) (plumbline_replica_oldest_request_seconds{volume=~"$volume"})`), "to {{replica}}"},
				{named(`max by (volume, address) (plumbline_replica_oldest_service_seconds{volume=~"$volume"})`), "within {{replica}}"},
			},
			view: graph{limit: &limit{5, 15}},
		},
		{
			title:    "Devices that complete nothing",
			question: "Does a volume's device still complete what it has?",
			text:     "For how long a volume's block device has had requests and completed none. Good: 0. Where it grows and nothing below is old, the device's own driver or client hangs. How many it has: Requests in flight on Volumes.",
			width:    8, height: 8, unit: seconds,
			queries: []query{{`max by (node, device) (plumbline_device_stalled_seconds{node=~"$node", device=~"$device"})`, "{{node}} {{device}}"}},
			view:    graph{limit: &limit{5, 15}},
		},
		{
			title:    "Waiting for locks, and idle in a transaction",
			question: "Do sessions wait for each other instead of for storage?", empty: "no statements",
			text:  "How long statements have waited for other sessions' locks, and how long sessions have had a transaction open without a statement (PostgreSQL). Good: seconds. Both old: the second probably holds what the first waits for; storage is not to blame.",
			width: 24, height: 7, unit: seconds,
			queries: []query{
				{`max by (node, server) ` + now("plumbline_query_blocked_oldest_seconds", ""), "blocked {{server}}"},
				{`max by (node, server) ` + now("plumbline_query_idle_in_transaction_oldest_seconds", ""), "idle in transaction {{server}}"},
			},
			view: graph{limit: &limit{10, 60}},
		},
	}
}
