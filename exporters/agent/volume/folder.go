package volume

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/plumbline/plumbline/exporters/agent/foreign"
)

const (
	// folderPatience is how long it may take to find where a volume's folder is: a file system on the way may hang. It is short, as others wait.
	folderPatience = 200 * time.Millisecond
	// folderHanging is how many of these may hang at once.
	folderHanging = 8
	// missingFor is how long the folder of a volume that is on another node by all that is known is not asked for again if it is not there: a
	// cluster has thousands of them.
	missingFor = time.Minute
)

// folders finds where the folders of volumes are on the host.
type folders struct {
	procfs string
	calls  *foreign.Calls
	// known are the latest answers, for when there is none, and missing is when a folder was last not there.
	known   map[string]folder
	missing map[string]time.Time
}

// folder is where a path leads on the host, and the number of the device whose node is there, as major:minor; empty if it is no block device's.
type folder struct{ path, device string }

func newFolders(procfs string) *folders {
	return &folders{procfs, foreign.NewCalls(folderPatience, folderHanging), map[string]folder{}, map[string]time.Time{}}
}

// locate puts the place of i's folder for the folder, with all links followed on the host, if that is what tells where the volume is. A folder that is
// not there, or may not be asked for, stays as it is written. Where the folder is none but the node of a block device, device is the device's number.
func (f *folders) locate(i Identity, t *Tables) (at Identity, device string, err error) {
	path := i.Directory
	switch {
	case path == "", i.Kubelet != "" && len(t.kubelet(i.Plugin, i.Kubelet)) > 0:
		return i, "", nil
	case i.InUse && !within(path, "/dev") && len(i.in(t)) > 0: // what a container has as a mount is no link
		return i, "", nil
	case i.elsewhere && time.Since(f.missing[path]) < missingFor:
		return i, "", nil
	}
	found, err := foreign.Ask(f.calls, path, func() (folder, error) { return find(f.procfs, path) })
	late := errors.Is(err, foreign.ErrUnanswered) || errors.Is(err, foreign.ErrTooMany)
	before, known := f.known[path]
	switch {
	case late && !known:
		return i, "", fmt.Errorf("its folder %s: %w", foreign.Path(path), err)
	case late:
		found = before
	case err != nil:
		delete(f.known, path)
		f.missing[path] = time.Now()
		return i, "", nil
	default:
		delete(f.missing, path)
		f.known[path] = found
	}
	i.Directory = found.path
	return i, found.device, nil
}

// find asks where a path leads in the root of PID 1.
func find(procfs, path string) (folder, error) {
	root, err := foreign.Root(procfs, 1)
	if err != nil {
		return folder{}, err
	}
	defer root.Close()
	f := folder{}
	if f.path, err = root.Real(path); err != nil {
		return folder{}, err
	}
	s, err := root.Stat(f.path, foreign.InRoot)
	if err == nil && s.Mode&unix.S_IFMT == unix.S_IFBLK {
		f.device = fmt.Sprintf("%d:%d", unix.Major(s.Rdev), unix.Minor(s.Rdev))
	}
	return f, err
}

// keep forgets all folders but those of these volumes.
func (f *folders) keep(identities []Identity) {
	known, missing := map[string]folder{}, map[string]time.Time{}
	for _, i := range identities {
		if found, ok := f.known[i.Directory]; ok {
			known[i.Directory] = found
		}
		if at, ok := f.missing[i.Directory]; ok {
			missing[i.Directory] = at
		}
	}
	f.known, f.missing = known, missing
}
