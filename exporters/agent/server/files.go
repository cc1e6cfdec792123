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
	"strings"

	"golang.org/x/sys/unix"

	"github.com/plumbline/plumbline/exporters/agent/foreign"
	"github.com/plumbline/plumbline/exporters/exporterkit/disk"
)

const (
	// maxVersionFile bounds the file that a server writes its version to.
	maxVersionFile = 256
	// maxMountTable bounds a process's mount table; a process may mount what it likes in a
	// namespace of its own.
	maxMountTable = 4 << 20
	// maxOpenFiles bounds how many of a process's open files are looked at, by their numbers.
	maxOpenFiles = 8192
)

// readFiles finds the data directory and the devices under it and under the log. All
// engines make the data directory their working directory.
func (p process) readFiles(s *Server) error {
	directory, err := os.Readlink(filepath.Join(p.dir, "cwd"))
	if err != nil {
		return fmt.Errorf("working directory: %w", err)
	}
	data, err := foreign.WorkingDirectory(p.root, p.pid)
	if err != nil {
		return fmt.Errorf("working directory: %w", err)
	}
	defer data.Close()
	k := kinds[s.Engine]
	if is, err := k.isDataDirectory(data, directory); !is || err != nil {
		return err
	}
	s.DataDirectory, s.DataPath = foreign.Path(directory), directory
	s.Version = k.version(p, data)
	here, err := data.Stat(".", foreign.NoLinks)
	if err != nil {
		return fmt.Errorf("data directory: %w", err)
	}
	s.Data, s.DataSource = p.deviceOf(here)
	s.Owned = here.Uid == p.user || here.Uid == 0
	if fs, err := data.Filesystem(); err == nil {
		// Device numbers change with each attachment; the file system's own number and the directory's do not.
		sum := sha256.Sum256(fmt.Appendf(nil, "%x %d %s", fs.Fsid.Val, here.Ino, directory))
		s.DataID = hex.EncodeToString(sum[:16])
	}
	if k.name != nil && s.Name == "" {
		s.Name = foreign.Text(k.name(p, s, data), foreign.MaxLabel)
	}
	if s.WAL, s.WALSource, err = k.log(p, data); err != nil {
		return fmt.Errorf("log: %w", err)
	}
	if s.WAL == "" {
		s.WAL, s.WALSource = s.Data, s.DataSource
	}
	return nil
}

// isDataDirectory tells whether a server's working directory is its data directory, which it may become yet.
func (k kind) isDataDirectory(data *foreign.Dir, path string) (bool, error) {
	if k.marker == "" {
		return path != "/", nil
	}
	m, err := data.Stat(k.marker, foreign.NoLinks)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return false, nil // not there yet
	case err != nil:
		return false, fmt.Errorf("data directory: %w", err)
	case m.Mode&unix.S_IFMT != unix.S_IFREG:
		return false, fmt.Errorf("data directory: %s: %w", k.marker, foreign.ErrNotRegular)
	}
	return true, nil
}

// apart tells whether the process sees other files than PID 1 and the agent do.
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
func (p process) versionIn(data *foreign.Dir, names ...string) string {
	for _, name := range names {
		text := p.headOf(data, name, maxVersionFile+1)
		if v := foreign.Version(text); v != "" && len(text) <= maxVersionFile {
			return v
		}
	}
	return ""
}

// headOf returns the first bytes of a file of the data directory, or "": only of a regular file that belongs to the server or to
// root.
func (p process) headOf(data *foreign.Dir, name string, limit int) string {
	f, stat, err := data.Open(name, foreign.NoLinks)
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

// openLog returns the device under the first of the process's open files whose name is a log's.
func (p process) openLog(isLog func(name string) bool) (device, source string, err error) {
	err = p.openFiles(func(link, target string) bool {
		if !isLog(filepath.Base(target)) {
			return true
		}
		stat, err := foreign.StatMagic(link)
		if err != nil || stat.Mode&unix.S_IFMT != unix.S_IFREG {
			return true
		}
		device, source = p.deviceOf(stat)
		return false
	})
	return device, source, err
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

// deviceOf returns the number of the device that a file lies on and, if that is an anonymous one of a file system whose source tells the device, where the
// process's mount table says that it comes from.
func (p process) deviceOf(s unix.Stat_t) (device, source string) {
	device = fmt.Sprintf("%d:%d", unix.Major(s.Dev), unix.Minor(s.Dev))
	if unix.Major(s.Dev) != 0 {
		return device, ""
	}
	// A table that cannot be read leaves the source unknown.
	_ = foreign.Lines(filepath.Join(p.dir, "mountinfo"), maxMountTable, func(line string) bool {
		const number = 2
		before, after, _ := strings.Cut(line, " - ")
		fields, rest := strings.Fields(before), strings.Fields(after)
		if len(fields) > number && len(rest) > 1 && fields[number] == device && disk.SourceTells(rest[0]) {
			source = rest[1]
		}
		return true
	})
	return device, source
}
