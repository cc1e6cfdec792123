package server

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/plumbline/plumbline/exporters/agent/untrusted"
	"github.com/plumbline/plumbline/exporters/agent/volume"
)

const (
	// maxVersionFile bounds the file that a server writes its version to.
	maxVersionFile = 256
	// maxOpenFiles bounds how many of a process's open files are read, by their numbers.
	maxOpenFiles = 8192
)

// readFiles finds the data directory and the devices under it and under the log. All
// engines make the data directory their working directory.
func (p process) readFiles(s *Server) error {
	p.mounts = map[uint64]volume.Mount{} // a server's files are on few, and a table may be long
	directory, err := os.Readlink(filepath.Join(p.dir, "cwd"))
	if err != nil {
		return fmt.Errorf("working directory: %w", err)
	}
	data, err := untrusted.WorkingDirectory(p.root, p.pid)
	if err != nil {
		return fmt.Errorf("working directory: %w", err)
	}
	defer data.Close()
	k := kinds[s.DBSystem]
	if is, err := k.isDataDirectory(data, directory); !is || err != nil {
		return err
	}
	s.DataDirectory, s.DataPath = untrusted.Path(directory), directory
	if k.variant != nil {
		s.DBSystem = k.variant(p, s, data)
	}
	if k.internal != nil {
		s.addInternal(k.internal(p, s, data))
	}
	s.Version = k.version(p, data)
	here, err := data.File(".", untrusted.NoLinks)
	if err != nil {
		return fmt.Errorf("data directory: %w", err)
	}
	s.Data = p.storageOf(here, directory)
	s.Owned = here.Uid == p.user || here.Uid == 0
	s.DataID = dataID(data, here, directory)
	if k.name != nil && s.Name == "" {
		s.Name = untrusted.Text(k.name(p, s, data), untrusted.MaxLabel)
	}
	var noLog, noBinlog, noTablespaces error
	if s.WAL, noLog = k.log(p, s, data); noLog != nil {
		noLog = fmt.Errorf("log: %w", noLog)
	} else if s.WAL.Mount.Device == "" {
		s.WAL = s.Data
	}
	if k.binlog != nil {
		if s.Binlog, noBinlog = k.binlog(p); noBinlog != nil {
			noBinlog = fmt.Errorf("binary log: %w", noBinlog)
		}
	}
	if k.tablespaces != nil {
		if s.Tablespaces, noTablespaces = k.tablespaces(p, s, data); noTablespaces != nil {
			noTablespaces = fmt.Errorf("tablespaces: %w", noTablespaces)
		}
	}
	return errors.Join(noLog, noBinlog, noTablespaces)
}

