// Package untrusted reads what other processes own: their files, and what procfs shows of their
// memory. What another process can write is untrusted, and what is on a file system can
// hang with it. So every such read of the agent goes through this package:
//
//   - A path is resolved within the process's own root or directory, without magic links; a
//     file is opened only after it is known to be a regular one, so that no device, FIFO or
//     socket is touched.
//   - Every read is bounded in length, and every call in time: see Calls.
//   - What is read is validated for what it must look like, see text.go, before it becomes a
//     label or a line of a log.
package untrusted

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/plumbline/plumbline/exporters/exporterkit/disk"
)

// ErrNotRegular is the error of opening something that is no regular file.
var ErrNotRegular = errors.New("not a regular file")

// ErrTooLong is the error of reading more than was allowed for.
var ErrTooLong = errors.New("longer than allowed")

// MaxComm is how many bytes the kernel keeps of a process's name (/proc/PID/comm).
const MaxComm = 15

// maxLine bounds a line of procfs: a mount has two paths of a page each, escaped.
const maxLine = 64 << 10

// Dir is a directory of another process's view: its root, or its working directory.
type Dir struct {
	file *os.File
	name string
}

// Root opens the root directory of a process.
func Root(procfs string, pid int) (*Dir, error) { return openDir(procfs, pid, "root") }

// WorkingDirectory opens the working directory of a process.
func WorkingDirectory(procfs string, pid int) (*Dir, error) { return openDir(procfs, pid, "cwd") }

func openDir(procfs string, pid int, link string) (*Dir, error) {
	name := filepath.Join(procfs, strconv.Itoa(pid), link)
	file, err := os.OpenFile(name, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return &Dir{file, name}, nil
}

// Close gives the directory back.
func (d *Dir) Close() error { return d.file.Close() }

// Resolution selects which links are followed on the way to a file.
type Resolution uint64

const (
	// NoLinks refuses symbolic links anywhere below the directory, and paths that leave it.
	NoLinks Resolution = unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS
	// NoSymlinks refuses symbolic links, but lets a path leave the directory by "..".
	NoSymlinks Resolution = unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS
	// InRoot follows symbolic links with the directory as the root of all paths, as the process
	// itself does; magic links such as /proc/self/exe are refused.
	InRoot Resolution = unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS
)

// openPath opens a file of any kind without touching it.
func (d *Dir) openPath(path string, how Resolution) (*os.File, error) {
	fd, err := unix.Openat2(int(d.file.Fd()), path, &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: uint64(how)})
	if err != nil {
		return nil, &os.PathError{Op: "openat2", Path: Text(filepath.Join(d.name, path), maxPath), Err: err}
	}
	return os.NewFile(uintptr(fd), path), nil
}

// Stat returns the file system's attributes of a file of any kind.
func (d *Dir) Stat(path string, how Resolution) (unix.Stat_t, error) {
	var s unix.Stat_t
	f, err := d.openPath(path, how)
	if err != nil {
		return s, err
	}
	defer f.Close()
	return s, unix.Fstat(int(f.Fd()), &s)
}

// File is what the kernel reports of a file of any kind.
type File struct {
	unix.Stat_t
	// Mount is the kernel's number of the mount that the file is seen through, as in the first field of mountinfo; 0 if
	// it is not known.
	Mount uint64
}

// File returns what the kernel reports of a file of any kind, and the mount that it is seen through.
func (d *Dir) File(path string, how Resolution) (File, error) {
	f, err := d.openPath(path, how)
	if err != nil {
		return File{}, err
	}
	defer f.Close()
	return fileOf(f)
}

// FileMagic is File for the file behind a magic link of procfs, such as /proc/PID/fd/3. It does not touch the file.
func FileMagic(link string) (File, error) {
	f, err := os.OpenFile(link, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return File{}, err
	}
	defer f.Close()
	return fileOf(f)
}

func fileOf(f *os.File) (File, error) {
	var file File
	err := unix.Fstat(int(f.Fd()), &file.Stat_t)
	file.Mount = disk.MountOf(int(f.Fd()))
	return file, err
}

// Born returns when the directory was made, in nanoseconds since 1970; 0 if its file system does not keep that.
func (d *Dir) Born() int64 {
	var s unix.Statx_t
	err := unix.Statx(int(d.file.Fd()), "", unix.AT_EMPTY_PATH|unix.AT_STATX_DONT_SYNC, unix.STATX_BTIME, &s)
	if err != nil || s.Mask&unix.STATX_BTIME == 0 {
		return 0
	}
	return s.Btime.Sec*1e9 + int64(s.Btime.Nsec)
}

// Filesystem returns what is known of the file system that the directory is on.
func (d *Dir) Filesystem() (unix.Statfs_t, error) {
	var s unix.Statfs_t
	return s, unix.Fstatfs(int(d.file.Fd()), &s)
}

// Names returns the names in a directory, limit of them at the most.
func (d *Dir) Names(path string, how Resolution, limit int) ([]string, error) {
	f, err := d.openPath(path, how)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	opened, err := os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", f.Fd()), unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer opened.Close()
	names, err := opened.Readdirnames(limit)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return names, err
}

// Open opens a regular file for reading.
func (d *Dir) Open(path string, how Resolution) (*os.File, unix.Stat_t, error) {
	var s unix.Stat_t
	f, err := d.openPath(path, how)
	if err != nil {
		return nil, s, err
	}
	defer f.Close()
	return reopen(f, filepath.Join(d.name, path))
}

