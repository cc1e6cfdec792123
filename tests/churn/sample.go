package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/plumbline/plumbline/tests/agentproc"
	"github.com/plumbline/plumbline/tests/pgserver"
	"github.com/plumbline/plumbline/tests/testkit"
)

// server is the label of the server whose statements are compared with those made.
const server = "churn"

// countTimeout is how long the last statements may take to be counted: the client has its
// answer before the server's task gets to the point where they are.
const countTimeout = testkit.DefaultTimeout

// sample is what the agent reports on itself at one moment.
type sample struct {
	at           time.Duration
	rss, heap    float64 // bytes
	files        float64
	goroutines   float64
	cpu          float64 // seconds since its start
	backends     float64 // entries of the map that grows with connections
	events       float64 // bytes not read in the ring buffer
	lost         float64 // all loss counters of the server
	attachErrors float64
	counted      float64
	made         uint64
}

// run starts a server, the agent and the load, and prints samples until the end. The last one
// is taken after the load.
func run(ctx context.Context, o options, out io.Writer) ([]sample, error) {
	var err error
	if o.initdb == "" {
		if o.initdb, err = pgserver.Tool("initdb"); err != nil {
			return nil, err
		}
	}
	if o.postgres == "" {
		if o.postgres, err = pgserver.Tool("postgres"); err != nil {
			return nil, err
		}
	}
	pg, err := pgserver.Start(pgserver.Options{Initdb: o.initdb, Postgres: o.postgres,
		Settings: map[string]string{"cluster_name": server, "synchronous_commit": "off", "autovacuum": "off"}})
	if err != nil {
		return nil, err
	}
	samples, err := watch(ctx, o, pg, out)
	return samples, errors.Join(err, pg.Stop())
}

func watch(ctx context.Context, o options, pg *pgserver.Server, out io.Writer) ([]sample, error) {
	if err := prepare(ctx, pg.URL); err != nil {
		return nil, err
	}
	agent, err := agentproc.Start(ctx, o.agent, o.agentFlags...)
	if err != nil {
		return nil, err
	}
	samples, err := measure(ctx, o, agent, pg.URL, out)
	return samples, errors.Join(err, agent.Stop())
}

func prepare(ctx context.Context, url string) error {
	c, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer c.Close(ctx)
	_, err = c.Exec(ctx, "create unlogged table churn (i int)")
	return err
}

func measure(ctx context.Context, o options, agent *agentproc.Agent, url string, out io.Writer) ([]sample, error) {
	fmt.Fprintln(out, "| time | RSS MB | heap MB | open files | goroutines | agent's CPU s | backends | bytes of process events | lost | attach errors | counted | made |")
	fmt.Fprintln(out, "|---|---|---|---|---|---|---|---|---|---|---|---|")
	began := time.Now()
	l := &load{url: url, fail: make(chan error, 1)}
	var samples []sample
	take := func() error {
		s, err := scrape(ctx, agent)
		if err != nil {
			return err
		}
		s.at, s.made = time.Since(began), l.made.Load()
		samples = append(samples, s)
		fmt.Fprintln(out, s)
		return nil
	}
	if err := take(); err != nil {
		return samples, err
	}
	loading, stop := context.WithTimeout(ctx, o.duration)
	defer stop()
	l.start(loading, o)
	every := time.NewTicker(o.interval)
	defer every.Stop()
	var problem error
	for problem == nil && loading.Err() == nil {
		select {
		case <-loading.Done():
		case problem = <-l.fail:
		case <-every.C:
			problem = take()
		}
	}
	stop()
	l.wait.Wait()
	if problem != nil {
		return samples, problem
	}
	for end := time.Now().Add(countTimeout); ; time.Sleep(100 * time.Millisecond) {
		s, err := scrape(ctx, agent)
		if err != nil {
			return samples, err
		}
		if s.counted >= float64(l.made.Load()) || time.Now().After(end) {
			return samples, take()
		}
	}
}

func scrape(ctx context.Context, agent *agentproc.Agent) (sample, error) {
	m, err := agent.Scrape(ctx)
	if err != nil {
		return sample{}, fmt.Errorf("scraping the agent: %w", err)
	}
	return sample{
		rss: m.Sum("process_resident_memory_bytes"), heap: m.Sum("go_memstats_heap_inuse_bytes"),
		files: m.Sum("process_open_fds"), goroutines: m.Sum("go_goroutines"), cpu: m.Sum("process_cpu_seconds_total"),
		backends:     m.Sum("plumbline_query_processes", "server", server),
		events:       m.Sum("plumbline_bpf_map_entries", "collector", "query", "map", "process_events"),
		lost:         m.Sum("plumbline_query_lost_total", "server", server) + m.Sum("plumbline_query_process_events_lost_total"),
		attachErrors: m.Sum("plumbline_query_attach_errors_total", "server", server),
		// The load's own statements: the server's name is its own, but its start-up made some.
		counted: m.Sum("plumbline_query_duration_seconds", "server", server, "command", "select") +
			m.Sum("plumbline_query_duration_seconds", "server", server, "command", "insert"),
	}, nil
}

func (s sample) String() string {
	return fmt.Sprintf("| %v | %.1f | %.1f | %.0f | %.0f | %.1f | %.0f | %.0f | %.0f | %.0f | %.0f | %d |", s.at.Round(time.Second),
		s.rss/1e6, s.heap/1e6, s.files, s.goroutines, s.cpu, s.backends, s.events, s.lost, s.attachErrors, s.counted, s.made)
}

// verdict compares the end with the beginning.
func verdict(samples []sample) error {
	first, last := samples[0], samples[len(samples)-1]
	var problems []error
	if last.counted != float64(last.made) {
		problems = append(problems, fmt.Errorf("%.0f statements counted, %d made", last.counted, last.made))
	}
	if last.lost != first.lost {
		problems = append(problems, fmt.Errorf("lost %.0f events", last.lost-first.lost))
	}
	if last.attachErrors != first.attachErrors {
		problems = append(problems, fmt.Errorf("%.0f attach errors", last.attachErrors-first.attachErrors))
	}
	// Other servers of the machine may come and go meanwhile, with a probe or two each.
	if last.files > first.files+20 {
		problems = append(problems, fmt.Errorf("%.0f open files at the end, %.0f at the beginning", last.files, first.files))
	}
	if last.backends > first.backends+workers {
		problems = append(problems, fmt.Errorf("%.0f backends followed at the end, %.0f at the beginning", last.backends, first.backends))
	}
	return errors.Join(problems...)
}
