package outfile

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/plumbline/plumbline/loadgen/internal/flock"
)

var (
	errAtWork = errors.New("another loadgen is at work on it")
	errOwner  = errors.New("its owner would change")

	// busyTimeout is for how long another loadgen may be at work on a file.
	busyTimeout = 10 * time.Second
)

// pause is the time between two tries to make the temporary file.
const pause = 50 * time.Millisecond

// beside makes the temporary file that takes the place of what is there when it is whole. Its name is always the same,
// so that what a killed loadgen left is taken away by the next one; a lock, as long as the file is open, distinguishes
// that from what another one is at work on.
func (p place) beside() (*os.File, error) {
	folder, base := filepath.Split(p.path)
	name := filepath.Join(folder, "."+base+".loadgen-tmp")
	mode := fs.FileMode(0o600) // until it is dressed
	if p.was == nil && p.mode == 0 {
		mode = 0o666 // less the umask
	}
	for until := time.Now().Add(busyTimeout); ; time.Sleep(pause) {
		file, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
		switch {
		case err == nil && locked(file):
			return file, nil
		case err == nil:
			file.Close()
			err = errAtWork
		case errors.Is(err, fs.ErrExist):
			err = leftover(name)
		}
		if err != nil && (!errors.Is(err, errAtWork) || time.Now().After(until)) {
			return nil, err
		}
	}
}

// leftover takes away the temporary file of a loadgen that was killed. What is somebody else's stays, and no link is
// followed.
func leftover(name string) error {
	info, err := os.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if uid, _ := owner(info); !info.Mode().IsRegular() || uid != os.Geteuid() {
		return fmt.Errorf("%s is in the way, and not loadgen's", name)
	}
	file, err := reopen(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer file.Close()
	if !locked(file) {
		return fmt.Errorf("%w: %s", errAtWork, name)
	}
	return os.Remove(name)
}

// reopen opens an own file for writing, for NFS locks no other. One that has got the mode of a file that nobody may
// write to gets another.
func reopen(name string) (*os.File, error) {
	const unfollowed = syscall.O_NOFOLLOW | syscall.O_NONBLOCK
	file, err := os.OpenFile(name, os.O_RDWR|unfollowed, 0)
	if !errors.Is(err, fs.ErrPermission) {
		return file, err
	}
	if file, err = os.OpenFile(name, os.O_RDONLY|unfollowed, 0); err != nil {
		return nil, err
	}
	if err := errors.Join(file.Chmod(0o600), file.Close()); err != nil {
		return nil, err
	}
	return os.OpenFile(name, os.O_RDWR|unfollowed, 0)
}

// locked locks an open file. It returns false if another loadgen has the lock, or has removed the file's name. A file
// whose lock fails otherwise, as where there are none, is still written: that is logged.
func locked(file *os.File) bool {
	unlocked, err := flock.Lock(file)
	if errors.Is(err, flock.ErrHeld) {
		return false
	}
	if err = cmp.Or(err, unlocked); err != nil {
		warnUnlocked(file.Name(), err)
	}
	open, err := file.Stat()
	if err != nil {
		return false
	}
	named, err := os.Lstat(file.Name())
	return err == nil && os.SameFile(open, named)
}

// warned are the files for which warnUnlocked logged that they are not locked.
var warned sync.Map

// warnUnlocked logs once for each file that it is not locked.
func warnUnlocked(name string, err error) {
	if _, before := warned.LoadOrStore(name, true); !before {
		slog.Warn("a file is written without a lock, so that nothing keeps another loadgen from writing it, too", "file", name, "err", err)
	}
}

// dress gives the temporary file the owner and the mode of what it is to replace. An owner that it cannot have is an
// error.
func (p place) dress(file *os.File) error {
	if p.was != nil {
		made, err := file.Stat()
		if err != nil {
			return err
		}
		uid, gid := owner(p.was)
		if u, g := owner(made); u != uid || g != gid {
			if err := file.Chown(uid, gid); err != nil {
				return fmt.Errorf("%w: %w", errOwner, err)
			}
		}
	}
	if p.was != nil || p.mode != 0 {
		_ = file.Chmod(p.mode) // some file systems have no modes
	}
	return nil
}

// owner returns a file's user and group; -1 if they are not known.
func owner(info fs.FileInfo) (uid, gid int) {
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		return int(stat.Uid), int(stat.Gid)
	}
	return -1, -1
}
