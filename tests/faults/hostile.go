package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// speeches are what hostile clients send to an HTTP server. One that is repeated never ends.
var speeches = []struct {
	name, once, repeated string
}{
	{"garbage", "", "\x00\xff\x16\x03\x01\r\n"},
	{"half a request line", "GET /met", ""},
	{"an endless header", "GET /metrics HTTP/1.1\r\nHost: x\r\n", "X-Filler: " + "x" + "\r\n"},
	{"an endless line", "GET /metrics HTTP/1.1\r\nHost: x\r\nX-Filler: ", strings.Repeat("x", 4096)},
	{"an endless body", "POST /metrics HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n", "1000\r\n" + strings.Repeat("x", 4096) + "\r\n"},
	{"requests without reading the answers", "", "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"},
}

// hostileTime is how long hostile clients continue, clientsEach how many of each kind there are.
const (
	hostileTime = 20 * time.Second
	clientsEach = 5
)

// hostile has every kind of client at every port of ours at once.
func (l *lab) hostile() error {
	ctx, cancel := context.WithTimeout(l.ctx, hostileTime)
	defer cancel()
	var wait sync.WaitGroup
	var connected atomic.Int64
	for _, address := range l.observers() {
		u, err := url.Parse(address)
		if err != nil {
			return err
		}
		for _, s := range speeches {
			for range clientsEach {
				wait.Go(func() {
					for ctx.Err() == nil {
						if speak(ctx, u.Host, s.once, s.repeated) == nil {
							connected.Add(1)
						}
					}
				})
			}
		}
	}
	wait.Wait()
	if connected.Load() == 0 {
		return fmt.Errorf("no hostile client could connect")
	}
	return nil
}

// speak writes until the server closes the connection or the time is over. Faster writes would only measure this
// machine's CPUs: a client makes at most a few hundred writes a second.
func speak(ctx context.Context, address, once, repeated string) error {
	c, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	defer c.Close()
	end, _ := ctx.Deadline()
	_ = c.SetDeadline(end)
	if _, err := io.WriteString(c, once); err != nil {
		return nil
	}
	if repeated == "" {
		_, _ = io.Copy(io.Discard, c) // until the server has had enough
		return nil
	}
	every := time.NewTicker(5 * time.Millisecond)
	defer every.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-every.C:
		}
		if _, err := io.WriteString(c, repeated); err != nil {
			return nil
		}
	}
}

// growth returns by how much the exporters' memory grew in the last minute.
func (l *lab) growth() string {
	const ours = `{job=~"plumbline-agent|longhorn-exporter|loadgen"}`
	v, err := l.prometheus.Vector(l.ctx, `max((max_over_time(process_resident_memory_bytes`+ours+`[1m]) - min_over_time(process_resident_memory_bytes`+ours+`[1m])) / 1e6)`)
	if err != nil || len(v) != 1 {
		return fmt.Sprintf("memory unknown: %v", err)
	}
	return fmt.Sprintf("the one that grew most took %.0f MB more", float64(v[0].Value))
}

// garbage goes to the database's socket and to the data ports of the replicas.
func (l *lab) garbage() error {
	e, err := l.engine()
	if err != nil {
		return err
	}
	to := [][2]string{}
	sockets, err := filepath.Glob(filepath.Join(l.class("longhorn-r3").SocketDirectory(), ".s.PGSQL.*"))
	if err != nil {
		return err
	}
	for _, s := range sockets {
		if !strings.HasSuffix(s, ".lock") {
			to = append(to, [2]string{"unix", s})
		}
	}
	for _, r := range e.Replicas {
		to = append(to, [2]string{"tcp", strings.TrimSuffix(r.Address, "0") + "1"})
	}
	for _, text := range [][]byte{bytes.Repeat([]byte{0xff}, 1<<20), []byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n"), make([]byte, 4096)} {
		for _, a := range to {
			c, err := net.Dial(a[0], a[1])
			if err != nil {
				return err
			}
			_ = c.SetDeadline(time.Now().Add(time.Second))
			_, _ = c.Write(text)
			_, _ = io.Copy(io.Discard, c)
			_ = c.Close()
		}
	}
	return nil
}
