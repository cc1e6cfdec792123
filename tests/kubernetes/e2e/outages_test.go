//go:build e2e

package e2e

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/plumbline/plumbline/tests/testkit"
)

const (
	watcherAddress = "127.0.0.1:9799"
	watcherRate    = 20 // transactions a second
)

// watcher is a canary of loadgen's on the node, outside of the pods, that stays with a PostgreSQL through changes of its primary.
type watcher struct {
	n       *node
	process *os.Process
}

// seen is what a watcher has counted so far.
type seen struct {
	committed, oldest             float64 // transactions; seconds that the oldest one has waited
	outages, outageSeconds        float64 // those that are over
	responses, responseSeconds    float64
	afterwards, afterwardsSeconds float64 // what was due in the minute after an outage
	errors                        map[string]float64
}

// watch starts a watcher of a cluster of CloudNativePG's on a class and waits until it commits.
func (n *node) watch(namespace, cluster, class string) *watcher {
	n.t.Helper()
	// As the canaries in the pods, it has a CPU when it wants one: what it waits for is the database.
	process := n.start(testkit.Tool(n.t, "chrt"), "--rr", "1", filepath.Join(testkit.Root(), "build", "linux", runtime.GOARCH, "loadgen"), "canary",
		"--profile=write-mostly", fmt.Sprint("--rate=", watcherRate), "--when-down=wait", "--timeout=10s", "--warmup=1s", "--database=watched", "--storageclass="+class,
		"--web.listen-address="+watcherAddress, "--dsn="+n.dsn(namespace, cluster))
	w := &watcher{n, process}
	testkit.Eventually(n.t, defaultTimeout, func() error {
		s, err := w.read()
		if err == nil && s.committed < 10*watcherRate {
			err = fmt.Errorf("%.0f transactions are committed", s.committed)
		}
		return err
	})
	return w
}

// dsn is the connection string of a cluster's application: the operator's own, with the address of the service that leads to the primary,
// as the node itself resolves no names of the cluster's.
func (n *node) dsn(namespace, cluster string) string {
	n.t.Helper()
	address, err := url.Parse(n.kubectl("get", "secret/"+cluster+"-app", "--namespace="+namespace, "--output=go-template={{.data.uri | base64decode}}"))
	n.must(err)
	address.Host = n.kubectl("get", "service/"+cluster+"-rw", "--namespace="+namespace, "--output=jsonpath={.spec.clusterIP}") + ":5432"
	return address.String()
}

// end ends the watcher.
func (w *watcher) end() { w.process.Kill() }

// read reads what the watcher exports.
func (w *watcher) read() (s seen, err error) {
	answer, err := http.Get("http://" + watcherAddress + "/metrics")
	if err != nil {
		return s, err
	}
	defer answer.Body.Close()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(answer.Body)
	if err != nil {
		return s, err
	}
	s.errors = map[string]float64{}
	for name, f := range families {
		for _, m := range f.Metric {
			h := m.GetHistogram()
			switch name {
			case "loadgen_completed_total":
				s.committed += m.GetCounter().GetValue()
			case "loadgen_oldest_unanswered_seconds":
				s.oldest = m.GetGauge().GetValue()
			case "loadgen_outage_seconds":
				s.outages, s.outageSeconds = float64(h.GetSampleCount()), h.GetSampleSum()
			case "loadgen_response_seconds":
				s.responses, s.responseSeconds = s.responses+float64(h.GetSampleCount()), s.responseSeconds+h.GetSampleSum()
			case "loadgen_after_outage_response_seconds":
				s.afterwards, s.afterwardsSeconds = float64(h.GetSampleCount()), h.GetSampleSum()
			case "loadgen_errors_total":
				s.errors[label(m, "kind")] += m.GetCounter().GetValue()
			}
		}
	}
	return s, nil
}

func label(m *dto.Metric, name string) string {
	for _, l := range m.Label {
		if l.GetName() == name {
			return l.GetValue()
		}
	}
	return ""
}

