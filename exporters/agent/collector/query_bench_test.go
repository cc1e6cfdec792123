package collector

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/plumbline/plumbline/exporters/agent/platform"
	"github.com/plumbline/plumbline/exporters/agent/server"
	"github.com/plumbline/plumbline/tests/testkit"
)

// What each way of watching sockets adds to a byte sent and received on a unix socket by a
// process that is not followed: what differs between them. Ways that this machine refuses are left out.
func BenchmarkBoundary(b *testing.B) {
	testkit.NeedBPF(b)
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		b.Fatal(err)
	}
	defer unix.Close(ends[0])
	defer unix.Close(ends[1])
	one := make([]byte, 1)
	sendAndReceive := func(b *testing.B) {
		for b.Loop() {
			if _, err := unix.Write(ends[0], one); err != nil {
				b.Fatal(err)
			}
			if _, err := unix.Read(ends[1], one); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.Run("none", sendAndReceive)
	for _, boundary := range []platform.Boundary{platform.Tracepoints, platform.Deputised, platform.Functions} {
		k, err := platform.Find(boundary)
		if err != nil {
			b.Fatal(err)
		}
		programs, err := loadQueryPrograms(k, server.Programs{}, 1, nil)
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
