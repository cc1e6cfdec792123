// Command slowdisk mounts a file system on a disk whose flushes, writes and reads take longer by known times, until it
// is interrupted: a folder to put a lab, a database or a replica on.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/alecthomas/kingpin/v2"
	"github.com/alecthomas/units"

	"github.com/plumbline/plumbline/tests/rig"
)

func main() {
	app := kingpin.New("slowdisk", "Mounts an ext4 on a loop device whose file is on a file system of this program, which holds back what reaches the disk, "+
		"until it is interrupted. Needs root and FUSE. Example:\n  slowdisk --at=/var/tmp/slow --flush=5ms\nand, once that prints that the folder is there, in another terminal:\n  LAB_DIR=/var/tmp/slow/lab make lab-up")
	app.HelpFlag.Short('h')
	at := app.Flag("at", "A folder that is not there yet, for the file system; beside it a folder of its name with -disk has the disk's file. Both go at the end.").Required().String()
	size := app.Flag("size", "Size of the disk; its file is sparse.").Default("24GiB").Bytes()
	flush := app.Flag("flush", "How much longer a flush takes.").Default("0s").Duration()
	write := app.Flag("write", "How much longer a write takes.").Default("0s").Duration()
	read := app.Flag("read", "How much longer a read takes.").Default("0s").Duration()
	kingpin.MustParse(app.Parse(os.Args[1:]))
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := rig.Run(func(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }, func(t *rig.Scope) {
		hold(ctx, t, *at, *size, *flush, *write, *read)
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, "slowdisk:", err)
		os.Exit(1)
	}
}

// hold makes the disk and keeps it until ctx ends.
func hold(ctx context.Context, t *rig.Scope, at string, size units.Base2Bytes, flush, write, read time.Duration) {
	backing := at + "-disk"
	make := func(folder string, remove func(string) error) {
		if err := os.Mkdir(folder, 0o755); err != nil {
			t.Fatalf("%v", err)
		}
		t.Cleanup(func() {
			if err := remove(folder); err != nil {
				t.Errorf("%v", err)
			}
		})
	}
	make(at, os.Remove)
	make(backing, os.RemoveAll)
	disk, err := rig.NewSlowDisk(t, backing, int64(size))
	if err != nil {
		t.Fatalf("%v", err)
	}
	if err := rig.MountExt4(t, disk.Device, at); err != nil {
		t.Fatalf("%v", err)
	}
	// The file system itself was made without delays.
	disk.Syncs.Set(flush)
	disk.Writes.Set(write)
	disk.Reads.Set(read)
	fmt.Printf("%s is on %s: a flush takes %v longer, a write %v, a read %v; interrupt to end it\n", at, disk.Device, flush, write, read)
	<-ctx.Done()
	for _, d := range []*rig.Delay{disk.Syncs, disk.Writes, disk.Reads} {
		d.Set(0)
	}
}