// outage does what makes one, waits until that is over and the minute after it, too, and logs what the watcher saw: how long
// nothing was committed, what failed, and the response times before and after. It was not longer than what happened took.
func (w *watcher) outage(what string, happens func()) {
	n := w.n
	n.t.Helper()
	first, err := w.read()
	n.must(err)
	// Half a minute as it is otherwise.
	var before seen
	testkit.Eventually(n.t, defaultTimeout, func() error {
		before, err = w.read()
		if err == nil && before.committed-first.committed < 30*watcherRate {
			err = errors.New("too few are committed to know how long they take")
		}
		return err
	})
	began := time.Now()
	happens()
	var after seen
	testkit.Eventually(n.t, defaultTimeout, func() error {
		after, err = w.read()
		if err == nil && (after.outages == before.outages || after.oldest > 1) {
			err = fmt.Errorf("%.0f outages are over; the oldest transaction waits for %.1f s", after.outages-before.outages, after.oldest)
		}
		return err
	})
	took := time.Since(began)
	testkit.Eventually(n.t, 2*time.Minute, func() error {
		after, err = w.read()
		if err == nil && after.afterwards-before.afterwards < 55*watcherRate && after.outageSeconds-before.outageSeconds > 1 {
			err = errors.New("the minute after is not over")
		}
		return err
	})
	seconds, longest := after.outageSeconds-before.outageSeconds, took.Seconds()
	var failed []string
	for _, kind := range slices.Sorted(maps.Keys(after.errors)) {
		if more := after.errors[kind] - before.errors[kind]; more > 0 {
			failed = append(failed, fmt.Sprintf("%.0f %s", more, kind))
		}
	}
	line := fmt.Sprintf("%s: %.2f s without a commit in %.0f outages; errors: %s; mean response %.1f ms before", what, seconds,
		after.outages-before.outages, strings.Join(failed, ", "), 1e3*(before.responseSeconds-first.responseSeconds)/(before.responses-first.responses))
	if due := after.afterwards - before.afterwards; due > 0 {
		line += fmt.Sprintf(", %.1f ms in the minute after", 1e3*(after.afterwardsSeconds-before.afterwardsSeconds)/due)
	}
	n.t.Log(line)
	n.report("outages.txt", line+"\n")
	if seconds <= 0 || seconds > longest+1 {
		n.t.Errorf("%s: the watcher counted %.2f s without a commit in %.1f s", what, seconds, longest)
	}
	if len(failed) == 0 {
		n.t.Errorf("%s: a connection to the primary before must have broken, and no error was counted", what)
	}
}

// standby is the instance of a class's PostgreSQL that is not the primary.
func (n *node) standby(class string) (standby string) {
	n.t.Helper()
	primary := n.primary(class)
	for _, pod := range strings.Fields(n.kubectl("get", "pods", "--namespace=db-"+class, "--selector=cnpg.io/cluster=postgresql-"+class+",cnpg.io/podRole=instance", "--output=jsonpath={.items[*].metadata.name}")) {
		if pod != primary {
			standby = pod
		}
	}
	return standby
}

// streaming waits until the standby of a class's PostgreSQL streams from the primary, without which the operator switches to none. One
// that does not is made anew, as `kubectl cnpg destroy` does: restarted while it is rewound it may go on by itself for ever.
func (n *node) streaming(class string) {
	n.t.Helper()
	namespace := "--namespace=db-" + class
	streams := func() error {
		found := n.kubectl("exec", n.primary(class), namespace, "--container=postgres", "--", "psql", "-XAtc", "select count(*) from pg_stat_replication where state = 'streaming'")
		if found != "1" {
			return fmt.Errorf("%s standbys of %s stream", found, class)
		}
		return nil
	}
	if testkit.Await(defaultTimeout, streams) != nil {
		standby := n.standby(class)
		n.t.Logf("the standby %s does not stream, and is made anew", standby)
		n.kubectl("delete", "persistentvolumeclaim/"+standby, "pod/"+standby, namespace, "--wait=false")
		testkit.Eventually(n.t, 3*defaultTimeout, streams)
	}
}

// primaryIs is nil once the primary of a class's PostgreSQL is this pod.
func (n *node) primaryIs(class, pod string) func() error {
	return func() error {
		if now := n.primary(class); now != pod {
			return fmt.Errorf("the primary is %s, not %s", now, pod)
		}
		return nil
	}
}

// switchOver has the operator make the other instance of the class held the primary, as `kubectl cnpg promote` does.
func (n *node) switchOver() (before, after string) {
	n.t.Helper()
	before, after = n.primary(held), n.standby(held)
	n.kubectl("patch", "cluster/postgresql-held", "--namespace=db-held", "--subresource=status", "--type=merge", fmt.Sprintf(
		`--patch={"status": {"targetPrimary": %q, "targetPrimaryTimestamp": %q, "phase": "Switchover in progress", "phaseReason": "Switching over to %s"}}`,
		after, time.Now().Format("2006-01-02T15:04:05.000000Z07:00"), after))
	testkit.Eventually(n.t, defaultTimeout, n.primaryIs(held, after))
	n.kubectl("wait", "--for=condition=Ready", "cluster/postgresql-held", "--namespace=db-held", "--timeout=8m")
	return before, after
}
