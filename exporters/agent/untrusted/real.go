package untrusted

import (
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// maxLinks bounds how many links a path may go over; it is the kernel's own bound.
const maxLinks = 40

// Real returns where a path leads, as a path from the directory without links and "..": links are followed with the
// directory as the root of all paths, as InRoot does. What the path names must be there.
func (d *Dir) Real(path string) (string, error) {
	real, rest := "/", path
	for links := 0; rest != ""; {
		var name string
		name, rest, _ = strings.Cut(rest, "/")
		switch name {
		case "", ".":
			continue
		case "..":
			real = filepath.Dir(real)
			continue
		}
		next := filepath.Join(real, name)
		target, err := d.linkAt(next)
		switch {
		case err != nil:
			return "", err
		case target == "":
			real = next
			continue
		}
		if links++; links > maxLinks {
			return "", &os.PathError{Op: "follow", Path: Text(filepath.Join(d.name, path), maxPath), Err: unix.ELOOP}
		}
		if filepath.IsAbs(target) {
			real = "/"
		}
		rest = target + "/" + rest
	}
	return real, nil
}

// linkAt returns where the link at a path leads, as it is written; empty if there is no link, but another file. No link
// on the way is followed.
func (d *Dir) linkAt(path string) (string, error) {
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_SYMLINKS}
	fd, err := unix.Openat2(int(d.file.Fd()), path, &how)
	if err != nil {
		return "", &os.PathError{Op: "openat2", Path: Text(filepath.Join(d.name, path), maxPath), Err: err}
	}
	defer unix.Close(fd)
	var s unix.Stat_t
	if err := unix.Fstat(fd, &s); err != nil {
		return "", &os.PathError{Op: "stat", Path: Text(filepath.Join(d.name, path), maxPath), Err: err}
	}
	if s.Mode&unix.S_IFMT != unix.S_IFLNK {
		return "", nil
	}
	target := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(fd, "", target)
	if err != nil {
		return "", &os.PathError{Op: "readlink", Path: Text(filepath.Join(d.name, path), maxPath), Err: err}
	}
	return string(target[:n]), nil
}
