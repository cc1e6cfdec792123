package dashboards

import "fmt"

// of is a rule of rules/databases.rules.yaml, which has one name for every exporter, for the servers
// that were chosen; matchers begin with a comma.
func of(record, matchers string) string {
	return fmt.Sprintf(`max by (server) (%s{server=~"$server"%s})`, record, matchers)
}

// my is the rate of a counter of mysqld_exporter, whose targets carry the label server.
func my(metric string) string {
	return fmt.Sprintf(`sum by (server) (rate(mysql_global_status_%s{server=~"$server"}[$__rate_interval]))`, metric)
}

// slowly is the least interval between two samples of such exporters: they are scraped less often than the rest, and a
// rate over the others' window would have gaps.
const slowly = "30s"

func databases() page {
	return page{
		uid: "plumbline-databases", title: "Plumbline / Databases",
		text: "What the database servers themselves report: work, log, checkpoints, caches, locks, replication. From postgres_exporter and mysqld_exporter, " +
			"whose targets carry the label server, and from CloudNativePG's own metrics, by the rules of databases. postgres_exporter 0.19 exports neither pg_stat_wal nor pg_stat_io.",
		variables: []variable{
			choice("storageclass", "Storage class", `label_values(server:database:info, storageclass)`),
			choice("server", "Server", `label_values(server:database:info{storageclass=~"$storageclass"}, server)`),
		},
		rows: []row{
			{title: "PostgreSQL: work", panels: postgresWork()},
			{title: "PostgreSQL: log and checkpoints", panels: postgresLog()},
			{title: "PostgreSQL: locks, waits and replication", panels: postgresWaits()},
			{title: "MySQL and MariaDB: work (open it if you run one)", panels: mysqlWork(), closed: true},
			{title: "MySQL and MariaDB: redo log, locks and replication (open it if you run one)", panels: mysqlLog(), closed: true},
		},
	}
}

func postgresWork() []panel {
	return []panel{
		{
			title:    "Transactions",
			question: "How much does PostgreSQL do, and does it fail?", empty: "no PostgreSQL",
			text:  "Commits and rollbacks per second. A fall with a rise of the sessions below: the server is slow. Rollbacks above 1 %: look at the application.",
			width: 6, height: 8, unit: perSec,
			queries: []query{{of("server:transactions:rate5m", `, outcome="commit"`), "commits {{server}}"}, {of("server:transactions:rate5m", `, outcome="rollback"`), "rollbacks {{server}}"}},
			view:    graph{every: slowly},
		},
		{
			title:    "Buffer hits",
			question: "Does the working set fit into shared_buffers?", empty: "no PostgreSQL",
			text:  "Share of the requested pages that were in shared_buffers. Good: above 99 % for small transactions. A fall means more reads, of the page cache first.",
			width: 6, height: 8, unit: ratio,
			queries: []query{{of("server:buffer_pages:rate5m", `, from="buffers"`) + " / (" + `sum by (server) (server:buffer_pages:rate5m{server=~"$server"})` + " > 0)", "{{server}}"}},
			view:    graph{max: 1, every: slowly},
		},
		{
			title:    "Page-cache hits",
			question: "Does the working set fit into the page cache?", empty: "no file reads, or no server that the agent follows",
			text:  "Share of the server's file reads that the page cache answered, seen in the kernel by the agent. A fall here is what the volume feels as reads.",
			width: 6, height: 8, unit: ratio,
			queries: []query{{`max by (server) (server:page_cache_hits_per_read:ratio_rate5m{server=~"$server"} >= 0)`, "{{server}}"}},
			view:    graph{max: 1, every: slowly},
		},
		{
			title:    "Sessions in data files",
			question: "How long do sessions wait for data files?", empty: "no PostgreSQL",
			text:  "Seconds per second the sessions spent reading and writing data files (needs track_io_timing). 1 is one session that does nothing else. The log is not in it.",
			width: 6, height: 8, unit: times,
			queries: []query{{of("server:data_file_seconds:rate5m", `, op="read"`), "reads {{server}}"}, {of("server:data_file_seconds:rate5m", `, op="write"`), "writes {{server}}"}},
			view:    graph{every: slowly},
		},
	}
}

