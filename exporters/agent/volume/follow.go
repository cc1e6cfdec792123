package volume

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/plumbline/plumbline/exporters/agent/untrusted"
)

const (
	// checkInterval is how often the mount tables that are known are compared with what they were.
	checkInterval = time.Second
	// findInterval is how often all is scanned afresh.
	findInterval = 10 * time.Second
	// staleAfter is the age at which what is known is returned with an error.
	staleAfter = 3 * findInterval
)

// knowledge is what a Node found at one time; it does not change.
type knowledge struct {
	at         time.Time
	identities []Identity
	// mounted are the PersistentVolumes that were mounted, by their names.
	mounted map[string]bool
	// tables are the host's mount table and those that show a volume.
	tables []tableSource
	found  []Found
	// without is how many are here and on no block device.
	without int
	// unidentified is what was not identified.
	unidentified Unidentified
	err          error
}

// Start begins to follow the volumes until ctx ends: what Known returns is at the most some
// seconds old. It returns once they have been scanned for, or cannot be in the time that calls
// gives. Every Start but the first does nothing.
func (n *Node) Start(ctx context.Context, calls *untrusted.Calls) {
	n.start.Do(func() {
		n.refresh(calls, true)
		changed := make(chan struct{}, 1)
		go n.watchMounts(ctx, changed)
		go n.follow(ctx, calls, changed)
	})
}

// Known returns the volumes that are mounted, as Find does, but without any input or output. The error reports what
// hangs or fails.
func (n *Node) Known() ([]Found, error) {
	k := n.known.Load()
	if k == nil {
		return nil, errors.New("volumes have not been scanned for yet")
	}
	if age := time.Since(k.at); age > staleAfter {
		return k.found, errors.Join(k.err, fmt.Errorf("mount tables have not been read for %s; what is known of volumes is as old", age.Round(time.Second)))
	}
	return k.found, k.err
}

// follow keeps what is known up to date.
func (n *Node) follow(ctx context.Context, calls *untrusted.Calls, changed <-chan struct{}) {
	check := time.NewTicker(checkInterval)
	defer check.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-changed:
			n.refresh(calls, true)
		case <-check.C:
			k := n.known.Load()
			n.refresh(calls, k == nil || time.Since(k.at) >= findInterval)
		}
	}
}

// refresh scans for the volumes if afresh is set, or if what is known is no longer valid. If it times out, what was
// known stays until the answer comes: where a scan takes longer than calls may, that is all there is.
func (n *Node) refresh(calls *untrusted.Calls, afresh bool) {
	began := time.Now()
	err := calls.Do("mount tables and devices of volumes", func() error {
		if k := n.known.Load(); !afresh && k != nil && n.holds(k) {
			return nil
		}
		n.learn(n.find())
		return nil
	})
	if err != nil {
		n.known.CompareAndSwap(nil, &knowledge{at: began, err: err})
	}
}

// learn takes over what a scan found, unless a later one has been taken over.
func (n *Node) learn(k *knowledge) {
	for {
		known := n.known.Load()
		if known != nil && known.at.After(k.at) || n.known.CompareAndSwap(known, k) {
			return
		}
	}
}

// holds reports whether the volumes have the same names, and the tables that show them the same mounts, as before. It
// does not scan for new mount namespaces.
func (n *Node) holds(k *knowledge) bool {
	identities, _ := n.identities(k.mounted)
	if !slices.Equal(identities, k.identities) {
		return false
	}
	for _, t := range k.tables {
		if !t.unchanged(n.procfs) {
			return false
		}
	}
	return true
}

// watchMounts signals when something is mounted or unmounted in the agent's or PID 1's mount namespace, see
// proc_pid_mounts(5). Those of others are not watched: an open table keeps its namespace and so everything mounted
// there.
func (n *Node) watchMounts(ctx context.Context, changed chan<- struct{}) {
	var fds []unix.PollFd
	for _, process := range []string{"self", "1"} {
		// Without leave to do so there is the interval.
		if f, err := os.Open(filepath.Join(n.procfs, process, "mountinfo")); err == nil {
			defer f.Close()
			fds = append(fds, unix.PollFd{Fd: int32(f.Fd()), Events: unix.POLLPRI})
		}
	}
	ended, end, err := os.Pipe()
	if err != nil {
		return
	}
	defer ended.Close()
	go func() {
		<-ctx.Done()
		end.Close()
	}()
	fds = append(fds, unix.PollFd{Fd: int32(ended.Fd()), Events: unix.POLLIN})
	for ctx.Err() == nil {
		if _, err := unix.Poll(fds, -1); err != nil && !errors.Is(err, unix.EINTR) {
			return
		}
		select {
		case changed <- struct{}{}:
		default:
		}
		// Mounts come in groups, and one scan sees them all.
		select {
		case <-ctx.Done():
		case <-time.After(checkInterval / 10):
		}
	}
}
