package soak

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// lockFile is locked while a soak runs on its folder. The kernel frees it when the soak ends, however that is. Reading does not need it.
const lockFile = "soak.lock"

// lockFolder keeps other soaks from a folder until the file is closed.
func lockFolder(folder string) (*os.File, error) {
	path := filepath.Join(folder, lockFile)
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	switch err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); {
	case err == nil:
		return f, nil
	case errors.Is(err, unix.EWOULDBLOCK):
		err = fmt.Errorf("%s: another soak runs on this folder", folder)
		return nil, errors.Join(err, f.Close())
	default:
		return nil, errors.Join(fmt.Errorf("%s: it cannot be locked: %w", path, err), f.Close())
	}
}
