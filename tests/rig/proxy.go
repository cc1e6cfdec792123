package rig

import (
	"io"
	"net"
	"strings"
	"sync"
	"time"
)

// StartDelayProxy puts a proxy at address before a replica: its control port as it is, its
// data port with what goes to the replica held back.
func StartDelayProxy(t T, address, replica string) *Delay {
	t.Helper()
	p := &proxy{delay: &Delay{}}
	next := func(a string) string { return strings.TrimSuffix(a, "0") + "1" }
	t.Cleanup(p.stop)
	if err := p.serve(address, replica, false); err != nil {
		t.Fatalf("%v", err)
	}
	if err := p.serve(next(address), next(replica), true); err != nil {
		t.Fatalf("%v", err)
	}
	return p.delay
}

type proxy struct {
	delay   *Delay
	running sync.WaitGroup
	mu      sync.Mutex
	closed  bool
	closers []io.Closer
}

// keep has something closed at the end, or now if that is past.
func (p *proxy) keep(c io.Closer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closers = append(p.closers, c)
	if p.closed {
		_ = c.Close()
	}
}

func (p *proxy) stop() {
	p.mu.Lock()
	p.closed = true
	for _, c := range p.closers {
		_ = c.Close()
	}
	p.mu.Unlock()
	p.running.Wait()
}

func (p *proxy) serve(from, to string, delayed bool) error {
	l, err := net.Listen("tcp", from)
	if err != nil {
		return err
	}
	p.keep(l)
	p.running.Go(func() {
		for {
			near, err := l.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("tcp", to)
			if err != nil {
				_ = near.Close()
				continue
			}
			p.keep(near)
			p.keep(far)
			p.running.Go(func() { pump(far, near, p.delay, delayed) })
			p.running.Go(func() { pump(near, far, p.delay, false) })
		}
	})
	return nil
}

// pump copies one direction. The delay is a line, not a gate: what comes while something is
// held back waits from its own arrival on.
func pump(to, from net.Conn, d *Delay, delayed bool) {
	type chunk struct {
		data    []byte
		arrival time.Time
	}
	line := make(chan chunk, 1024)
	go func() {
		defer close(line)
		for {
			b := make([]byte, 64<<10)
			n, err := from.Read(b)
			if err != nil {
				return
			}
			line <- chunk{b[:n], time.Now()}
		}
	}()
	for c := range line {
		if delayed {
			d.Hold(c.arrival)
		}
		if _, err := to.Write(c.data); err != nil {
			_ = from.Close() // ends the reader
		}
	}
	_ = to.Close()
}
