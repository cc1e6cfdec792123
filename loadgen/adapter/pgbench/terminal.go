package pgbench

import (
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// terminal is a pseudo terminal for one pgbench thread to write its log to. pgbench's log is a
// stdio stream: on a file or a pipe it comes in blocks of 4 KiB, seconds late, and the last
// block dies with the process; on a terminal stdio writes line by line, so that each
// transaction is seen when it ends and none is lost to a kill. Nothing is ever stored on disk.
// A reader that falls behind holds pgbench up after 64 KiB, some 1500 transactions.
type terminal struct {
	// master is where the log is read; it ends with an error once keep and pgbench's own end
	// are closed and all was read.
	master *os.File
	// keep holds the terminal open until pgbench has ended.
	keep *os.File
	// path is what pgbench opens.
	path string
}

func newTerminal() (*terminal, error) {
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("making a pseudo terminal: %w", err)
	}
	t := &terminal{master: master}
	if err := t.open(); err != nil {
		master.Close()
		return nil, fmt.Errorf("making a pseudo terminal: %w", err)
	}
	return t, nil
}

func (t *terminal) open() error {
	connection, err := t.master.SyscallConn()
	if err != nil {
		return err
	}
	var number int
	var failed error
	err = connection.Control(func(fd uintptr) {
		if failed = unix.IoctlSetPointerInt(int(fd), unix.TIOCSPTLCK, 0); failed == nil {
			number, failed = unix.IoctlGetInt(int(fd), unix.TIOCGPTN)
		}
	})
	if err != nil {
		return err
	}
	if failed != nil {
		return failed
	}
	t.path = "/dev/pts/" + strconv.Itoa(number)
	if t.keep, err = os.OpenFile(t.path, os.O_RDWR|unix.O_NOCTTY, 0); err != nil {
		return err
	}
	// Raw: no echo back to the writer, no line end translation.
	mode, err := unix.IoctlGetTermios(int(t.keep.Fd()), unix.TCGETS)
	if err != nil {
		t.keep.Close()
		return err
	}
	mode.Iflag, mode.Oflag, mode.Lflag = 0, 0, 0
	mode.Cflag = mode.Cflag&^(unix.CSIZE|unix.PARENB) | unix.CS8
	if err := unix.IoctlSetTermios(int(t.keep.Fd()), unix.TCSETS, mode); err != nil {
		t.keep.Close()
		return err
	}
	return nil
}

func (t *terminal) Close() {
	t.keep.Close()
	t.master.Close()
}
