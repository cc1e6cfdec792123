// Command linux has this machine's own initiator use the target, each way that it can be configured. It takes over the
// machine, so it runs in a guest of tests/kernels only:
//
//	go build -o /tmp/ ./tests/nvmetcp/linux && go build -o /tmp/nvmf_tgt ./tests/nvmetcp/target
//	go run ./tests/kernels boot 6.12 -- /tmp/linux --program=/tmp/nvmf_tgt
package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
	"unsafe"

	"github.com/alecthomas/kingpin/v2"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/plumbline/plumbline/tests/rig"
)

const (
	nqn      = "nqn.2026-11.io.plumbline:guest"
	megabyte = 1 << 20
	// Where the disk is made unreadable.
	broken    = 8 * megabyte
	linkDelay = 50 * time.Millisecond
)

// ways are the options of the initiator and the target.
var ways = []struct {
	initiator string
	target    []string
}{
	{"", nil},
	{"", []string{"--always-short", "--short-every=1"}},
	{",hdr_digest", []string{"--workers=1"}},
	{",hdr_digest,data_digest,disable_sqflow", nil},
}

// sizes are what is written at once: with the command, or as the target requests it in one part or several.
var sizes = []int{512, 4096, 8192, 8704, 65536, 131072, megabyte}

func main() {
	app := kingpin.New("linux", "Uses an NVMe/TCP target by this machine's initiator: in guests of tests/kernels.")
	program := app.Flag("program", "The target's program.").Required().ExistingFile()
	kingpin.MustParse(app.Parse(os.Args[1:]))
	if _, err := os.Stat("/run/host/booted"); err != nil {
		fmt.Fprintln(os.Stderr, "linux: this is no guest of tests/kernels:", err)
		os.Exit(2)
	}
	for _, way := range ways {
		logf("the initiator with %q, the target with %q", way.initiator, way.target)
		if err := rig.Run(logf, func(t *rig.Scope) { use(t, *program, way.initiator, way.target...) }); err != nil {
			os.Exit(1)
		}
	}
}

func logf(format string, args ...any) { fmt.Printf("linux: "+format+"\n", args...) }

func use(t *rig.Scope, program, initiator string, target ...string) {
	targets := rig.NewUserNVMeTarget(t, nqn, program, 5*time.Millisecond, target...)
	targets.More = initiator
	device := rig.NVMeHead(targets.Connect()[0])
	describe(t, device)
	disk, there := open(t, device), open(t, "/dev/"+targets.Of(0).Disk)
	memory, err := unix.Mmap(-1, 0, 2*megabyte, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	t.Check(err)
	t.Cleanup(func() { _ = unix.Munmap(memory) })
	for _, size := range sizes {
		write(t, disk, there, memory[:size], memory[megabyte:][:size])
	}
	zero(t, disk, memory[:8*rig.BlockSize])
	several(t, device)
	targets.SlowLink(0, linkDelay)
	began := time.Now()
	_, err = disk.ReadAt(memory[:rig.BlockSize], 0)
	t.Check(err)
	if took := time.Since(began); took < linkDelay {
		t.Errorf("a read by a link that takes %v takes %v", linkDelay, took)
	}
	targets.SlowLink(0, 0)
	targets.Break(0, broken)
	if _, err := disk.ReadAt(memory[:rig.BlockSize], broken); err == nil {
		t.Errorf("a broken place can be read")
	}
	if _, err := disk.ReadAt(memory[:rig.BlockSize], broken+rig.BlockSize); err != nil {
		t.Errorf("after it: %v", err)
	}
	if log := targets.Program.Log.String(); strings.Count(log, "\n") != 2 { // where it listens, and what cannot be read
		t.Errorf("the target's log:\n%s", log)
	}
}

// describe prints what the initiator made of the disk.
func describe(t *rig.Scope, device string) {
	for _, file := range []string{"size", "queue/logical_block_size", "queue/max_hw_sectors_kb", "queue/write_cache", "uuid"} {
		value, err := os.ReadFile(filepath.Join("/sys/block", filepath.Base(device), file))
		t.Check(err)
		t.Logf("%s: %s", file, bytes.TrimSpace(value))
	}
}

func open(t *rig.Scope, device string) *os.File {
	f, err := os.OpenFile(device, os.O_RDWR|unix.O_DIRECT, 0)
	t.Check(err)
	t.Cleanup(func() { f.Close() })
	return f
}

// write writes data, and checks that both ends have them.
func write(t *rig.Scope, disk, there *os.File, data, back []byte) {
	for i := range data {
		data[i] = byte(i/512 + i + len(data)>>9)
	}
	if _, err := disk.WriteAt(data, megabyte); err != nil {
		t.Fatalf("writing %d bytes: %v", len(data), err)
	}
	t.Check(disk.Sync())
	for _, f := range []*os.File{there, disk, disk} { // with a response and without
		clear(back)
		if _, err := f.ReadAt(back, megabyte); err != nil || !bytes.Equal(data, back) {
			t.Fatalf("%d bytes of %s are others: %v", len(data), f.Name(), err)
		}
	}
}

// zero has blocks zeroed, and others not needed (blkdev_issue_zeroout, blkdev_issue_discard).
func zero(t *rig.Scope, disk *os.File, data []byte) {
	for i := range data {
		data[i] = 1
	}
	_, err := disk.WriteAt(data, 0)
	t.Check(err)
	for request, where := range map[uintptr][2]uint64{unix.BLKZEROOUT: {rig.BlockSize, 2 * rig.BlockSize}, unix.BLKDISCARD: {megabyte, megabyte}} {
		if _, _, failed := unix.Syscall(unix.SYS_IOCTL, disk.Fd(), request, uintptr(unsafe.Pointer(&where))); failed != 0 {
			t.Fatalf("ioctl %#x: %v", request, failed)
		}
	}
	_, err = disk.ReadAt(data, 0)
	t.Check(err)
	if zeroes := bytes.Count(data, []byte{0}); zeroes != 2*rig.BlockSize || data[rig.BlockSize] != 0 {
		t.Errorf("%d zeroes, and two pages were zeroed", zeroes)
	}
}

// several has many read and write at once, each a place of its own.
func several(t *rig.Scope, device string) {
	const (
		users, rounds = 24, 10
		place         = 128 << 10
	)
	var all errgroup.Group
	for i := range users {
		all.Go(func() error {
			disk, err := os.OpenFile(device, os.O_RDWR|unix.O_DIRECT, 0)
			if err != nil {
				return err
			}
			defer disk.Close()
			memory, err := unix.Mmap(-1, 0, 2*place, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
			if err != nil {
				return err
			}
			defer func() { _ = unix.Munmap(memory) }()
			for round := range rounds {
				n := rig.BlockSize << (round % 6)
				data, back := memory[:n], memory[place:][:n]
				for j := range data {
					data[j] = byte(j + i*7 + round)
				}
				if _, err := disk.WriteAt(data, int64(i*place)); err != nil {
					return err
				}
				if _, err := disk.ReadAt(back, int64(i*place)); err != nil {
					return err
				}
				if !bytes.Equal(data, back) {
					return fmt.Errorf("%d bytes of user %d are others", n, i)
				}
			}
			return nil
		})
	}
	t.Check(all.Wait())
}
