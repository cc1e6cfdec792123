package rig

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// ErrNotAllowed means that the machine does not allow to make what was requested.
var ErrNotAllowed = errors.New("not allowed on this machine")

// OwnMounts gives the calling goroutine, and the processes it starts, a mount namespace: one
// that another program makes meanwhile would keep copies of its mounts, and so its disk, busy.
func OwnMounts() error {
	runtime.LockOSThread() // and never unlock: the thread, and with it the namespace, ends with the goroutine
	if err := unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("a mount namespace: %w: %w", ErrNotAllowed, err)
	}
	return unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")
}

// SlowFiles is a file system that holds back what is read from its files, written to them and
// flushed. It keeps nothing in the page cache, so that each call on a file gets to it.
type SlowFiles struct {
	Reads, Writes, Syncs *Delay

	part   atomic.Pointer[filePart]
	halves atomic.Bool
}

// filePart is from an offset in each file up to another one.
type filePart struct{ from, to int64 }

// Only holds back only those reads and writes that touch this part of a file, from now on.
func (f *SlowFiles) Only(from, to int64) { f.part.Store(&filePart{from, to}) }

// ReadHalves has each read of a BlockSize return only its first half, from now on: the reader must read the rest again.
func (f *SlowFiles) ReadHalves(yes bool) { f.halves.Store(yes) }

// hold holds back a read or write.
func (f *SlowFiles) hold(d *Delay, off int64, length int) {
	if p := f.part.Load(); p != nil && (off >= p.to || off+int64(length) <= p.from) {
		return
	}
	d.Hold(time.Now())
}

// NewSlowFiles mounts the folder backing, which is on a real disk, at another one.
func NewSlowFiles(t T, backing, at string) (*SlowFiles, error) {
	t.Helper()
	f := &SlowFiles{Reads: &Delay{}, Writes: &Delay{}, Syncs: &Delay{}}
	root := &fs.LoopbackRoot{Path: backing}
	//lint:ignore SA1019 every node is of one kind, and NodeWrapChilder wraps nodes, which hides their own methods from go-fuse
	root.NewNode = func(r *fs.LoopbackRoot, _ *fs.Inode, _ string, _ *syscall.Stat_t) fs.InodeEmbedder {
		return &slowNode{LoopbackNode: fs.LoopbackNode{RootData: r}, files: f}
	}
	//lint:ignore SA1019 as above
	server, err := fs.Mount(at, root.NewNode(root, nil, "", nil), &fs.Options{MountOptions: fuse.MountOptions{DirectMountStrict: true, AllowOther: true}})
	if err != nil {
		return nil, fmt.Errorf("a FUSE file system: %w: %w", ErrNotAllowed, err)
	}
	t.Cleanup(func() {
		// The kernel lets go of a loop device's file only some time after losetup.
		Eventually(t, DefaultTimeout, server.Unmount)
	})
	if err := keepConnections(); err != nil {
		return nil, err
	}
	t.Cleanup(func() {
		for _, d := range []*Delay{f.Reads, f.Writes, f.Syncs} {
			d.Set(0)
			d.Release()
		}
	})
	return f, nil
}

// keepConnections keeps this process's connections to FUSE from the processes it starts: one
// of them that lives longer would keep the file system from ending with this process, and who
// reads it, such as an agent, would wait for ever.
func keepConnections() error {
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return err
	}
	for _, entry := range open {
		fd, err := strconv.Atoi(entry.Name())
		if err != nil {
			return err
		}
		if to, err := os.Readlink("/proc/self/fd/" + entry.Name()); err == nil && to == "/dev/fuse" {
			syscall.CloseOnExec(fd)
		}
	}
	return nil
}

// SlowDisk is a disk that holds back what is read from it and written to it.
type SlowDisk struct {
	*SlowFiles
	// Device is its block device, as in /dev.
	Device string
}

// NewSlowDisk makes a disk of size bytes: a loop device on a file of a FUSE file system. dir
// is an empty folder on a real disk, and is that of the undelayed data.
func NewSlowDisk(t T, dir string, size int64) (*SlowDisk, error) {
	t.Helper()
	backing, fused := filepath.Join(dir, "backing"), filepath.Join(dir, "fuse")
	for _, path := range []string{backing, fused} {
		if err := os.Mkdir(path, 0o700); err != nil {
			return nil, err
		}
	}
	file := filepath.Join(backing, "disk")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		return nil, err
	}
	if err := os.Truncate(file, size); err != nil {
		return nil, err
	}
	files, err := NewSlowFiles(t, backing, fused)
	if err != nil {
		return nil, err
	}
	device, err := AttachLoop(t, filepath.Join(fused, "disk"))
	return &SlowDisk{files, device}, err
}

