//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"go.yaml.in/yaml/v3"

	"github.com/plumbline/plumbline/manifests/kubectl-plumbline/answer"
	"github.com/plumbline/plumbline/rules/layers"
	"github.com/plumbline/plumbline/rules/why"
	"github.com/plumbline/plumbline/tests/rig"
	"github.com/plumbline/plumbline/tests/testkit"
)

// notice is an alert that Alertmanager handed to a receiver.
type notice struct {
	receiver string
	at       time.Time
	labels   map[string]string
	resolved bool
}

// pager takes what Alertmanager sends to the receivers of manifests/kube-prometheus-stack.
type pager struct {
	mu      sync.Mutex
	notices []notice
}

// startPager gives the receivers of the manifest an address, makes the Secret with that
// configuration, and listens.
func (n *node) startPager() *pager {
	n.t.Helper()
	l, err := net.Listen("tcp", n.Address+":0")
	n.must(err)
	p := &pager{}
	server := &http.Server{Handler: p}
	go server.Serve(l)
	n.t.Cleanup(func() { server.Close() })

	text, err := os.ReadFile(filepath.Join(testkit.Root(), "manifests", "kube-prometheus-stack", "alertmanager.yaml"))
	n.must(err)
	var values struct {
		Alertmanager struct{ Config map[string]any }
	}
	n.must(yaml.Unmarshal(text, &values))
	receivers := values.Alertmanager.Config["receivers"].([]any)
	for _, r := range receivers {
		r := r.(map[string]any)
		r["webhook_configs"] = []any{map[string]any{"url": fmt.Sprintf("http://%s/%s", l.Addr(), r["name"]), "send_resolved": true}}
	}
	config, err := yaml.Marshal(values.Alertmanager.Config)
	n.must(err)
	n.write("etc/alertmanager.yaml", string(config))
	n.kubectl("create", "secret", "generic", "alertmanager", "--namespace=monitoring", "--from-file=alertmanager.yaml="+n.path("etc", "alertmanager.yaml"))
	return p
}

// ServeHTTP takes one message of Alertmanager's.
func (p *pager) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var message struct {
		Alerts []struct {
			Status string
			Labels map[string]string
		}
	}
	if err := json.NewDecoder(r.Body).Decode(&message); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, a := range message.Alerts {
		p.notices = append(p.notices, notice{strings.Trim(r.URL.Path, "/"), time.Now(), a.Labels, a.Status == "resolved"})
	}
}

// open returns what a receiver got and was not resolved.
func (p *pager) open(receiver string) []notice {
	p.mu.Lock()
	defer p.mu.Unlock()
	last := map[string]notice{}
	for _, one := range p.notices {
		if one.receiver == receiver {
			last[fmt.Sprint(one.labels)] = one
		}
	}
	return slices.DeleteFunc(slices.Collect(maps.Values(last)), func(n notice) bool { return n.resolved })
}

// since returns what began to fire for a receiver since a moment.
func (p *pager) since(receiver string, began time.Time) []notice {
	p.mu.Lock()
	defer p.mu.Unlock()
	var found []notice
	for _, one := range p.notices {
		if one.receiver == receiver && !one.resolved && one.at.After(began) {
			found = append(found, one)
		}
	}
	return found
}

// alert is one that Prometheus knows.
type alert struct {
	Labels, Annotations map[string]string
	State               string
	ActiveAt            time.Time
}

// firing returns the alerts that fire, by the names wanted.
func (n *node) firing(names ...string) ([]alert, error) {
	var answer struct{ Alerts []alert }
	if err := n.api("alerts", &answer); err != nil {
		return nil, err
	}
	return slices.DeleteFunc(answer.Alerts, func(a alert) bool {
		return a.State != "firing" || !slices.Contains(names, a.Labels["alertname"])
	}), nil
}

// storage are the suspects that are the storage's; a CPU that is short is none of them.
var storage = layers.Names(layers.IsStorage)

var suspect = regexp.MustCompile(`suspect is ([a-z_ -]+)\.`)

// suspect is what an alert suspects, from its summary.
func (a alert) suspect() string {
	found := suspect.FindStringSubmatch(a.Annotations["summary"])
	if found == nil {
		return ""
	}
	return found[1]
}

