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

// readFiles finds the data directory and the devices under it and under the log. Both
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
	marker, log := "PG_VERSION", p.postgresLog
	if s.Engine != PostgreSQL {
		marker, log = "ibdata1", p.redoLog
	}
	m, err := data.Stat(marker, foreign.NoLinks)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil // not there yet
	case err != nil:
		return fmt.Errorf("data directory: %w", err)
	case m.Mode&unix.S_IFMT != unix.S_IFREG:
		return fmt.Errorf("data directory: %s: %w", marker, foreign.ErrNotRegular)
	}
	s.DataDirectory, s.DataPath = foreign.Path(directory), directory
	s.Version = p.version(data, s.Engine)
	here, err := data.Stat(".", foreign.NoLinks)
	if err != nil {
		return fmt.Errorf("data directory: %w", err)
	}
	s.Data, s.DataSource = p.deviceOf(here)
	s.Apart, s.Owned = p.apart(), here.Uid == p.user || here.Uid == 0
	if fs, err := data.Filesystem(); err == nil {
		// Device numbers change with each attachment; the file system's own number and the directory's do not.
		sum := sha256.Sum256(fmt.Appendf(nil, "%x %d %s", fs.Fsid.Val, here.Ino, directory))
		s.DataID = hex.EncodeToString(sum[:4])
	}
	if s.Engine == PostgreSQL && s.Name == "" {
		s.Name = foreign.Text(p.configuredName(data, s), foreign.MaxLabel)
	}
	if s.WAL, s.WALSource, err = log(data); err != nil {
		return fmt.Errorf("log: %w", err)
	}
	if s.WAL == "" {
		s.WAL, s.WALSource = s.Data, s.DataSource
	}
	return nil
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

// version reads what the server wrote into its data directory: PostgreSQL's major version,
// MySQL's and MariaDB's full one. It is a number or nothing: only a regular file that belongs
// to the server or to root is read, and only what is a version is taken from it.
func (p process) version(data *foreign.Dir, engine Engine) string {
	files := []string{"PG_VERSION"}
	if engine != PostgreSQL {
		files = []string{"mariadb_upgrade_info", "mysql_upgrade_info"}
	}
	for _, name := range files {
		f, stat, err := data.Open(name, foreign.NoLinks)
		if err != nil {
			continue
		}
		var text []byte
		if slices.Contains([]uint32{0, p.user}, stat.Uid) {
			text, err = foreign.ReadAll(f, maxVersionFile)
		}
		f.Close()
		if v := foreign.Version(string(text)); err == nil && v != "" {
			return v
		}
	}
	return ""
}

// postgresLog returns the device under pg_wal, which may be a link to another volume. The link
// is the server's own; it must lead to a folder of the server's, so that it tells nothing of
// others.
func (p process) postgresLog(data *foreign.Dir) (device, source string, err error) {
	target, err := data.Readlink("pg_wal")
	if err != nil {
		return "", "", nil // a plain folder
	}
	from, how := data, foreign.NoSymlinks
	if filepath.IsAbs(target) {
		// The path is one of the server's file system view, and so are links in it.
		root, err := foreign.Root(p.root, p.pid)
		if err != nil {
			return "", "", err
		}
		defer root.Close()
		from, how = root, foreign.InRoot
	}
	stat, err := from.Stat(target, how)
	if err != nil {
		return "", "", err
	}
	if stat.Mode&unix.S_IFMT != unix.S_IFDIR || stat.Uid != p.user {
		return "", "", fmt.Errorf("%s: not a folder of the server's user", foreign.Path(target))
	}
	device, source = p.deviceOf(stat)
	return device, source, nil
}

// redoLog returns the device under InnoDB's redo log: the file that the server has open.
func (p process) redoLog(*foreign.Dir) (device, source string, err error) {
	err = p.openFiles(func(link, target string) bool {
		base := filepath.Base(target)
		if !strings.HasPrefix(base, "ib_logfile") && !strings.HasPrefix(base, "#ib_redo") {
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

// deviceOf returns the number of the device that a file lies on and, for file systems with
// an anonymous number such as btrfs, where the process's mount table says they come from.
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
		if len(fields) > number && len(rest) > 1 && fields[number] == device {
			source = rest[1]
		}
		return true
	})
	return device, source
}
