package volume

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/plumbline/plumbline/exporters/agent/untrusted"
)

const (
	// folderTimeout is how long it may take to find where a volume's folder is: a file system on the way may hang. It
	// is short, as others wait.
	folderTimeout = 200 * time.Millisecond
	// folderHanging is how many of these may hang at once; of one file system's an eighth.
	folderHanging = 16
	// foldersTimeout is how long all of one scan may take together.
	foldersTimeout = 600 * time.Millisecond
)

// folders finds where the folders of volumes are on the host.
type folders struct {
	procfs string
	calls  *untrusted.Calls
	// find looks up where a path leads in the root of PID 1.
	find func(procfs, path string) (folder, error)
	// began is when the current scan sent its first query, late the mounts that did not answer in time in this scan.
	began time.Time
	late  map[string]bool

	mu sync.Mutex
	// known are the latest answers, also those that came late. It is for when there is none.
	known map[string]folder
}

// folder is where a path leads on the host, and the number of the device whose node is there, as major:minor; empty if
// it is no block device's.
type folder struct{ path, device string }

func newFolders(procfs string) *folders {
	return &folders{procfs: procfs, find: find, calls: untrusted.NewCalls(folderTimeout, folderHanging), late: map[string]bool{}, known: map[string]folder{}}
}

// locate replaces i's folder by the folder on the host with all links followed, if that determines where the volume is.
// A folder that does not exist, or may not be looked up, stays as it is written. So does one that is on another node by
// all that is known: a cluster has thousands of them. Where the folder is the node of a block device, device is the
// device's number.
func (f *folders) locate(i Identity, t *Tables) (at Identity, device string, err error) {
	path := i.Directory
	switch {
	case path == "", i.elsewhere, i.Kubelet != "" && len(t.kubelet(i.Plugin, i.Kubelet)) > 0:
		return i, "", nil
	case i.InUse && !within(path, "/dev") && len(i.in(t)) > 0: // what a container has as a mount is no link
		return i, "", nil
	}
	found, there, err := f.lookUp(path, t)
	if err != nil {
		return i, "", fmt.Errorf("its folder %s: %w", untrusted.Path(path), err)
	}
	if !there {
		return i, "", nil
	}
	i.Directory = found.path
	return i, found.device, nil
}

// lookUp looks up where a path leads; there reports whether something is there. A file system that does not answer in time
// is queried once per scan, and all together have a timeout. After it the latest answer counts, or, if there is none,
// the error.
func (f *folders) lookUp(path string, t *Tables) (at folder, there bool, err error) {
	m, _ := t.Holding(path)
	late := f.late[m.Point] || time.Since(f.began) > foldersTimeout
	err = untrusted.ErrUnanswered
	if !late {
		err = f.calls.DoFor(m.Point, path, func() error {
			found, err := f.find(f.procfs, path)
			f.mu.Lock()
			defer f.mu.Unlock()
			if err != nil {
				delete(f.known, path)
			} else {
				f.known[path] = found
			}
			return err
		})
		late = errors.Is(err, untrusted.ErrUnanswered) || errors.Is(err, untrusted.ErrTooMany)
		f.late[m.Point] = late
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	at, there = f.known[path]
	if late && !there {
		return at, false, err
	}
	return at, there, nil
}

// find looks up where a path leads in the root of PID 1.
func find(procfs, path string) (folder, error) {
	root, err := untrusted.Root(procfs, 1)
	if err != nil {
		return folder{}, err
	}
	defer root.Close()
	f := folder{}
	if f.path, err = root.Real(path); err != nil {
		return folder{}, err
	}
	s, err := root.Stat(f.path, untrusted.InRoot)
	if err == nil && s.Mode&unix.S_IFMT == unix.S_IFBLK {
		f.device = fmt.Sprintf("%d:%d", unix.Major(s.Rdev), unix.Minor(s.Rdev))
	}
	return f, err
}

// begin begins a scan, and forgets all folders but those of these volumes.
func (f *folders) begin(identities []Identity) {
	f.began, f.late = time.Now(), map[string]bool{}
	f.mu.Lock()
	defer f.mu.Unlock()
	known := map[string]folder{}
	for _, i := range identities {
		if found, ok := f.known[i.Directory]; ok {
			known[i.Directory] = found
		}
	}
	f.known = known
}
