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
func BenchmarkAttachMode(b *testing.B) {
	testkit.NeedBPF(b)
	sendAndReceive := collectortest.Exchange(b)
	b.Run("none", sendAndReceive)
	for _, mode := range []platform.AttachMode{platform.Tracepoints, platform.WithBackups, platform.Functions} {
		k, err := platform.Find(mode)
		if err != nil {
			b.Fatal(err)
		}
		programs, err := loadQueryPrograms(k, server.Programs{}, 1, 0, nil, collector.NewDispatcher("/proc"))
		if err != nil {
			b.Logf("%s: %v", mode, err)
			continue
		}
		b.Run(string(mode), sendAndReceive)
		if err := programs.Close(); err != nil {
			b.Fatal(err)
		}
	}
	b.Run("none again", sendAndReceive)
}
