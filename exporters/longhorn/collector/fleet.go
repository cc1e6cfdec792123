package collector

import (
	"context"
	"crypto/tls"
	"log/slog"
	"reflect"
	"sort"
	"sync"
)

// Fleet polls the engines and replicas of all targets in the background, each separately, so that a hung one delays no
// other. The collectors read its last results.
type Fleet struct {
	opts FleetOptions

	mu      sync.Mutex
	volumes map[string]*volume
	ready   chan struct{} // closed by the first Set
	bad     uint64
}

// FleetOptions is what a Fleet needs.
type FleetOptions struct {
	Log  *slog.Logger
	Poll Poll
	// Engines and Replicas select which sides are polled.
	Engines, Replicas bool
	// TLS is what instance managers are called with; nil for none.
	TLS *tls.Config

	dialer *dialer
}

// NewFleet returns a Fleet that polls nothing before Set.
func NewFleet(o FleetOptions) *Fleet {
	o.dialer = newDialer(o.TLS)
	return &Fleet{opts: o, volumes: map[string]*volume{}, ready: make(chan struct{})}
}

// Set makes targets the volumes that are polled: new ones start, missing ones stop and their series end, changed ones
// are polled afresh and keep their last results until then. Pollers end with ctx.
func (f *Fleet) Set(ctx context.Context, targets []Target) {
	f.mu.Lock()
	defer f.mu.Unlock()
	select {
	case <-f.ready:
	default:
		close(f.ready)
	}
	wanted := map[string]bool{}
	for _, t := range targets {
		wanted[t.Volume] = true
		old := f.volumes[t.Volume]
		if old != nil && reflect.DeepEqual(old.target, t) {
			continue
		}
		v := newVolume(f.opts, t)
		if old != nil {
			old.stop()
			v.inherit(old)
		}
		f.volumes[t.Volume] = v
		v.start(ctx)
	}
	for name, v := range f.volumes {
		if !wanted[name] {
			v.stop()
			delete(f.volumes, name)
		}
	}
}

// list returns the volumes by name.
func (f *Fleet) list() []*volume {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := make([]*volume, 0, len(f.volumes))
	for _, v := range f.volumes {
		all = append(all, v)
	}
	sort.Slice(all, func(i, j int) bool { return all[i].target.Volume < all[j].target.Volume })
	return all
}

// Ready is closed once the fleet has received its volumes.
func (f *Fleet) Ready() <-chan struct{} { return f.ready }

// BadTargets notes that the list of volumes could not be read, as a whole or in one entry.
func (f *Fleet) BadTargets() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.bad++
}

func (f *Fleet) targetErrors() uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.bad
}
