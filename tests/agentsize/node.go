package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/plumbline/plumbline/tests/agentproc"
	"github.com/plumbline/plumbline/tests/pgserver"
	"github.com/plumbline/plumbline/tests/rig"
)

// node is something to be measured.
type node struct {
	what string
	// parts is how many servers or volumes it has, label and prefix how their series are known.
	parts         int
	label, prefix string
	// build starts it and its load at a rate, and returns the count of what the load did.
	build func(t *rig.Scope, rate float64) *atomic.Int64
	// there fails unless the agent has found all of it.
	there func(m agentproc.Metrics) error
}

// serversOf is a node with PostgreSQL servers and connections to each.
func serversOf(n, connections int) node {
	return node{
		what: fmt.Sprintf("%d PostgreSQL servers, %d connections to each", n, connections), parts: n, label: "server", prefix: "size-",
		build: func(t *rig.Scope, rate float64) *atomic.Int64 { return servers(t, n, connections, rate) },
		there: func(m agentproc.Metrics) error {
			got := 0.0
			for i := range n {
				got += m.Sum("plumbline_query_duration_seconds", "server", fmt.Sprintf("size-%d", i), "command", "select")
			}
			followed := 0.0
			for i := range n {
				followed += m.Sum("plumbline_query_processes", "server", fmt.Sprintf("size-%d", i))
			}
			if followed < float64(n*connections) || got == 0 {
				return fmt.Errorf("%v tasks of servers are followed, %v statements counted", followed, got)
			}
			return nil
		},
	}
}

func servers(t *rig.Scope, n, connections int, rate float64) *atomic.Int64 {
	ctx := until(t)
	initdb := template(t)
	var all []*pgx.Conn
	for i := range n {
		s, err := pgserver.Start(pgserver.Options{Initdb: initdb, Postgres: rig.Tool(t, "postgres"), Settings: map[string]string{
			"cluster_name": fmt.Sprintf("size-%d", i), "shared_buffers": "1MB", "autovacuum": "off", "max_connections": fmt.Sprint(connections + 10),
			"wal_buffers": "64kB", "max_wal_senders": "0", "wal_level": "minimal", "fsync": "off",
		}})
		t.Check(err)
		t.Cleanup(func() { t.Check(s.Stop()) })
		for range connections {
			c, err := pgx.Connect(ctx, s.URL)
			t.Check(err)
			all = append(all, c)
		}
	}
	// A few workers go round the connections, each round its own.
	workers := min(4, len(all))
	var done atomic.Int64
	for w := range workers {
		go func() {
			every := time.NewTicker(time.Duration(float64(time.Second) * float64(workers) / rate))
			defer every.Stop()
			for i, turn := w, 0; ; {
				select {
				case <-ctx.Done():
					return
				case <-every.C:
				}
				// One of each kind that a database usually sees: every kind has series of its own.
				if _, err := all[i].PgConn().Exec(ctx, mix[turn%len(mix)]).ReadAll(); err == nil {
					done.Add(1)
				}
				if turn++; turn%len(mix) != 0 {
					continue // the transaction is not over
				}
				i = (i + workers) % (len(all) - len(all)%workers)
			}
		}()
	}
	t.Cleanup(func() {
		for _, c := range all {
			_ = c.Close(context.Background())
		}
	})
	return &done
}

// mix is a transaction.
var mix = []string{"begin", "insert into size values (1)", "update size set i = 2 where false", "delete from size where false", "select 1", "set local work_mem = '1MB'", "commit"}

