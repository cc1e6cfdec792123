package dashboards

import (
	"fmt"

	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
)

// pg and my are rates of counters of postgres_exporter and mysqld_exporter, whose targets
// carry the label server.
func pg(metric string) string {
	return fmt.Sprintf(`sum by (server) (rate(pg_%s{server=~"$server"}[$__rate_interval]))`, metric)
}

func my(metric string) string {
	return fmt.Sprintf(`sum by (server) (rate(mysql_global_status_%s{server=~"$server"}[$__rate_interval]))`, metric)
}

func databases() page {
	return page{
		uid: "plumbline-databases", title: "Plumbline / Databases",
		text: "What the database servers themselves say: work, log, checkpoints, caches, locks, replication. From postgres_exporter and mysqld_exporter, " +
			"whose targets carry the labels server and storageclass. postgres_exporter 0.19 exports neither pg_stat_wal nor pg_stat_io.",
		variables: []cog.Builder[dashboard.VariableModel]{
			datasource(),
			choice("storageclass", "Storage class", `label_values({__name__=~"pg_up|mysql_up"}, storageclass)`),
			choice("server", "Server", `label_values({__name__=~"pg_up|mysql_up", storageclass=~"$storageclass"}, server)`),
		},
		rows: []row{
			{"PostgreSQL: work", postgresWork()},
			{"PostgreSQL: log and checkpoints", postgresLog()},
			{"PostgreSQL: locks, waits and replication", postgresWaits()},
			{"MySQL and MariaDB: work", mysqlWork()},
			{"MySQL and MariaDB: redo log, locks and replication", mysqlLog()},
		},
	}
}

func postgresWork() []panel {
	return []panel{
		{
			title: "Transactions", text: "Commits and rollbacks per second. A fall with a rise of the sessions below: the server is slow. Rollbacks above 1 %: look at the application.",
			width: 8, height: 8, unit: perSec,
			queries: []query{{pg("stat_database_xact_commit"), "commits {{server}}"}, {pg("stat_database_xact_rollback"), "rollbacks {{server}}"}},
			view:    graph{},
		},
		{
			title: "Buffer hits", text: "Share of the pages asked for that were in shared_buffers. Good: above 99 % for small transactions. A fall means more reads, of the page cache first.",
			width: 4, height: 8, unit: ratio,
			queries: []query{{pg("stat_database_blks_hit") + " / (" + pg("stat_database_blks_hit") + " + " + pg("stat_database_blks_read") + " > 0)", "{{server}}"}},
			view:    graph{max: 1},
		},
		{
			title: "Page-cache hits", text: "Share of the server's file reads that the page cache answered, seen in the kernel by the agent. A fall here is what the volume feels as reads.",
			width: 4, height: 8, unit: ratio,
			queries: []query{{`max by (server) (server:page_cache_hits_per_read:ratio_rate5m{server=~"$server"})`, "{{server}}"}},
			view:    graph{max: 1},
		},
		{
			title: "Time in reads and writes of data files", text: "Seconds per second the sessions spent reading and writing data files (needs track_io_timing). 1 is one session that does nothing else. The log is not in it.",
			width: 8, height: 8, unit: times,
			queries: []query{{pg("stat_database_blk_read_time") + " / 1000", "reads {{server}}"}, {pg("stat_database_blk_write_time") + " / 1000", "writes {{server}}"}},
			view:    graph{},
		},
	}
}

func postgresLog() []panel {
	// The checkpointer's statistics have a view of their own since PostgreSQL 17.
	checkpoint := func(before, since string) string { return pg(before) + "\nor " + pg(since) }
	return []panel{
		{
			title: "Checkpoints", text: "Checkpoints per second: timed ones are the plan, requested ones mean max_wal_size is too small for the writes. Good: requested near 0.",
			width: 8, height: 8, unit: perSec,
			queries: []query{
				{checkpoint("stat_bgwriter_checkpoints_timed_total", "stat_checkpointer_num_timed_total"), "timed {{server}}"},
				{checkpoint("stat_bgwriter_checkpoints_req_total", "stat_checkpointer_num_requested_total"), "requested {{server}}"},
			},
			view: graph{},
		},
		{
			title: "Time in checkpoints", text: "Share of time the checkpointer spends writing and syncing. Sync high: the volume stalls on flushes of many pages; statements wait with it.",
			width: 8, height: 8, unit: ratio,
			queries: []query{
				{"(" + checkpoint("stat_bgwriter_checkpoint_write_time_total", "stat_checkpointer_write_time_total") + ") / 1000", "writing {{server}}"},
				{"(" + checkpoint("stat_bgwriter_checkpoint_sync_time_total", "stat_checkpointer_sync_time_total") + ") / 1000", "syncing {{server}}"},
			},
			view: graph{},
		},
		{
			title: "Size of the write-ahead log", text: "Bytes in pg_wal. Good: below max_wal_size. Growing on: an archiver that fails or a replica's slot that holds it.",
			width: 8, height: 8, unit: byteCount,
			queries: []query{
				{`max by (server) (pg_wal_size_bytes{server=~"$server"})`, "{{server}}"},
				{`max by (server) (pg_settings_max_wal_size_bytes{server=~"$server"})`, "max_wal_size {{server}}"},
			},
			view: graph{},
		},
	}
}

