package collector

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net"
	"os"
	osexec "os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/longhorn/longhorn-engine/pkg/dataconn"
	"github.com/longhorn/longhorn-engine/pkg/util"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/plumbline/plumbline/exporters/exporterkit"
	"github.com/plumbline/plumbline/tests/testkit"
)

// The real storage engine on this machine: one controller and its replicas, each on its
// own loopback address, so that no port is anybody else's.

const testVolumeSize = 256 << 20

// testReplica is one longhorn-engine replica process.
type testReplica struct {
	name, dir, address string
	args               []string
	process            *testProcess
}

// testVolume is a volume of real processes, and a client where its user would be.
type testVolume struct {
	t        testing.TB
	name     string
	engine   string // the program
	dir      string
	network  string // the first three bytes of its loopback addresses
	replicas []*testReplica
	// addresses are what the engine calls its replicas, proxies included.
	addresses []string
	options   []string // more of the controller's
	// within is what the processes are started by, and procfs what shows them.
	within  []string
	procfs  string
	process *testProcess
	client  *dataconn.Client
}

type testProcess struct {
	cmd  *osexec.Cmd
	log  *lockedBuffer
	done chan struct{}
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

func startProcess(t testing.TB, dir string, name string, args ...string) *testProcess {
	t.Helper()
	p := &testProcess{cmd: osexec.Command(name, args...), log: &lockedBuffer{}, done: make(chan struct{})}
	p.cmd.Dir = dir
	p.cmd.Stdout, p.cmd.Stderr = p.log, p.log
	// A replica starts a sync agent of its own: end both.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = p.cmd.Wait()
		close(p.done)
	}()
	t.Cleanup(func() {
		p.kill()
		if t.Failed() {
			log := p.log.String()
			t.Logf("%s %s:\n%s", name, strings.Join(args, " "), log[max(0, len(log)-2000):])
		}
	})
	return p
}

func (p *testProcess) pid() int { return p.cmd.Process.Pid }

func (p *testProcess) kill() {
	_ = syscall.Kill(-p.pid(), syscall.SIGKILL)
	<-p.done
}

// newTestVolume starts n replicas; start starts the engine on them.
func newTestVolume(t testing.TB, n int, options ...string) *testVolume {
	t.Helper()
	v := &testVolume{
		t:       t,
		engine:  testkit.Tool(t, "longhorn-engine"),
		name:    fmt.Sprintf("plumbline-test-%08x", rand.Uint32()),
		network: fmt.Sprintf("127.%d.%d", 2+rand.IntN(250), rand.IntN(250)),
		options: options,
		procfs:  "/proc",
	}
	var err error
	// Not in /tmp, which may be a tmpfs: the engine opens its files with O_DIRECT.
	if v.dir, err = os.MkdirTemp("/var/tmp", "plumbline-replica-"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(v.dir) })
	for range n {
		v.addReplica()
	}
	return v
}

// addReplica starts one more replica for the engine to come.
func (v *testVolume) addReplica() {
	v.t.Helper()
	i := len(v.replicas)
	r := &testReplica{
		name:    fmt.Sprintf("%s-r-%d", v.name, i),
		dir:     filepath.Join(v.dir, fmt.Sprintf("replica%d", i)),
		address: fmt.Sprintf("%s.%d:10000", v.network, 10+i),
	}
	if err := os.Mkdir(r.dir, 0o700); err != nil {
		v.t.Fatal(err)
	}
	v.replicas = append(v.replicas, r)
	v.addresses = append(v.addresses, r.address)
	v.startReplica(r)
}

func (v *testVolume) startReplica(r *testReplica) {
	v.t.Helper()
	r.args = append([]string{"--volume-name", v.name, "replica", "--size", fmt.Sprint(testVolumeSize),
		"--listen", r.address, "--replica-instance-name", r.name, "--disableRevCounter"}, v.protocol()...)
	r.process = v.run(append(r.args, r.dir)...)
	v.await(r.address)
}

func (v *testVolume) run(args ...string) *testProcess {
	v.t.Helper()
	command := slices.Concat(v.within, []string{v.engine}, args)
	return startProcess(v.t, v.dir, command[0], command[1:]...)
}

func (v *testVolume) protocol() []string {
	if i := slices.Index(v.options, "--data-server-protocol"); i >= 0 {
		return v.options[i : i+2]
	}
	return nil
}

func (v *testVolume) await(address string) {
	v.t.Helper()
	testkit.Eventually(v.t, 30*time.Second, func() error {
		c, err := net.Dial("tcp", address)
		if err == nil {
			_ = c.Close()
		}
		return err
	})
}

