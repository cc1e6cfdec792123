package collector

import (
	"fmt"

	"github.com/cilium/ebpf"
)

// onAllCPUs returns an entry of a per-CPU array of counters, summed over the CPUs.
func onAllCPUs(m *ebpf.Map, entry uint32) (sum uint64, err error) {
	var cpus []uint64
	if err := m.Lookup(entry, &cpus); err != nil {
		return 0, err
	}
	for _, n := range cpus {
		sum += n
	}
	return sum, nil
}

// addEvents adds all entries of a map of events' counters to sums, entry i to sums[i].
func addEvents(m *ebpf.Map, sums []uint64) error {
	for i := range sums {
		n, err := onAllCPUs(m, uint32(i))
		if err != nil {
			return fmt.Errorf("map events: %w", err)
		}
		sums[i] += n
	}
	return nil
}
