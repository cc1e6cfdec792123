package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"syscall"
	"time"

	promv1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/plumbline/plumbline/manifests/lab/damage"
	"github.com/plumbline/plumbline/tests/results/rows"
)

const stallSection = "Stalls"

// A stall is reported within this time; what is not a stall is watched for longer.
const (
	stallBudget = time.Minute
	silentFor   = 90 * time.Second
)

// stall is something that is stalled, or only looks like it.
type stall struct {
	name, expected, class string
	// begin makes it; mend, which is called in any case, undoes it.
	begin, mend func(l *lab) error
	// metric is a condition that shows where it is stalled.
	metric string
	// alerts are those one of which must fire; none means that no alert of storage may.
	alerts []string
	// during is what must hold once the alert fires.
	during []string
	// well must hold at the end.
	well []string
}

// storageAlerts are those that blame storage for a stall.
var storageAlerts = []string{"StatementStuck", "DeviceStalled", "EngineStalled", "ReplicaStuck"}

// stalls is the table.
func (l *lab) stalls() []stall {
	const r3 = "longhorn-r3"
	// A session's statement, which its server continues when its client is gone.
	held := func(statements ...string) (begin, mend func(*lab) error) {
		var cmd *exec.Cmd
		return func(l *lab) (err error) {
				cmd, err = l.psql(r3, statements...)
				return err
			}, func(l *lab) error {
				if cmd == nil {
					return nil
				}
				err := l.terminate(r3, statements[len(statements)-1])
				_ = cmd.Wait()
				return err
			}
	}
	lock, unlock := held("begin", "lock table loadgen_branches", "select pg_sleep(3600)")
	// It computes only: with results to sort or keep it would fill its volume, whose writes then wait.
	query, endQuery := held("set max_parallel_workers_per_gather = 0",
		"select count(*) from pg_class a, pg_class b, pg_class c, pg_class d where a.relpages + b.relpages + c.relpages + d.relpages = -1")
	reader, endReader := l.slowClient(r3)
	hangDisk, letDisk := l.throttled(r3 + "-replica-3")
	stopped := func(name string) (begin, mend func(*lab) error) {
		return func(l *lab) error { return l.signal(name, syscall.SIGSTOP) }, func(l *lab) error { return l.signal(name, syscall.SIGCONT) }
	}
	stopEngine, _ := stopped(r3 + "-engine")
	stopBridge, goBridge := stopped(r3 + "-bridge")
	stopReplica, _ := stopped(r3 + "-replica-2")
	inSync := `sum(rate(plumbline_query_phase_seconds_total{server="longhorn-r3", phase="sync"}[10s])) > 0.5`
	works := []string{alive(r3), healthy(3), `max(plumbline_server_longest_wait_seconds{server="longhorn-r3", phase=~"read|write|sync"}) < 5`}
	return []stall{
		{name: "engine stopped (SIGSTOP)", class: r3, expected: "the engine, its volume and its class",
			// Let go, it would take all replicas for lost, as their answers came too late: it is started
			// again, as its manager does on a cluster.
			begin: stopEngine, mend: func(l *lab) error { return l.signal(r3+"-engine", syscall.SIGKILL) }, metric: `max(plumbline_volume_frontend_oldest_seconds) > 3`,
			alerts: []string{"EngineStalled"}, during: []string{inSync}, well: works},
		{name: "database's own disk hung (its FUSE server stopped)", class: r3, expected: "the device and the volume",
			begin: stopBridge, mend: goBridge, metric: `max(plumbline_device_stalled_seconds and on (node, device) plumbline_volume_info{storageclass="longhorn-r3"}) > 3`,
			alerts: []string{"DeviceStalled", "StatementStuck"}, during: []string{inSync}, well: works},
		{name: "one replica of three stopped (SIGSTOP)", class: r3, expected: "the replica; the engine gives it up after its 8 s",
			begin: stopReplica, metric: `max(plumbline_replica_oldest_request_seconds) > 3 or max(plumbline_storage_process_stopped_seconds{role="replica"}) > 3`,
			// The supervisor starts it again, empty, and the engine rebuilds it.
			mend:   func(l *lab) error { return l.signal(r3+"-replica-2", syscall.SIGKILL) },
			alerts: []string{"ReplicaStuck", "ReplicaLost", "VolumeDegraded"}, well: works},
		{name: "disk of one replica hung (1 B/s by cgroup)", class: r3, expected: "the replica; the engine gives it up after its 8 s",
			begin: hangDisk, metric: `max(plumbline_replica_oldest_request_seconds) > 3 or max(plumbline_replica_oldest_service_seconds) > 3`,
			mend: func(l *lab) error {
				if err := letDisk(l); err != nil {
					return err
				}
				return l.signal(r3+"-replica-3", syscall.SIGKILL)
			},
			alerts: []string{"ReplicaStuck", "ReplicaLost", "VolumeDegraded"}, well: works},
		{name: "a table locked", class: r3, expected: "sessions wait for a lock; storage is not blamed",
			begin: lock, mend: unlock, metric: `max(plumbline_query_blocked_oldest_seconds{server="longhorn-r3"}) > 3`,
			alerts: []string{"StatementsBlocked"}, well: works},
		{name: "a long analytic query", class: r3, expected: "nothing",
			begin: query, mend: endQuery, metric: `max(plumbline_query_oldest_seconds{server="longhorn-r3", phase=~"cpu|runqueue"}) > 3`, well: works},
		{name: "a client that does not read its answer", class: r3, expected: "nothing",
			begin: reader, mend: endReader, metric: `max(plumbline_server_longest_wait_seconds{server="longhorn-r3", phase="client"}) > 3`, well: works},
	}
}

