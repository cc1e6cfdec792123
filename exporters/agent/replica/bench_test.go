package replica

import (
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/plumbline/plumbline/exporters/agent/collector"
	"github.com/plumbline/plumbline/exporters/agent/collector/collectortest"
	"github.com/plumbline/plumbline/tests/results/rows"
	"github.com/plumbline/plumbline/tests/testkit"
)

// What a process that is nobody's engine or replica pays for the collector, by what there is
// to follow on its node. Compare the sub-benchmarks of one call with each other.
func BenchmarkReplicaBystander(b *testing.B) {
	testkit.NeedBPF(b)
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		b.Fatal(err)
	}
	defer null.Close()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		b.Fatal(err)
	}
	defer unix.Close(fds[0])
	defer unix.Close(fds[1])
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	client, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		b.Fatal(err)
	}
	defer client.Close()
	server, err := l.Accept()
	if err != nil {
		b.Fatal(err)
	}
	defer server.Close()
	buffer := make([]byte, 64)
	calls := map[string]func(){
		"getppid":    func() { syscall.Getppid() },
		"write-null": func() { _, _ = unix.Write(int(null.Fd()), buffer[:1]) },
		"unix-pair": func() {
			_, _ = unix.Write(fds[0], buffer)
			_, _ = unix.Read(fds[1], buffer)
		},
		"tcp-pair": func() {
			_, _ = client.Write(buffer)
			_, _ = io.ReadFull(server, buffer)
		},
	}
	modes := []struct {
		name string
		need replicaNeed
	}{{"nothing", always}, {"replicas", forProcesses}, {"engines", forEngines}, {"local-engines", forLocal}}
	for _, call := range []string{"getppid", "write-null", "unix-pair", "tcp-pair"} {
		for _, mode := range modes {
			b.Run(call+"/"+mode.name, func(b *testing.B) {
				k, err := loadReplicaKernel(collectortest.Platform(b), dataconnWire(), "/proc", nil, collector.NewDispatcher("/proc"))
				if err != nil {
					b.Fatal(err)
				}
				defer k.Close()
				if err := k.listen(mode.need); err != nil {
					b.Fatal(err)
				}
				for b.Loop() {
					calls[call]()
				}
			})
		}
	}
}

// What a sample of the sockets of an engine and three replicas takes, and a scrape.
func BenchmarkReplicaSample(b *testing.B) {
	testkit.NeedBPF(b)
	v := newTestVolume(b, 3)
	v.Start()
	m := startReplicaCollector(b, v)
	m.Followed(4)
	f := m.collector.wires[0]
	b.Run("sample", func(b *testing.B) {
		for b.Loop() {
			if err := f.sample(); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("scrape", func(b *testing.B) {
		for b.Loop() {
			if _, err := f.collect(); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// What the engine pays: writes per second of a volume with three replicas, with and without
// the collector, in turns; and what one run of each program takes.
func BenchmarkReplicaEngine(b *testing.B) {
	testkit.NeedBPF(b)
	v := newTestVolume(b, 3)
	v.Start()
	const rounds, writes = 10, 1500
	rate := func() float64 {
		start := time.Now()
		v.IO(writes, 8, func(i int) error { return v.Write(int64(i)*8192, 8192) })
		return writes / time.Since(start).Seconds()
	}
	file, err := rows.Open(filepath.Join(testkit.Root(), "build", "results"), "replicabench",
		"go test -run '^$' -bench ReplicaEngine -benchtime 1x -v ./exporters/agent/replica")
	if err != nil {
		b.Fatal(err)
	}
	const section = "Overhead: the replica collector"
	rate()
	for b.Loop() {
		var ratio float64
		for range rounds {
			without := rate()
			m := startReplicaCollector(b, v)
			m.Followed(4)
			with := rate()
			m.stop()
			ratio += with / without / rounds
		}
		b.ReportMetric(ratio, "ratio")
		file.Add(section, "writes/s of a volume of three replicas, with it to without", "figure", fmt.Sprintf("%.3f", ratio), "rounds", fmt.Sprint(rounds))
	}
	stats, err := ebpf.EnableStats(unix.BPF_STATS_RUN_TIME)
	if err != nil {
		b.Fatal(err)
	}
	defer stats.Close()
	m := startReplicaCollector(b, v)
	m.Followed(4)
	rate()
	for name, p := range m.collector.wires[0].kernel.collection.Programs {
		if s, err := p.Stats(); err == nil && s.RunCount > 0 {
			each := s.Runtime.Nanoseconds() / int64(s.RunCount)
			b.Logf("%s: %d runs of %d ns", name, s.RunCount, each)
			file.Add(section, "program "+name, "figure", fmt.Sprintf("%d ns a run", each), "runs", fmt.Sprint(s.RunCount))
		}
	}
	if err := file.Close(); err != nil {
		b.Fatal(err)
	}
}
