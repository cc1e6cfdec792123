package rig

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// BlockSize is the size of Direct's page, in bytes.
const BlockSize = 4096

// Direct opens a disk past the page cache, and calls f with it and a page of memory that reads and writes of it may
// use.
func Direct(device string, f func(disk *os.File, page []byte) error) (err error) {
	disk, err := os.OpenFile(device, os.O_RDWR|unix.O_DIRECT, 0)
	if err != nil {
		return err
	}
	defer disk.Close()
	page, err := unix.Mmap(-1, 0, BlockSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unix.Munmap(page)) }()
	return f(disk, page)
}
