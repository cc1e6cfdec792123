package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/prometheus/common/model"
	"go.yaml.in/yaml/v3"

	"github.com/plumbline/plumbline/tests/freeport"
	"github.com/plumbline/plumbline/tests/pause"
	"github.com/plumbline/plumbline/tests/promapi"
	"github.com/plumbline/plumbline/tests/results/rows"
	"github.com/plumbline/plumbline/tests/shape"
)

// prometheus is the one that is measured, with a folder of its own.
type prometheus struct {
	*promapi.Server
	program, address string
	command          *exec.Cmd
	folder           string
	targets          int
}

// startPrometheus starts it over the data in a folder, which it takes for its own; an empty name is for none. It sends
// to a receiver, unless that is nil.
func startPrometheus(o options, s *shape.Shape, exposition, folder string, to *receiver) (*prometheus, error) {
	rules, err := filepath.Abs(o.rules)
	if err != nil {
		return nil, err
	}
	if folder == "" {
		if folder, err = os.MkdirTemp("/var/tmp", "plumbline-scale-"); err != nil {
			return nil, err
		}
	}
	p := &prometheus{folder: folder}
	fail := func(err error) (*prometheus, error) { return nil, errors.Join(err, os.RemoveAll(folder)) }
	own, err := freeport.Address()
	if err != nil {
		return fail(err)
	}
	type drop struct {
		Action string   `yaml:"action"`
		Labels []string `yaml:"source_labels"`
		Regex  string   `yaml:"regex"`
	}
	type static struct {
		Targets []string          `yaml:"targets"`
		Labels  map[string]string `yaml:"labels,omitempty"`
	}
	type job struct {
		Name    string   `yaml:"job_name"`
		NHCB    bool     `yaml:"convert_classic_histograms_to_nhcb,omitempty"`
		Honor   bool     `yaml:"honor_labels"`
		Targets []static `yaml:"static_configs"`
		Drop    []drop   `yaml:"metric_relabel_configs,omitempty"`
	}
	var dropped []drop
	if o.drop != "" {
		dropped = []drop{{"drop", []string{model.MetricNameLabel}, o.drop}}
	}
	scraped := []job{{Name: "prometheus", Targets: []static{{Targets: []string{own}}}}}
	for _, name := range slices.Sorted(maps.Keys(s.Volume)) {
		j := job{Name: name, NHCB: shape.Jobs[name], Honor: true, Drop: dropped}
		for i := range o.nodes {
			node := "node-" + strconv.Itoa(i)
			j.Targets = append(j.Targets, static{[]string{exposition}, map[string]string{"node": node, "instance": node, "__metrics_path__": "/" + name + "/" + node}})
		}
		p.targets += o.nodes
		scraped = append(scraped, j)
	}
	if s.Node["node-exporter"] != nil && s.Volume["node-exporter"] == nil {
		return fail(errors.New("node_exporter of the lab does not show the volume's device"))
	}
	if to != nil {
		scraped = append(scraped, job{Name: "receive", Targets: []static{{Targets: []string{to.http}}}})
		p.targets++
	}
	settings := map[string]any{
		"global": map[string]any{"scrape_interval": model.Duration(o.interval).String(), "evaluation_interval": model.Duration(o.evaluate).String(),
			"scrape_timeout": model.Duration(o.interval).String(), "scrape_native_histograms": true},
		"rule_files":     []string{filepath.Join(rules, "*.rules.yaml")},
		"scrape_configs": scraped,
	}
	if to != nil {
		// Thanos accepts no label twice, and requires one that distinguishes senders.
		settings["remote_write"] = to.remoteWrite()
		settings["global"].(map[string]any)["external_labels"] = map[string]string{"cluster": "one"}
	}
	config, err := yaml.Marshal(settings)
	if err != nil {
		return fail(err)
	}
	path := filepath.Join(folder, "prometheus.yml")
	if err := os.WriteFile(path, config, 0o600); err != nil {
		return fail(err)
	}
	p.program, p.address = o.prometheus, own
	if err := p.start(); err != nil {
		return fail(err)
	}
	if p.Server, err = promapi.At("http://" + own); err != nil {
		return nil, errors.Join(err, p.stop())
	}
	return p, nil
}

// start starts the program on the folder as it is.
func (p *prometheus) start() error {
	log, err := os.Create(filepath.Join(p.folder, "log"))
	if err != nil {
		return err
	}
	defer log.Close()
	p.command = exec.Command(p.program, "--config.file="+filepath.Join(p.folder, "prometheus.yml"), "--storage.tsdb.path="+filepath.Join(p.folder, "data"), "--web.listen-address="+p.address)
	p.command.Stdout, p.command.Stderr = log, log
	p.command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return p.command.Start()
}

// killed is what it costs to be killed: the time until it answers again, and its memory then.
type killed struct{ ready, replay, memory float64 }

