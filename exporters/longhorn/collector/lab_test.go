package collector

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/plumbline/plumbline/exporters/exporterkit"
	"github.com/plumbline/plumbline/tests/testkit"
)

const labSize = 128 << 20

// lab is one real Longhorn volume: engine and replicas as processes on loopback addresses.
type lab struct {
	t       *testing.T
	bin     string
	dir     string
	volume  string
	address string // of the engine
	engine  *exec.Cmd
	replica []*labReplica
}

type labReplica struct {
	name, address, dir string
	cmd                *exec.Cmd
}

// newLab starts a volume with n replicas. The engine puts its socket in /run, so it gets a
// private one.
func newLab(t *testing.T, n int) *lab {
	t.Helper()
	testkit.NeedRoot(t)
	l := &lab{t: t, bin: testkit.Tool(t, "longhorn-engine"), dir: diskDir(t), volume: fmt.Sprintf("lhx%d", os.Getpid())}
	for range n {
		l.startReplica(l.addReplica())
	}
	l.startEngine()
	return l
}

// diskDir is a temporary directory on a disk, not on a tmpfs: replicas use O_DIRECT.
func diskDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/var/tmp", "longhorn-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

func (l *lab) addReplica() *labReplica {
	n := len(l.replica) + 1
	host := fmt.Sprintf("127.%d.%d.%d", 64+os.Getpid()>>8&63, os.Getpid()&255, n)
	r := &labReplica{name: fmt.Sprintf("%s-r%d", l.volume, n), address: host + ":10000", dir: filepath.Join(l.dir, fmt.Sprint("r", n))}
	if err := os.Mkdir(r.dir, 0o700); err != nil {
		l.t.Fatal(err)
	}
	l.replica = append(l.replica, r)
	return r
}

func (l *lab) startReplica(r *labReplica) {
	r.cmd = l.start(l.bin, "--volume-name", l.volume, "replica", "--size", fmt.Sprint(labSize), "--listen", r.address, "--sync-agent", r.dir)
	l.listening(r.address)
}

func (l *lab) startEngine() {
	l.t.Helper()
	if l.address == "" {
		l.address = freePort(l.t)
	}
	args := []string{"--engine-instance-name", l.volume + "-e-0", "controller", "--listen", l.address,
		"--size", fmt.Sprint(labSize), "--current-size", fmt.Sprint(labSize), "--frontend", "socket"}
	for _, r := range l.replica {
		args = append(args, "--replica", "tcp://"+r.address)
	}
	args = append(args, l.volume)
	l.engine = l.start("/bin/sh", append([]string{"-c", `mount -t tmpfs tmpfs /run && exec "$@"`, "sh", l.bin}, args...)...)
	l.listening(l.address)
}

// start runs a program in a mount namespace of its own until the test ends.
func (l *lab) start(name string, args ...string) *exec.Cmd {
	l.t.Helper()
	cmd := exec.Command(name, args...)
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL, Setpgid: true}
	if err := cmd.Start(); err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() {
		kill(cmd)
		if l.t.Failed() {
			l.t.Logf("last words of %s %s:\n%s", name, strings.Join(args, " "), tail(output.Bytes()))
		}
	})
	return cmd
}

// kill ends a program and what it started, and waits for it; again is harmless.
func kill(cmd *exec.Cmd) {
	syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	cmd.Wait()
}

func tail(b []byte) []byte { return b[max(0, len(b)-2000):] }

func (l *lab) listening(address string) {
	l.t.Helper()
	testkit.Eventually(l.t, 30*time.Second, func() error {
		conn, err := net.Dial("tcp", address)
		if err == nil {
			conn.Close()
		}
		return err
	})
}

func freePort(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().String()
}

// target is the volume as a targets file would name it.
func (l *lab) target() Target {
	t := Target{Volume: l.volume, Engine: l.address, EngineName: l.volume + "-e-0", Backend: BackendV1}
	for _, r := range l.replica {
		t.Replicas = append(t.Replicas, ReplicaTarget{Name: r.name, Address: r.address, Directory: r.dir})
	}
	return t
}

// bridge shows the volume as a file and returns its path.
func (l *lab) bridge() string {
	l.t.Helper()
	bin := testkit.Tool(l.t, "longhorn-bridge")
	dir := filepath.Join(l.dir, "bridge")
	if err := os.Mkdir(dir, 0o700); err != nil {
		l.t.Fatal(err)
	}
	socket := fmt.Sprintf("/proc/%d/root/run/longhorn-%s.sock", l.engine.Process.Pid, l.volume)
	testkit.Eventually(l.t, 30*time.Second, func() error { _, err := os.Stat(socket); return err })
	cmd := l.start(bin, "--socket="+socket, fmt.Sprintf("--size=%dB", labSize), "--directory="+dir)
	file := fmt.Sprintf("/proc/%d/root%s/volume", cmd.Process.Pid, dir)
	testkit.Eventually(l.t, 30*time.Second, func() error { _, err := os.Stat(file); return err })
	return file
}