// hogCPU keeps the CPUs busy by a pod beside the databases, until the control's canary is found
// slow, or for as long as an alert could take where the canaries know that it is their own CPU
// that is short. Nobody's storage may be blamed.
func (n *node) hogCPU() {
	n.t.Helper()
	// The held disk's data come from this process: the disk itself must not wait for a CPU. Nor may the node's own programs.
	n.must(rig.Schedule(rig.Punctual))
	defer rig.Schedule(rig.Normal)
	n.preferPods(false)
	defer n.preferPods(true)
	n.apply(hog)
	defer n.try("delete", "pod", "hog", "--ignore-not-found")
	n.kubectl("wait", "--for=condition=Ready", "pod/hog", "--timeout=3m")
	began := time.Now()
	check := func() {
		found, err := n.firing("CanarySlow", "BlockLatencyShifted", "WalSyncSlow", "QueueDominates")
		if err != nil {
			return // a busy Prometheus; the next check will show
		}
		for _, a := range found {
			if a.ActiveAt.Before(began) {
				continue // it goes on about what was slow before
			}
			if a.Labels["alertname"] != "CanarySlow" || slices.Contains(storage, a.suspect()) {
				n.t.Fatalf("a busy CPU, and this blames storage: %v %v", a.Labels, a.Annotations)
			}
		}
	}
	felt := ""
	for felt == "" || time.Since(began) < 7*time.Minute {
		check()
		if found, err := n.firing("CanaryHostSlow"); err == nil && len(found) > 0 {
			n.t.Logf("CanaryHostSlow after %.0f s: %v %v", time.Since(began).Seconds(), found[0].Labels, found[0].Annotations)
			felt = "host"
			break
		}
		if saturated, err := n.query(`avg_over_time(loadgen_saturated{reason="generator", tool="canary"}[5m]) > 0.5`); err == nil && len(saturated) > 0 {
			felt = "canaries"
		}
		if time.Since(began) > 15*time.Minute {
			slow, _ := n.query(`loadgen:slow:bool`)
			alerts, _ := n.query(`ALERTS{alertname=~"Canary.+"}`)
			n.t.Fatalf("nobody felt the busy CPUs; slow: %v; alerts: %v", slow, alerts)
		}
		time.Sleep(time.Second) // an alert may fire at any moment: check often, and all the while
	}
	n.t.Logf("felt by: %s", felt)
	n.agree("db-"+control, "postgresql-"+control+"-1", []answer.Culprit{{Reason: why.CPU}})
	n.kubectl("delete", "pod", "hog") // returns when its container has ended, as it has a grace period
	n.preferPods(true)
	// What the rules' windows still remember blames nobody either.
	testkit.Eventually(n.t, 15*time.Minute, func() error {
		check()
		return n.none(`loadgen:slow:bool{window=~"5m|10m"}`)()
	})
}

// slowDisk holds back the disk of the class held until its canary is found slow: the alert must
// name the place and the cause.
func (n *node) slowDisk(disk *rig.SlowDisk, delay time.Duration) {
	n.t.Helper()
	began := time.Now()
	for _, d := range []*rig.Delay{disk.Writes, disk.Syncs} {
		d.Set(delay)
		defer d.Set(0)
	}
	pod := n.primary(held)
	want := map[string]string{"storageclass": held, "node": "node-1", "namespace": "db-held", "persistentvolumeclaim": pod, "volume": n.volumeOf("db-held", pod)}
	testkit.Eventually(n.t, 12*time.Minute, func() error {
		found, err := n.firing("CanarySlow")
		if err != nil {
			return err
		}
		if len(found) == 0 {
			slow, _ := n.query(`loadgen:slow:bool`)
			comparable, _ := n.query(`loadgen:comparable:bool`)
			return fmt.Errorf("CanarySlow does not fire; slow: %v; comparable: %v", slow, comparable)
		}
		for _, a := range found {
			n.t.Logf("CanarySlow after %.0f s: %v\n%v", time.Since(began).Seconds(), a.Labels, a.Annotations)
			for label, value := range want {
				if a.Labels[label] != value {
					n.t.Errorf("CanarySlow has %s=%q, want %q", label, a.Labels[label], value)
				}
			}
			if !slices.Contains([]string{layers.Device, layers.Disk, layers.Flush}, a.suspect()) {
				n.t.Errorf("CanarySlow suspects %q; the disk is slow", a.suspect())
			}
		}
		return nil
	})
	// The plugin then reports the same of the claim: where it is, which alert fires, and that it is the disk.
	output := n.plumbline("why", "--namespace=db-held", pod)
	n.t.Log(output)
	for _, part := range []string{"db-held/" + pod, "CanarySlow", "device"} {
		if !strings.Contains(output, part) {
			n.t.Errorf("kubectl plumbline why does not name %s", part)
		}
	}
	// And so does try, which knows no baseline and no alert.
	n.agree("db-held", pod, []answer.Culprit{{Reason: why.Largest, Layer: layers.Device}, {Reason: why.Largest, Layer: layers.Flush}})
}

// holdLock has sessions of the control's database wait for each other's lock: why and try blame the lock.
func (n *node) holdLock() {
	n.t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	connect := func() *pgx.Conn {
		session, err := pgx.Connect(ctx, n.dsn("db-"+control, "postgresql-"+control))
		n.must(err)
		return session
	}
	first := connect()
	_, err := first.Exec(ctx, "create table locked (i int); insert into locked values (0)")
	n.must(errors.Join(err, first.Close(ctx)))
	const sessions = 4
	ended := make(chan error, sessions)
	for range sessions {
		session := connect()
		go func() {
			var err error
			for err == nil {
				_, err = session.Exec(ctx, "update locked set i = i + 1; select pg_sleep(0.05)")
			}
			session.Close(context.Background())
			ended <- err
		}()
	}
	defer func() {
		stop()
		for range sessions {
			if err := <-ended; !errors.Is(err, context.Canceled) {
				n.t.Errorf("a session that waits for a lock: %v", err)
			}
		}
	}()
	n.agree("db-"+control, "postgresql-"+control+"-1", []answer.Culprit{{Reason: why.Lock}})
}