func (v *testVolume) socket() string { return "/var/run/longhorn-" + v.name + ".sock" }

// start starts the engine and connects a client to its frontend.
func (v *testVolume) start() {
	v.t.Helper()
	args := []string{"--engine-instance-name", v.name + "-e-0", "controller", "--listen", v.network + ".1:9501",
		"--size", fmt.Sprint(testVolumeSize), "--current-size", fmt.Sprint(testVolumeSize),
		"--frontend", "socket", "--disableRevCounter"}
	for _, a := range v.addresses {
		args = append(args, "--replica", "tcp://"+a)
	}
	v.process = v.run(append(append(args, v.options...), v.name)...)
	v.t.Cleanup(func() { _ = os.Remove(v.socket()) })
	v.await(v.network + ".1:9501")
	v.connect()
}

func (v *testVolume) connect() {
	v.t.Helper()
	var conn net.Conn
	testkit.Eventually(v.t, 30*time.Second, func() (err error) {
		conn, err = net.Dial("unix", v.socket())
		return err
	})
	v.client = dataconn.NewClient([]net.Conn{conn}, util.NewSharedTimeouts(30*time.Second, time.Minute))
	client := v.client
	v.t.Cleanup(client.Close)
}

// stop ends the engine.
func (v *testVolume) stop() {
	v.process.kill()
}