func postgresLog() []panel {
	return []panel{
		{
			title:    "Checkpoints per hour",
			question: "Do checkpoints come when planned?", empty: "no PostgreSQL",
			text:  "Timed ones are the plan, requested ones mean max_wal_size is too small for the writes. Good: requested near 0.",
			width: 8, height: 8, unit: count,
			queries: []query{
				{"3600 * " + of("server:checkpoints:rate5m", `, cause="timed"`), "timed {{server}}"},
				{"3600 * " + of("server:checkpoints:rate5m", `, cause="requested"`), "requested {{server}}"},
			},
			view: graph{every: slowly},
		},
		{
			title:    "Time in checkpoints",
			question: "Do checkpoints load the volume?", empty: "no PostgreSQL",
			text:  "Share of time the checkpointer spends writing and syncing. Sync high: the volume stalls on flushes of many pages; statements wait with it.",
			width: 8, height: 8, unit: ratio,
			queries: []query{
				{"clamp_max(" + of("server:checkpoint_seconds:rate5m", `, phase="write"`) + ", 1)", "writing {{server}}"},
				{"clamp_max(" + of("server:checkpoint_seconds:rate5m", `, phase="sync"`) + ", 1)", "syncing {{server}}"},
			},
			view: graph{max: 1, every: slowly},
		},
		{
			title:    "Size of the write-ahead log",
			question: "Is the log held back?", empty: "no PostgreSQL",
			text:  "Bytes in pg_wal. Good: below max_wal_size. Growing on: an archiver that fails or a replica's slot that holds it.",
			width: 8, height: 8, unit: byteCount,
			queries: []query{
				{of("server:log_bytes:max", ""), "{{server}}"},
				{of("server:log_limit_bytes:max", ""), "max_wal_size {{server}}"},
			},
			view: graph{every: slowly},
		},
	}
}

func postgresWaits() []panel {
	return []panel{
		{
			title:    "What active sessions wait for",
			question: "What do the sessions wait for?", empty: "no PostgreSQL",
			text:  "Active sessions by their wait event's type. IO: the volume. LWLock WALWrite and IO WALSync: another session's flush of the log. Lock: other transactions. Client: the application. An empty type is working, not waiting. \"not reported\": CloudNativePG without the query pg_stat_activity, which its monitoring can be given.",
			width: 6, height: 8, unit: count,
			queries: []query{{`sum by (server, wait_event_type) (server:active_sessions:sum{server=~"$server"})`, "{{server}} {{wait_event_type}}"}},
			view:    graph{stacked: true, every: slowly},
		},
		{
			title:    "Locks held",
			question: "Are there locks that stay?", empty: "no PostgreSQL",
			text:  "Locks by mode, those that readers take (access share) left out. Exclusive ones that stay: a long transaction or a schema change.",
			width: 6, height: 8, unit: count,
			queries: []query{{`sum by (server, mode) (server:locks:sum{server=~"$server", mode!="accesssharelock"}) > 0 or sum by (server) (server:locks:sum{server=~"$server"}) * 0`, "{{server}} {{mode}}"}},
			view:    graph{stacked: true, every: slowly},
		},
		{
			title:    "Deadlocks and temporary files",
			question: "Do sessions deadlock or spill to disk?", empty: "no PostgreSQL",
			text:  "Deadlocks per second, and temporary files made per second. Good: 0 deadlocks. Temporary files load the volume beside the data: work_mem is too small for some statement.",
			width: 6, height: 8, unit: perSec,
			queries: []query{{of("server:deadlocks:rate5m", ""), "deadlocks {{server}}"}, {of("server:temporary_files:rate5m", ""), "temporary files {{server}}"}},
			view:    graph{every: slowly},
		},
		{
			title:    "Standby replay lag",
			question: "Does a standby keep up?", empty: "no PostgreSQL",
			text:  "How far a standby's replay is behind its primary; 0 on a primary. It grows when the standby's volume is slower than the primary's.",
			width: 6, height: 8, unit: seconds,
			queries: []query{{of("server:replication_lag_seconds:max", ""), "{{server}}"}},
			view:    graph{limit: &limit{10, 60}},
		},
	}
}

