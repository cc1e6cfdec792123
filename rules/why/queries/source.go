// Package queries has the queries to Prometheus that explain why a server is slow. They read either kind of
// histogram. They are generated, so that commands need no parser of PromQL.
package queries

// Source has all queries by name, of native histograms. $server, $volume, $device, $node and $class stand for matchers,
// $anywhere for those of a server whose node may be missing, $cluster for that of the cluster alone, $window for the
// window. Windows differ from the rules' five minutes, so they query measured series. They query the rules' own where an
// engine's figures have no other common name.
var Source = map[string]string{
	// Who there is: also who was within two minutes, since a scrape may fail just when a node is short of CPU.
	"clusters": `group by (cluster) (plumbline_volume_info or plumbline_server_info or plumbline_feature_available or server:volume:info)`,
	"nodes":    `group by (node) (plumbline_volume_info{$cluster} or plumbline_server_info{$cluster} or plumbline_device_in_flight{$cluster})`,
	"servers":  `server:volume:info{$cluster} or on (cluster, server) last_over_time(server:volume:info{$cluster}[2m])`,
	// Each server that is alone at an address.
	"addresses": `server:address:info{$cluster} or on (cluster, address, port) last_over_time(server:address:info{$cluster}[2m])`,
	"volumes":   `group by (cluster, node, device, volume, namespace, persistentvolumeclaim, storageclass, backend, pod) (plumbline_volume_info{$cluster} or on (cluster, volume) last_over_time(plumbline_volume_info{$cluster}[2m]))`,
	"wal":       `server:sync_volume:info{$cluster} or on (cluster, server) last_over_time(server:sync_volume:info{$cluster}[2m])`,
	"control":   `storageclass:control:info{$cluster} or on (cluster, node, storageclass) last_over_time(storageclass:control:info{$cluster}[2m])`,

	// Statements.
	"commits":          `histogram_count(sum(increase(plumbline_query_duration_seconds{$server,command="commit"}[$window])))`,
	"commit mean":      `histogram_avg(sum(rate(plumbline_query_duration_seconds{$server,command="commit"}[$window])))`,
	"commit p99":       `histogram_quantile(0.99, sum(rate(plumbline_query_duration_seconds{$server,command="commit"}[$window])))`,
	"commit phases":    `sum by (phase) (increase(plumbline_query_phase_seconds_total{$server,command="commit"}[$window]))`,
	"statements":       `histogram_count(sum(increase(plumbline_query_duration_seconds{$server}[$window])))`,
	"statement mean":   `histogram_avg(sum(rate(plumbline_query_duration_seconds{$server}[$window])))`,
	"statement p99":    `histogram_quantile(0.99, sum(rate(plumbline_query_duration_seconds{$server}[$window])))`,
	"statement phases": `sum by (phase) (increase(plumbline_query_phase_seconds_total{$server}[$window]))`,
	// By query, where the server's identifiers are known.
	"query statements": `sum by (queryid) (increase(plumbline_query_id_statements_total{$server}[$window]))`,
	"query phases":     `sum by (queryid, phase) (increase(plumbline_query_id_phase_seconds_total{$server}[$window]))`,
	"query before":     `sum by (queryid) (rate(plumbline_query_id_phase_seconds_total{$server}[1h] offset 1h)) / (sum by (queryid) (rate(plumbline_query_id_statements_total{$server}[1h] offset 1h)) > 0)`,
	"query misses":     `sum by (queryid) (increase(plumbline_query_id_file_reads_total{$server,cache="miss"}[$window]))`,
	"query unknown":    `sum by (reason) (increase(plumbline_query_id_unknown_total{$server}[$window]))`,
	"query texts":      `query:text:info{$anywhere}`,
	// By MySQL's digest, as mysqld_exporter has it of performance_schema.
	"digests":           `sum by (digest, digest_text) (increase(mysql_perf_schema_events_statements_seconds_total{$anywhere}[$window]))`,
	"digest statements": `sum by (digest) (increase(mysql_perf_schema_events_statements_total{$anywhere}[$window]))`,
	"digest before":     `sum by (digest) (rate(mysql_perf_schema_events_statements_seconds_total{$anywhere}[1h] offset 1h)) / (sum by (digest) (rate(mysql_perf_schema_events_statements_total{$anywhere}[1h] offset 1h)) > 0)`,
	"digest cpu":        `sum by (digest) (increase(mysql_perf_schema_events_statements_cpu_time_seconds_total{$anywhere}[$window]))`,
	"digest locks":      `sum by (digest) (increase(mysql_perf_schema_events_statements_lock_time_seconds_total{$anywhere}[$window]))`,
	// Of every server there is: one question, however many.
	"all commit means":    `histogram_avg(sum by (cluster, node, server) (rate(plumbline_query_duration_seconds{command="commit",$cluster}[$window])))`,
	"all statement means": `histogram_avg(sum by (cluster, node, server) (rate(plumbline_query_duration_seconds{$cluster}[$window])))`,
	"blocked":             `avg(avg_over_time(plumbline_query_blocked{$server}[$window]))`,
	"blocked for":         `max(plumbline_query_blocked_oldest_seconds{$server})`,
	"server stuck":        `max(server:stuck_seconds:max{$server})`,
	"storage wait":        `max by (phase) (plumbline_server_longest_wait_seconds{$server,phase=~"read|write|sync"})`,
	"node CPU pressure":   `max(rate(node_pressure_cpu_waiting_seconds_total{$node}[$window]))`,

	// The volume's device.
	"writes":           `histogram_count(sum(increase(ebpf_exporter_blkio_total_seconds{$device,op="write"}[$window]))) or sum(increase(node_disk_writes_completed_total{$device}[$window]))`,
	"write total":      `histogram_avg(sum(rate(ebpf_exporter_blkio_total_seconds{$device,op="write"}[$window]))) or sum(rate(node_disk_write_time_seconds_total{$device}[$window])) / sum(rate(node_disk_writes_completed_total{$device}[$window]))`,
	"write queue":      `histogram_avg(sum(rate(ebpf_exporter_blkio_queue_seconds{$device,op="write"}[$window])))`,
	"write device":     `histogram_avg(sum(rate(ebpf_exporter_blkio_device_seconds{$device,op="write"}[$window])))`,
	"flushes":          `histogram_count(sum(increase(ebpf_exporter_blkio_total_seconds{$device,op="flush"}[$window])))`,
	"flush total":      `histogram_avg(sum(rate(ebpf_exporter_blkio_total_seconds{$device,op="flush"}[$window])))`,
	"flush queue":      `histogram_avg(sum(rate(ebpf_exporter_blkio_queue_seconds{$device,op="flush"}[$window])))`,
	"flush device":     `histogram_avg(sum(rate(ebpf_exporter_blkio_device_seconds{$device,op="flush"}[$window])))`,
	"reads":            `histogram_count(sum(increase(ebpf_exporter_blkio_total_seconds{$device,op="read"}[$window]))) or sum(increase(node_disk_reads_completed_total{$device}[$window]))`,
	"read total":       `histogram_avg(sum(rate(ebpf_exporter_blkio_total_seconds{$device,op="read"}[$window]))) or sum(rate(node_disk_read_time_seconds_total{$device}[$window])) / sum(rate(node_disk_reads_completed_total{$device}[$window]))`,
	"solid":            `group(node_disk_info{$device,rotational="0"})`,
	"volume stalled":   `volume:stalled_seconds:max{$volume}`,
	"healthy replicas": `max(plumbline_volume_healthy_replicas{$volume})`,
	"desired replicas": `max(plumbline_volume_desired_replicas{$volume})`,
	"rebuilding":       `max(volume:rebuilding:bool{$volume})`,
	"path write":       `histogram_avg(sum(rate(plumbline_volume_path_seconds{$volume,op="write",backend!="longhorn-v1"}[$window]))) >= 0`,
	"engine write":     `histogram_avg(sum(rate(plumbline_volume_frontend_seconds{$volume,op="write"}[$window]))) >= 0 or histogram_avg(sum(rate(plumbline_volume_target_seconds{$volume,op="write",backend!="longhorn-v1"}[$window]))) >= 0 or max(volume:engine_write_seconds:mean5m{$volume,source!="wire"})`,
	// Of the whole window, as the times are; and those of now, or of a scrape that failed.
	"replica places":     `last_over_time(plumbline_volume_replica_info{$volume}[$window]) or on (volume, address) last_over_time(plumbline_replica_info{$volume}[$window])`,
	"replica places now": `last_over_time(plumbline_volume_replica_info{$volume}[2m]) or on (volume, address) last_over_time(plumbline_replica_info{$volume}[2m])`,
	"replica disks":      `replica:disk:info{$volume} or on (volume, replica) last_over_time(replica:disk:info{$volume}[2m])`,
	"replica writes":     `histogram_count(sum by (address) (increase(plumbline_replica_request_duration_seconds{$volume,op="write"}[$window])))`,
	"replica round trip": `histogram_avg(sum by (address) (rate(plumbline_replica_request_duration_seconds{$volume,op="write"}[$window])))`,
	"replica service":    `histogram_avg(sum by (address) (rate(plumbline_replica_service_seconds{$volume,op="write"}[$window])))`,
	"replica last":       `sum by (address) (increase(plumbline_replica_last_ack_total{$volume}[$window])) / on () group_left () sum(increase(plumbline_replica_last_ack_total{$volume}[$window]))`,
	"replica unread":     `max by (address) (quantile_over_time(0.8, plumbline_replica_service_unread_bytes{$volume}[$window]))`,
	"replica stopped":    `max by (address) (quantile_over_time(0.8, plumbline_storage_process_stopped_seconds{$volume,role="replica"}[$window]))`,
	// Of engines whose wire is not watched; by the replica's name.
	"replica time by engine":    `max by (replica) (replica:write_seconds:mean5m{$volume,source!="wire"})`,
	"replica service by engine": `max by (replica) (replica:write_service_seconds:mean5m{$volume,source!="wire"})`,

	// The chain from a statement to its claim.
	"agents":              `count(plumbline_feature_available{feature="statements",$cluster})`,
	"agents that measure": `sum(plumbline_feature_available{feature="statements",$cluster})`,
	"unidentified":        `sum by (node, kind, reason) (plumbline_unidentified_objects{$cluster}) > 0`,
	"known servers":       `group by (cluster, node, server, db_system) (plumbline_server_info{$cluster})`,
	"native durations":    `count(histogram_count(plumbline_query_duration_seconds{$cluster}))`,
	"recorded durations":  `count(server:queries:rate5m{$cluster})`,
	"all statements":      `histogram_count(sum by (cluster, node, server) (increase(plumbline_query_duration_seconds{$cluster}[$window]))) > 0`,
	"all phases":          `sum by (cluster, node, server) (increase(plumbline_query_phase_seconds_total{$cluster}[$window])) > 0`,
	"data volumes":        `group by (cluster, node, server, volume) (plumbline_server_volume_info{purpose="data",$cluster})`,
	"claims":              `group by (cluster, node, volume) (plumbline_volume_info{persistentvolumeclaim!="",$cluster})`,
	"renamed claims":      `count(plumbline_volume_info{exported_namespace!="",$cluster})`,

	// Series of the rules.
	"grown layer":   `storageclass:grown_layer:info{$class}`,
	"neighbours":    `volume:neighbour:share5m{$volume}`,
	"disk limits":   `volume:disk_limit:rate5m{$volume}`,
	"disk work":     `disk:work_growth:ratio{$cluster} and on (cluster, node, device) volume:neighbour:share5m{$volume}`,
	"load explains": `storageclass:load_explains:info{$class}`,
	"host explains": `loadgen:host_explains:info{$server}`,
	"alerts":        `ALERTS{alertstate="firing",$cluster}`,
}

// OfNative are the names of those that are queried as they are written.
var OfNative = []string{"native durations"}
