package volume

import (
	"errors"
	"fmt"
	"time"

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
	known   map[string]string
	missing map[string]time.Time
}

func newFolders(procfs string) *folders {
	return &folders{procfs, foreign.NewCalls(folderPatience, folderHanging), map[string]string{}, map[string]time.Time{}}
}

// locate puts the place of i's folder for the folder, with all links followed on the host, if that is what tells where the volume is. A folder that is
// not there, or may not be asked for, stays as it is written.
func (f *folders) locate(i Identity, t *Tables) (Identity, error) {
	path := i.Directory
	switch {
	case path == "", i.Kubelet != "" && len(t.kubelet(i.Plugin, i.Kubelet)) > 0:
		return i, nil
	case i.InUse && len(i.in(t)) > 0: // what a container has as a mount is no link
		return i, nil
	case i.elsewhere && time.Since(f.missing[path]) < missingFor:
		return i, nil
	}
	real, err := foreign.Ask(f.calls, path, func() (string, error) {
		root, err := foreign.Root(f.procfs, 1)
		if err != nil {
			return "", err
		}
		defer root.Close()
		return root.Real(path)
	})
	late := errors.Is(err, foreign.ErrUnanswered) || errors.Is(err, foreign.ErrTooMany)
	switch {
	case late && f.known[path] == "":
		return i, fmt.Errorf("its folder %s: %w", foreign.Path(path), err)
	case late:
		i.Directory = f.known[path]
	case err != nil:
		delete(f.known, path)
		f.missing[path] = time.Now()
	default:
		delete(f.missing, path)
		f.known[path], i.Directory = real, real
	}
	return i, nil
}

// keep forgets all folders but those of these volumes.
func (f *folders) keep(identities []Identity) {
	known, missing := map[string]string{}, map[string]time.Time{}
	for _, i := range identities {
		if real, ok := f.known[i.Directory]; ok {
			known[i.Directory] = real
		}
		if at, ok := f.missing[i.Directory]; ok {
			missing[i.Directory] = at
		}
	}
	f.known, f.missing = known, missing
}
