package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/plumbline/plumbline/tests/agentproc"
	"github.com/plumbline/plumbline/tests/kernels/outcome"
	"github.com/plumbline/plumbline/tests/rig"
)

const (
	agentAddress  = "127.0.0.1:9437"
	scrapeTimeout = 5 * time.Minute
)

// agent is the node agent, with whatever of it works on this kernel.
type agent struct {
	process *rig.Process
	out     *outcome.Outcome
	// flickered means that iSCSI disks were removed before they could be named: their commands count under no path's
	// name.
	flickered bool
}

// startAgent starts the agent and returns once it answers.
func startAgent(t *rig.Scope, o options, out *outcome.Outcome) *agent {
	logf("starting the agent")
	a := &agent{out: out, process: rig.Start(t, exec.Command(o.agent, "--web.listen-address="+agentAddress, "--log.level=info", "--iscsi.name="+iscsiName,
		"--nvme.target="+filepath.Base(o.target),
		// The emulator is slow.
		"--scrape.collector-timeout="+scrapeTimeout.String()))}
	var m agentproc.Metrics
	a.process.Await(t, func() (err error) {
		m, err = a.scrape()
		return err
	})
	for name, f := range map[string]*outcome.Feature{"query": &out.Query, "replica": &out.Replica, "nvme": &out.NVMe, "iscsi": &out.ISCSI} {
		if f.Works = m.Sum("plumbline_scrape_collector_success", "collector", name) == 1; !f.Works {
			f.Why = reason(a.process.Log.String(), name)
			logf("%s does not work here: %s", name, f.Why)
		}
	}
	if !out.Replica.Works { // these load their programs, which need the same of a kernel, once there is an initiator or a target
		out.NVMe, out.ISCSI = out.Replica, out.Replica
	}
	return a
}

// reason returns what a log has on a subject.
func reason(log, about string) string {
	for line := range strings.Lines(log) {
		if strings.Contains(line, about) {
			return strings.TrimSpace(line[:min(len(line), 600)])
		}
	}
	return "its log lacks the reason"
}

// scrape reads the agent's metrics. A collector that works does not answer too late, which would look as if all were
// lost.
func (a *agent) scrape() (agentproc.Metrics, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*scrapeTimeout)
	defer cancel()
	m, err := agentproc.Scrape(ctx, "http://"+agentAddress+"/metrics")
	if err != nil {
		return nil, err
	}
	for name, f := range a.out.Features() {
		if f.Works && m.Sum("plumbline_scrape_collector_success", "collector", name) == 0 && name != "blockio" {
			return nil, fmt.Errorf("collector %s did not answer", name)
		}
	}
	return m, nil
}

// metrics is scrape for what must be there.
func (a *agent) metrics(t *rig.Scope) agentproc.Metrics {
	m, err := a.scrape()
	t.Check(err)
	return m
}

func (a *agent) stop() {
	a.process.Stop()
	logf("the agent's log: %s", a.process.Log)
}

// settled returns the metrics once f's value is want, or, if it never is, once it has not changed for a while: for what
// is missing and for what is too much, the last value is the one to report.
func (a *agent) settled(t *rig.Scope, want float64, f func(agentproc.Metrics) float64) (m agentproc.Metrics) {
	const calm = time.Minute
	last, since := -1.0, time.Now()
	rig.Eventually(t, rig.DefaultTimeout, func() (err error) {
		if m, err = a.scrape(); err != nil {
			return err
		}
		now := f(m)
		if now != last {
			last, since = now, time.Now()
		}
		if now == want || time.Since(since) > calm {
			return nil
		}
		return fmt.Errorf("%v of %v", now, want)
	})
	return m
}

// described is what the agent exports on the servers that it tracks.
func described(m agentproc.Metrics) string {
	var text strings.Builder
	for _, name := range []string{"query_processes", "query_servers_unfollowed", "query_attach_errors_total", "query_lost_total", "query_process_events_lost_total"} {
		fmt.Fprintf(&text, "%s %v, ", name, m.Sum("plumbline_"+name))
	}
	return text.String()
}

// backupsLogged matches the agent's log of how many backup programs each of its programs that may be preempted has.
var backupsLogged = regexp.MustCompile(`\bbackups=(\d+)`)

// losses reads the agent's metrics of its own losses.
func (a *agent) losses(t *rig.Scope, out *outcome.Outcome) {
	m := a.metrics(t)
	if m["plumbline_bpf_missed_runs_total"] == nil && (out.Query.Works || out.Replica.Works) {
		t.Check(errors.New("the agent has no metric of missed runs"))
	}
	out.Missed = map[string]uint64{}
	for _, program := range m["plumbline_bpf_missed_runs_total"].GetMetric() {
		if n := uint64(program.GetCounter().GetValue()); n > 0 {
			var name []string
			for _, label := range program.Label {
				name = append(name, label.GetValue())
			}
			out.Missed[strings.Join(name, " ")] = n
		}
	}
	backups := backupsLogged.FindStringSubmatch(a.process.Log.String())
	if backups == nil && out.Query.Works {
		t.Check(errors.New("the agent does not log how many backup programs its programs have"))
	}
	out.Backups = backups != nil && backups[1] != "0"
	for _, name := range []string{"query_lost", "query_process_events_lost", "replica_lost", "replica_unmatched", "replica_resyncs"} {
		out.Lost += uint64(m.Sum("plumbline_" + name + "_total"))
		for _, one := range m["plumbline_"+name+"_total"].GetMetric() {
			if n := one.GetCounter().GetValue(); n > 0 {
				logf("lost: %s %v %v", name, one.Label, n)
			}
		}
	}
	if a.flickered {
		out.Lost -= uint64(m.Sum("plumbline_replica_lost_total", "wire", "iscsi-initiator", "reason", "path_nameless"))
	}
}
