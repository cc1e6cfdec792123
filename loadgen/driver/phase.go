package driver

import (
	"sync"
	"time"

	"github.com/plumbline/plumbline/loadgen/metrics"
)

// phases reports a load's phase: that of its own life, or that no server takes it.
type phases struct {
	load    *metrics.Load
	outages *outages

	mu   sync.Mutex
	own  metrics.Phase
	down bool
}

// set sets the phase of the load's own life.
func (p *phases) set(own metrics.Phase) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.own = own
	if p.down && own != metrics.Stopped {
		own = metrics.Unserved
	}
	p.load.SetPhase(own)
}

// check updates whether the load is down.
func (p *phases) check(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	down := p.outages.down(now)
	if down == p.down || p.own == metrics.Stopped {
		return
	}
	if p.down = down; down {
		p.load.SetPhase(metrics.Unserved)
		return
	}
	p.load.SetPhase(p.own)
}
