package dashboards

import "fmt"

// onDevice gives values of block devices the labels of the volumes on them. Several volumes
// may share a device; each then has the device's value.
func onDevice(expr string) string {
	return expr + `
* on (node, device) group_right ()
  max by (node, device, storageclass, namespace, persistentvolumeclaim) (plumbline_volume_info{volume=~"$volume"})`
}

// block is a rate of one of blockio's histograms on the selected volumes' devices.
func block(part, op string) string {
	return fmt.Sprintf(`rate(ebpf_exporter_blkio_%s_seconds{op="%s", node=~"$node", device=~"$device"}[$__rate_interval])`, part, op)
}

// onBlock is the rate of the requests of some operations on the selected volumes' devices: of those that are a
// volume's, as another node's disk may have the name of a volume's device. matchers may be empty.
func onBlock(matchers string) string {
	devices := fmt.Sprintf(`rate(ebpf_exporter_blkio_total_seconds{%s}[$__rate_interval]) and on (node, device) plumbline_volume_info{volume=~"$volume"}`,
		joined(matchers, `node=~"$node", device=~"$device"`))
	return withMany(devices, "storageclass:block_total_seconds:rate5m", joined(matchers, ofMany))
}

// joined puts a comma between matchers, unless there are none before it.
func joined(matchers, more string) string {
	if matchers == "" {
		return more
	}
	return matchers + ", " + more
}

// disk is a rate of one of node_exporter's counters on the selected volumes' devices.
func disk(metric string) string {
	return fmt.Sprintf(`rate(node_disk_%s{node=~"$node", device=~"$device"}[$__rate_interval])`, metric)
}

// ofNodes keeps the nodes on which the selected volumes are.
const ofNodes = ` and on (node) plumbline_volume_info{` + ofVolume + `}`

func volumes() page {
	return page{
		uid: "plumbline-volumes", title: "Plumbline / Volumes and devices",
		text:      "The block devices of the volumes: queue against device for each operation, work done, capacity, and the pressure on their nodes.",
		variables: volumeVariables(),
		rows: []row{
			{title: "Queue or device", panels: blockTimes()},
			{title: "Work", panels: blockWork()},
			{title: "Slowest hundredth, and the disks below", panels: blockTails()},
			{title: "Who uses the disks", panels: diskUsers()},
			{title: "Capacity", panels: capacity()},
			{title: "Pressure", panels: pressure()},
		},
	}
}

func blockTimes() []panel {
	var panels []panel
	for _, op := range []struct{ name, text string }{
		{"write", "Good: device below 2 ms on SSDs, queue far below device."},
		{"read", "Good: device below 1 ms on SSDs. A read from a replicated volume goes to one replica only."},
		{"flush", "A flush makes the device keep what it has cached; commits wait for it. Longhorn's data protocol has none, so it is short there."},
	} {
		panels = append(panels, panel{
			title:    "Time of a " + op.name,
			question: "Does a " + op.name + " wait in the kernel's queue or in the device?",
			text: "Mean time of a " + op.name + ": queue is the time in the kernel before the device's driver took it, device from there to completion. " + op.text +
				" Queue high: more is sent than the device takes. Device high: the device, or the storage backend behind it.",
			width: 8, height: 9, unit: seconds,
			queries: []query{
				{onDevice(`(histogram_avg(sum by (node, device) (` + block("queue", op.name) + `)) >= 0)`), "queue {{persistentvolumeclaim}}"},
				{onDevice(`(histogram_avg(sum by (node, device) (` + block("device", op.name) + `)) >= 0)`), "device {{persistentvolumeclaim}}"},
			},
			view: graph{links: []link{volumeToQuery, volumeToReplicas}},
		})
	}
	return panels
}

