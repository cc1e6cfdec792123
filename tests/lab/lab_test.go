// Package lab runs the whole lab, once, and checks it from outside: real Longhorn engine
// and replicas, real PostgreSQL, real load, real Prometheus.
package lab

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/plumbline/plumbline/manifests/lab/config"
	"github.com/plumbline/plumbline/manifests/lab/sandbox"
	"github.com/plumbline/plumbline/manifests/lab/table"
	"github.com/plumbline/plumbline/tests/testkit"
	"github.com/plumbline/plumbline/tests/world"
)

const (
	portBase   = 28090
	prometheus = "http://127.0.0.1:28090"
	nodeExp    = "http://127.0.0.1:28093/metrics"
	ebpfExp    = "http://127.0.0.1:28094/metrics"
)

var (
	dir     = filepath.Join("/var/tmp", fmt.Sprintf("plumbline-e2e-%d", os.Getpid()))
	classes = []string{"local", "longhorn-r1", "longhorn-r3"}
	start   sync.Once
	startup error
)

func TestMain(m *testing.M) {
	code := world.Run(m)
	if world.Inside() && sandbox.Exists(dir) {
		if out, err := command("down").CombinedOutput(); err != nil {
			fmt.Printf("removing the lab: %v\n%s", err, out)
			code = 1
		}
	}
	os.Exit(code)
}

// volume names a class's volume.
func volume(class string) string {
	lab := config.Lab{PortBase: portBase}
	return lab.Volume(class)
}

// command prepares a call of the lab's program for this test's own lab.
func command(args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(testkit.Root(), "build", "bin", "plumbline-lab"), args...)
	cmd.Dir = testkit.Root()
	// A rate at which the load leaves other tests some CPU.
	cmd.Env = append(os.Environ(), "LAB_DIR="+dir, fmt.Sprintf("LAB_PORT_BASE=%d", portBase), "LAB_CLASSES="+strings.Join(classes, " "), "LAB_RATE=15")
	return cmd
}

// running starts the lab at the first call; all tests share it.
func running(t *testing.T) {
	t.Helper()
	testkit.NeedBPF(t)
	testkit.Tool(t, "plumbline-lab")
	start.Do(func() {
		out, err := command("up").CombinedOutput()
		if err != nil {
			startup = fmt.Errorf("%w\n%s", err, out)
		}
	})
	if startup != nil {
		t.Fatal(startup)
	}
}

