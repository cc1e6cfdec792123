package collector

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// OnAllCPUs returns an entry of a per-CPU array of counters, summed over the CPUs.
func OnAllCPUs(m *ebpf.Map, entry uint32) (sum uint64, err error) {
	var cpus []uint64
	if err := m.Lookup(entry, &cpus); err != nil {
		return 0, err
	}
	for _, n := range cpus {
		sum += n
	}
	return sum, nil
}

// AddEvents adds all entries of a map of events' counters to sums, entry i to sums[i].
func AddEvents(m *ebpf.Map, sums []uint64) error {
	for i := range sums {
		n, err := OnAllCPUs(m, uint32(i))
		if err != nil {
			return fmt.Errorf("map events: %w", err)
		}
		sums[i] += n
	}
	return nil
}

// ReadMap returns all entries of a map, read in batches.
func ReadMap[K comparable, V any](m *ebpf.Map) (map[K]V, error) {
	result := map[K]V{}
	var cursor ebpf.MapBatchCursor
	size := 64
	for {
		keys, values := make([]K, size), make([]V, size)
		n, err := m.BatchLookup(&cursor, keys, values, nil)
		for i := range n {
			result[keys[i]] = values[i]
		}
		switch {
		case errors.Is(err, ebpf.ErrKeyNotExist):
			return result, nil
		case err != nil && errors.Is(err, unix.ENOSPC) && size < 1<<20:
			size *= 2 // one bucket holds more than that
		case err != nil:
			return nil, err
		}
	}
}

// Remove removes an entry; it reports whether there was one.
func Remove(m *ebpf.Map, key any) (bool, error) {
	err := m.Delete(key)
	if errors.Is(err, ebpf.ErrKeyNotExist) {
		return false, nil
	}
	return err == nil, err
}
