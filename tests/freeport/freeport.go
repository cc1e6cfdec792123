// Package freeport finds TCP ports for servers that are started by their port.
package freeport

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
)

// Between the ports of well-known services and those that the kernel gives to outgoing connections: there,
// any of a busy machine's connections may take a port between the moment it was found and the server's start.
const (
	first = 12000
	last  = 28000
	tries = 1000
)

var (
	mu    sync.Mutex
	given = map[int]bool{}
)

// Find returns a port on which nothing listens on 127.0.0.1, and which this process was not given before.
func Find() (int, error) {
	mu.Lock()
	defer mu.Unlock()
	var problems error
	for range tries {
		port := first + rand.IntN(last-first)
		if given[port] {
			continue
		}
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err != nil {
			problems = err
			continue
		}
		if err := l.Close(); err != nil {
			return 0, fmt.Errorf("finding a free port: %w", err)
		}
		given[port] = true
		return port, nil
	}
	return 0, errors.Join(fmt.Errorf("no free port from %d to %d on 127.0.0.1", first, last), problems)
}

// Listening returns nil if a server accepts connections at an address.
func Listening(address string) error {
	c, err := net.Dial("tcp", address)
	if err != nil {
		return err
	}
	return c.Close()
}

// Address is 127.0.0.1 with a port by Find.
func Address() (string, error) {
	port, err := Find()
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), err
}