// psql runs statements in one session, in the background.
func (l *lab) psql(class string, statements ...string) (*exec.Cmd, error) {
	args := []string{"-qAt", "-h", l.class(class).SocketDirectory(), "-U", "postgres"}
	for _, s := range statements {
		args = append(args, "-c", s)
	}
	cmd := exec.CommandContext(l.ctx, "psql", args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return cmd, cmd.Start()
}

// terminate ends the sessions whose last statement is this one.
func (l *lab) terminate(class, statement string) error {
	ctx := context.WithoutCancel(l.ctx)
	c, err := l.connect(ctx, class)
	if err != nil {
		return err
	}
	defer c.Close(ctx)
	_, err = c.Exec(ctx, "select pg_terminate_backend(pid) from pg_stat_activity where query = $1", statement)
	return err
}

// slowClient requests more than the socket's buffer holds and reads nothing.
func (l *lab) slowClient(class string) (begin, mend func(*lab) error) {
	ctx, cancel := context.WithCancel(l.ctx)
	return func(l *lab) error {
			c, err := l.connect(ctx, class)
			if err != nil {
				return err
			}
			context.AfterFunc(ctx, func() { _ = c.Close(l.ctx) })
			c.PgConn().Exec(ctx, "select repeat('x', 1000) from generate_series(1, 100000)").NextResult()
			return nil
		}, func(*lab) error {
			cancel()
			return nil
		}
}

// throttled is what a process of the lab that writes a byte a second to the disk below the lab has.
func (l *lab) throttled(name string) (begin, mend func(*lab) error) {
	var end damage.Mend
	return func(l *lab) error {
			p, err := l.supervisor.Process(l.ctx, name)
			if err != nil {
				return err
			}
			end, err = damage.Throttle("plumbline-stalls", p.PID, filepath.Join(l.o.dir, "classes"), damage.BytesPerSecond(1))
			return err
		}, func(*lab) error {
			if end == nil {
				return nil
			}
			return end()
		}
}

// tryStall makes a stall and adds a row with what was reported of it.
func (l *lab) tryStall(s stall, out *rows.File) (err error) {
	fmt.Fprintf(os.Stderr, "%s\n", s.name)
	before, err := l.firing()
	if err != nil {
		return err
	}
	for _, name := range append(s.alerts, storageAlerts...) {
		if len(before[name]) > 0 {
			return fmt.Errorf("%s: %s fires already", s.name, name)
		}
	}
	began := time.Now()
	err = s.begin(l)
	var cells []string
	if err == nil {
		cells, err = l.watchStall(s, began)
	}
	last, phaseErr := l.phases(s.class)
	lastAt := time.Now()
	err = errors.Join(err, phaseErr)
	if e := s.mend(l); e != nil {
		err = errors.Join(err, fmt.Errorf("repair: %w", e))
	}
	if _, e := l.await(append(s.well, `count(up == 1) == count(up)`)); e != nil {
		err = errors.Join(err, fmt.Errorf("not well again: %w", e))
	}
	// No burst: since the repair no more time was counted than its sessions had.
	now, phaseErr := l.phases(s.class)
	err = errors.Join(err, phaseErr)
	sessions, e := l.prometheus.Number(l.ctx, fmt.Sprintf(`max(max_over_time(plumbline_query_processes{server=%q}[2m]))`, s.class))
	err = errors.Join(err, e)
	most := time.Since(lastAt).Seconds() * sessions
	cells = append(cells, "phases' seconds counted from before the repair to its end", fmt.Sprintf("%.1f, of %.0f that the sessions had", now-last, most))
	if now-last > most {
		err = errors.Join(err, fmt.Errorf("a burst of %.1f s of phases after the repair, in which the sessions had %.1f s", now-last, most))
	}
	if err != nil {
		cells = append(cells, "verdict", "NOT AS EXPECTED: "+strings.ReplaceAll(err.Error(), "\n", "; "))
	} else {
		cells = append(cells, "verdict", "as expected")
	}
	out.Add(stallSection, s.name, append([]string{"expected", s.expected}, cells...)...)
	fmt.Fprintf(os.Stderr, "  %s\n", strings.Join(cells, " | "))
	// The next one needs silence.
	if e := l.awaitSilence(append(s.alerts, storageAlerts...)); e != nil {
		err = errors.Join(err, e)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", s.name, err)
	}
	return nil
}

// watchStall awaits the metric and the alert, and returns how long a scrape takes meanwhile.
func (l *lab) watchStall(s stall, began time.Time) (cells []string, err error) {
	seen, err := l.await([]string{s.metric})
	if err != nil {
		return []string{"metric after", "never"}, err
	}
	cells = append(cells, "metric after", fmt.Sprintf("%.0f s", seen.Seconds()))
	scrapes, scrapeErr := l.scrapeTimes(50)
	cells = append(cells, "scrape p99 during it", scrapes)
	var fired []promv1.Alert
	for deadline := began.Add(max(silentFor, 3*stallBudget)); time.Now().Before(deadline); {
		now, err := l.firing()
		if err != nil {
			return cells, err
		}
		if len(s.alerts) == 0 && time.Since(began) > silentFor {
			break
		}
		for _, name := range s.alerts {
			fired = append(fired, now[name]...)
		}
		if len(fired) > 0 {
			break
		}
		select {
		case <-l.ctx.Done():
			return cells, l.ctx.Err()
		case <-time.After(500 * time.Millisecond): // between two reads
		}
	}
	after := time.Since(began)
	all, err := l.firing()
	if err != nil {
		return cells, err
	}
	if len(s.alerts) == 0 || s.alerts[0] == "StatementsBlocked" {
		for _, name := range storageAlerts {
			for _, a := range all[name] {
				err = errors.Join(err, fmt.Errorf("%s blames storage: %s", name, a.Annotations["summary"]))
			}
		}
	}
	if len(s.alerts) == 0 {
		return append(cells, "alert after", fmt.Sprintf("none in %.0f s", silentFor.Seconds())), errors.Join(err, scrapeErr)
	}
	if len(fired) == 0 {
		return append(cells, "alert after", "never"), errors.Join(err, scrapeErr, fmt.Errorf("none of %v fired in %s", s.alerts, 3*stallBudget))
	}
	var names, summaries []string
	for _, a := range fired {
		names = append(names, string(a.Labels["alertname"]))
		summaries = append(summaries, string(a.Annotations["summary"])+" "+string(a.Annotations["description"]))
	}
	cells = append(cells, "alert after", fmt.Sprintf("%.0f s (%s)", after.Seconds(), strings.Join(slices.Compact(names), ", ")), "it says", strings.Join(summaries, " / "))
	var others []string
	for name := range all {
		if !slices.Contains(names, name) {
			others = append(others, name)
		}
	}
	sort.Strings(others)
	cells = append(cells, "beside it", strings.Join(others, ", "))
	if s.alerts[0] != "StatementsBlocked" && after > stallBudget+10*time.Second {
		err = errors.Join(err, fmt.Errorf("the alert came after %s", after.Round(time.Second)))
	}
	if _, e := l.await(s.during); e != nil {
		err = errors.Join(err, e)
	}
	return cells, errors.Join(err, scrapeErr)
}

// firing returns the alerts that fire, by name.
func (l *lab) firing() (map[string][]promv1.Alert, error) {
	answer, err := l.prometheus.Alerts(l.ctx)
	if err != nil {
		return nil, fmt.Errorf("alerts: %w", err)
	}
	firing := map[string][]promv1.Alert{}
	for _, a := range answer.Alerts {
		if a.State == promv1.AlertStateFiring {
			name := string(a.Labels[model.AlertNameLabel])
			firing[name] = append(firing[name], a)
		}
	}
	return firing, nil
}

func (l *lab) awaitSilence(names []string) error {
	var conditions []string
	for _, name := range names {
		conditions = append(conditions, fmt.Sprintf(`absent(ALERTS{alertname=%q, alertstate="firing"})`, name))
	}
	_, err := l.await(conditions)
	return err
}

// phases returns the seconds counted so far of a server's statements, by the agent itself.
func (l *lab) phases(server string) (float64, error) {
	answer, err := http.Get(l.config.URL("agent") + "/metrics")
	if err != nil {
		return 0, err
	}
	defer answer.Body.Close()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(answer.Body)
	if err != nil {
		return 0, fmt.Errorf("the agent's metrics: %w", err)
	}
	sum := 0.0
	for _, m := range families["plumbline_query_phase_seconds_total"].GetMetric() {
		for _, p := range m.Label {
			if p.GetName() == "server" && p.GetValue() == server {
				sum += m.Counter.GetValue()
			}
		}
	}
	return sum, nil
}

// scrapeTimes scrapes each exporter n times and returns the 99th percentile of each, and which collectors were missing.
func (l *lab) scrapeTimes(n int) (string, error) {
	var reported []string
	var problems []error
	for _, e := range []struct{ name, url string }{
		{"agent", l.config.URL("agent") + "/metrics"},
		{"longhorn_exporter", l.config.URL("longhorn_exporter") + "/metrics"},
		{"ebpf_exporter", l.config.URL("ebpf_exporter") + "/metrics"},
		{"canary", l.metrics("longhorn-r3", "canary")},
	} {
		var took []time.Duration
		missing := map[string]bool{}
		for range n {
			began := time.Now()
			text, err := get(l.ctx, e.url)
			if err != nil {
				problems = append(problems, fmt.Errorf("scrape of %s: %w", e.name, err))
				break
			}
			took = append(took, time.Since(began))
			for line := range strings.Lines(text) {
				if strings.HasPrefix(line, "plumbline_scrape_collector_success{") && strings.HasSuffix(strings.TrimSpace(line), " 0") {
					missing[line[strings.Index(line, "{"):strings.Index(line, "}")+1]] = true
				}
			}
		}
		if len(took) == 0 {
			continue
		}
		slices.Sort(took)
		text := fmt.Sprintf("%s %d ms", e.name, took[len(took)*99/100].Milliseconds())
		for m := range missing {
			text += " without " + m
		}
		reported = append(reported, text)
	}
	return strings.Join(reported, ", "), errors.Join(problems...)
}

func get(ctx context.Context, url string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	return string(text), err
}
