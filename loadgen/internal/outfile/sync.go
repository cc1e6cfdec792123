package outfile

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// fsync puts an open file or folder on the disk; a test may replace it.
var fsync = (*os.File).Sync

// SyncFolder puts the names in a folder on the disk: until then a new file, or one that has taken another's place, may
// be gone after a power cut. A folder that cannot be read, or whose file system syncs no folders, has no more than what
// its file system does by itself.
func SyncFolder(folder string) error {
	f, err := os.Open(folder)
	if errors.Is(err, os.ErrPermission) {
		return nil
	}
	if err != nil {
		return err
	}
	if err = fsync(f); errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EBADF) || errors.Is(err, errors.ErrUnsupported) {
		err = nil
	}
	return errors.Join(err, f.Close())
}