// AttachLoop makes a loop device of a file and returns it, as in /dev.
func AttachLoop(t T, file string) (string, error) {
	t.Helper()
	device, err := command(t, "losetup", "--find", "--show", "--direct-io=on", file)
	if err == nil {
		t.Cleanup(func() { undo(t, "losetup", "--detach", device) })
	}
	return device, err
}

// MountExt4 makes an ext4 of a block device, with options of mkfs.ext4, and mounts it on an empty folder. A file system
// is needed where a program requires what FUSE does not have.
func MountExt4(t T, device, at string, options ...string) error {
	t.Helper()
	options = append(options, "-q", "-E", "lazy_itable_init=0,lazy_journal_init=0", device)
	if _, err := command(t, "mkfs.ext4", options...); err != nil {
		return err
	}
	return mount(t, device, at)
}

// MountXFS is MountExt4 with XFS, which takes 300 MB at least.
func MountXFS(t T, device, at string) error {
	t.Helper()
	if _, err := command(t, "mkfs.xfs", "-q", "-f", device); err != nil {
		return err
	}
	return mount(t, device, at)
}

// MountBtrfs makes a btrfs of block devices and mounts it, by its first one, on an empty folder.
func MountBtrfs(t T, at string, devices ...string) error {
	t.Helper()
	if _, err := command(t, "mkfs.btrfs", append([]string{"-q", "-f"}, devices...)...); err != nil {
		return err
	}
	if len(devices) > 1 {
		if _, err := command(t, "btrfs", append([]string{"device", "scan"}, devices...)...); err != nil {
			return err
		}
	}
	return mount(t, devices[0], at)
}

// mount mounts a device until the test's end.
func mount(t T, device, at string) error {
	t.Helper()
	if _, err := command(t, "mount", "-o", "noatime", device, at); err != nil {
		return err
	}
	t.Cleanup(func() { undo(t, "umount", at) })
	return nil
}

// undo runs a command whose failure would leave something on the machine.
func undo(t T, name string, args ...string) {
	if _, err := command(t, name, args...); err != nil {
		t.Errorf("%v", err)
	}
}

func command(t T, name string, args ...string) (string, error) {
	t.Helper()
	out, err := exec.Command(Tool(t, name), args...).CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out)), err
}

type slowNode struct {
	fs.LoopbackNode
	files *SlowFiles
}

// Open is how a file is opened that is there.
func (n *slowNode) Open(ctx context.Context, flags uint32) (fs.FileHandle, uint32, syscall.Errno) {
	// The loop device requests direct I/O, which the backing file need not support.
	h, _, errno := n.LoopbackNode.Open(ctx, flags&^syscall.O_DIRECT)
	return n.slow(h), fuse.FOPEN_DIRECT_IO, errno
}

// Create is how a file is made and opened.
func (n *slowNode) Create(ctx context.Context, name string, flags uint32, mode uint32, out *fuse.EntryOut) (*fs.Inode, fs.FileHandle, uint32, syscall.Errno) {
	inode, h, _, errno := n.LoopbackNode.Create(ctx, name, flags&^syscall.O_DIRECT, mode, out)
	return inode, n.slow(h), fuse.FOPEN_DIRECT_IO, errno
}

func (n *slowNode) slow(h fs.FileHandle) fs.FileHandle {
	if f, ok := h.(*fs.LoopbackFile); ok {
		return &slowFile{f, n.files}
	}
	return h
}

type slowFile struct {
	*fs.LoopbackFile
	files *SlowFiles
}

// PassthroughFd keeps the kernel from going past Read and Write.
func (f *slowFile) PassthroughFd() (int, bool) { return 0, false }

// Read holds back, then reads.
func (f *slowFile) Read(ctx context.Context, data []byte, off int64) (fuse.ReadResult, syscall.Errno) {
	f.files.hold(f.files.Reads, off, len(data))
	if f.files.halves.Load() && len(data) == BlockSize {
		data = data[:BlockSize/2]
	}
	return f.LoopbackFile.Read(ctx, data, off)
}

// Write holds back, then writes.
func (f *slowFile) Write(ctx context.Context, data []byte, off int64) (uint32, syscall.Errno) {
	f.files.hold(f.files.Writes, off, len(data))
	return f.LoopbackFile.Write(ctx, data, off)
}

// Fsync holds back, and that is all: how long the disk below would take is not known, and these files need not survive
// a power cut.
func (f *slowFile) Fsync(context.Context, uint32) syscall.Errno {
	f.files.Syncs.Hold(time.Now())
	return fs.OK
}

// DropCache removes one file from the page cache.
func DropCache(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := f.Sync(); err != nil {
		return err
	}
	return unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED)
}
