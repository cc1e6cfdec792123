package outfile

import (
	"cmp"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// mostLinks is through how many symbolic links a path may lead, as for the kernel.
const mostLinks = 40

// place is where a path leads.
type place struct {
	path   string      // without symbolic links
	was    fs.FileInfo // of what is there already; nil: nothing is
	mode   fs.FileMode // of what is to be there; 0, where nothing was: by the umask
	stream *os.File    // what is open there: the standard output, or that of errors
}

// device reports whether a device or a pipe is there: nothing takes its place.
func (p place) device() bool { return p.was != nil && !p.was.Mode().IsRegular() }

// replaced reports whether another file takes its place, or writes over all of it.
func (p place) replaced() bool { return p.stream == nil && !p.device() }

// find follows a path.
func find(path string) (place, error) {
	was, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		path, err = follow(path)
		return place{path: path}, err
	case err != nil:
		return place{}, err
	case was.IsDir():
		return place{}, errors.New("it is a folder")
	}
	p := place{path: path, was: was, mode: was.Mode().Perm()}
	for _, stream := range []*os.File{os.Stdout, os.Stderr} {
		if open, err := stream.Stat(); err == nil && os.SameFile(open, was) {
			p.stream = stream
			return p, nil
		}
	}
	if !p.device() {
		p.path, err = filepath.EvalSymlinks(path)
	}
	return p, err
}

// follow follows a path to where nothing is: a symbolic link may lead to what is still to be made.
func follow(path string) (string, error) {
	for range mostLinks {
		folder, name := filepath.Split(path)
		to, err := os.Readlink(path)
		if err != nil { // it is no link
			folder, err = filepath.EvalSymlinks(cmp.Or(folder, "."))
			return filepath.Join(folder, name), err
		}
		if path = to; !filepath.IsAbs(to) {
			path = folder + to
		}
	}
	return "", errors.New("it leads through too many symbolic links")
}

// over writes over what is there.
func (p place) over(whole []byte) error {
	file, err := os.OpenFile(p.path, os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		return err
	}
	_, err = file.Write(whole)
	if err == nil && !p.device() {
		err = fsync(file)
	}
	return errors.Join(err, file.Close())
}