// dataID returns a server's DataID. Device numbers change with each attachment; a file system's own number and the
// directory's do not, and if the former is a device number in disguise, the time when the directory was made.
func dataID(data *untrusted.Dir, here untrusted.File, path string) string {
	fs, err := data.Filesystem()
	if err != nil {
		return ""
	}
	own := fmt.Sprintf("%x", fs.Fsid.Val)
	if isDeviceNumber(fs.Fsid, here.Dev) {
		if born := data.Born(); born != 0 {
			own = fmt.Sprintf("born %d", born)
		}
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %d %s", own, here.Ino, path))
	return hex.EncodeToString(sum[:16])
}

// isDeviceNumber reports whether a file system's number is that of its device, as XFS and F2FS have it: the kernel's
// encoding (include/linux/kdev_t.h, huge_encode_dev).
func isDeviceNumber(id unix.Fsid, device uint64) bool {
	major, minor := unix.Major(device), unix.Minor(device)
	return id.Val[1] == 0 && uint32(id.Val[0]) == minor&0xff|major<<8|minor&^0xff<<12
}

// isDataDirectory reports whether a server's working directory is its data directory, which it may become yet.
func (k kind) isDataDirectory(data *untrusted.Dir, path string) (bool, error) {
	if len(k.markers) == 0 {
		return path != "/", nil
	}
	var problem error
	for _, name := range k.markers {
		m, err := data.Stat(name, untrusted.NoLinks)
		switch {
		case errors.Is(err, os.ErrNotExist): // not there yet, or elsewhere
		case err != nil:
			return false, fmt.Errorf("data directory: %w", err)
		case m.Mode&unix.S_IFMT != unix.S_IFREG && m.Mode&unix.S_IFMT != unix.S_IFDIR:
			problem = fmt.Errorf("data directory: %s: %w", name, untrusted.ErrNotRegular)
		default:
			return true, nil
		}
	}
	return false, problem
}

// apart reports whether the process sees other files than PID 1 and the agent do.
func (p process) apart() bool {
	if root, err := os.Readlink(filepath.Join(p.dir, "root")); err != nil || root != "/" {
		return err == nil
	}
	mounts, err := os.Readlink(filepath.Join(p.dir, "ns/mnt"))
	if err != nil {
		return false // nothing is known of others
	}
	for _, other := range []string{"1", "self"} {
		if same, err := os.Readlink(filepath.Join(p.root, other, "ns/mnt")); err == nil && same == mounts {
			return false
		}
	}
	return true
}

// versionIn returns the version that the first of these files of the data directory holds, or "".
func (p process) versionIn(data *untrusted.Dir, names ...string) string {
	for _, name := range names {
		text := p.headOf(data, name, maxVersionFile+1)
		if v := untrusted.Version(text); v != "" && len(text) <= maxVersionFile {
			return v
		}
	}
	return ""
}

// headOf returns the first bytes of a file of the data directory, or "": only of a regular file that belongs to the
// server or to root.
func (p process) headOf(data *untrusted.Dir, name string, limit int) string {
	f, stat, err := data.Open(name, untrusted.NoLinks)
	if err != nil {
		return ""
	}
	defer f.Close()
	if !slices.Contains([]uint32{0, p.user}, stat.Uid) {
		return ""
	}
	text, err := io.ReadAll(io.LimitReader(f, int64(limit)))
	if err != nil {
		return ""
	}
	return string(text)
}

// openLog returns where the first of the process's open files is whose name is a log's.
func (p process) openLog(isLog func(name string) bool) (log Storage, err error) {
	err = p.openFiles(func(link, target string) bool {
		if isLog(filepath.Base(target)) {
			log, _ = p.openFile(link, target)
		}
		return log.Mount.Device == ""
	})
	return log, err
}

// openFile returns where the folder of an open file is, if it is a regular one.
func (p process) openFile(link, target string) (Storage, bool) {
	f, err := untrusted.FileMagic(link)
	if err != nil || f.Mode&unix.S_IFMT != unix.S_IFREG {
		return Storage{}, false
	}
	return p.storageOf(f, filepath.Dir(target)), true
}

// maxTablespaces bounds the places of one server's tablespaces, and maxLinks how many tablespaces are read.
const (
	maxTablespaces = 16
	maxLinks       = 1024
)

// addPlace adds where a tablespace is, if it is not known yet; room reports whether there is room for more.
func addPlace(all []Storage, one Storage) (more []Storage, room bool) {
	if one.Mount.Device != "" && !slices.Contains(all, one) {
		all = append(all, one)
	}
	return all, len(all) < maxTablespaces
}

// linked returns where a folder of the data directory is that may be on another volume: a link leads there, or that volume
// is mounted on it. The link is the server's own; it must lead to a folder of the server's, so that it reveals nothing of
// others. ok reports that there is a link or a mount.
func (p process) linked(s *Server, data *untrusted.Dir, name string) (at Storage, ok bool, err error) {
	target, err := data.Readlink(name)
	if err != nil {
		f, err := data.File(name, untrusted.NoLinks)
		if errors.Is(err, os.ErrNotExist) {
			return at, false, nil
		}
		if err != nil {
			return at, false, err
		}
		if at = p.storageOf(f, filepath.Join(s.DataPath, name)); at.Mount == s.Data.Mount {
			return Storage{}, false, nil // a plain folder
		}
		return at, true, nil
	}
	from, how, path := data, untrusted.NoSymlinks, filepath.Join(s.DataPath, filepath.Dir(name), target)
	if filepath.IsAbs(target) {
		// The path is one of the server's file system view, and so are links in it.
		root, err := untrusted.Root(p.root, p.pid)
		if err != nil {
			return at, true, err
		}
		defer root.Close()
		from, how = root, untrusted.InRoot
		if path, err = root.Real(target); err != nil {
			return at, true, err
		}
	} else {
		target = filepath.Join(filepath.Dir(name), target)
	}
	f, err := from.File(target, how)
	if err != nil {
		return at, true, err
	}
	if f.Mode&unix.S_IFMT != unix.S_IFDIR || f.Uid != p.user {
		return at, true, fmt.Errorf("%s: not a folder of the server's user", untrusted.Path(target))
	}
	return p.storageOf(f, path), true, nil
}

// openFiles calls f with the magic link of each of the process's open files, and what it is
// called, until f returns false.
func (p process) openFiles(f func(link, target string) bool) error {
	name := filepath.Join(p.dir, "fd")
	dir, err := os.Open(name)
	if err != nil {
		return err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(maxOpenFiles)
	if len(names) == 0 && err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	for _, n := range names {
		link := filepath.Join(name, n)
		target, err := os.Readlink(link)
		if err != nil {
			continue // closed meanwhile
		}
		if !f(link, target) {
			break
		}
	}
	return nil
}

// storageOf returns where a file is that the process sees by a path: by the kernel's number of the mount. Without it
// the number of the file's device is as good as it is where file systems have none of their own.
func (p process) storageOf(f untrusted.File, path string) Storage {
	m, known := p.mounts[f.Mount]
	var err error
	if !known {
		m, err = volume.MountOf(p.root, p.pid, f.Mount)
	}
	if err == nil && p.mounts != nil {
		p.mounts[f.Mount] = m
	}
	if err != nil {
		return Storage{Mount: volume.Mount{Device: fmt.Sprintf("%d:%d", unix.Major(f.Dev), unix.Minor(f.Dev))}}
	}
	place, _ := m.At(path)
	return Storage{m, place}
}
