package soak

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/plumbline/plumbline/loadgen/internal/flock"
)

// lockFile is locked while a soak runs on its folder. Reading does not need it.
const lockFile = "soak.lock"

// lockFolder keeps other soaks from a folder until unlock. unlocked is why it does not: the file system has no locks.
func lockFolder(folder string) (f *os.File, unlocked, err error) {
	path := filepath.Join(folder, lockFile)
	if f, err = os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644); err != nil {
		return nil, nil, err
	}
	unlocked, err = flock.Lock(f)
	switch {
	case err == nil && unlocked == nil:
		return f, nil, nil
	case err == nil:
		return f, fmt.Errorf("%s: %w", path, unlocked), nil
	case errors.Is(err, flock.ErrHeld):
		err = fmt.Errorf("%s: another soak runs on this folder", folder)
	default:
		err = fmt.Errorf("%s: it cannot be locked: %w", path, err)
	}
	return nil, nil, errors.Join(err, f.Close())
}

// unlock frees a folder.
func unlock(f *os.File) error { return errors.Join(flock.Unlock(f), f.Close()) }
