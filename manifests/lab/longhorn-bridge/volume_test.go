package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/plumbline/plumbline/tests/testkit"
)

// memory is an engine whose replicas are a byte slice.
type memory struct {
	mu      sync.Mutex
	data    []byte
	unmaps  []uint32
	failing bool
}

func (m *memory) ReadAt(p []byte, off int64) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.failing {
		return 0, errors.New("no replica left")
	}
	return copy(p, m.data[off:]), nil
}

func (m *memory) WriteAt(p []byte, off int64) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.failing {
		return 0, errors.New("no replica left")
	}
	return copy(m.data[off:], p), nil
}

func (m *memory) UnmapAt(length uint32, off int64) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.unmaps = append(m.unmaps, length)
	clear(m.data[off : off+int64(length)])
	return int(length), nil
}

// mounted serves a volume over m and returns the path of its file.
func mounted(t *testing.T, m *memory) string {
	t.Helper()
	testkit.NeedRoot(t)
	if _, err := os.Stat("/dev/fuse"); err != nil {
		testkit.Skip(t, err.Error())
	}
	dir := t.TempDir()
	server, err := fs.Mount(dir, &root{volume: &volume{engine: m, size: uint64(len(m.data))}},
		&fs.Options{MountOptions: fuse.MountOptions{DirectMount: true}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Unmount(); err != nil {
			t.Error(err)
		}
	})
	return filepath.Join(dir, fileName)
}

func open(t *testing.T, path string) *os.File {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR|syscall.O_DIRECT, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func aligned(n int) []byte {
	page, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		panic(err)
	}
	return page
}

func TestReadWriteDiscard(t *testing.T) {
	m := &memory{data: make([]byte, 1<<20)}
	f := open(t, mounted(t, m))
	if info, err := f.Stat(); err != nil || info.Size() != 1<<20 {
		t.Fatalf("size %v %v", info, err)
	}
	block := aligned(blockSize)
	copy(block, bytes.Repeat([]byte("plumb"), blockSize/5))
	if _, err := f.WriteAt(block, 3*blockSize); err != nil {
		t.Fatal(err)
	}
	back := aligned(blockSize)
	if _, err := f.ReadAt(back, 3*blockSize); err != nil || !bytes.Equal(back, block) {
		t.Errorf("read back something else: %v", err)
	}
	if err := f.Sync(); err != nil {
		t.Errorf("fsync: %v", err)
	}
	if err := unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 3*blockSize, blockSize); err != nil {
		t.Fatal(err)
	}
	if len(m.unmaps) != 1 || m.unmaps[0] != blockSize {
		t.Errorf("unmaps %v, want one of %d bytes", m.unmaps, blockSize)
	}
	if _, err := f.ReadAt(back, 3*blockSize); err != nil || !bytes.Equal(back, make([]byte, blockSize)) {
		t.Errorf("a discarded block is not empty: %v", err)
	}
}

// The volume's size is fixed, and a failing engine is an I/O error, never wrong data.
func TestErrors(t *testing.T) {
	m := &memory{data: make([]byte, 1<<20)}
	path := mounted(t, m)
	f := open(t, path)
	if _, err := f.WriteAt(aligned(blockSize), 1<<20); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("a write beyond the end gave %v", err)
	}
	if err := os.Truncate(path, 4096); !errors.Is(err, syscall.EPERM) {
		t.Errorf("truncating gave %v", err)
	}
	m.mu.Lock()
	m.failing = true
	m.mu.Unlock()
	if _, err := f.ReadAt(aligned(blockSize), 0); !errors.Is(err, syscall.EIO) {
		t.Errorf("a failed read gave %v", err)
	}
	if _, err := f.WriteAt(aligned(blockSize), 0); !errors.Is(err, syscall.EIO) {
		t.Errorf("a failed write gave %v", err)
	}
}
