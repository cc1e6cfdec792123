package blockio_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	blockSize = 4096
	nameLen   = 32
)

// disk is a block device opened past the page cache, so that each call is one request.
type disk struct {
	t    *testing.T
	file *os.File
	page []byte
}

func openDisk(t *testing.T, path string, flags int) *disk {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR|unix.O_DIRECT|flags, 0)
	if err != nil {
		t.Fatal(err)
	}
	page, err := unix.Mmap(-1, 0, blockSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	d := &disk{t, f, page}
	t.Cleanup(d.close)
	return d
}

// close closes the device, which is needed before its loop device can be detached.
func (d *disk) close() {
	if d.page != nil {
		d.file.Close()
		unix.Munmap(d.page)
		d.page = nil
	}
}

func (d *disk) repeat(n int, what string, f func(offset int64) error) {
	d.t.Helper()
	for i := range n {
		if err := f(int64(i) * blockSize); err != nil {
			d.t.Fatalf("%s %s: %v", what, d.file.Name(), err)
		}
	}
}

func (d *disk) write(n int) {
	d.t.Helper()
	d.repeat(n, "writing", func(at int64) error { _, err := d.file.WriteAt(d.page, at); return err })
}

func (d *disk) read(n int) {
	d.t.Helper()
	d.repeat(n, "reading", func(at int64) error { _, err := d.file.ReadAt(d.page, at); return err })
}

func (d *disk) flush(n int) {
	d.t.Helper()
	d.repeat(n, "flushing", func(int64) error { return d.file.Sync() })
}

func (d *disk) discard(n int) {
	d.t.Helper()
	const blkDiscard = 0x1277 // BLKDISCARD of linux/fs.h
	d.repeat(n, "discarding", func(at int64) error {
		span := [2]uint64{uint64(at), blockSize}
		_, _, errno := unix.Syscall(unix.SYS_IOCTL, d.file.Fd(), blkDiscard, uintptr(unsafe.Pointer(&span)))
		if errno != 0 {
			return errno
		}
		return nil
	})
}

// diskstats is what the kernel counted itself: Documentation/admin-guide/iostats.rst.
type diskstats struct {
	reads, readMS, writes, writeMS, discards, discardMS uint64
}

func readDiskstats(t *testing.T, device string) diskstats {
	t.Helper()
	var f [17]uint64
	for i, field := range strings.Fields(sysfs(t, device, "stat")) {
		f[i], _ = strconv.ParseUint(field, 10, 64)
	}
	return diskstats{reads: f[0], readMS: f[3], writes: f[4], writeMS: f[7], discards: f[11], discardMS: f[14]}
}

func sysfs(t *testing.T, device, attribute string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("/sys/block", device, attribute))
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(text))
}

func setSysfs(t *testing.T, device, attribute string, value any) {
	t.Helper()
	if err := os.WriteFile(filepath.Join("/sys/block", device, attribute), []byte(fmt.Sprint(value)), 0); err != nil {
		t.Fatal(err)
	}
}
