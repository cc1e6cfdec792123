// Command poolserver stands in for a MariaDB whose pool of threads does what a test tells it: which thread reads
// from which connection, and which answers. It speaks of MySQL's protocol only what an answer needs.
//
// It prints its port, and then takes lines of standard input: a thread's number, what it does (accept, read, answer,
// close, rest) and a connection's number. Each line is answered when that is done. A thread without work sleeps.
package main

import (
	"bufio"
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// ok is the packet that ends a statement without rows.
var ok = []byte{7, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0}

func main() {
	if err := serve(); err != nil {
		fmt.Fprintln(os.Stderr, "poolserver:", err)
		os.Exit(1)
	}
}

func serve() error {
	listener, port, err := listen()
	if err != nil {
		return err
	}
	fmt.Println(port)
	var threads [3]chan func()
	for i := range threads {
		threads[i] = make(chan func())
		go thread(threads[i])
	}
	connections := map[int]int{}
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		var who, at int
		var what string
		if _, err := fmt.Sscan(in.Text(), &who, &what, &at); err != nil || who < 0 || who >= len(threads) {
			return fmt.Errorf("line %q is not a thread below %d, what it does, and a connection", in.Text(), len(threads))
		}
		done := make(chan error)
		threads[who] <- func() { done <- do(what, at, listener, connections) }
		if err := <-done; err != nil {
			return fmt.Errorf("%s: %w", in.Text(), err)
		}
		fmt.Println("done")
	}
	return in.Err()
}

// listen returns a socket that listens on some port of the loopback.
func listen() (fd, port int, err error) {
	if fd, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0); err != nil {
		return 0, 0, err
	}
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		return 0, 0, err
	}
	if err := unix.Listen(fd, 16); err != nil {
		return 0, 0, err
	}
	name, err := unix.Getsockname(fd)
	if err != nil {
		return 0, 0, err
	}
	return fd, name.(*unix.SockaddrInet4).Port, nil
}

// thread does what it is given on an operating system's thread of its own.
func thread(work <-chan func()) {
	runtime.LockOSThread()
	for f := range work {
		f()
	}
}

// do does one thing with a connection on the thread that calls it.
func do(what string, at, listener int, connections map[int]int) error {
	fd, known := connections[at]
	if !known && what != "accept" && what != "rest" {
		return fmt.Errorf("no connection %d", at)
	}
	var err error
	switch what {
	case "accept":
		connections[at], _, err = unix.Accept(listener)
	case "read":
		var request [4096]byte
		_, err = unix.Read(fd, request[:])
	case "answer":
		_, err = unix.Write(fd, ok)
	case "close":
		err = unix.Close(fd)
		delete(connections, at)
	case "rest":
	default:
		err = fmt.Errorf("nothing is called %q", what)
	}
	return err
}
