package replica

import (
	"fmt"
	"slices"
	"testing"

	bpf "github.com/plumbline/plumbline/exporters/agent/bpf/replica"
	"github.com/plumbline/plumbline/exporters/agent/collector/collectortest"
)

// The same of requests to replicas.
func TestReplicaBackups(t *testing.T) {
	collectortest.NeedBackups(t)
	for _, without := range collectortest.MissedBy {
		t.Run(fmt.Sprint("without ", without), func(t *testing.T) {
			v := newTestVolume(t, 2)
			m := startReplicaCollector(t, v)
			m.Followed(2)
			k := m.collector.wires[0].kernel
			// Before the engine's first byte: what goes by unseen on a connection cannot be made up for.
			for _, name := range []string{bpf.DataconnProgReplicaReceived, bpf.DataconnProgReplicaSent} {
				k.mu.Lock()
				err := k.links[name].Close()
				if err == nil {
					k.links[name], err = k.groups[name].AttachSome(func(rank int) bool { return !slices.Contains(without, rank) })
				}
				k.mu.Unlock()
				if err != nil {
					t.Fatal(err)
				}
			}
			v.Start()
			m.Followed(3)
			v.exact(m, 500, v.Addresses...)
			m.Read().Clean(t)
		})
	}
}
