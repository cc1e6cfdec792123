package query

import (
	"testing"

	"github.com/plumbline/plumbline/exporters/agent/collector"
	"github.com/plumbline/plumbline/exporters/agent/collector/collectortest"
	"github.com/plumbline/plumbline/exporters/agent/platform"
	"github.com/plumbline/plumbline/exporters/agent/server"
	"github.com/plumbline/plumbline/tests/testkit"
)

// What each way of watching sockets adds for a process that is not followed: what differs between them. Ways that this
// machine refuses are left out.
func BenchmarkBoundary(b *testing.B) {
	testkit.NeedBPF(b)
	sendAndReceive := collectortest.Exchange(b)
	b.Run("none", sendAndReceive)
	for _, boundary := range []platform.Boundary{platform.Tracepoints, platform.Deputised, platform.Functions} {
		k, err := platform.Find(boundary)
		if err != nil {
			b.Fatal(err)
		}
		programs, err := loadQueryPrograms(k, server.Programs{}, 1, 0, nil, collector.NewDispatcher("/proc"))
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
