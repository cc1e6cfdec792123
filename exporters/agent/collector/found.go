package collector

import (
	"sync"
)

// found is what collectors find on this node, for others. nil has nothing.
type found[T any] struct {
	mu    sync.Mutex
	lists []func() []T
}

// Replicas are the replicas of volumes on this node, Servers the database servers with series of their own.
type (
	Replicas = found[PlacedReplica]
	Servers  = found[RunningServer]
)

// PlacedReplica is the process of a replica whose disk is known, or that of its sync agent.
type PlacedReplica struct {
	Pid                  int
	Start                uint64
	Name, Volume, Device string
}

// RunningServer is a server's process and its label.
type RunningServer struct {
	Pid   int
	Label string
}

// Add adds a function that lists what a collector has found.
func (f *found[T]) Add(list func() []T) {
	if f == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lists = append(f.lists, list)
}

// All returns what all collectors have found; nothing from nil.
func (f *found[T]) All() (all []T) {
	if f == nil {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, list := range f.lists {
		all = append(all, list()...)
	}
	return all
}
