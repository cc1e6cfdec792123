package main

import (
	"context"
	"io"
	"log"
	"sync"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
)

// fileName is the name of the one file in the mounted directory.
const fileName = "volume"

// blockSize is the unit Longhorn's replicas store; requests are whole multiples of it.
const blockSize = 4096

// engine is the part of the engine's data client that the file needs.
type engine interface {
	ReadAt(p []byte, off int64) (int, error)
	WriteAt(p []byte, off int64) (int, error)
	UnmapAt(length uint32, off int64) (int, error)
	Close()
}

// root is the directory that holds the one file.
type root struct {
	fs.Inode
	volume *volume
}

var _ fs.NodeOnAdder = (*root)(nil)

// OnAdd creates the file when the directory is mounted.
func (r *root) OnAdd(ctx context.Context) {
	r.AddChild(fileName, r.NewPersistentInode(ctx, r.volume, fs.StableAttr{Mode: syscall.S_IFREG}), true)
}

// volume is the file; every read and write of it is one request to the engine.
type volume struct {
	fs.Inode
	size uint64
	// connect connects to the engine that serves the volume now.
	connect func() (engine, error)
	// mu is held by each request for reading: the engine is replaced between requests.
	mu     sync.RWMutex
	engine engine
}

var (
	_ fs.NodeGetattrer  = (*volume)(nil)
	_ fs.NodeSetattrer  = (*volume)(nil)
	_ fs.NodeOpener     = (*volume)(nil)
	_ fs.NodeReader     = (*volume)(nil)
	_ fs.NodeWriter     = (*volume)(nil)
	_ fs.NodeFsyncer    = (*volume)(nil)
	_ fs.NodeAllocater  = (*volume)(nil)
	_ fs.NodeSetxattrer = (*volume)(nil)
)

// reconnectAttribute is the attribute of the file whose setting has the bridge connect again.
const reconnectAttribute = "user.reconnect"

// Setxattr connects again. It fails if nobody listens, and the engine remains the one before.
func (v *volume) Setxattr(_ context.Context, name string, _ []byte, _ uint32) syscall.Errno {
	if name != reconnectAttribute {
		return syscall.ENOTSUP
	}
	if err := v.reconnect(); err != nil {
		log.Printf("connecting again: %v", err)
		return syscall.EIO
	}
	return 0
}

// reconnect waits for the requests under way, and sends the next ones to the engine that listens now.
func (v *volume) reconnect() error {
	v.mu.Lock()
	defer v.mu.Unlock()
	now, err := v.connect()
	if err != nil {
		return err
	}
	if v.engine != nil {
		v.engine.Close()
	}
	v.engine = now
	return nil
}

func (v *volume) Getattr(_ context.Context, _ fs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	out.Mode, out.Size, out.Blksize = syscall.S_IFREG|0o600, v.size, blockSize
	out.Blocks = v.size / 512
	return 0
}

// Setattr accepts and ignores time stamps; the size of a volume is fixed.
func (v *volume) Setattr(ctx context.Context, f fs.FileHandle, in *fuse.SetAttrIn, out *fuse.AttrOut) syscall.Errno {
	if size, ok := in.GetSize(); ok && size != v.size {
		return syscall.EPERM
	}
	return v.Getattr(ctx, f, out)
}

func (v *volume) Open(context.Context, uint32) (fs.FileHandle, uint32, syscall.Errno) {
	return nil, fuse.FOPEN_KEEP_CACHE, 0
}

func (v *volume) Read(_ context.Context, _ fs.FileHandle, dest []byte, off int64) (fuse.ReadResult, syscall.Errno) {
	if uint64(off) >= v.size {
		return fuse.ReadResultData(nil), 0
	}
	dest = dest[:min(uint64(len(dest)), v.size-uint64(off))]
	v.mu.RLock()
	defer v.mu.RUnlock()
	if _, err := v.engine.ReadAt(dest, off); err != nil && err != io.EOF {
		return nil, failed("read", off, err)
	}
	return fuse.ReadResultData(dest), 0
}

func (v *volume) Write(_ context.Context, _ fs.FileHandle, data []byte, off int64) (uint32, syscall.Errno) {
	if uint64(off)+uint64(len(data)) > v.size {
		return 0, syscall.ENOSPC
	}
	v.mu.RLock()
	defer v.mu.RUnlock()
	if _, err := v.engine.WriteAt(data, off); err != nil {
		return 0, failed("write", off, err)
	}
	return uint32(len(data)), 0
}

// Fsync has nothing to do: see the package comment.
func (v *volume) Fsync(context.Context, fs.FileHandle, uint32) syscall.Errno { return 0 }

// Allocate serves the loop device's discards (punch hole) as Longhorn unmaps.
func (v *volume) Allocate(_ context.Context, _ fs.FileHandle, off, size uint64, mode uint32) syscall.Errno {
	const punchHole = 0x02
	if mode&punchHole == 0 {
		return syscall.EOPNOTSUPP
	}
	v.mu.RLock()
	defer v.mu.RUnlock()
	// The wire counts an unmap's length in 32 bits.
	const most = 1 << 30
	for size > 0 {
		n := min(size, most)
		if _, err := v.engine.UnmapAt(uint32(n), int64(off)); err != nil {
			return failed("unmap", int64(off), err)
		}
		off, size = off+n, size-n
	}
	return 0
}

func failed(op string, off int64, err error) syscall.Errno {
	log.Printf("%s at offset %d: %v", op, off, err)
	return syscall.EIO
}
