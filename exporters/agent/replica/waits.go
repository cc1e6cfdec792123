package replica

import (
	"math/rand/v2"
	"sync"
	"time"

	"github.com/plumbline/plumbline/exporters/agent/untrusted"
)

// ownerTimeout is for how long one owner's processes may make others wait in a round. It is more than one call may
// take, so that a single process that hangs does not have the others of its pod left.
const ownerTimeout = 2 * untrusted.DefaultTimeout

// ownerWaits is for how long the processes of each owner (pod.Owner) have made others wait in one round of calls. Those
// of one that has done so for long enough are left for the next round, so that nobody's hold up all others'.
type ownerWaits struct {
	budget time.Duration
	mu     sync.Mutex
	spent  map[string]time.Duration
}

func newOwnerWaits(budget time.Duration) *ownerWaits {
	return &ownerWaits{budget: budget, spent: map[string]time.Duration{}}
}

// enough reports whether an owner's processes are to be left for the next round.
func (w *ownerWaits) enough(owner string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.spent[owner] >= w.budget
}

// since adds a call on an owner's process that began then and is over.
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

// turns returns processes in the order of a round: those that are not followed come first, as late ones may be left,
// and otherwise chance decides, so that none is left in each round.
func turns(pids []int, followed map[int]*followedProcess) []int {
	var first, last []int
	for _, i := range rand.Perm(len(pids)) {
		if pid := pids[i]; followed[pid] == nil {
			first = append(first, pid)
		} else {
			last = append(last, pid)
		}
	}
	return append(first, last...)
}
