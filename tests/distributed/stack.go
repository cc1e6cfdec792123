package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/plumbline/plumbline/rules/histograms"
	"github.com/plumbline/plumbline/tests/freeport"
	"github.com/plumbline/plumbline/tests/pause"
	"github.com/plumbline/plumbline/tests/promapi"
	"github.com/plumbline/plumbline/tests/rig"
)

const (
	// interval is that of scrapes, and of the rules that have none of their own.
	interval = 15 * time.Second
	// ready is how long a process may take to answer, on a busy machine.
	ready = 3 * time.Minute
	// receivers each have all samples: with one of three gone, two are a majority.
	receivers = 3
	// pairs of everything that has no state of its own, or the same as its twin.
	pair = 2
)

// Labels that distinguish the two of a pair, by the operator's names; the querier removes them.
const (
	scrapedBy = "prometheus_replica"
	ruledBy   = "thanos_ruler_replica"
	// tenant is the label that receivers add for the samples' sender. There is one.
	tenant = "tenant_id"
)

// stack is all that runs beside the clusters.
type stack struct {
	t         *rig.Scope
	folder    string
	processes map[string]*rig.Process
	// engines are those that are compared with the one Prometheus; past answers from what is in Thanos' bucket only.
	engines   []*engine
	past, one *promapi.Server
}

// engine evaluates the rules; its alerts go to an Alertmanager of its own.
type engine struct {
	name         string
	server       *promapi.Server
	alertmanager string
	// boards is the folder of its dashboards, below that of all.
	boards string
}

// startStack starts everything; what is killed later is of the second of each.
func startStack(ctx context.Context, t *rig.Scope, folder string, clusters []*cluster) *stack {
	s := &stack{t: t, folder: folder, processes: map[string]*rig.Process{}}
	rules := func(kind histograms.Kind) string { return filepath.Join(folder, "rules", string(kind), "*.rules.yaml") }
	alertmanager := s.startAlertmanager(ctx, "thanos")
	bucket := s.write("bucket.yml", map[string]any{"type": "FILESYSTEM", "config": map[string]any{"directory": filepath.Join(folder, "bucket")}})
	var ring []string
	for range receivers {
		ring = append(ring, s.address())
	}
	hashring := s.write("hashring.json", []map[string]any{{"endpoints": ring}})
	for i, grpc := range ring {
		s.component(ctx, "receive", i, grpc, s.address(), s.address(), hashring, bucket, "--receive.capnproto-address="+s.address(),
			// So that there is something in the bucket after minutes.
			"--tsdb.min-block-duration="+blockLength.String(), "--tsdb.max-block-duration="+blockLength.String())
	}
	var write []string
	for i := range pair {
		write = append(write, s.address())
		s.component(ctx, "route", i, s.address(), s.address(), write[i], hashring, bucket, "--receive.capnproto-address="+s.address())
	}
	// What the operator makes of rule.yaml.
	query, ruled := s.address(), []string{}
	for i := range pair {
		ruled = append(ruled, s.address())
		http := s.address()
		s.start(ctx, name("rule", i), http, "thanos", "rule", "--http-address="+http, "--grpc-address="+ruled[i], "--rule-file="+rules(histograms.Either), "--eval-interval="+interval.String(),
			"--query=http://"+query, "--alertmanagers.url=http://"+alertmanager, fmt.Sprintf("--label=%s=%q", ruledBy, name("rule", i)), "--alert.label-drop="+ruledBy,
			"--data-dir="+filepath.Join(folder, name("rule", i)), "--tsdb.retention=1d", "--log.level=warn")
	}
	stored := s.address()
	s.component(ctx, "store", 0, stored, s.address(), "", hashring, bucket, "--sync-block-duration=10s")
	s.engines = append(s.engines, &engine{"Thanos", s.querier(ctx, 0, query, slices.Concat(ring, ruled, []string{stored})), alertmanager, ""})
	s.past = s.querier(ctx, 1, s.address(), []string{stored})

	for _, c := range clusters {
		for i := range pair {
			s.prometheus(ctx, name(c.name, i), map[string]any{
				"global":       global(map[string]string{"cluster": c.name, scrapedBy: strconv.Itoa(i)}),
				"remote_write": []map[string]any{{"url": "http://" + write[i] + "/api/v1/receive", "send_native_histograms": true}},
				// Remote write 1.0, which is what receivers take, has no place for the bounds of a converted histogram.
				"scrape_configs": jobs([]*cluster{c}, false, func(*cluster) map[string]string { return map[string]string{} }),
			}, "--agent", "--storage.agent.path="+filepath.Join(folder, name(c.name, i)))
		}
	}
	s.startVictoriaMetrics(ctx, rules(histograms.Classic), clusters)
	s.one = s.prometheus(ctx, "one", map[string]any{
		"global":         global(nil),
		"rule_files":     []string{rules("")},
		"scrape_configs": jobs(clusters, true, func(c *cluster) map[string]string { return map[string]string{"cluster": c.name} }),
	}, "--storage.tsdb.path="+filepath.Join(folder, "one"))
	return s
}

