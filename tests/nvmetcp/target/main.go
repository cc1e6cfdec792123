// Command target is the package's NVMe/TCP target as a program of its own, for guests of tests/kernels. It prints its
// address once it listens.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"syscall"

	"github.com/alecthomas/kingpin/v2"
	"golang.org/x/sys/unix"

	"github.com/plumbline/plumbline/tests/nvmetcp"
)

func main() {
	app := kingpin.New("nvmf_tgt", "A fake NVMe/TCP target with one disk, for tests.")
	listen := app.Flag("listen", "The address to listen at.").Required().String()
	disk := app.Flag("disk", "The file or block device to serve. A block device is used past the page cache.").Required().ExistingFile()
	o := nvmetcp.Options{Log: func(format string, args ...any) { fmt.Fprintf(os.Stderr, "nvmf_tgt: "+format+"\n", args...) }}
	app.Flag("nqn", "The subsystem's name.").Required().StringVar(&o.NQN)
	app.Flag("queues", "I/O queues of each controller.").Default("8").IntVar(&o.Queues)
	app.Flag("workers", "How many commands of one queue are done at once.").Default("4").IntVar(&o.Workers)
	app.Flag("short-every", "Which reads end without a response; none if negative.").Default("2").IntVar(&o.ShortEvery)
	app.Flag("always-short", "Also if the host has not disabled flow control, as SPDK does.").BoolVar(&o.AlwaysShort)
	app.Flag("bad-lba", "The first block that fails.").Uint64Var(&o.BadLBA)
	app.Flag("bad-blocks", "How many fail.").Uint64Var(&o.BadBlocks)
	kingpin.MustParse(app.Parse(os.Args[1:]))
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Stdout, *listen, *disk, o)
	stop()
	if err != nil {
		o.Log("%v", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out io.Writer, listen, disk string, o nvmetcp.Options) error {
	f, err := open(disk)
	if err != nil {
		return err
	}
	defer f.Close()
	o.Disk = f
	if o.Size, err = f.Seek(0, io.SeekEnd); err != nil {
		return err
	}
	l, err := net.Listen("tcp", listen)
	if err != nil {
		return err
	}
	target, err := nvmetcp.Start(l, o)
	if err != nil {
		return errors.Join(err, l.Close())
	}
	fmt.Fprintln(out, "listening at", target.Address())
	<-ctx.Done()
	return target.Close()
}

func open(disk string) (*os.File, error) {
	flags := os.O_RDWR
	if info, err := os.Stat(disk); err != nil {
		return nil, err
	} else if info.Mode()&os.ModeDevice != 0 {
		flags |= unix.O_DIRECT
	}
	return os.OpenFile(disk, flags, 0)
}