func blockWork() []panel {
	return []panel{
		{
			title:    "Operations",
			question: "How many operations do the volumes do?",
			text:     "Requests per second by operation, merged ones counted once; all selected volumes' devices. Compare with what the class promises.",
			width:    6, height: 8, unit: "iops",
			queries: []query{{`sum by (op) (histogram_count(` + onBlock("") + `))`, "{{op}}"}},
			view:    graph{colours: opColours},
		},
		{
			title:    "Throughput",
			question: "How much data moves?",
			text:     "Bytes per second read and written by each volume's device.",
			width:    6, height: 8, unit: bytesSec,
			queries: []query{
				{onDevice(disk("read_bytes_total")), "read {{persistentvolumeclaim}}"},
				{onDevice(disk("written_bytes_total")), "written {{persistentvolumeclaim}}"},
			},
			view: graph{links: []link{volumeToQuery}},
		},
		{
			title:    "Mean size of a write",
			question: "Are the writes single pages or bulk?",
			text:     "8 or 16 KiB: single pages, as a database at random writes. Much larger: a bulk load, a checkpoint or a backup.",
			width:    6, height: 8, unit: byteCount,
			queries: []query{{onDevice(`(` + disk("written_bytes_total") + ` / (` + disk("writes_completed_total") + ` > 0))`), "{{persistentvolumeclaim}}"}},
			view:    graph{},
		},
		{
			title:    "Requests in flight",
			question: "Is a device saturated?",
			text:     "Requests the device has not completed. Steadily near the device's queue depth: it is saturated.",
			width:    6, height: 8, unit: count,
			queries: []query{{onDevice(`node_disk_io_now{node=~"$node", device=~"$device"}`), "{{persistentvolumeclaim}}"}},
			view:    graph{},
		},
	}
}

func blockTails() []panel {
	tail := func(op string) query {
		return query{`max by (persistentvolumeclaim) (volume:block_` + op + `_seconds:p99_5m{volume=~"$volume"})`, op + " {{persistentvolumeclaim}}"}
	}
	return []panel{
		{
			title:    "99th percentile by operation (5 min)",
			question: "Do single operations stall?",
			text:     "One operation in a hundred took longer. Far above the mean: stalls, such as a disk's garbage collection, a throttle's bursts, or a replica that pauses.",
			width:    12, height: 8, unit: seconds,
			queries: []query{tail("write"), tail("read"), tail("flush")},
			view:    graph{log: true},
		},
		{
			title:    "The disks below the volumes",
			question: "Is the physical disk slow?",
			text:     "Mean time of a write on the physical disks under the volumes' devices on this node. High while one volume is slow: its neighbours on the disk are the first suspects.",
			width:    12, height: 8, unit: seconds,
			queries: []query{{`(histogram_avg(sum by (node, device) (rate(ebpf_exporter_blkio_total_seconds{op="write", node=~"$node"}[$__rate_interval]))) >= 0)
and on (node, device)
  label_replace(plumbline_volume_disk_info{volume=~"$volume"}, "device", "$1", "disk", "(.+)")`, "{{node}} {{device}}"}},
			view: graph{log: true},
		},
	}
}

// usedBy is a rate of one of the agent's counters by user, of the disks that the selected volumes are on, of whichever node.
func usedBy(metric, by, window string) string {
	return fmt.Sprintf(`(sum by (%s) (rate(plumbline_disk_user_%s_total[%s])) and on (node, device) volume:used_disk:info{volume=~"$volume"})`, by, metric, window)
}

func diskUsers() []panel {
	const user = "node, device, kind, user"
	return []panel{
		{
			title:    "Who uses this disk",
			question: "Whose requests is a disk of the volumes busy with?", empty: "no agent counts the users of disks",
			text: "Each user's part of the time that requests are in the disks on which the volumes or their replicas are: pods, replicas, other cgroups such as a container runtime's, the kernel (journal, writeback), and the rest. " +
				"One that is new while a volume is slow, and the disk has more to do than usual: the neighbour. The disk slow and nobody's part changed: the disk itself.",
			width: 9, height: 9, unit: ratio,
			queries: []query{{usedBy("seconds", user, "$__rate_interval") + `
/ on (node, device) group_left ()
  (sum by (node, device) (rate(plumbline_disk_user_seconds_total[$__rate_interval])) > 0)`, "{{user}} ({{kind}}) on {{node}} {{device}}"}},
			view: graph{max: 1},
		},
		{
			title:    "The largest users now (last 2 minutes)",
			question: "How much does each of them do?", empty: "no agent counts the users of disks",
			text:  "The ten users of each node that keep the disks of the selected volumes busiest: requests that are in the disk on average, requests and bytes per second.",
			width: 15, height: 9, unit: count,
			queries: []query{
				{`topk by (node) (10, ` + usedBy("seconds", user, nowWindow) + `)`, "In the disk"},
				{usedBy("requests", user, nowWindow), "Requests"},
				{usedBy("bytes", user, nowWindow), "Bytes"},
			},
			view: grid{
				labels: []labelColumn{{"user", "User", 160, nil}, {"kind", "Kind", 70, nil}, {"device", "Disk", 80, nil}, {"node", "Node", 90, nil}}, lead: 1,
				columns: []valueColumn{{count, nil}, {"iops", nil}, {bytesSec, nil}},
				sort:    "In the disk",
			},
		},
	}
}

