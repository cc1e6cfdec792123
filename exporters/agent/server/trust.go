package server

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/plumbline/plumbline/exporters/agent/untrusted"
)

// ErrUntrusted is the error of a library that may not be probed.
var ErrUntrusted = errors.New("not trusted")

// OpenTrusted opens a server's TLS library, if both the library and the server's own program are files that only root
// can have put there. A probe on a library hits every process that uses the file, so nobody else may be able to request
// one.
//
// What it returns is the very file that was checked: to be used by its descriptor, not by a
// path, which may lead elsewhere meanwhile.
func (p Programs) OpenTrusted(procfs string, pid int, l Library) (*os.File, error) {
	link := filepath.Join(newProcess(procfs, pid).dir, "exe")
	program, stat, err := untrusted.OpenMagic(link)
	if err != nil {
		return nil, fmt.Errorf("program file: %w", ended(err))
	}
	defer program.Close()
	// Any program may be started by a link with a server's name.
	name, err := os.Readlink(link)
	if err != nil {
		return nil, fmt.Errorf("program file: %w", ended(err))
	}
	if _, ok := p.OfFile(name); !ok {
		return nil, fmt.Errorf("%w: the program file %s is no database server", ErrUntrusted, untrusted.Path(name))
	}
	if err := trusted(program, stat); err != nil {
		return nil, fmt.Errorf("the program file %s: %w", untrusted.Path(name), err)
	}
	root, err := untrusted.Root(procfs, pid)
	if err != nil {
		return nil, ended(err)
	}
	defer root.Close()
	library, stat, err := root.Open(l.Path, untrusted.InRoot)
	if err != nil {
		return nil, fmt.Errorf("TLS library: %w", err)
	}
	err = trusted(library, stat)
	if err == nil {
		err = same(stat, l)
	}
	if err != nil {
		library.Close()
		return nil, fmt.Errorf("the TLS library %s: %w", untrusted.Path(l.Path), err)
	}
	return library, nil
}

// trusted reports whether only root can have written a file.
func trusted(f *os.File, s unix.Stat_t) error {
	const othersWrite = 0o022
	if s.Uid != 0 {
		return fmt.Errorf("%w: it belongs to user %d, not to root", ErrUntrusted, s.Uid)
	}
	if s.Mode&othersWrite != 0 {
		return fmt.Errorf("%w: others than its owner may write it (mode %#o)", ErrUntrusted, s.Mode&0o7777)
	}
	var fs unix.Statfs_t
	if err := unix.Fstatfs(int(f.Fd()), &fs); err != nil {
		return err
	}
	// What users may mount (FUSE, a disk of their own) has this flag: the owners it shows count
	// for nothing.
	if fs.Flags&unix.ST_NOSUID != 0 {
		return fmt.Errorf("%w: its file system is mounted nosuid, so that its owner counts for nothing", ErrUntrusted)
	}
	return nil
}

// same reports whether a file is the one that a process has mapped.
func same(s unix.Stat_t, l Library) error {
	other := fmt.Errorf("%w: it is not the file that the process has mapped", ErrUntrusted)
	if s.Ino != l.Inode {
		return other
	}
	device := fmt.Sprintf("%02x:%02x", unix.Major(s.Dev), unix.Minor(s.Dev))
	// File systems without a device of their own (overlay, btrfs) have one number for files and
	// another for mappings.
	if device != l.Device && unix.Major(s.Dev) != 0 {
		return other
	}
	return nil
}