// restart kills it as the kernel does when memory is short, and starts it on what it left.
func (p *prometheus) restart(ctx context.Context, o options) (k killed, err error) {
	_ = p.command.Process.Kill()
	_ = p.command.Wait()
	began := time.Now()
	if err := p.start(); err != nil {
		return k, err
	}
	// It answers queries when the log is replayed.
	if err := p.Await(ctx, 20*time.Minute, "vector(1) == 1"); err != nil {
		return k, err
	}
	k.ready = time.Since(began).Seconds()
	// What it reports on itself from now on, not what it reported before.
	since := fmt.Sprintf(`and timestamp(process_start_time_seconds{job="prometheus"}) > %d`, time.Now().Unix())
	if err := p.Await(ctx, 2*time.Minute+2*o.interval, `process_start_time_seconds{job="prometheus"} `+since); err != nil {
		return k, err
	}
	if k.replay, err = p.Number(ctx, `max(prometheus_tsdb_data_replay_duration_seconds{job="prometheus"})`); err != nil {
		return k, err
	}
	k.memory, err = p.Number(ctx, `max(process_resident_memory_bytes{job="prometheus"})`)
	return k, err
}

func (k killed) cells() []string {
	return []string{"seconds until it answers", fmt.Sprintf("%.0f", k.ready), "of these the log's replay", fmt.Sprintf("%.0f", k.replay), "memory then", fmt.Sprintf("%.1f GB", k.memory/1e9)}
}

func (p *prometheus) stop() error {
	if p.command.Process != nil {
		_ = p.command.Process.Kill()
		_ = p.command.Wait()
	}
	return os.RemoveAll(p.folder)
}

// measured is what it cost.
type measured struct {
	series, samples, memory, cpu float64
	rules, slowest, missed       float64
	slowestGroup                 string
	recorded                     float64
	costs                        []ruleCost
}

// settled waits until all targets are up and the rules' windows are full.
func (p *prometheus) settled(ctx context.Context, o options) error {
	slog.Info("waiting for all targets", "targets", p.targets)
	if err := p.Await(ctx, 5*time.Minute+4*o.interval, fmt.Sprintf(`count(up{job!="prometheus"} == 1) >= %d`, p.targets)); err != nil {
		return err
	}
	slog.Info("all targets are up; the rules' windows fill", "for", o.settle)
	return pause.For(ctx, o.settle)
}

func (p *prometheus) measure(ctx context.Context, o options) (m measured, err error) {
	if err := p.settled(ctx, o); err != nil {
		return m, err
	}
	if m.costs, err = p.watchRules(ctx, o); err != nil {
		return m, err
	}
	over := model.Duration(o.measure).String()
	for _, q := range []struct {
		to   *float64
		expr string
	}{
		{&m.series, `prometheus_tsdb_head_series{job="prometheus"}`},
		{&m.samples, "sum(rate(prometheus_tsdb_head_samples_appended_total{job=\"prometheus\"}[" + over + "]))"},
		{&m.memory, `process_resident_memory_bytes{job="prometheus"}`},
		{&m.cpu, "rate(process_cpu_seconds_total{job=\"prometheus\"}[" + over + "])"},
		{&m.rules, "sum(avg_over_time(prometheus_rule_group_last_duration_seconds[" + over + "]))"},
		{&m.slowest, "max(avg_over_time(prometheus_rule_group_last_duration_seconds[" + over + "]))"},
		{&m.missed, "sum(increase(prometheus_rule_group_iterations_missed_total[" + over + "]))"},
		{&m.recorded, "sum(prometheus_rule_group_last_evaluation_samples)"},
	} {
		if *q.to, err = p.Number(ctx, q.expr); err != nil {
			return m, err
		}
	}
	slowest, err := p.Vector(ctx, "topk(1, avg_over_time(prometheus_rule_group_last_duration_seconds["+over+"]))")
	if err == nil && len(slowest) > 0 {
		group := string(slowest[0].Metric["rule_group"]) // file;name
		m.slowestGroup = group[strings.LastIndex(group, ";")+1:]
	}
	return m, err
}

func (m measured) write(out io.Writer, file *rows.File, o options, s *shape.Shape) {
	const section = "Prometheus with the rules over many volumes of three replicas"
	what := fmt.Sprintf("%d volumes on %d nodes, a database on one in %d", o.volumes, o.nodes, o.every)
	if o.past {
		what += ", a day of past"
	}
	if o.drop != "" {
		what += ", without the metrics " + o.drop
	}
	what += ", rules every " + model.Duration(o.evaluate).String()
	cells := []string{
		"series", fmt.Sprintf("%.0f", m.series),
		"of a volume with database, of a node", fmt.Sprintf("%d, %d", shape.Series(s.Volume), shape.Series(s.Node)),
		"recorded", fmt.Sprintf("%.0f", m.recorded),
		"samples/s", fmt.Sprintf("%.0f", m.samples),
		"memory", fmt.Sprintf("%.1f GB", m.memory/1e9),
		"CPUs used", fmt.Sprintf("%.2f", m.cpu),
		"one evaluation of all rules", fmt.Sprintf("%.1f s of each %s", m.rules, o.evaluate),
		"slowest group", fmt.Sprintf("%s, %.1f s", m.slowestGroup, m.slowest),
		"evaluations missed", fmt.Sprintf("%.0f", m.missed),
	}
	perHour := 0.0
	for _, c := range m.costs {
		perHour += c.perHour
	}
	cells = append(cells, "all rules", fmt.Sprintf("%.0f s of an hour", perHour))
	file.Add(section, what, cells...)
	for i := 0; i+1 < len(cells); i += 2 {
		fmt.Fprintf(out, "%-30s %s\n", cells[i], cells[i+1])
	}
}