func readTable(t *testing.T) *table.Spec {
	t.Helper()
	spec, err := table.ReadSpec(filepath.Join(testkit.Root(), "manifests", "lab", "table.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	return spec
}

// Every cell of the table has a number, for every class.
func TestTableIsFull(t *testing.T) {
	running(t)
	spec := readTable(t)
	p, err := table.NewPrometheus(prometheus)
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "full table", func() error {
		for _, one := range spec.Tables {
			values, err := p.Fill(context.Background(), one, (&config.Lab{Interval: config.DefaultInterval}).LiveTable())
			if err != nil {
				return err
			}
			if missing := table.Missing(one, values, classes); len(missing) > 0 {
				return fmt.Errorf("missing: %s", strings.Join(missing, ", "))
			}
		}
		return nil
	})
}

// Every recording rule of the layers that every lab has gives a value for every class. Other
// rules are of storage backends that are not here, or of alerts, whose silence is right.
func TestRecordedRules(t *testing.T) {
	running(t)
	var waiting []func() error
	for _, name := range []string{"volume", "replica", "query", "storageclass"} {
		file := filepath.Join(testkit.Root(), "rules", name+".rules.yaml")
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var content struct {
			Groups []struct {
				Rules []struct {
					Record string `yaml:"record"`
				} `yaml:"rules"`
			} `yaml:"groups"`
		}
		if err := yaml.Unmarshal(text, &content); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		for _, group := range content.Groups {
			for _, rule := range group.Rules {
				// The lab uses no volume over a network, and no engine whose state is remembered when its exporter
				// goes.
				if rule.Record == "" || strings.HasPrefix(rule.Record, "volume:path_") ||
					strings.HasSuffix(rule.Record, "_before:bool") || strings.HasSuffix(rule.Record, "_told:timestamp") {
					continue
				}
				want := len(classes)
				value := rule.Record + " >= 0"
				switch {
				case onlyReplicated[rule.Record]:
					want-- // local has no replicas
				case rule.Record == "storageclass:control:info":
					want = 1 // local alone is a control
				case strings.HasPrefix(rule.Record, "device:") && strings.HasSuffix(rule.Record, ":rate5m"): // histograms, which know no class
					want, value = 1, "histogram_count("+rule.Record+") >= 0"
				}
				waiting = append(waiting, func() error {
					v, err := query(prometheus, "group by (storageclass) ("+value+")")
					switch {
					case err != nil:
					case len(v) == 0:
						err = fmt.Errorf("%s has no value", rule.Record)
					// Rules of a server, volume or replica alone do not name the class.
					case v[0].Metric["storageclass"] != "" && len(v) != want:
						err = fmt.Errorf("%s has values for %d classes, want %d: %v", rule.Record, len(v), want, v)
					}
					return err
				})
			}
		}
	}
	awaitAll(t, waiting, func(ready func() error) error { return ready() })
}

// awaitAll waits until each of these is ready, all within one time, and names all that are not.
func awaitAll[T any](t *testing.T, waiting []T, ready func(T) error) {
	t.Helper()
	waiting = slices.Clone(waiting)
	testkit.Eventually(t, defaultTimeout, func() error {
		var errs []error
		waiting = slices.DeleteFunc(waiting, func(one T) bool {
			err := ready(one)
			errs = append(errs, err)
			return err == nil
		})
		return errors.Join(errs...)
	})
}

// onlyReplicated are rules that have no value for a class without replicas.
var onlyReplicated = map[string]bool{"volume:healthy_replicas:count": true}

// The two ways of counting the backing disk's writes agree over a minute: the kernel's
// diskstats and ours. Up to five minutes are tried: of the completions here a share that
// changes from minute to minute, and may be slow ones, is shown to no tracer (blkio.bpf.c).
func TestBlockioAgreesWithNodeExporter(t *testing.T) {
	running(t)
	devices := mustQuery(t, prometheus, `plumbline_volume_info{storageclass="local"}`)
	if len(devices) != 1 {
		t.Fatalf("want one device of class local, have %v", devices)
	}
	device := string(devices[0].Metric["device"])
	var err error
	for range 5 {
		if err = blockioAgrees(t, device); err == nil {
			return
		}
		t.Log(err)
	}
	t.Error(err)
}

// blockioAgrees compares a minute of the device's writes, or more if it has few.
func blockioAgrees(t *testing.T, device string) error {
	from := readDisk(t, device)
	var to diskReading
	end := time.Now().Add(time.Minute)
	testkit.Eventually(t, defaultTimeout, func() error {
		if left := time.Until(end); left > 0 {
			return fmt.Errorf("%s of the minute are left", left)
		}
		to = readDisk(t, device)
		if n := to.theirs.count - from.theirs.count; n < 3000 {
			return fmt.Errorf("%.0f writes so far, want 3000 for a comparison", n)
		}
		return nil
	})
	ours, theirs := between(from, to)
	mean, theirMean := ours.seconds/ours.count, theirs.seconds/theirs.count
	t.Logf("%s: %.0f writes by diskstats, %.0f by blockio; mean %.1f us against %.1f us, ratio %.4f",
		device, theirs.count, ours.count, theirMean*1e6, mean*1e6, mean/theirMean)
	if math.Abs(ours.count/theirs.count-1) > 0.01 {
		return errors.New("counts differ by more than 1 %")
	}
	if math.Abs(mean/theirMean-1) > 0.05 {
		return errors.New("means differ by more than 5 %")
	}
	return nil
}

// diskCount is how many writes a disk did and how long they took.
type diskCount struct{ count, seconds float64 }

// diskReading is what both report on a disk. They cannot be read at one instant: ours is read before and after theirs.
type diskReading struct{ before, theirs, after diskCount }

func readDisk(t *testing.T, device string) (r diskReading) {
	ours := func() (d diskCount) {
		families := scrape(t, ebpfExp)
		// diskstats counts a flush, which is a write of nothing, among the writes.
		for _, op := range []string{"write", "flush"} {
			h := metric(t, families, "ebpf_exporter_blkio_total_seconds", map[string]string{"device": device, "op": op}).GetHistogram()
			d.count += float64(h.GetSampleCount())
			d.seconds += h.GetSampleSum()
		}
		return d
	}
	r.before = ours()
	n := scrape(t, nodeExp+"?collect[]=diskstats")
	r.after = ours()
	by := map[string]string{"device": device}
	r.theirs = diskCount{
		metric(t, n, "node_disk_writes_completed_total", by).GetCounter().GetValue(),
		metric(t, n, "node_disk_write_time_seconds_total", by).GetCounter().GetValue(),
	}
	return r
}

// between returns what was counted from one reading to the next. Ours is what comes nearest
// to theirs of what it can have been at the instant theirs was read.
func between(from, to diskReading) (ours, theirs diskCount) {
	theirs = diskCount{to.theirs.count - from.theirs.count, to.theirs.seconds - from.theirs.seconds}
	least := diskCount{to.before.count - from.after.count, to.before.seconds - from.after.seconds}
	most := diskCount{to.after.count - from.before.count, to.after.seconds - from.before.seconds}
	share := 0.0
	if most.count > least.count {
		share = min(1, max(0, (theirs.count-least.count)/(most.count-least.count)))
	}
	return diskCount{
		least.count + share*(most.count-least.count),
		least.seconds + share*(most.seconds-least.seconds),
	}, theirs
}

// With one of three replicas killed and one stopped the load continues, and Prometheus has it.
func TestReplicaFaults(t *testing.T) {
	running(t)
	const healthy = `sum(volume:healthy_replicas:count{storageclass="longhorn-r3"})`
	const completed = `sum(loadgen_completed_total{storageclass="longhorn-r3"})`
	is := func(want float64) func() error {
		return func() error {
			n, err := number(prometheus, healthy)
			if err == nil && n != want {
				err = fmt.Errorf("%v healthy replicas, want %v", n, want)
			}
			return err
		}
	}
	rebuildLost(t)
	eventually(t, "three healthy replicas", is(3))
	eventually(t, "the load", func() error { // what is stopped has to have transactions to stop
		n, err := number(prometheus, completed)
		if err == nil && n < 100 {
			err = fmt.Errorf("%.0f transactions", n)
		}
		return err
	})
	directory := func(n int) string { return fmt.Sprintf("%s/classes/longhorn-r3/replicas/%d", dir, n) }
	// One that stays away: the supervisor would start it again, and the lab rebuild it.
	if out, err := command("stop", "--signal=9", "longhorn-r3-replica-1").CombinedOutput(); err != nil {
		t.Fatalf("stop: %v\n%s", err, out)
	}
	eventually(t, "killed replica seen", is(2))

	stopped := process(t, dir, "replica", directory(2))
	signal(t, stopped, syscall.SIGSTOP)
	t.Cleanup(func() { _ = syscall.Kill(stopped, syscall.SIGCONT) })
	eventually(t, "stopped replica seen", is(1))

	before, err := number(prometheus, completed)
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "another 200 transactions", func() error {
		n, err := number(prometheus, completed)
		if err == nil && n < before+200 {
			err = fmt.Errorf("%.0f transactions since", n-before)
		}
		return err
	})
	// What waited for the stopped replica is counted once it has ended.
	eventually(t, "the transactions that a stopped replica held up until the engine's time-out", func() error {
		worst, err := number(prometheus, `max(max_over_time(histogram_quantile(1, sum(rate(loadgen_response_seconds{storageclass="longhorn-r3"}[10s])))[2m:2s]))`)
		if err == nil && worst < 1 {
			err = fmt.Errorf("the slowest transaction took %.3f s", worst)
		}
		return err
	})
}