func mysqlWork() []panel {
	return []panel{
		{
			title:    "Statements",
			question: "How much does MySQL do?", empty: "no MySQL or MariaDB",
			text:  "Statements per second, those of stored programs included. A fall with a rise of the running threads: the server is slow.",
			width: 6, height: 8, unit: perSec,
			queries: []query{{my("queries"), "{{server}}"}},
			view:    graph{every: slowly},
		},
		{
			title:    "Threads running",
			question: "Do MySQL's threads pile up?", empty: "no MySQL or MariaDB",
			text:  "Threads that are not asleep. Far above the number of CPUs: they wait for locks or the volume.",
			width: 6, height: 8, unit: count,
			queries: []query{{`max by (server) (mysql_global_status_threads_running{server=~"$server"})`, "{{server}}"}},
			view:    graph{every: slowly},
		},
		{
			title:    "Buffer-pool hits",
			question: "Does the working set fit into the buffer pool?", empty: "no MySQL or MariaDB",
			text:  "Share of InnoDB's page requests that were in the buffer pool. Good: above 99 %. A fall means reads from the volume.",
			width: 6, height: 8, unit: ratio,
			queries: []query{{"clamp_min(1 - " + my("innodb_buffer_pool_reads") + " / (" + my("innodb_buffer_pool_read_requests") + " > 0), 0)", "{{server}}"}},
			view:    graph{max: 1, every: slowly},
		},
		{
			title:    "Dirty pages",
			question: "Does writing keep up with changes?", empty: "no MySQL or MariaDB",
			text:  "Share of the buffer pool's pages with changes not yet written. Near innodb_max_dirty_pages_pct: writing cannot keep up, and statements soon wait for it.",
			width: 6, height: 8, unit: ratio,
			queries: []query{{`clamp_max(max by (server) (mysql_global_status_innodb_buffer_pool_bytes_dirty{server=~"$server"} / (mysql_global_status_innodb_buffer_pool_bytes_data > 0)), 1)`, "{{server}}"}},
			view:    graph{max: 1, every: slowly},
		},
	}
}

func mysqlLog() []panel {
	return []panel{
		{
			title:    "Redo log written",
			question: "How much do commits write?", empty: "no MySQL or MariaDB",
			text:  "Bytes per second of InnoDB's redo log: what commits wait for on the volume.",
			width: 6, height: 8, unit: bytesSec,
			queries: []query{{my("innodb_os_log_written"), "{{server}}"}},
			view:    graph{every: slowly},
		},
		{
			title:    "Syncs and waits for the log",
			question: "Do statements wait for the log?", empty: "no MySQL or MariaDB",
			text:  "fsync calls of InnoDB per second, and times a statement waited because the log buffer was full. Good: no waits; else innodb_log_buffer_size or the volume is too small or slow.",
			width: 6, height: 8, unit: perSec,
			queries: []query{{my("innodb_data_fsyncs"), "syncs {{server}}"}, {my("innodb_log_waits"), "waits {{server}}"}},
			view:    graph{every: slowly},
		},
		{
			title:    "Statements waiting for row locks",
			question: "Do statements wait for each other?", empty: "no MySQL or MariaDB",
			text:  "Seconds per second that statements waited for row locks. 1 is one statement that always waits. High while the volume is slow: locks are held for the length of a commit.",
			width: 6, height: 8, unit: times,
			queries: []query{{my("innodb_row_lock_time") + " / 1000", "{{server}}"}},
			view:    graph{every: slowly},
		},
		{
			title:    "Lag behind the source",
			question: "Does a replica server keep up?", empty: "no MySQL replica",
			text:  "How far a replica server is behind its source, as it reports itself. It grows when the replica's volume is slower than the source's. Empty on a server that is no replica.",
			width: 6, height: 8, unit: seconds,
			queries: []query{{`max by (server) (mysql_slave_status_seconds_behind_master{server=~"$server"})`, "{{server}}"}},
			view:    graph{limit: &limit{10, 60}},
		},
	}
}
