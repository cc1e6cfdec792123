package main

import (
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"syscall"

	"github.com/plumbline/plumbline/tests/agentproc"
	"github.com/plumbline/plumbline/tests/rig"
)

var (
	latencyLine = regexp.MustCompile(`(?m)^latency average = ([0-9.]+) ms`)
	countLine   = regexp.MustCompile(`(?m)^number of transactions actually processed: ([0-9]+)`)
)

// workload is a load of pgbench's own.
type workload struct {
	name string
	args []string
	// statements that a transaction makes.
	statements float64
}

var workloads = []workload{
	{"selects", []string{"-S"}, 1},
	{"TPC-B", nil, 7},
}

// benched is what pgbench reports on a run.
type benched struct {
	transactions float64
	// latency is the mean of a transaction, in seconds.
	latency float64
}

// bench runs pgbench on one connection.
func (d *database) bench(o options, args ...string) benched {
	args = append([]string{"-n", "-M", "prepared", "-c", "1", "-T", fmt.Sprintf("%.0f", o.seconds.Seconds())}, args...)
	out, err := exec.Command(rig.Tool(d.t, "pgbench"), append(args, d.URL)...).CombinedOutput()
	if err != nil {
		d.t.Fatalf("pgbench: %w\n%s", err, out)
	}
	value := func(line *regexp.Regexp) float64 {
		m := line.FindSubmatch(out)
		if m == nil {
			d.t.Fatalf("pgbench printed nothing like %s:\n%s", line, out)
		}
		v, err := strconv.ParseFloat(string(m[1]), 64)
		d.t.Check(err)
		return v
	}
	return benched{transactions: value(countLine), latency: value(latencyLine) / 1e3}
}

// fillBench makes pgbench's tables.
func (d *database) fillBench() {
	if out, err := exec.Command(rig.Tool(d.t, "pgbench"), "-i", "-q", "-s", "5", d.URL).CombinedOutput(); err != nil {
		d.t.Fatalf("pgbench -i: %w\n%s", err, out)
	}
}

// all is what the agent has of a server's statements.
func (d *database) all(m agentproc.Metrics) (count, seconds float64) {
	const name = "plumbline_query_duration_seconds"
	return m.Sum(name, "server", d.name), m.Seconds(name, "server", d.name)
}

// wakeup is how long the server took from the wake-up for a statement until it began it.
func (d *database) wakeup(m agentproc.Metrics) float64 {
	return m.Sum("plumbline_query_wakeup_seconds_total", "server", d.name)
}

// clientScript prints, at its end, how often pgbench received a response and then sent something, and how long that
// took: its wake-up, and its own time. It also prints for how long the server was still sending a response that had
// arrived. Needs Linux 6.3 (sk_data_ready).
//
//go:embed client.bt
var clientScript string

// agreePgbench compares pgbench's mean latency of a transaction with the sum of what it is made of: the wake-ups of the
// server and its statements by the agent, and the client's part between two of them, but for the time in which both are
// at work.
func agreePgbench(t *rig.Scope, o options) {
	d := startDatabase(t, o, "accuracy-pgbench", "", "--collector.trace")
	d.fillBench()
	for _, w := range workloads {
		before := d.scrape()
		count, seconds := d.all(before)
		tracer := rig.StartBpftrace(t, rig.Tool(t, "bpftrace"), clientScript, nil)
		b := d.bench(o, w.args...)
		output := tracer.Stop()
		var after agentproc.Metrics
		rig.Eventually(t, rig.DefaultTimeout, func() error {
			after = d.scrape()
			if c, _ := d.all(after); c-count < b.transactions*w.statements {
				return fmt.Errorf("%v statements counted of %v", c-count, b.transactions*w.statements)
			}
			return nil
		})
		c, s := d.all(after)
		made := b.transactions * w.statements
		agent := (s - seconds) / b.transactions
		woken := (d.wakeup(after) - d.wakeup(before)) / b.transactions
		// Nearly all are seen: what arrives may be another task's to handle.
		seen, client := printed(t, output, "client")
		_, both := printed(t, output, "both")
		client *= w.statements
		both *= w.statements
		what := "pgbench's mean latency, " + w.name
		cells := []string{"statements made", fmt.Sprintf("%.0f", made), "counted", fmt.Sprintf("%.0f", c-count),
			"pgbench", us(b.latency), "server, from its wake-up to the statement", us(woken), "agent's statements", us(agent),
			"client, from an answer to what it sends next", us(client), "of these seen", fmt.Sprintf("%.2f %%", 100*seen/made), "server and client at once", us(both),
			"explained", fmt.Sprintf("%.1f %%", 100*(woken+agent+client-both)/b.latency)}
		o.out.Add(benchSection, what, cells...)
		t.Logf("%s: %v", what, cells)
	}
}