// template makes one server's data, and a program that stands for initdb and copies it.
func template(t *rig.Scope) string {
	s, err := pgserver.Start(pgserver.Options{Initdb: rig.Tool(t, "initdb"), Postgres: rig.Tool(t, "postgres")})
	t.Check(err)
	dir, err := os.MkdirTemp("/var/tmp", "plumbline-size-")
	t.Check(err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	t.Check(os.Chmod(dir, 0o755))
	data := filepath.Join(dir, "data")
	// Ended in order, so that its copies need no recovery; Stop removes the original.
	c, err := pgx.Connect(context.Background(), s.URL)
	t.Check(err)
	_, err = c.Exec(context.Background(), "create table size (i int)")
	t.Check(err)
	t.Check(c.Close(context.Background()))
	stopped, err := exec.Command("su", pgserver.Owner, "-s", "/bin/sh", "-c", filepath.Join(filepath.Dir(rig.Tool(t, "initdb")), "pg_ctl")+" -D "+s.Data+" -m fast -w stop").CombinedOutput()
	if err != nil {
		t.Fatalf("pg_ctl: %w\n%s", err, stopped)
	}
	if out, err := exec.Command("cp", "-a", s.Data, data).CombinedOutput(); err != nil {
		t.Fatalf("cp: %w\n%s", err, out)
	}
	t.Check(s.Stop())
	script := filepath.Join(dir, "initdb")
	t.Check(os.WriteFile(script, []byte("#!/bin/sh\nexec cp -r '"+data+"' \"$2\"\n"), 0o755))
	return script
}

// volumesOf is a node with Longhorn volumes of three replicas, all of it on the node.
func volumesOf(n int) node {
	var names []string
	return node{
		what: fmt.Sprintf("%d Longhorn volumes: an engine and three replicas each", n), parts: n, label: "volume", prefix: "plumbline-test-",
		build: func(t *rig.Scope, rate float64) *atomic.Int64 {
			var done *atomic.Int64
			done, names = volumes(t, n, rate)
			return done
		},
		there: func(m agentproc.Metrics) error {
			for _, name := range names {
				if got := m.Sum("plumbline_replica_service_seconds", "volume", name, "op", "write"); got < 3 {
					return fmt.Errorf("%v writes seen at the replicas of %s", got, name)
				}
			}
			return nil
		},
	}
}

func volumes(t *rig.Scope, n int, rate float64) (*atomic.Int64, []string) {
	ctx := until(t)
	var done atomic.Int64
	var names []string
	for range n {
		v := rig.NewVolume(t, 3)
		v.Start()
		names = append(names, v.Name)
		var wait sync.WaitGroup
		stop, cancel := context.WithCancel(ctx)
		wait.Go(func() {
			every := time.NewTicker(time.Duration(float64(time.Second) * float64(n) / rate))
			defer every.Stop()
			for i := int64(0); ; i++ {
				select {
				case <-stop.Done():
					return
				case <-every.C:
				}
				if v.Write(i%1000*8192, 8192) == nil {
					done.Add(1)
				}
			}
		})
		t.Cleanup(func() {
			cancel()
			wait.Wait()
		})
	}
	return &done, names
}

// size is what the agent takes for a node.
type size struct {
	parts int
	// total is all its series, a histogram as one; own those of the node's servers or volumes.
	total, own int
	// cpu is of its process, bpf of its programs in the kernel, in cores.
	cpu, bpf    float64
	rss, scrape float64
	rate        float64
}

// observe runs the agent beside a node, and measures it while it is scraped as Prometheus would.
func (o options) observe(t *rig.Scope, n node, done *atomic.Int64) size {
	ctx := context.Background()
	agent, err := agentproc.Start(ctx, o.agent, "--query.max-servers=200", "--bpf.stats")
	t.Check(err)
	t.Cleanup(func() { t.Check(agent.Stop()) })
	scrape := func() agentproc.Metrics {
		m, err := agent.Scrape(ctx)
		t.Check(err)
		return m
	}
	rig.Eventually(t, deadline, func() error { return n.there(scrape()) })
	before, began, operations := scrape(), time.Now(), done.Load()
	var scrapes []float64
	every := time.NewTicker(5 * time.Second)
	defer every.Stop()
	for end := time.After(o.window); ; {
		select {
		case <-every.C:
			start := time.Now()
			scrape()
			scrapes = append(scrapes, time.Since(start).Seconds())
			continue
		case <-end:
		}
		break
	}
	after, took := scrape(), time.Since(began).Seconds()
	s := size{parts: n.parts, rss: after.Sum("process_resident_memory_bytes"),
		cpu:  (after.Sum("process_cpu_seconds_total") - before.Sum("process_cpu_seconds_total")) / took,
		bpf:  (after.Sum("plumbline_bpf_run_seconds_total") - before.Sum("plumbline_bpf_run_seconds_total")) / took,
		rate: float64(done.Load()-operations) / took}
	for _, d := range scrapes {
		s.scrape += d / float64(len(scrapes))
	}
	others := 0
	for _, f := range after {
		for _, m := range f.Metric {
			part := ""
			for _, l := range m.Label {
				if l.GetName() == "server" || l.GetName() == "volume" {
					part = l.GetValue()
				}
			}
			switch {
			case strings.HasPrefix(part, n.prefix):
				s.own++
			case part != "":
				others++ // of what else runs on this machine
				continue
			}
			s.total++
		}
	}
	return s
}
