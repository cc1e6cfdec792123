// Command poolserver stands in for a MariaDB whose pool of threads does what a test commands: which thread reads from
// which connection, and which answers. It implements only what an answer needs of MySQL's protocol.
//
// It prints its address, and then takes lines of standard input: a thread's number, what it does (accept, read, answer,
// close, rest) and a connection's number. Each line is answered when that is done. A thread without work sleeps.
package main

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"runtime"
	"time"
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
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println(listener.Addr())
	var threads [3]chan func()
	for i := range threads {
		threads[i] = make(chan func())
		go thread(threads[i])
	}
	connections := map[int]net.Conn{}
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

// thread does what it is given on an operating system's thread of its own.
func thread(work <-chan func()) {
	runtime.LockOSThread()
	for f := range work {
		f()
	}
}

// do does one thing with a connection on the thread that calls it.
func do(what string, at int, listener net.Listener, connections map[int]net.Conn) error {
	c := connections[at]
	if c == nil && what != "accept" && what != "rest" {
		return fmt.Errorf("no connection %d", at)
	}
	var err error
	switch what {
	case "accept":
		if c, err = listener.Accept(); err == nil {
			connections[at] = c
			err = c.SetDeadline(time.Now().Add(time.Minute)) // a test that is wrong ends, too
		}
	case "read":
		_, err = c.Read(make([]byte, 4096))
	case "answer":
		_, err = c.Write(ok)
	case "close":
		err = c.Close()
		delete(connections, at)
	case "rest":
	default:
		err = fmt.Errorf("nothing is called %q", what)
	}
	return err
}