// printed is a count, and a mean in seconds, that a bpftrace script printed on a line with a name.
func printed(t *rig.Scope, output, name string) (count, mean float64) {
	m := regexp.MustCompile(`(?m)^` + name + ` (\d+) (\d+)$`).FindStringSubmatch(output)
	if m == nil {
		t.Fatalf("bpftrace printed nothing of %s: %s", name, output)
	}
	n, err := strconv.ParseFloat(m[1], 64)
	t.Check(err)
	ns, err := strconv.ParseFloat(m[2], 64)
	t.Check(err)
	return n, ns / n / 1e9
}

const benchSection = "Accuracy: a transaction's latency from its parts"

// script prints, at its end, the counts and sums of what it saw: statements of PostgreSQL and the flushes within, and
// requests of one block device.
//
//go:embed agree.bt
var script string

// agreeBpftrace compares statements and flushes with those that bpftrace measures by uprobes and
// system calls at the same time, and block requests with those by tracepoints.
func agreeBpftrace(t *rig.Scope, o options) {
	t.Check(rig.OwnMounts())
	dir := tempDir(t)
	t.Check(os.Chmod(dir, 0o755))
	file := filepath.Join(dir, "disk")
	t.Check(os.WriteFile(file, nil, 0o600))
	t.Check(os.Truncate(file, 1<<30))
	device, err := rig.AttachLoop(t, file)
	t.Check(err)
	d := startDatabase(t, o, "accuracy-bpftrace", dataFolder(t, dir, device))
	d.fillBench()
	d.do(d.client, "checkpoint")
	url, _ := rig.StartBlockio(t)
	program, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", d.PID))
	t.Check(err)
	var id syscall.Stat_t
	t.Check(syscall.Stat(device, &id))
	// The kernel numbers devices otherwise than stat does.
	kernelDevice := id.Rdev>>8&0xfff<<20 | id.Rdev&0xff | id.Rdev>>12&0xfff00
	tracer := rig.StartBpftrace(t, rig.Tool(t, "bpftrace"), script, map[string]string{
		"SERVER": program, "DEVICE": fmt.Sprint(kernelDevice), "POSTMASTER": fmt.Sprint(d.PID)})
	blocks := func() (count, seconds float64) { return blockio(t, url, "device", device, "read", "write", "flush") }
	blockCount, blockSeconds := blocks()
	before := d.scrape()
	count, seconds := d.all(before)
	transactions := d.bench(o).transactions
	var after agentproc.Metrics
	rig.Eventually(t, rig.DefaultTimeout, func() error {
		after = d.scrape()
		if c, _ := d.all(after); c-count < 7*transactions {
			return fmt.Errorf("%v statements counted of %v", c-count, 7*transactions)
		}
		return nil
	})
	bc, bs := blocks()
	output := tracer.Stop()
	statistic := func(name string) (count, mean float64) { return printed(t, output, name) }
	c, s := d.all(after)
	n, mean := statistic("query")
	agree(t, o, "bpftrace, TPC-B: uprobes' statements and the agent's", n, mean, c-count, (s-seconds)/(c-count))
	n, mean = statistic("sync")
	const phase = "plumbline_query_phase_seconds_total"
	sync := after.Sum(phase, "server", d.name, "phase", "sync") - before.Sum(phase, "server", d.name, "phase", "sync")
	agree(t, o, "bpftrace, TPC-B: fdatasync of sessions by system call, and the agent's phase sync, which has no time on a CPU or waiting for one in it", n, mean, n, sync/n)
	n, mean = statistic("block")
	agree(t, o, "bpftrace, TPC-B: block_rq_issue to where diskstats ends, and blockio's device time", n, mean, bc-blockCount, (bs-blockSeconds)/(bc-blockCount))
}