// blockLength is that of a receiver's blocks; a day's are two hours.
const blockLength = 2 * time.Minute

func global(external map[string]string) map[string]any {
	g := map[string]any{"scrape_interval": interval.String(), "evaluation_interval": interval.String(), "scrape_native_histograms": true}
	if external != nil {
		g["external_labels"] = external
	}
	return g
}

func (s *stack) address() string {
	address, err := freeport.Address()
	s.t.Check(err)
	return address
}

// write writes a file of configuration and returns its path.
func (s *stack) write(name string, content any) string {
	marshal := yaml.Marshal
	if filepath.Ext(name) == ".json" {
		marshal = json.Marshal
	}
	data, err := marshal(content)
	s.t.Check(err)
	path := filepath.Join(s.folder, name)
	s.t.Check(os.WriteFile(path, data, 0o600))
	return path
}

// start starts a process and waits until it reports that it is ready.
func (s *stack) start(ctx context.Context, name, http string, program string, args ...string) {
	p := rig.Start(s.t, exec.CommandContext(ctx, rig.Tool(s.t, program), args...))
	s.processes[name] = p
	rig.Eventually(s.t, ready, func() error {
		select {
		case <-p.Done:
			s.t.Fatalf("%s has ended: %.2000s", name, p.Log)
		default:
		}
		_, err := rig.Get(ctx, "http://"+http+"/-/ready")
		return err
	})
}

// name is that of one of several.
func name(component string, i int) string { return component + "-" + strconv.Itoa(i) }

// component starts a manifest's program, with the addresses and files of this machine, and more arguments.
func (s *stack) component(ctx context.Context, of string, i int, grpc, http, write, hashring, bucket string, more ...string) {
	own := name(of, i)
	args := arguments(s.t, of,
		"$(POD).receive.plumbline-thanos.svc:10901", grpc, "=:10901", "="+grpc, "=:10902", "="+http, "=:19291", "="+write,
		"/etc/thanos/hashring.json", hashring, "/etc/objstore/objstore.yml", bucket, "=/data", "="+filepath.Join(s.folder, own), "=/tmp", "="+filepath.Join(s.folder, own), "$(POD)", own,
		// A receiver of Thanos 0.42 that starts in a minute in which it looks for tenants that are gone crashes: with
		// blocks of two minutes in every fourth. It does not look where it keeps all.
		"--tsdb.retention=1d", "--tsdb.retention=0d",
		// The endpoints to query are in more.
		"--endpoint=dnssrv+_grpc._tcp.receive.plumbline-thanos.svc", "", "--endpoint=dnssrv+_grpc._tcp.thanos-ruler-operated.plumbline-thanos.svc", "",
		"--endpoint=dnssrv+_grpc._tcp.store.plumbline-thanos.svc", "")
	s.start(ctx, own, http, "thanos", slices.Concat(args, more, []string{"--log.level=warn"})...)
}

func (s *stack) querier(ctx context.Context, i int, http string, stores []string) *promapi.Server {
	var endpoints []string
	for _, one := range stores {
		endpoints = append(endpoints, "--endpoint="+one)
	}
	s.component(ctx, "query", i, s.address(), http, "", "", "", endpoints...)
	server, err := promapi.At("http://" + http)
	s.t.Check(err)
	return server
}

func (s *stack) prometheus(ctx context.Context, name string, config map[string]any, args ...string) *promapi.Server {
	http := s.address()
	s.start(ctx, name, http, "prometheus", append([]string{"--config.file=" + s.write(name+".yml", config), "--web.listen-address=" + http, "--log.level=warn"}, args...)...)
	server, err := promapi.At("http://" + http)
	s.t.Check(err)
	return server
}

func (s *stack) startAlertmanager(ctx context.Context, of string) (address string) {
	address = s.address()
	config := s.write("alertmanager.yml", map[string]any{"route": map[string]any{"receiver": "nobody"}, "receivers": []map[string]any{{"name": "nobody"}}})
	own := of + "-alertmanager"
	s.start(ctx, own, address, "alertmanager", "--config.file="+config, "--storage.path="+filepath.Join(s.folder, own), "--web.listen-address="+address, "--cluster.listen-address=")
	return address
}

// await lets time go by.
func (s *stack) await(ctx context.Context, d time.Duration) { s.t.Check(pause.For(ctx, d)) }

// awaitTargets waits until both see all targets of both clusters.
func (s *stack) awaitTargets(ctx context.Context, clusters []*cluster) {
	for _, c := range clusters {
		expr := fmt.Sprintf("count(up{cluster=%q} == 1) == %d", c.name, len(c.player.Targets()))
		s.t.Check(s.one.Await(ctx, ready, expr))
		for _, e := range s.engines {
			s.t.Check(e.server.Await(ctx, ready, expr))
		}
	}
}
