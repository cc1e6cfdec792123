package collector

import (
	"io"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/plumbline/plumbline/exporters/agent/platform"
	"github.com/plumbline/plumbline/exporters/agent/server"
	"github.com/plumbline/plumbline/tests/testkit"
)

// exchange returns a benchmark of a byte sent and received on a unix socket by this process, which is not followed.
func exchange(b *testing.B) func(*testing.B) {
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		unix.Close(ends[0])
		unix.Close(ends[1])
	})
	one := make([]byte, 1)
	return func(b *testing.B) {
		for b.Loop() {
			if _, err := unix.Write(ends[0], one); err != nil {
				b.Fatal(err)
			}
			if _, err := unix.Read(ends[1], one); err != nil {
				b.Fatal(err)
			}
		}
	}
}

// What each way of watching sockets adds for a process that is not followed: what differs between them. Ways that this
// machine refuses are left out.
func BenchmarkBoundary(b *testing.B) {
	testkit.NeedBPF(b)
	sendAndReceive := exchange(b)
	b.Run("none", sendAndReceive)
	for _, boundary := range []platform.Boundary{platform.Tracepoints, platform.Deputised, platform.Functions} {
		k, err := platform.Find(boundary)
		if err != nil {
			b.Fatal(err)
		}
		programs, err := loadQueryPrograms(k, server.Programs{}, 1, 0, nil, NewDispatcher("/proc"))
		if err != nil {
			b.Logf("%s: %v", boundary, err)
			continue
		}
		b.Run(string(boundary), sendAndReceive)
		if err := programs.Close(); err != nil {
			b.Fatal(err)
		}
	}
	b.Run("none again", sendAndReceive)
}

// What the collectors add for a process that is not followed, one after the other as on a node that has something for
// each: two calls, a byte sent and received.
func BenchmarkStranger(b *testing.B) {
	testkit.NeedBPF(b)
	sendAndReceive := exchange(b)
	o := Options{ProcFS: "/proc", Boundary: testBoundary()}
	o.Dispatcher = NewDispatcher(o.ProcFS)
	k := testPlatform(b)
	keep := func(c io.Closer, err error) {
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _ = c.Close() })
	}
	servers := func(wire fabricWire) (io.Closer, error) {
		k, err := loadServer(o, wire.server)
		if err != nil {
			return nil, err
		}
		return k, k.attach()
	}
	b.Run("no collector", sendAndReceive)
	keep(loadQueryPrograms(k, server.Programs{}, 1, 0, nil, o.Dispatcher))
	b.Run("query", sendAndReceive)
	replicas, err := loadReplicaKernel(k, dataconnWire(), o.ProcFS, nil, o.Dispatcher)
	keep(replicas, err)
	if err := replicas.listen(forProcesses); err != nil {
		b.Fatal(err)
	}
	b.Run("query and replica", sendAndReceive)
	keep(servers(nvmeWire))
	keep(servers(iscsiWire))
	b.Run("query, replica, nvme and iscsi", sendAndReceive)
}
