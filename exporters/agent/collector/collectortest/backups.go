package collectortest

import (
	"testing"

	"github.com/plumbline/plumbline/exporters/agent/platform"
	"github.com/plumbline/plumbline/tests/testkit"
)

// MissedBy are ranks that miss every event, as if tasks were preempted within them all the time.
var MissedBy = [][]int{nil, {0}, {1}, {3}, {0, 1}, {0, 2, 3}, {0, 1, 2}}

// NeedBackups skips where programs at tracepoints cannot have any.
func NeedBackups(t *testing.T) {
	t.Helper()
	testkit.NeedBPF(t)
	t.Setenv("PLUMBLINE_ATTACH_MODE", string(platform.WithBackups))
	if k := Platform(t); len(k.Missing(platform.SocketTracepoints...)) > 0 {
		testkit.Skip(t, "needs the tracepoints of Linux 6.3")
	}
}
