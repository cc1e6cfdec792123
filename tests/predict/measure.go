package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"github.com/plumbline/plumbline/loadgen/predict"
	"github.com/plumbline/plumbline/rules/layers"
	"github.com/plumbline/plumbline/tests/agentproc"
	"github.com/plumbline/plumbline/tests/rig"
)

// measured is all that was measured: of each load on each store, and of each store alone.
type measured struct {
	// Workloads are by load and store, Classes by store.
	Workloads map[string]map[string]predict.Workload
	Classes   map[string]predict.Class
	// Load is the machine's load average before each round.
	Load []string
}

// measure runs all loads on all stores, round by round: what slows the machine for a while slows all.
func measure(t *rig.Scope, o options) *measured {
	t.Check(rig.OwnMounts())
	m := &measured{map[string]map[string]predict.Workload{}, map[string]predict.Class{}, nil}
	a, err := agentproc.Start(context.Background(), o.agent)
	t.Check(err)
	t.Cleanup(func() { t.Check(a.Stop()) })
	// What holds back must be on time, and the servers and what measures their stores are not to wait for others' work
	// on this machine: they begin with this program's priority.
	t.Check(rig.ScheduleTest(t, rig.Preferred))
	var servers []*server
	for i, s := range stores {
		if o.stores.MatchString(s.name) {
			servers = append(servers, start(t, s, uint64(i)))
		}
	}
	clients := map[*server][]client{}
	for _, s := range servers {
		for range 8 {
			c := connect(t, s.URL)
			clients[s] = append(clients[s], c)
			t.Cleanup(c.close)
		}
		rig.Eventually(t, rig.DefaultTimeout, func() error {
			if scrape(t, a).Sum("plumbline_server_info", "server", s.store.server()) != 1 {
				return fmt.Errorf("the agent does not follow %s yet", s.store.name)
			}
			return nil
		})
	}
	for round := range o.rounds {
		load, err := os.ReadFile("/proc/loadavg")
		t.Check(err)
		m.Load = append(m.Load, string(bytes.TrimSpace(load)))
		t.Logf("round %d of %d, load average %s", round+1, o.rounds, m.Load[round])
		order := slices.Clone(servers)
		if round%2 == 1 {
			slices.Reverse(order)
		}
		for _, s := range order {
			m.window(t, o, a, s, clients[s], uint64(round))
		}
	}
	return m
}

func scrape(t *rig.Scope, a *agentproc.Agent) agentproc.Metrics {
	got, err := a.Scrape(context.Background())
	t.Check(err)
	return got
}

// window measures each load once on a store, and the store alone.
func (m *measured) window(t *rig.Scope, o options, a *agentproc.Agent, s *server, clients []client, round uint64) {
	for _, k := range kinds {
		if !o.kinds.MatchString(k.name) {
			continue
		}
		if m.Workloads[k.name] == nil {
			m.Workloads[k.name] = map[string]predict.Workload{}
		}
		w, ok := m.Workloads[k.name][s.store.name]
		if !ok {
			w = predict.Workload{Name: k.name, Engine: "postgresql", Clients: k.clients, Sessions: k.clients, Think: k.think}
		}
		var one made
		w.Windows = append(w.Windows, s.during(t, a, k, func() int { one = k.load(t, clients, round<<8, o.window); return one.turns }))
		// The mean of all windows so far.
		w.ThinkSeconds += (one.thought/float64(max(one.thoughts, 1)) - w.ThinkSeconds) / float64(len(w.Windows))
		m.Workloads[k.name][s.store.name] = w
	}
	c := m.Classes[s.store.name]
	c.Name = s.store.name
	one, err := probe(context.Background(), o.loadgen, s.store.name, s.dir, "--windows=1", "--window="+(o.window/2).String(), "--readers=2", "--file-size=64MiB")
	t.Check(err)
	c.Windows = append(c.Windows, one.Windows...)
	m.Classes[s.store.name] = c
}

// probe measures the store that a folder is on.
func probe(ctx context.Context, loadgen, name, directory string, flags ...string) (c predict.Class, err error) {
	p := exec.CommandContext(ctx, loadgen, append([]string{"probe", "--directory=" + directory, "--storageclass=" + name}, flags...)...)
	p.Stderr = os.Stderr
	text, err := p.Output()
	if err != nil {
		return c, err
	}
	return c, json.Unmarshal(text, &c)
}

// during is what the agent has of a load.
func (s *server) during(t *rig.Scope, a *agentproc.Agent, k kind, load func() int) predict.Window {
	of := []string{"server", s.store.server(), "command", k.command}
	const duration, phase = "plumbline_query_duration_seconds", "plumbline_query_phase_seconds_total"
	before, began := scrape(t, a), time.Now()
	turns := load()
	w := predict.Window{Seconds: time.Since(began).Seconds()}
	var after agentproc.Metrics
	// A client has its answer before the server's task gets to where it is counted.
	rig.Eventually(t, rig.DefaultTimeout, func() error {
		after = scrape(t, a)
		if got := after.Sum(duration, of...) - before.Sum(duration, of...); got != float64(turns) {
			return fmt.Errorf("%s on %s: %v statements counted, %d made", k.name, s.store.name, got, turns)
		}
		return nil
	})
	one := predict.Statement{Kind: k.command, Response: since(before, after, duration, of), Phases: map[string]float64{}}
	for _, p := range layers.Names(layers.IsPhase) {
		by := append([]string{"phase", p}, of...)
		one.Phases[p] = after.Sum(phase, by...) - before.Sum(phase, by...)
	}
	w.Statements = []predict.Statement{one}
	return w
}

// since is what a native histogram counted from one scrape to another.
func since(before, after agentproc.Metrics, name string, of []string) predict.Histogram {
	_, less := before.Buckets(name, of...)
	schema, counts := after.Buckets(name, of...)
	for i, n := range less {
		counts[i] -= n
	}
	maps.DeleteFunc(counts, func(_ int32, n float64) bool { return n == 0 })
	first, last := slices.Min(slices.Collect(maps.Keys(counts))), slices.Max(slices.Collect(maps.Keys(counts)))
	h := predict.Histogram{}
	for i := first - 1; i <= last; i++ {
		h.Bounds = append(h.Bounds, math.Exp2(float64(i)/math.Exp2(float64(schema))))
		h.Counts = append(h.Counts, counts[i])
	}
	h.Counts = append(h.Counts, 0)
	return h
}

const file = "measured.json"

func (m *measured) save(folder string) error {
	text, err := json.Marshal(m)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(folder, file), text, 0o644)
}

func load(folder string) (*measured, error) {
	text, err := os.ReadFile(filepath.Join(folder, file))
	if err != nil {
		return nil, err
	}
	var m measured
	if err := json.Unmarshal(text, &m); err != nil {
		return nil, fmt.Errorf("%s: %w", folder, err)
	}
	return &m, nil
}
