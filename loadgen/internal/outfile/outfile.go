// Package outfile writes files that are the outcome of hours: whole, or not at all.
package outfile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// place is where a path leads.
type place struct {
	path   string // without symbolic links
	there  bool   // there is a file already
	mode   fs.FileMode
	stream *os.File // what is open there: the standard output, or that of errors
	device bool     // or a pipe: nothing takes its place
}

// find follows a path.
func find(path string) (place, error) {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return place{path: path, mode: 0o644}, nil
	case err != nil:
		return place{}, err
	case info.IsDir():
		return place{}, errors.New("it is a folder")
	}
	p := place{path: path, there: true, mode: info.Mode().Perm(), device: !info.Mode().IsRegular()}
	for _, stream := range []*os.File{os.Stdout, os.Stderr} {
		if open, err := stream.Stat(); err == nil && os.SameFile(open, info) {
			p.stream = stream
			return p, nil
		}
	}
	if !p.device {
		p.path, err = filepath.EvalSymlinks(path)
	}
	return p, err
}

// beside makes the temporary file that takes the place of what is there when it is whole.
func (p place) beside() (*os.File, error) {
	file, err := os.CreateTemp(filepath.Dir(p.path), ".loadgen-*")
	if err == nil {
		_ = file.Chmod(p.mode) // some file systems have no modes
	}
	return file, err
}

// inPlace writes over what is there.
func (p place) inPlace(write func(io.Writer) error) error {
	file, err := os.OpenFile(p.path, os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		return err
	}
	return errors.Join(write(file), file.Close())
}

// replace puts a whole file in the place of what is there. A file that is mounted by itself can only be written over, as can one in a folder that
// takes no other.
func (p place) replace(write func(io.Writer) error) error {
	file, err := p.beside()
	if err != nil {
		if p.there {
			return p.inPlace(write)
		}
		return err
	}
	defer os.Remove(file.Name())
	if err := errors.Join(write(file), file.Sync(), file.Close()); err != nil {
		return err
	}
	err = os.Rename(file.Name(), p.path)
	if err == nil || !p.there {
		return err
	}
	return p.inPlace(func(w io.Writer) error {
		whole, err := os.Open(file.Name())
		if err != nil {
			return err
		}
		defer whole.Close()
		_, err = io.Copy(w, whole)
		return err
	})
}

// Replaces says whether a path is of a file that is replaced as a whole, so that it may be written again and again: of no stream, device or pipe.
func Replaces(path string) bool {
	p, err := find(path)
	return err == nil && p.stream == nil && !p.device
}

// Check says why a file could not be written, before hours are spent on what is to be in it. What is there stays as it is.
func Check(path string) error {
	p, err := find(path)
	if err != nil {
		return refused(path, err)
	}
	if p.stream != nil || p.device {
		return nil
	}
	file, err := p.beside()
	if err == nil {
		return refused(path, errors.Join(file.Close(), os.Remove(file.Name())))
	}
	if p.there {
		if file, err = os.OpenFile(p.path, os.O_WRONLY, 0); err == nil {
			err = file.Close()
		}
	}
	return refused(path, err)
}

// Write writes a file. It has its name only when it is whole and on the disk: until then, and if anything fails, what was there stays.
func Write(path string, write func(io.Writer) error) error {
	p, err := find(path)
	switch {
	case err != nil:
	case p.stream != nil:
		err = write(p.stream)
	case p.device:
		err = p.inPlace(write)
	default:
		err = p.replace(write)
	}
	return refused(path, err)
}

// refused names the file in an error, if it is one.
func refused(path string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s cannot be written: %w", path, err)
}
