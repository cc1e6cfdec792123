package collector

import (
	"sync"
	"time"

	"github.com/plumbline/plumbline/exporters/agent/foreign"
)

// ownerWaits is for how long the processes of each owner (pod.Owner) have made others wait in one round of looks. Those of one that has done so for long enough
// are left for the next round, so that nobody's hold up all others'.
type ownerWaits struct {
	mu    sync.Mutex
	spent map[string]time.Duration
}

func newOwnerWaits() *ownerWaits { return &ownerWaits{spent: map[string]time.Duration{}} }

// enough says whether an owner's processes are to be left for the next round.
func (w *ownerWaits) enough(owner string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.spent[owner] >= foreign.DefaultPatience
}

// since adds a look at an owner's process that began then and is over.
func (w *ownerWaits) since(owner string, began time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.spent[owner] += time.Since(began)
}

// begin begins the next round.
func (w *ownerWaits) begin() {
	w.mu.Lock()
	defer w.mu.Unlock()
	clear(w.spent)
}
