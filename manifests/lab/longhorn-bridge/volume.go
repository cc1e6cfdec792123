package main

import (
	"context"
	"io"
	"log"
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
	engine engine
	size   uint64
}

var (
	_ fs.NodeGetattrer = (*volume)(nil)
	_ fs.NodeSetattrer = (*volume)(nil)
	_ fs.NodeOpener    = (*volume)(nil)
	_ fs.NodeReader    = (*volume)(nil)
	_ fs.NodeWriter    = (*volume)(nil)
	_ fs.NodeFsyncer   = (*volume)(nil)
	_ fs.NodeAllocater = (*volume)(nil)
)

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
	if _, err := v.engine.ReadAt(dest, off); err != nil && err != io.EOF {
		return nil, failed("read", off, err)
	}
	return fuse.ReadResultData(dest), 0
}

func (v *volume) Write(_ context.Context, _ fs.FileHandle, data []byte, off int64) (uint32, syscall.Errno) {
	if uint64(off)+uint64(len(data)) > v.size {
		return 0, syscall.ENOSPC
	}
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
