// Package outfile writes files that are the outcome of hours: whole, or not at all.
package outfile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// File is a file that is written in another way than others.
type File struct {
	Path string
	// Mode is that of a new file, whatever the umask; 0: by the umask. A file that is there keeps its own.
	Mode fs.FileMode
	// Before is called when all of the new file is there, right before it takes the place of the old one, which stays
	// if that fails. It may be nil, and is not called for a stream, device or pipe.
	Before func() error
}

// Write writes the file. It has its name only when it is whole and on the disk: until then, and if anything fails, what
// was there stays. Only a file that cannot be replaced is written over, when all of the new one is known.
func (f File) Write(write func(io.Writer) error) error {
	p, err := find(f.Path)
	var whole bytes.Buffer
	switch {
	case err != nil:
	case p.stream != nil:
		err = write(p.stream)
	default:
		if err = write(&whole); err == nil {
			err = f.put(p, whole.Bytes())
		}
	}
	return refused(f.Path, err)
}

// put puts all of the new file in its place.
func (f File) put(p place, whole []byte) error {
	if p.device() {
		return p.over(whole)
	}
	if p.was == nil {
		p.mode = f.Mode
	}
	next, err := p.beside()
	drop := err == nil
	if err == nil {
		defer func() {
			if drop {
				os.Remove(next.Name())
			}
			next.Close() // it is on the disk already; the lock ends here
		}()
		if _, err = next.Write(whole); err == nil {
			// The mode and the owner first, so that they are on the disk, too.
			err = errors.Join(p.dress(next), fsync(next))
		}
	}
	replaced := p.was == nil || !irreplaceable(err)
	if err != nil && replaced {
		return err
	}
	if f.Before != nil {
		if err := f.Before(); err != nil {
			return err
		}
	}
	if !replaced {
		return p.over(whole)
	}
	if err := os.Rename(next.Name(), p.path); err == nil || p.was == nil || !mounted(err) {
		if drop = err != nil; drop {
			return err
		}
		return SyncFolder(filepath.Dir(p.path))
	}
	if err := p.over(whole); err != nil {
		drop = false
		return fmt.Errorf("%w; all of it is in %s until the next try", err, next.Name())
	}
	return nil
}

// irreplaceable reports whether an error means that no other file can take the place of one: the folder takes none, or
// the owner cannot be the same.
func irreplaceable(err error) bool {
	return errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS) || errors.Is(err, errOwner)
}

// mounted reports whether an error of renaming means that what is there can only be written over, as a file that is
// mounted by itself.
func mounted(err error) bool {
	return errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EBUSY)
}

// Replaces reports whether a path is of a file that is replaced as a whole, so that it may be written again and again:
// of no stream, device or pipe.
func Replaces(path string) bool {
	p, err := find(path)
	return err == nil && p.replaced()
}

// Same reports whether two paths are of one file, of which each would take the other's place.
func Same(a, b string) bool {
	p, err := find(a)
	q, otherErr := find(b)
	if err != nil || otherErr != nil || !p.replaced() || !q.replaced() {
		return false
	}
	p.path, err = filepath.Abs(p.path)
	q.path, otherErr = filepath.Abs(q.path)
	return err == nil && otherErr == nil && p.path == q.path
}

// Check returns why a file could not be written. It is called before hours of work for its content. What is there stays
// as it is.
func Check(path string) error {
	p, err := find(path)
	if err != nil || p.stream != nil || p.device() {
		return refused(path, err)
	}
	next, err := p.beside()
	if err == nil {
		err = errors.Join(p.dress(next), os.Remove(next.Name()), next.Close())
	}
	if p.was != nil && irreplaceable(err) {
		var file *os.File
		if file, err = os.OpenFile(p.path, os.O_WRONLY, 0); err == nil {
			err = file.Close()
		}
	}
	return refused(path, err)
}

// Write writes a file as File does.
func Write(path string, write func(io.Writer) error) error { return File{Path: path}.Write(write) }

// refused names the file in an error, if it is one.
func refused(path string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s cannot be written: %w", path, err)
}