func postgresWaits() []panel {
	return []panel{
		{
			title: "What active sessions wait for", text: "Active sessions by their wait event's type. IO: the volume. LWLock WALWrite and IO WALSync: another session's flush of the log. Lock: other transactions. Client: the application. An empty type is working, not waiting.",
			width: 8, height: 8, unit: count,
			queries: []query{{`sum by (server, wait_event_type) (pg_stat_activity_count{server=~"$server", state="active"})`, "{{server}} {{wait_event_type}}"}},
			view:    graph{stacked: true},
		},
		{
			title: "Locks held", text: "Locks by mode, those that readers take (access share) left out. Exclusive ones that stay: a long transaction or a schema change.",
			width: 8, height: 8, unit: count,
			queries: []query{{`sum by (server, mode) (pg_locks_count{server=~"$server", mode!="accesssharelock"}) > 0 or sum by (server) (pg_locks_count{server=~"$server"}) * 0`, "{{server}} {{mode}}"}},
			view:    graph{stacked: true},
		},
		{
			title: "Deadlocks and temporary files", text: "Deadlocks per second, and temporary files made per second. Good: 0 deadlocks. Temporary files load the volume beside the data: work_mem is too small for some statement.",
			width: 4, height: 8, unit: perSec,
			queries: []query{{pg("stat_database_deadlocks"), "deadlocks {{server}}"}, {pg("stat_database_temp_files"), "temporary files {{server}}"}},
			view:    graph{},
		},
		{
			title: "Replication lag", text: "How far a standby's replay is behind its primary; 0 on a primary. It grows when the standby's volume is slower than the primary's.",
			width: 4, height: 8, unit: seconds,
			queries: []query{{`max by (server) (pg_replication_lag_seconds{server=~"$server"})`, "{{server}}"}},
			view:    graph{limit: &limit{10, 60}},
		},
	}
}

func mysqlWork() []panel {
	return []panel{
		{
			title: "Statements", text: "Statements per second, those of stored programs included. A fall with a rise of the running threads: the server is slow.",
			width: 8, height: 8, unit: perSec,
			queries: []query{{my("queries"), "{{server}}"}},
			view:    graph{},
		},
		{
			title: "Threads running", text: "Threads that are not asleep. Far above the number of CPUs: they wait for locks or the volume.",
			width: 4, height: 8, unit: count,
			queries: []query{{`max by (server) (mysql_global_status_threads_running{server=~"$server"})`, "{{server}}"}},
			view:    graph{},
		},
		{
			title: "Buffer-pool hits", text: "Share of InnoDB's page requests that were in the buffer pool. Good: above 99 %. A fall means reads from the volume.",
			width: 4, height: 8, unit: ratio,
			queries: []query{{"1 - " + my("innodb_buffer_pool_reads") + " / (" + my("innodb_buffer_pool_read_requests") + " > 0)", "{{server}}"}},
			view:    graph{max: 1},
		},
		{
			title: "Dirty pages", text: "Share of the buffer pool's pages with changes not yet written. Near innodb_max_dirty_pages_pct: writing cannot keep up, and statements soon wait for it.",
			width: 8, height: 8, unit: ratio,
			queries: []query{{`max by (server) (mysql_global_status_innodb_buffer_pool_bytes_dirty{server=~"$server"} / (mysql_global_status_innodb_buffer_pool_bytes_data > 0))`, "{{server}}"}},
			view:    graph{max: 1},
		},
	}
}

func mysqlLog() []panel {
	return []panel{
		{
			title: "Redo log written", text: "Bytes per second of InnoDB's redo log: what commits wait for on the volume.",
			width: 6, height: 8, unit: bytesSec,
			queries: []query{{my("innodb_os_log_written"), "{{server}}"}},
			view:    graph{},
		},
		{
			title: "Syncs and waits for the log", text: "fsync calls of InnoDB per second, and times a statement waited because the log buffer was full. Good: no waits; else innodb_log_buffer_size or the volume is too small or slow.",
			width: 6, height: 8, unit: perSec,
			queries: []query{{my("innodb_data_fsyncs"), "syncs {{server}}"}, {my("innodb_log_waits"), "waits {{server}}"}},
			view:    graph{},
		},
		{
			title: "Row locks", text: "Seconds per second that statements waited for row locks. 1 is one statement that always waits. High while the volume is slow: locks are held for the length of a commit.",
			width: 6, height: 8, unit: times,
			queries: []query{{my("innodb_row_lock_time") + " / 1000", "{{server}}"}},
			view:    graph{},
		},
		{
			title: "Lag behind the source", text: "How far a replica server is behind its source, as it says itself. It grows when the replica's volume is slower than the source's. Empty on a server that is no replica.",
			width: 6, height: 8, unit: seconds,
			queries: []query{{`max by (server) (mysql_slave_status_seconds_behind_master{server=~"$server"})`, "{{server}}"}},
			view:    graph{limit: &limit{10, 60}},
		},
	}
}
