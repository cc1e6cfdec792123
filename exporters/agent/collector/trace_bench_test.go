package collector

import (
	"fmt"
	"os"
	osexec "os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/plumbline/plumbline/exporters/agent/bpfstats"
	"github.com/plumbline/plumbline/exporters/agent/trace"
	"github.com/plumbline/plumbline/tests/rig"
	"github.com/plumbline/plumbline/tests/testkit"
)

// BenchmarkTrace follows every commit of eight clients, with more and more writers of 4 KiB on the machine's disk
// beside them: how many chains are exact, and what the programs that only tracing has, or that do more with it, take
// for each event, by the kernel's clock. Each size runs once, for five seconds:
//
//	go test -run '^$' -bench 'Trace$' -benchtime 1x -v ./exporters/agent/collector
func BenchmarkTrace(b *testing.B) {
	ownMounts(b)
	statistics, err := bpfstats.Enable()
	if err != nil {
		testkit.Skip(b, err.Error())
	}
	defer statistics.Close()
	dir := b.TempDir()
	openUp(b, dir)
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
	a := startTraced(b, TraceOptions{Sample: 1})
	pg, _ := tracedServer(b, a, loop)
	for _, writers := range []int{0, 1, 4, 16, 64} {
		b.Run(fmt.Sprintf("writers=%d", writers), func(b *testing.B) {
			writeBeside(b, writers)
			events, cost, requests := a.spent(b)
			began := monotonic()
			for range b.N {
				pg.Bench(b, "insert into t values ('');\n", "-c", "8", "-j", "2", "-T", "5")
			}
			seconds := float64(monotonic()-began) / 1e9
			eventsNow, costNow, requestsNow := a.spent(b)
			found := map[trace.Verdict]int{}
			chains := a.settled(tracedName, began)
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
func (a *traced) spent(b *testing.B) (events uint64, cost time.Duration, requests uint64) {
	b.Helper()
	a.tracer.mu.Lock()
	events = a.tracer.counts.Events
	a.tracer.mu.Unlock()
	for _, of := range []bpfstats.Stats{a.tracer.stats, a.query.stats} {
		for name, p := range of.Programs {
			s, err := p.Stats()
			if err != nil {
				b.Fatal(err)
			}
			switch name {
			case "socket_sent", "socket_received": // the same without tracing
			case "trace_request_ends":
				requests = s.RunCount
				fallthrough
			default:
				cost += s.Runtime
			}
		}
	}
	return events, cost, requests
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
