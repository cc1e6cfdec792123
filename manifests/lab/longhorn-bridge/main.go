// Command longhorn-bridge shows a Longhorn volume as one file, for machines that have no
// iSCSI: it speaks the engine's data protocol to the unix socket of the engine's "socket"
// frontend and serves the volume through FUSE, where a loop device picks it up.
//
// Longhorn's protocol has no flush: an fsync on the file returns at once, exactly as a
// SYNCHRONIZE CACHE to a Longhorn block device does.
//
// Who sets the attribute user.reconnect of the file has the bridge connect again, as Longhorn has tgtd do when a new
// engine takes over the socket: requests under way end first, and the next ones go to the new engine.
package main

import (
	"fmt"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/alecthomas/kingpin/v2"
	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
	"github.com/longhorn/longhorn-engine/pkg/dataconn"
)

func main() {
	app := kingpin.New("longhorn-bridge", "Shows a Longhorn volume as the file DIR/volume, for losetup.\n\nExamples:\n"+
		"  longhorn-bridge --socket=/run/longhorn-pvc1.sock --size=4GiB --directory=/mnt/bridge\n"+
		"  losetup --find --show --direct-io=on /mnt/bridge/volume")
	app.HelpFlag.Short('h')
	socket := app.Flag("socket", "Unix socket of the engine's socket frontend.").Required().String()
	directory := app.Flag("directory", "Existing, empty directory to mount the file in.").Required().String()
	size := app.Flag("size", "Size of the volume.").Required().Bytes()
	connections := app.Flag("connections", "Connections to the engine; requests are spread over them.").Default("4").Int()
	kingpin.MustParse(app.Parse(os.Args[1:]))
	if err := run(*socket, *directory, uint64(*size), *connections); err != nil {
		fmt.Fprintln(os.Stderr, "longhorn-bridge:", err)
		os.Exit(1)
	}
}

// connect opens connections to the engine that listens on a socket now.
func connect(socket string, connections int) (engine, error) {
	conns := make([]net.Conn, 0, connections)
	for range connections {
		conn, err := net.Dial("unix", socket)
		if err != nil {
			for _, c := range conns {
				c.Close()
			}
			return nil, fmt.Errorf("engine's socket: %w; is the engine running with --frontend socket?", err)
		}
		conns = append(conns, conn)
	}
	return dataconn.NewClient(conns, noTimeouts{}), nil
}

func run(socket, directory string, size uint64, connections int) error {
	shown := &volume{size: size, connect: func() (engine, error) { return connect(socket, connections) }}
	if err := shown.reconnect(); err != nil {
		return err
	}
	defer shown.engine.Close()

	server, err := fs.Mount(directory, &root{volume: shown}, &fs.Options{
		MountOptions: fuse.MountOptions{
			FsName:        "longhorn:" + filepath.Base(socket),
			Name:          "longhorn",
			MaxWrite:      1 << 20,
			MaxBackground: 256,
			// Without asynchronous direct I/O the loop device's queue is served one by one.
			ExtraCapabilities: fuse.CAP_ASYNC_DIO,
			DirectMount:       true,
		},
	})
	if err != nil {
		return fmt.Errorf("mounting on %s: %w", directory, err)
	}
	fmt.Printf("volume of %d bytes at %s\n", size, filepath.Join(directory, fileName))

	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	go func() {
		for range signals {
			// Refused while the loop device holds the file: then the next signal tries again.
			if err := server.Unmount(); err != nil {
				fmt.Fprintln(os.Stderr, "longhorn-bridge: unmounting:", err)
			}
		}
	}()
	server.Wait()
	return nil
}

// noTimeouts is the client's own timeout: the engine has its own (8 s) per replica and answers in the end, and a bridge
// that gave up before it would turn a slow replica into a file-system error.
type noTimeouts struct{}

func (noTimeouts) Increment()                                    {}
func (noTimeouts) Decrement()                                    {}
func (noTimeouts) CheckAndDecrement(time.Duration) time.Duration { return 0 }