func capacity() []panel {
	return []panel{
		{
			title:    "File system used",
			question: "Will a claim be full soon?", empty: "no kubelet is scraped",
			text:  "Share of each claim's file system that is in use, from the kubelet. Above 80 % and growing, expand the claim; VolumeAlmostFull pages at 97 %. A full one stops the database.",
			width: 8, height: 8, unit: ratio,
			queries: []query{{`max by (namespace, persistentvolumeclaim) (kubelet_volume_stats_used_bytes{namespace=~"$namespace", persistentvolumeclaim=~"$pvc"} / (kubelet_volume_stats_capacity_bytes > 0))
and on (namespace, persistentvolumeclaim) plumbline_volume_info{` + ofVolume + `}`, "{{persistentvolumeclaim}}"}},
			view: graph{max: 1, limit: &limit{0.8, 0.9}, links: []link{volumeToQuery}},
		},
		{
			title:    "Size of the volume",
			question: "How much of the volume is snapshots?", empty: "no Longhorn volume",
			text:  "The volume's size as its engine serves it (Longhorn), and what its head and snapshots take on one replica. Snapshots larger than the volume: too many are kept.",
			width: 8, height: 8, unit: byteCount,
			queries: []query{
				{`max by (volume) (plumbline_longhorn_engine_size_bytes{volume=~"$volume"})`, "size {{volume}}"},
				{`max by (volume) (plumbline_longhorn_replica_head_bytes{volume=~"$volume"} + plumbline_longhorn_replica_snapshot_bytes)`, "on a replica {{volume}}"},
			},
			view: graph{},
		},
		{
			title:    "Space left on the nodes' disks",
			question: "Will a node's disk be full soon?",
			text:     "Space left on the file systems of the nodes on which the volumes are. Replicas live there: a full one fails them.",
			width:    8, height: 8, unit: ratio,
			queries: []query{{`min by (node, mountpoint) (node_filesystem_avail_bytes{fstype!~"tmpfs|ramfs|overlay|squashfs"} / (node_filesystem_size_bytes > 0))` + ofNodes, "{{node}} {{mountpoint}}"}},
			view:    graph{max: 1, limit: &limit{0.2, 0.1}},
		},
	}
}

func pressure() []panel {
	return []panel{
		{
			title:    "Nodes that wait for I/O",
			question: "Does a node's work wait for its disks?",
			text:     "Share of time in which some, and in which all, of a node's tasks waited for I/O. All above 10 %: the node's disks hold its work up.",
			width:    8, height: 8, unit: ratio,
			queries: []query{
				{`clamp_max(max by (node) (rate(node_pressure_io_waiting_seconds_total[$__rate_interval])), 1)` + ofNodes, "some {{node}}"},
				{`clamp_max(max by (node) (rate(node_pressure_io_stalled_seconds_total[$__rate_interval])), 1)` + ofNodes, "all {{node}}"},
			},
			view: graph{max: 1, limit: &limit{0.1, 0.5}},
		},
		{
			title:    "Nodes that wait for CPU or memory",
			question: "Is it the node and not the storage?",
			text:     "Share of time in which some of a node's tasks waited for a CPU or for memory. High: what looks like slow storage is a replica or database that gets no CPU.",
			width:    8, height: 8, unit: ratio,
			queries: []query{
				{`clamp_max(max by (node) (rate(node_pressure_cpu_waiting_seconds_total[$__rate_interval])), 1)` + ofNodes, "CPU {{node}}"},
				{`clamp_max(max by (node) (rate(node_pressure_memory_waiting_seconds_total[$__rate_interval])), 1)` + ofNodes, "memory {{node}}"},
			},
			view: graph{max: 1, limit: &limit{0.5, 0.9}},
		},
		{
			title:    "Pods that wait for I/O",
			question: "Is it this pod alone that waits for its volume?", empty: "no kubelet with pressure of containers is scraped",
			text:  "Share of time in which some tasks of the pod of the database on the volume waited for I/O, from the kubelet's cAdvisor (Kubernetes 1.33 on). High here and low on the node: the volume, or a limit of the pod's cgroup.",
			width: 8, height: 8, unit: ratio,
			queries: []query{{`clamp_max(max by (namespace, pod) (rate(container_pressure_io_waiting_seconds_total{namespace=~"$namespace"}[$__rate_interval])), 1)
and on (namespace, pod) (server:pod:info and on (node, server) server:volume:info{` + ofVolume + `})`, "{{pod}}"}},
			view: graph{max: 1, limit: &limit{0.1, 0.5}},
		},
	}
}