// verdictsAreEvents checks that kubectl describe shows on the claim of the class held that its disk was slow and stalled, and that both
// ended: the API server keeps events for an hour.
func (n *node) verdictsAreEvents(claim string) {
	n.t.Helper()
	var events string
	testkit.Eventually(n.t, 10*time.Minute, func() error {
		var err error
		if events, err = n.events(held, claim); err != nil {
			return err
		}
		for _, want := range []string{"StorageSlow", "StorageRecovered", "StorageStalled", "StorageResumed"} {
			if !strings.Contains(events, want) {
				return fmt.Errorf("no event %s on %s:\n%s", want, claim, events)
			}
		}
		return nil
	})
	n.keepLine("events.txt", "%s", events)
	testkit.Eventually(n.t, time.Minute, n.none(`plumbline_events_lost_total{reason!="namespace"} > 0 or plumbline_events_pending > 0`))
}

// events returns what kubectl describe shows of the events of a class's claim.
func (n *node) events(class, claim string) (string, error) {
	text, err := n.try("describe", "persistentvolumeclaim", claim, "--namespace=db-"+class)
	_, events, _ := strings.Cut(text, "Events:")
	return events, err
}

// plumbline runs kubectl's plugin.
func (n *node) plumbline(args ...string) string {
	n.t.Helper()
	command := n.plugin(args...)
	cmd := exec.Command(command[0], command[1:]...)
	output, err := cmd.CombinedOutput()
	if err != nil {
		n.t.Fatalf("kubectl plumbline %s: %v\n%s", strings.Join(args, " "), err, output)
	}
	return string(output)
}

// stallDisk hangs the disk of the class held until somebody is paged.
func (n *node) stallDisk(disk *rig.SlowDisk, pages *pager) {
	n.t.Helper()
	began := time.Now()
	for _, d := range []*rig.Delay{disk.Reads, disk.Writes, disk.Syncs} {
		d.Hang()
		defer d.Release()
	}
	var first notice
	testkit.Eventually(n.t, defaultTimeout, func() error {
		for _, one := range pages.since("page", began) {
			// The device itself, what is stalled on it, or a server that waits for it.
			if one.labels["device"] == filepath.Base(disk.Device) || one.labels["storageclass"] == held || strings.HasPrefix(one.labels["server"], "db-"+held+"/") {
				first = one
				return nil
			}
		}
		return errors.New("nobody is paged for the disk of the class held")
	})
	after := first.at.Sub(began)
	n.t.Logf("paged after %.0f s: %v", after.Seconds(), first.labels)
	if after > time.Minute {
		n.t.Errorf("the page came after %s", after)
	}
	for _, d := range []*rig.Delay{disk.Reads, disk.Writes, disk.Syncs} {
		d.Release()
	}
	testkit.Eventually(n.t, defaultTimeout, n.none(`volume:stalled_seconds:max`))
}

// comparable waits until each canary can be compared with its pinned run and none is slow.
func (n *node) comparable(canaries int) {
	n.t.Helper()
	testkit.Eventually(n.t, 15*time.Minute, func() error {
		found, err := n.query(`loadgen:comparable:bool unless on (tool, profile, database, storageclass) loadgen:slow:bool{window=~"5m|10m"}`)
		if err == nil && len(found) != canaries {
			slow, _ := n.query(`loadgen:slow:bool`)
			err = fmt.Errorf("%d canaries of %d are comparable: %v; slow: %v", len(found), canaries, found, slow)
		}
		return err
	})
}

// failOver ends the primary of the class held: the standby's series take its place in the joins.
func (n *node) failOver() (before, after string) {
	n.t.Helper()
	before = n.primary(held)
	n.kubectl("delete", "pod", before, "--namespace=db-held", "--grace-period=0", "--force")
	testkit.Eventually(n.t, defaultTimeout, func() error {
		if after = n.primary(held); after == before || after == "" {
			return fmt.Errorf("the primary is still %s", after)
		}
		return nil
	})
	n.kubectl("wait", "--for=condition=Ready", "cluster/postgresql-held", "--namespace=db-held", "--timeout=8m")
	return before, after
}

// pinBaseline runs the Job that measures, in each class, and writes its PrometheusRule.
func (n *node) pinBaseline() {
	n.t.Helper()
	for _, class := range []string{control, held} {
		n.kubectl("create", "job", "pin-1", "--namespace=db-"+class, "--from=cronjob/baseline-postgresql-"+class)
	}
	for _, class := range []string{control, held} {
		n.kubectl("wait", "--for=condition=Complete", "job/pin-1", "--namespace=db-"+class, "--timeout=10m")
	}
	testkit.Eventually(n.t, defaultTimeout, n.some(`count(loadgen:pinned_seconds:p95) >= 2`))
}
