package server

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
)

// patience is how long a server's file system may take to answer. One that hangs, such as an NFS
// mount whose server is gone, must not hold up the others.
const patience = 2 * time.Second

// unanswered are the processes whose files are still being read; each is asked only once, as the
// thread that asks hangs with the file system.
var unanswered sync.Map

// readFilesInTime is readFiles within patience. Without an answer the server is as it was, and
// the error says so; once there is an answer, the next scan asks again.
func (p process) readFilesInTime(s *Server) error {
	type answer struct {
		server Server
		err    error
	}
	slow := fmt.Errorf("data directory: its file system has not answered within %s", patience)
	if _, asked := unanswered.LoadOrStore(p.dir, nil); asked {
		return slow
	}
	answers := make(chan answer, 1)
	go func(a Server) {
		err := p.readFiles(&a)
		unanswered.Delete(p.dir)
		answers <- answer{a, err}
	}(*s)
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	select {
	case a := <-answers:
		*s = a.server
		return a.err
	case <-deadline.C:
		return slow
	}
}

// readFiles finds the data directory and the devices under it and under the log. Both
// engines make the data directory their working directory.
func (p process) readFiles(s *Server) error {
	cwd := filepath.Join(p.dir, "cwd")
	directory, err := os.Readlink(cwd)
	if err != nil {
		return fmt.Errorf("working directory: %w", err)
	}
	marker, log := "PG_VERSION", p.postgresLog
	if s.Engine != PostgreSQL {
		marker, log = "ibdata1", p.redoLog
	}
	if _, err := os.Stat(filepath.Join(cwd, marker)); err != nil {
		if errors.Is(err, os.ErrNotExist) {
			return nil // not there yet
		}
		return fmt.Errorf("data directory: %w", err)
	}
	s.DataDirectory = directory
	s.Version = version(cwd, s.Engine)
	if s.Data, s.DataSource, err = p.deviceOf(cwd); err != nil {
		return fmt.Errorf("data directory: %w", err)
	}
	if s.WAL, s.WALSource, err = log(cwd); err != nil {
		return fmt.Errorf("log: %w", err)
	}
	if s.WAL == "" {
		s.WAL, s.WALSource = s.Data, s.DataSource
	}
	return nil
}

// version reads what the server wrote into its data directory: PostgreSQL's major version,
// MySQL's and MariaDB's full one.
func version(data string, engine Engine) string {
	files := []string{"PG_VERSION"}
	if engine != PostgreSQL {
		files = []string{"mariadb_upgrade_info", "mysql_upgrade_info"}
	}
	for _, name := range files {
		text, err := os.ReadFile(filepath.Join(data, name))
		if err != nil {
			continue
		}
		v, _, _ := strings.Cut(strings.TrimRight(string(text), "\x00"), "\n")
		// A file of another make must not become a label value of any length.
		if v = strings.TrimSpace(v); len(v) <= 64 {
			return v
		}
	}
	return ""
}

// postgresLog returns the device under pg_wal, which may be a link to another volume.
func (p process) postgresLog(data string) (device, source string, err error) {
	target, err := os.Readlink(filepath.Join(data, "pg_wal"))
	if err != nil {
		return "", "", nil // a plain folder
	}
	if !filepath.IsAbs(target) {
		return p.deviceOf(filepath.Join(data, target))
	}
	// The path is one of the server's file system view, and so are links in it.
	root, err := os.OpenFile(filepath.Join(p.dir, "root"), unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return "", "", err
	}
	defer root.Close()
	fd, err := unix.Openat2(int(root.Fd()), target, &unix.OpenHow{
		Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS})
	if err != nil {
		return "", "", fmt.Errorf("%s: %w", target, err)
	}
	defer unix.Close(fd)
	return p.deviceOf(fmt.Sprintf("/proc/self/fd/%d", fd))
}

// redoLog returns the device under InnoDB's redo log: the file that the server has open.
func (p process) redoLog(string) (device, source string, err error) {
	dir := filepath.Join(p.dir, "fd")
	entries, err := os.ReadDir(dir)
	if err != nil {
		return "", "", err
	}
	for _, e := range entries {
		link := filepath.Join(dir, e.Name())
		target, err := os.Readlink(link)
		if err != nil {
			continue // closed meanwhile
		}
		if base := filepath.Base(target); strings.HasPrefix(base, "ib_logfile") || strings.HasPrefix(base, "#ib_redo") {
			return p.deviceOf(link)
		}
	}
	return "", "", nil
}

// deviceOf returns the number of the device that a file lies on and, for file systems with
// an anonymous number such as btrfs, where the mount table says they come from.
func (p process) deviceOf(path string) (device, source string, err error) {
	var s unix.Stat_t
	if err := unix.Stat(path, &s); err != nil {
		return "", "", &os.PathError{Op: "stat", Path: path, Err: err}
	}
	device = fmt.Sprintf("%d:%d", unix.Major(s.Dev), unix.Minor(s.Dev))
	if unix.Major(s.Dev) != 0 {
		return device, "", nil
	}
	fs, err := procfs.NewFS(p.root)
	if err != nil {
		return device, "", nil
	}
	var pid int
	fmt.Sscan(filepath.Base(p.dir), &pid)
	proc, err := fs.Proc(pid)
	if err != nil {
		return device, "", nil
	}
	mounts, err := proc.MountInfo()
	if err != nil {
		return device, "", nil
	}
	for _, m := range mounts {
		if m.MajorMinorVer == device {
			source = m.Source
		}
	}
	return device, source, nil
}
