package tracer_test

import (
	"fmt"
	"os"
	osexec "os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/plumbline/plumbline/exporters/agent/bpfstats"
	"github.com/plumbline/plumbline/exporters/agent/collector"
	"github.com/plumbline/plumbline/exporters/agent/collector/collectortest"
	"github.com/plumbline/plumbline/exporters/agent/trace"
	"github.com/plumbline/plumbline/exporters/agent/tracer"
	"github.com/plumbline/plumbline/exporters/agent/tracer/tracertest"
	"github.com/plumbline/plumbline/tests/rig"
	"github.com/plumbline/plumbline/tests/testkit"
)

// BenchmarkTrace follows every commit of eight clients, with more and more writers of 4 KiB on the machine's disk
// beside them: how many chains are exact, and what the programs that only tracing has, or that do more with it, take
// for each event, by the kernel's clock. Each size runs once, for five seconds:
//
//	go test -run '^$' -bench 'Trace$' -benchtime 1x -v ./exporters/agent/tracer
func BenchmarkTrace(b *testing.B) {
	collectortest.OwnMounts(b)
	statistics, err := bpfstats.Enable()
	if err != nil {
		testkit.Skip(b, err.Error())
	}
	defer statistics.Close()
	dir := b.TempDir()
	collectortest.OpenUp(b, dir)
	file := filepath.Join(dir, "disk")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		b.Fatal(err)
	}
	if err := os.Truncate(file, 512<<20); err != nil {
		b.Fatal(err)
	}
	loop, err := rig.AttachLoop(b, file)
	if err != nil {
		testkit.Skip(b, err.Error())
	}
	a := tracertest.Start(b, tracer.Options{Sample: 1})
	pg, _ := tracertest.Server(b, a, loop)
	for _, writers := range []int{0, 1, 4, 16, 64} {
		b.Run(fmt.Sprintf("writers=%d", writers), func(b *testing.B) {
			writeBeside(b, writers)
			events, cost, requests := spent(b, a)
			began := collector.Monotonic()
			for range b.N {
				pg.Bench(b, "insert into t values ('');\n", "-c", "8", "-j", "2", "-T", "5")
			}
			seconds := float64(collector.Monotonic()-began) / 1e9
			eventsNow, costNow, requestsNow := spent(b, a)
			found := map[trace.Verdict]int{}
			chains := a.Settled(tracertest.Name, began)
			for _, c := range chains {
				found[c.Verdict()]++
			}
			b.ReportMetric(0, "ns/op") // the time is pgbench's -T
			b.ReportMetric(float64(len(chains)), "chains")
			b.ReportMetric(float64(found[trace.Exact]), "exact")
			b.ReportMetric(float64(found[trace.Ambiguous]), "ambiguous")
			b.ReportMetric(float64(requestsNow-requests)/seconds, "requests/s")
			b.ReportMetric(float64((costNow-cost).Nanoseconds())/float64(eventsNow-events), "ns/event")
		})
	}
}

// spent is how many events there were so far, what programs took for them, and how many of them were block requests.
func spent(b *testing.B, a *tracertest.Traced) (events uint64, cost time.Duration, requests uint64) {
	b.Helper()
	for _, c := range []collector.Collector{a.Tracer, a.Query} {
		for _, f := range collectortest.Gather(b, c) {
			for _, m := range f.Metric {
				program := collectortest.Labels(m)["program"]
				switch {
				case program == "socket_sent", program == "socket_received": // the same without tracing
				case f.GetName() == "plumbline_bpf_runs_total" && program == "trace_request_ends":
					requests = uint64(m.Counter.GetValue())
				case f.GetName() == "plumbline_bpf_run_seconds_total":
					cost += time.Duration(m.Counter.GetValue() * 1e9)
				}
			}
		}
	}
	return a.Tracer.Counts().Events, cost, requests
}

// writeBeside has so many processes write to the disk below the temporary folder until the benchmark ends.
func writeBeside(b *testing.B, writers int) {
	b.Helper()
	if writers == 0 {
		return
	}
	dir, err := os.MkdirTemp("/var/tmp", "plumbline-trace-")
	if err != nil {
		b.Fatal(err)
	}
	fio := osexec.Command(testkit.Tool(b, "fio"), "--name=beside", "--directory="+dir, "--rw=randwrite", "--bs=4k", "--size=16m", "--direct=1", "--ioengine=psync",
		"--numjobs="+fmt.Sprint(writers), "--time_based", "--runtime=1h", "--create_on_open=1")
	process := rig.Start(b, fio)
	b.Cleanup(func() {
		process.Stop()
		_ = os.RemoveAll(dir)
	})
}
