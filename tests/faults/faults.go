package main

import (
	"fmt"
	"strings"
	"syscall"
	"time"
)

// faults is the table.
func (l *lab) faults() []fault {
	o := l.o
	instance := func(class, exporter string) string {
		return fmt.Sprintf(", instance=%q", strings.TrimSuffix(strings.TrimPrefix(l.metrics(class, exporter), "http://"), "/metrics"))
	}
	var all []fault
	// Processes that only observe: neither their end nor their halt may hurt the load.
	for _, p := range []struct{ name, job, class, instance string }{
		{"agent", "plumbline-agent", "local", ""},
		{"ebpf-exporter", "ebpf-exporter", "local", ""},
		{"node-exporter", "node-exporter", "local", ""},
		{"alertmanager", "alertmanager", "local", ""},
		{"longhorn-exporter", "longhorn-exporter", "longhorn-r3", ""},
		{"local-postgres-exporter", "postgres-exporter", "local", instance("local", "postgres_exporter")},
		{"local-canary", "loadgen", "local", instance("local", "canary")},
		{"local-pgbench", "loadgen", "local", instance("local", "pgbench")},
	} {
		down := fmt.Sprintf(`up{job=%q%s} == 0`, p.job, p.instance)
		works := []string{fmt.Sprintf(`up{job=%q%s} == 1`, p.job, p.instance), alive("local"), alive("longhorn-r3")}
		for _, kind := range []struct {
			name, expected, again string
			signal                syscall.Signal
			seen                  []string
			end                   func(l *lab) error
		}{
			{"kill -9 of " + p.name, "the supervisor starts it again, it measures again", p.name, syscall.SIGKILL, nil, nil},
			{"halt (SIGSTOP) of " + p.name, "up is 0; then it goes on", "", syscall.SIGSTOP, []string{down}, func(l *lab) error { return l.signal(p.name, syscall.SIGCONT) }},
		} {
			all = append(all, fault{name: kind.name, expected: kind.expected, class: p.class, job: p.job, again: kind.again,
				begin: func(l *lab) error { return l.signal(p.name, kind.signal) }, seen: kind.seen, end: kind.end, well: works})
		}
	}
	all = append(all,
		fault{name: "stop of the agent on purpose (kill -9), and its start", class: "local", job: "plumbline-agent",
			expected: "up is 0 and stays so until it is started; then it measures again",
			begin:    func(l *lab) error { return l.kill("agent") },
			seen:     []string{`max_over_time(up{job="plumbline-agent"}[10s]) == 0`},
			end:      func(l *lab) error { return l.start("agent") },
			well:     []string{`up{job="plumbline-agent"} == 1`, `sum(rate(plumbline_query_phase_seconds_total[10s])) > 0`}},
		fault{name: "upgrade of the agent under load: SIGTERM, then its successor", class: "local", job: "plumbline-agent",
			expected: "its counters begin anew, statements go on to be counted",
			begin:    func(l *lab) error { return l.restart("agent") },
			seen:     []string{`time() - process_start_time_seconds{job="plumbline-agent"} < 30`},
			well:     []string{`up{job="plumbline-agent"} == 1`, `sum(rate(plumbline_query_phase_seconds_total[10s])) > 0`}},
		fault{name: "outage of Prometheus: kill -9, and back after " + o.outage.String(), class: "local",
			expected: "the load goes on; a gap, and counters that go on after it",
			begin: func(l *lab) error {
				if err := l.kill("prometheus"); err != nil {
					return err
				}
				select {
				case <-time.After(o.outage): // the fault itself takes this long
				case <-l.ctx.Done():
				}
				return l.start("prometheus")
			},
			seen: []string{fmt.Sprintf(`count_over_time(up{job="prometheus"}[%ds]) < 15`, int(o.outage.Seconds()+20))},
			well: []string{alive("local"), alive("longhorn-r3")}, job: "prometheus"},
		fault{name: "halt (SIGSTOP) of Prometheus for 20 s", class: "local", job: "prometheus",
			expected: "scrapes are missed, nothing else",
			begin: func(l *lab) error {
				if err := l.signal("prometheus", syscall.SIGSTOP); err != nil {
					return err
				}
				time.Sleep(20 * time.Second) // the fault itself takes this long
				return l.signal("prometheus", syscall.SIGCONT)
			},
			seen: []string{`count_over_time(up{job="prometheus"}[30s]) < 12`}, well: []string{alive("local")}},
		fault{name: "crash of a database: kill -9 of one of its sessions", class: "local",
			expected: "all sessions end, the server recovers by itself, the load comes back",
			begin:    func(l *lab) error { return l.killSession("local") },
			seen:     []string{failing("local")},
			well:     []string{alive("local"), `pg_up{server="local"} == 1`}},
		fault{name: "kill -9 of a database server", class: "longhorn-r3", again: "longhorn-r3-postgresql",
			expected: "the load reports it; the supervisor starts it again, it recovers on its volume, the load comes back",
			begin:    func(l *lab) error { return l.signal("longhorn-r3-postgresql", syscall.SIGKILL) },
			seen:     []string{failing("longhorn-r3")},
			well:     []string{alive("longhorn-r3"), `pg_up{server="longhorn-r3"} == 1`}},
		fault{name: "halt (SIGSTOP) of a replica, then its end (kill -9)", class: "longhorn-r3",
			expected: "writes hang for the engine's 8 s, then it has two replicas; started again and rebuilt by the lab it has three",
			begin:    func(l *lab) error { return l.signal("longhorn-r3-replica-2", syscall.SIGSTOP) },
			seen:     []string{healthy(2)},
			end:      func(l *lab) error { return l.signal("longhorn-r3-replica-2", syscall.SIGKILL) },
			well:     []string{healthy(3), alive("longhorn-r3")}},
		fault{name: "kill -9 of a replica", class: "longhorn-r3", again: "longhorn-r3-replica-3",
			expected: "the load goes on; the supervisor starts it again, empty, and the engine rebuilds it",
			begin:    func(l *lab) error { return l.signal("longhorn-r3-replica-3", syscall.SIGKILL) },
			seen:     []string{alive("longhorn-r3")},
			well:     []string{healthy(3), alive("longhorn-r3")}},
		fault{name: "kill -9 of a replica that stays away", class: "longhorn-r3",
			expected: "two healthy replicas, an alert that a replica is lost; the load goes on; started and rebuilt it has three",
			begin:    func(l *lab) error { return l.kill("longhorn-r3-replica-1") },
			seen:     []string{healthy(2), alive("longhorn-r3"), `ALERTS{alertname="ReplicaLost", alertstate="firing"}`},
			end:      func(l *lab) error { return l.start("longhorn-r3-replica-1") },
			well:     []string{healthy(3), alive("longhorn-r3")}},
		fault{name: "disk full: all of the database's volume taken by another file", class: "longhorn-r3",
			expected: "the server stops for want of room for its log, the load reports it; with room again it recovers",
			begin:    func(l *lab) error { return l.fill("longhorn-r3") },
			seen:     []string{failing("longhorn-r3")},
			end:      func(l *lab) error { return l.empty("longhorn-r3") },
			well:     []string{alive("longhorn-r3")}},
		fault{name: "10 times the connections, and all of them short", class: "local",
			expected: "every statement of the ledger is counted, nothing is lost",
			begin:    func(l *lab) error { return l.churn("local", 40, 20*time.Second) },
			seen:     []string{alive("local")}, well: []string{`sum(increase(plumbline_query_lost_total[1m])) == 0`}},
		fault{name: "hostile clients on every HTTP port of ours", class: "local",
			expected: "each exporter is up all the time, in little memory",
			begin:    func(l *lab) error { return l.hostile() },
			seen:     []string{`min(min_over_time(up{job=~"plumbline-agent|longhorn-exporter|loadgen"}[30s])) == 1`}, well: []string{alive("local")},
			more: func(l *lab) string { return l.growth() }},
		fault{name: "garbage into the database's socket and the replicas' data ports", class: "longhorn-r3",
			expected: "counted as not understood; statements and replicas go on to be counted",
			begin:    func(l *lab) error { return l.garbage() },
			seen:     []string{`sum(increase(plumbline_replica_unrecognised_total[20s])) > 0`}, well: []string{alive("longhorn-r3"), healthy(3)}},
		fault{name: "halt (SIGSTOP) of the engine until it is seen", class: "longhorn-r3",
			expected: "plumbline_longhorn_engine_up is 0, writes hang; then they go on, with all replicas",
			begin:    func(l *lab) error { return l.signal("longhorn-r3-engine", syscall.SIGSTOP) },
			seen:     []string{`plumbline_longhorn_engine_up == 0`},
			end:      func(l *lab) error { return l.signal("longhorn-r3-engine", syscall.SIGCONT) },
			well:     []string{`plumbline_longhorn_engine_up == 1`, healthy(3), alive("longhorn-r3")}},
		fault{name: "kill -9 of the engine", class: "longhorn-r3", again: "longhorn-r3-engine",
			expected: "the load reports it; replicas, engine, bridge, volume and database, started anew in this order by the supervisor, find what was committed",
			begin:    func(l *lab) error { return l.signal("longhorn-r3-engine", syscall.SIGKILL) },
			seen:     []string{failing("longhorn-r3")},
			well:     []string{`plumbline_longhorn_engine_up == 1`, healthy(3), alive("longhorn-r3"), `pg_up{server="longhorn-r3"} == 1`}},
		fault{name: "volume detached under load: kill -9 of what serves its block device", class: "longhorn-r3", again: "longhorn-r3-bridge",
			expected: "the device's I/O fails, the server stops; attached again by the supervisor it finds what was committed",
			begin:    func(l *lab) error { return l.signal("longhorn-r3-bridge", syscall.SIGKILL) },
			seen:     []string{failing("longhorn-r3")},
			well:     []string{healthy(3), alive("longhorn-r3"), `pg_up{server="longhorn-r3"} == 1`}},
	)
	if o.clock {
		const far, between = 40 * time.Second, 15 * time.Second
		all = append(all, fault{name: clockStep, class: "local",
			expected: "no time that we measure is off; Prometheus refuses samples until its clock is where it was",
			begin: func(l *lab) error {
				if err := stepClock(far); err != nil {
					return err
				}
				select {
				case <-time.After(between): // the fault itself takes this long
				case <-l.ctx.Done():
				}
				return stepClock(-far)
			},
			// A scrape after the step back is given the time of the last one before it: to
			// Prometheus the same moment with another value, not an older one.
			seen: []string{`increase(prometheus_target_scrapes_sample_duplicate_timestamp_total[3m]) > 0`},
			well: []string{alive("local"), alive("longhorn-r3")},
			more: func(l *lab) string { return l.longest() }})
	}
	return all
}

// alive is the condition that a class's load continues.
func alive(class string) string {
	return fmt.Sprintf(`sum(increase(loadgen_completed_total{tool="pgbench", storageclass=%q}[6s])) > 20`, class)
}

// failing is the condition that a class's loads report errors or their own restarts.
func failing(class string) string {
	return fmt.Sprintf(`sum(increase(loadgen_errors_total{storageclass=%[1]q}[30s])) > 0 or sum(increase(loadgen_restarts_total{storageclass=%[1]q}[30s])) > 0`, class)
}

// healthy is the condition that the Longhorn volume has n good replicas.
func healthy(n int) string {
	return fmt.Sprintf(`sum(volume:healthy_replicas:count{storageclass="longhorn-r3"}) == %d`, n)
}