// psql runs a statement on a class's database, and returns its result.
func psql(t *testing.T, class, statement string) (string, error) {
	t.Helper()
	out, err := exec.Command(testkit.Tool(t, "psql"), "-h", filepath.Join(dir, "sockets", class), "-U", "postgres", "-XAtc", statement).CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

// An engine that died is started again with all that lies on it, and only with the replica that has
// missed nothing; the other two, of which one was away and one is out without its own knowing, are
// rebuilt. What the database had acknowledged is there.
func TestEngineIsStartedAgain(t *testing.T) {
	running(t)
	if out, err := command("start", "longhorn-r3-replica-1").CombinedOutput(); err != nil {
		t.Fatalf("start: %v\n%s", err, out)
	}
	sql := func(statement string) (string, error) { return psql(t, "longhorn-r3", statement) }
	if out, err := sql("create table kept as select generate_series(1, 1000) i"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	life := isUp(t, "longhorn-r3-engine", 0)
	signal(t, process(t, dir, "controller", "--engine-instance-name", volume("longhorn-r3")+"-e-0"), syscall.SIGKILL)
	isUp(t, "longhorn-r3-engine", life)
	eventually(t, "the database serves what it had", func() error {
		out, err := sql("select count(*) from kept")
		if err == nil && out != "1000" {
			err = fmt.Errorf("%s rows of 1000", out)
		}
		return err
	})
	eventually(t, "three healthy replicas", func() error {
		n, err := number(prometheus, `sum(volume:healthy_replicas:count{storageclass="longhorn-r3"})`)
		if err == nil && n != 3 {
			err = fmt.Errorf("%v healthy replicas", n)
		}
		return err
	})
	awaitStatus(t, "longhorn-r3-engine", "started again once")
	awaitStatus(t, "longhorn-r3-volume", "started anew for the restart of longhorn-r3-engine")
}

// A second lab in the same place is refused and leaves the first alone.
func TestSecondLabIsRefused(t *testing.T) {
	running(t)
	out, err := command("up").CombinedOutput()
	if err == nil || !strings.Contains(string(out), "already there") {
		t.Errorf("want a refusal, have %v\n%s", err, out)
	}
	if _, err := query(prometheus, "up"); err != nil {
		t.Errorf("the first lab: %v", err)
	}
}

// After a kill -9 of the supervisor, down restores the machine and a new lab starts.
func TestKilledLab(t *testing.T) {
	running(t)
	signal(t, process(t, dir, filepath.Join(dir, "process-compose.yaml")), syscall.SIGKILL)
	if out, err := command("down").CombinedOutput(); err != nil {
		t.Fatalf("down: %v\n%s", err, out)
	}
	restored(t, dir, portBase)

	page := filepath.Join(t.TempDir(), "demo.html")
	again := command("demo", "--duration=1s", "--page="+page)
	again.Env = append(again.Env, "LAB_CLASSES=local longhorn-r1")
	out, err := again.CombinedOutput()
	if err != nil {
		t.Fatalf("demo after that: %v\n%s", err, out)
	}
	text, err := os.ReadFile(page)
	if err != nil || !strings.Contains(string(out), page) {
		t.Fatalf("the demo's page: %v\n%s", err, out)
	}
	for _, want := range []string{"longhorn-r1 commits take", "local (the control) commits take"} {
		if !strings.Contains(strings.Join(strings.Fields(string(out)), " "), want) || !strings.Contains(string(text), want) {
			t.Errorf("the demo or its page lacks %q:\n%s", want, out)
		}
	}
	restored(t, dir, portBase)
}