// io runs n operations, at most depth at a time, and fails the test if one fails.
func (v *testVolume) io(n, depth int, op func(i int) error) {
	v.t.Helper()
	var wg sync.WaitGroup
	var mu sync.Mutex
	var failed error
	next := make(chan int)
	for range depth {
		wg.Go(func() {
			for i := range next {
				if err := op(i); err != nil {
					mu.Lock()
					failed = err
					mu.Unlock()
				}
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	wg.Wait()
	if failed != nil {
		v.t.Fatalf("I/O: %v", failed)
	}
}

func (v *testVolume) write(offset int64, size int) error {
	n, err := v.client.WriteAt(bytes.Repeat([]byte{0x5a}, size), offset)
	if err == nil && n != size {
		err = fmt.Errorf("wrote %d bytes of %d", n, size)
	}
	return err
}

func (v *testVolume) read(offset int64, size int) error {
	n, err := v.client.ReadAt(make([]byte, size), offset)
	if err == nil && n != size {
		err = fmt.Errorf("read %d bytes of %d", n, size)
	}
	return err
}

// startReplicaCollector runs the collector for the test's own volumes only: other tests on
// this machine run engines, too. change may alter the wire before it is loaded.
func startReplicaCollector(t testing.TB, v *testVolume, change ...func(*replicaWire)) *replicaMeter {
	t.Helper()
	wire := dataconnWire()
	recognise := wire.recognise
	wire.recognise = func(args []string, hostname func() string) (*replicaProcess, error) {
		p, err := recognise(args, hostname)
		if p == nil || p.Volume != v.name {
			return nil, nil
		}
		return p, err
	}
	for _, c := range change {
		c(&wire)
	}
	return startReplicaWire(t, wire, v.procfs)
}

func startReplicaWire(t testing.TB, wire replicaWire, procfs string) *replicaMeter {
	t.Helper()
	testkit.NeedBPF(t)
	log := slog.New(slog.NewTextHandler(replicaLog{t}, nil))
	c := newReplica(Options{Log: log, Node: "here", ProcFS: procfs, SysFS: "/sys"}, wire)
	if err := c.Start(context.Background()); err != nil {
		t.Fatal(err)
	}
	set := exporterkit.NewSet(log)
	set.Add("replica", c)
	m := &replicaMeter{t: t, collector: c, registry: prometheus.NewRegistry()}
	m.registry.MustRegister(set)
	var once sync.Once
	m.stop = func() {
		once.Do(func() {
			if err := c.Close(); err != nil {
				t.Errorf("close: %v", err)
			}
		})
	}
	t.Cleanup(m.stop)
	return m
}

type replicaLog struct{ t testing.TB }

func (w replicaLog) Write(p []byte) (int, error) {
	// A collector closed late may still have something to say.
	defer func() { _ = recover() }()
	w.t.Logf("%s", bytes.TrimSpace(p))
	return len(p), nil
}

// replicaMeter reads the collector as Prometheus would.
type replicaMeter struct {
	t         testing.TB
	collector *replicaCollector
	registry  *prometheus.Registry
	stop      func()
}

// replicaReading is one scrape.
type replicaReading map[string]*dto.MetricFamily

func (m *replicaMeter) read() replicaReading {
	m.t.Helper()
	families, err := m.registry.Gather()
	if err != nil {
		m.t.Fatal(err)
	}
	r := replicaReading{}
	for _, f := range families {
		r[f.GetName()] = f
	}
	if s := r.value("plumbline_scrape_collector_success", nil); s != 1 {
		m.t.Fatal("the scrape failed; see the log")
	}
	return r
}

type match map[string]string

func (r replicaReading) each(name string, want match, do func(match, *dto.Metric)) {
	for _, metric := range r[name].GetMetric() {
		got := match{}
		for _, p := range metric.GetLabel() {
			got[p.GetName()] = p.GetValue()
		}
		matches := true
		for k, v := range want {
			matches = matches && got[k] == v
		}
		if matches {
			do(got, metric)
		}
	}
}

// value adds up counters and gauges.
func (r replicaReading) value(name string, want match) float64 {
	var sum float64
	r.each(name, want, func(_ match, m *dto.Metric) { sum += m.GetCounter().GetValue() + m.GetGauge().GetValue() })
	return sum
}

// count and sum add up histograms.
func (r replicaReading) count(name string, want match) (n uint64) {
	r.each(name, want, func(_ match, m *dto.Metric) { n += m.GetHistogram().GetSampleCount() })
	return n
}

func (r replicaReading) sum(name string, want match) (sum float64) {
	r.each(name, want, func(_ match, m *dto.Metric) { sum += m.GetHistogram().GetSampleSum() })
	return sum
}

// mean is the mean of what a histogram got since an earlier replicaReading.
func (r replicaReading) mean(since replicaReading, name string, want match) float64 {
	return (r.sum(name, want) - since.sum(name, want)) / float64(r.count(name, want)-since.count(name, want))
}

// clean fails the test if anything was lost or not understood.
func (r replicaReading) clean(t testing.TB) {
	t.Helper()
	for _, name := range []string{"plumbline_replica_lost_total", "plumbline_replica_resyncs_total", "plumbline_replica_unmatched_total",
		"plumbline_replica_unrecognised_total", "plumbline_replica_label_overflow_total", "plumbline_replica_process_errors_total"} {
		r.each(name, nil, func(l match, m *dto.Metric) {
			if v := m.GetCounter().GetValue(); v != 0 {
				t.Errorf("%s%v is %v, want 0", name, l, v)
			}
		})
	}
}

const (
	requestMetric  = "plumbline_replica_request_duration_seconds"
	serviceMetric  = "plumbline_replica_service_seconds"
	frontendMetric = "plumbline_volume_frontend_seconds"
)

// inflight adds up what is under way in all views.
func (r replicaReading) inflight() float64 {
	return r.value("plumbline_replica_requests_in_flight", nil) + r.value("plumbline_replica_services_in_flight", nil) +
		r.value("plumbline_volume_frontend_in_flight", nil)
}

// counts are all histograms' counts of a volume, pings left out, for a comparison at once.
func (r replicaReading) counts(v *testVolume) map[string]uint64 {
	counts := map[string]uint64{}
	for _, name := range []string{requestMetric, serviceMetric, frontendMetric} {
		r.each(name, match{"volume": v.name}, func(l match, m *dto.Metric) {
			if l["op"] != "ping" {
				counts[name+" "+l["replica"]+" "+l["op"]] = m.GetHistogram().GetSampleCount()
			}
		})
	}
	return counts
}

func (m *replicaMeter) eventually(what string, ok func(replicaReading) bool) replicaReading {
	m.t.Helper()
	var r replicaReading
	testkit.Eventually(m.t, 3*time.Minute, func() error {
		r = m.read()
		if !ok(r) {
			return errors.New(what)
		}
		return nil
	})
	return r
}

// settled waits until nothing is under way: an answer is with its reader a little before the
// call that sent it returns and is counted.
func (m *replicaMeter) settled() replicaReading {
	m.t.Helper()
	return m.eventually("operations are under way", func(r replicaReading) bool { return r.inflight() == 0 })
}

// followed waits until the collector follows that many processes.
func (m *replicaMeter) followed(n int) {
	m.t.Helper()
	m.eventually(fmt.Sprintf("%d processes followed", n), func(r replicaReading) bool {
		return r.value("plumbline_replica_processes", nil) == float64(n)
	})
}

func diffCounts(t testing.TB, got, want map[string]uint64) {
	t.Helper()
	keys := slices.Sorted(maps.Keys(want))
	for k := range got {
		if _, ok := want[k]; !ok {
			keys = append(keys, k)
		}
	}
	for _, k := range keys {
		if got[k] != want[k] {
			t.Errorf("%s: %d, want %d", k, got[k], want[k])
		}
	}
}