// Readlink returns where a symbolic link leads, as it is written.
func (d *Dir) Readlink(name string) (string, error) {
	target := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(int(d.file.Fd()), name, target)
	if err != nil {
		return "", &os.PathError{Op: "readlink", Path: Text(filepath.Join(d.name, name), maxPath), Err: err}
	}
	return string(target[:n]), nil
}

// Device returns the attributes of a name in the agent's own /dev. Links are followed within /dev. Other file systems
// mounted there, such as /dev/shm, are not opened.
func Device(name string) (unix.Stat_t, error) {
	dev, err := os.OpenFile("/dev", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return unix.Stat_t{}, err
	}
	return device(dev, name)
}

// HostDevice is Device in the /dev of the process 1 of a procfs, which is the host's where the agent is in a container.
func HostDevice(procfs, name string) (unix.Stat_t, error) {
	root, err := Root(procfs, 1)
	if err != nil {
		return unix.Stat_t{}, err
	}
	defer root.Close()
	dev, err := root.openPath("dev", NoLinks)
	if err != nil {
		return unix.Stat_t{}, err
	}
	return device(dev, name)
}

// OpenDisk opens a block device of HostDevice's /dev, or else of Device's, for asking its driver; number is its device
// number, as major:minor, without which it is another one.
func OpenDisk(procfs, name, number string) (*os.File, error) {
	var problems []error
	for _, dev := range []string{filepath.Join(procfs, "1", "root", "dev"), "/dev"} {
		f, err := openDisk(dev, name, number)
		if err == nil {
			return f, nil
		}
		problems = append(problems, err)
	}
	return nil, errors.Join(problems...)
}

func openDisk(dev, name, number string) (*os.File, error) {
	folder, err := os.OpenFile(dev, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer folder.Close()
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS | unix.RESOLVE_NO_XDEV}
	fd, err := unix.Openat2(int(folder.Fd()), name, &how)
	if err != nil {
		return nil, &os.PathError{Op: "openat2", Path: Text(filepath.Join(dev, name), maxPath), Err: err}
	}
	node := os.NewFile(uintptr(fd), name)
	defer node.Close()
	var s unix.Stat_t
	if err := unix.Fstat(fd, &s); err != nil {
		return nil, err
	}
	if s.Mode&unix.S_IFMT != unix.S_IFBLK || fmt.Sprintf("%d:%d", unix.Major(s.Rdev), unix.Minor(s.Rdev)) != number {
		return nil, fmt.Errorf("%s is not the block device %s", Text(filepath.Join(dev, name), maxPath), number)
	}
	return os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", fd), unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
}

func device(dev *os.File, name string) (unix.Stat_t, error) {
	d := &Dir{dev, "/dev"}
	defer d.Close()
	return d.Stat(name, unix.RESOLVE_BENEATH|unix.RESOLVE_NO_MAGICLINKS|unix.RESOLVE_NO_XDEV)
}

// OpenMagic opens the regular file behind a magic link of procfs, such as /proc/PID/exe, whose
// target the process had open or mapped itself.
func OpenMagic(link string) (*os.File, unix.Stat_t, error) {
	f, err := os.OpenFile(link, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, unix.Stat_t{}, err
	}
	defer f.Close()
	return reopen(f, link)
}

// reopen opens the very file that an O_PATH descriptor refers to, if it is a regular one.
func reopen(f *os.File, name string) (*os.File, unix.Stat_t, error) {
	var s unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &s); err != nil {
		return nil, s, &os.PathError{Op: "stat", Path: Text(name, maxPath), Err: err}
	}
	if s.Mode&unix.S_IFMT != unix.S_IFREG {
		return nil, s, &os.PathError{Op: "open", Path: Text(name, maxPath), Err: ErrNotRegular}
	}
	opened, err := os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", f.Fd()), unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, s, err
	}
	return opened, s, nil
}

// ReadFile returns a regular file's content, which may be limit bytes long at the most.
func (d *Dir) ReadFile(path string, how Resolution, limit int) ([]byte, error) {
	f, _, err := d.Open(path, how)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return ReadAll(f, limit)
}

// Processes returns the numbers of all processes that a procfs shows, the lowest first.
func Processes(procfs string) ([]int, error) {
	dir, err := os.Open(procfs)
	if err != nil {
		return nil, fmt.Errorf("procfs: %w", err)
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, fmt.Errorf("procfs: %w", err)
	}
	var pids []int
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil {
			pids = append(pids, pid)
		}
	}
	slices.Sort(pids)
	return pids, nil
}

// ReadProc returns a file of procfs itself, such as /proc/PID/cmdline, up to limit bytes; the
// rest is left out. It may wait for the process's memory: see Calls.
func ReadProc(path string, limit int) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, int64(limit)))
}

// Lines calls f with the lines of a file of procfs itself, such as /proc/PID/maps, until f
// returns false. A line longer than maxLine, and what comes after limit bytes, is an error:
// a process may have as many and as long ones as it likes.
func Lines(path string, limit int, f func(line string) bool) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	rest := &io.LimitedReader{R: file, N: int64(limit) + 1}
	lines := bufio.NewScanner(rest)
	lines.Buffer(make([]byte, 0, 16<<10), maxLine)
	for lines.Scan() {
		if rest.N == 0 {
			break
		}
		if !f(lines.Text()) {
			return nil
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if rest.N == 0 {
		return fmt.Errorf("%s: %w: over %d bytes", path, ErrTooLong, limit)
	}
	return nil
}

// ReadAll returns what a reader has, which may be limit bytes long at the most.
func ReadAll(r io.Reader, limit int) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(r, int64(limit)+1))
	if err != nil {
		return nil, err
	}
	if len(text) > limit {
		return nil, fmt.Errorf("%w: over %d bytes", ErrTooLong, limit)
	}
	return text, nil
}