// watched is an exporter in this process: a fleet and its collectors behind a web server.
type watched struct {
	t     *testing.T
	fleet *Fleet
	url   string
	log   *bytes.Buffer
}

func exporterFor(t *testing.T, poll Poll, targets ...Target) *watched {
	t.Helper()
	return exporterWithTLS(t, poll, nil, targets...)
}

func exporterWithTLS(t *testing.T, poll Poll, config *tls.Config, targets ...Target) *watched {
	t.Helper()
	w := &watched{t: t, log: &bytes.Buffer{}}
	log := slog.New(slog.NewTextHandler(w.log, nil))
	ctx, cancel := context.WithCancel(context.Background())
	w.fleet = NewFleet(FleetOptions{Log: log, Poll: poll, Engines: true, Replicas: true, TLS: config})
	o := Options{Log: log, Node: "node-a", ProcFS: "/proc", SysFS: "/sys", RootFS: "/", Fleet: w.fleet}
	set := exporterkit.NewSet(log)
	for _, e := range All() {
		if e.Name == "engine" || e.Name == "replica" {
			set.Add(e.Name, e.New(o))
		}
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(set)
	server := httptest.NewServer(promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	w.url = server.URL
	t.Cleanup(func() {
		server.Close()
		w.fleet.Set(ctx, nil)
		cancel()
		if t.Failed() {
			t.Logf("exporter's log:\n%s", w.log)
		}
	})
	w.fleet.Set(ctx, targets)
	return w
}

// scrape returns the exposition and how long it took.
func (w *watched) scrape() (samples, time.Duration) {
	w.t.Helper()
	start := time.Now()
	response, err := http.Get(w.url)
	if err != nil {
		w.t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	took := time.Since(start)
	return parse(w.t, body), took
}

// samples maps series, as name{label="value",...} with sorted labels, to values.
type samples map[string]float64

func parse(t *testing.T, text []byte) samples {
	t.Helper()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	s := samples{}
	for name, f := range families {
		for _, m := range f.Metric {
			s[name+labels(m)] = m.GetGauge().GetValue() + m.GetCounter().GetValue() + m.GetUntyped().GetValue()
		}
	}
	return s
}

func labels(m *dto.Metric) string {
	var pairs []string
	for _, l := range m.Label {
		pairs = append(pairs, fmt.Sprintf("%s=%q", l.GetName(), l.GetValue()))
	}
	return "{" + strings.Join(pairs, ",") + "}"
}

// want fails unless every series has its value; NaN stands for "must be absent".
func (s samples) want(values map[string]float64) error {
	var wrong []error
	for series, value := range values {
		got, ok := s[series]
		switch {
		case value != value && ok:
			wrong = append(wrong, fmt.Errorf("%s is %v, should be absent", series, got))
		case value == value && !ok:
			wrong = append(wrong, fmt.Errorf("%s is absent, should be %v", series, value))
		case value == value && got != value:
			wrong = append(wrong, fmt.Errorf("%s is %v, should be %v", series, got, value))
		}
	}
	return errors.Join(wrong...)
}

// fio runs a job on the volume and returns its report.
func fio(t *testing.T, file string, args ...string) fioReport {
	t.Helper()
	cmd := exec.Command(testkit.Tool(t, "fio"), append([]string{"--output-format=json", "--name=job", "--filename=" + file,
		"--direct=1", fmt.Sprintf("--size=%d", labSize)}, args...)...)
	cmd.Dir = t.TempDir() // fio leaves a state file where it runs
	output, err := cmd.Output()
	if err != nil {
		t.Fatalf("fio: %v\n%s", err, tail(output))
	}
	var report fioReport
	if err := json.Unmarshal(output, &report); err != nil {
		t.Fatalf("fio's report: %v", err)
	}
	return report
}

type fioReport struct {
	Jobs []struct {
		Read, Write fioSide
	}
}

type fioSide struct {
	Ops     float64 `json:"total_ios"`
	Bytes   float64 `json:"io_bytes"`
	Latency struct {
		Mean float64 `json:"mean"`
	} `json:"lat_ns"`
}
