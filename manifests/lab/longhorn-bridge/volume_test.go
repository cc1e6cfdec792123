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
	closed  bool
}

func (m *memory) Close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = true
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
	return mountedVolume(t, &volume{engine: m, size: uint64(len(m.data))})
}

func mountedVolume(t *testing.T, v *volume) string {
	t.Helper()
	testkit.NeedRoot(t)
	if _, err := os.Stat("/dev/fuse"); err != nil {
		testkit.Skip(t, err.Error())
	}
	dir := t.TempDir()
	server, err := fs.Mount(dir, &root{volume: v}, &fs.Options{MountOptions: fuse.MountOptions{DirectMount: true}})
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

// Another engine takes over between two requests: none fails, and all later ones are its own. Without another one, and
// for other attributes, nothing changes.
func TestReconnect(t *testing.T) {
	old, other := &memory{data: make([]byte, 1<<20)}, &memory{data: make([]byte, 1<<20)}
	listening := errors.New("nobody listens")
	path := mountedVolume(t, &volume{engine: old, size: 1 << 20, connect: func() (engine, error) { return other, listening }})
	f := open(t, path)
	mark := aligned(blockSize)
	write := func(value byte) {
		mark[0] = value
		if _, err := f.WriteAt(mark, 0); err != nil {
			t.Error(err)
		}
	}
	if err := syscall.Setxattr(path, "user.other", nil, 0); !errors.Is(err, syscall.ENOTSUP) {
		t.Errorf("another attribute gave %v", err)
	}
	if err := syscall.Setxattr(path, reconnectAttribute, nil, 0); !errors.Is(err, syscall.EIO) {
		t.Errorf("connecting where nobody listens gave %v", err)
	}
	write(1)
	if old.data[0] != 1 || old.closed {
		t.Errorf("the engine before has %d and is closed %v", old.data[0], old.closed)
	}
	listening = nil
	var writes sync.WaitGroup
	for range 8 {
		writes.Go(func() {
			block := aligned(blockSize)
			for range 100 {
				if _, err := f.WriteAt(block, 1<<19); err != nil {
					t.Error(err)
				}
			}
		})
	}
	if err := syscall.Setxattr(path, reconnectAttribute, nil, 0); err != nil {
		t.Errorf("connecting again: %v", err)
	}
	writes.Wait()
	write(2)
	if old.data[0] != 1 || !old.closed || other.data[0] != 2 {
		t.Errorf("the engine before has %d and is closed %v; the one of now has %d", old.data[0], old.closed, other.data[0])
	}
}
