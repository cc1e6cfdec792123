package kubetest

import (
	"io"
	"net"
	"sync"
	"testing"

	"github.com/plumbline/plumbline/tests/testkit"
)

// Gate passes connections on to a server while it is open, so that the server can be away for its
// clients without being stopped.
type Gate struct {
	To string // the server's address
	At string // where the gate listens

	mu    sync.Mutex
	l     net.Listener
	conns []net.Conn
}

// Open lets connections through until Shut, or the test's end.
func (g *Gate) Open(t testing.TB) {
	t.Helper()
	testkit.Eventually(t, testkit.DefaultTimeout, func() (err error) {
		g.l, err = net.Listen("tcp", g.At)
		return err
	})
	l := g.l
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", g.To)
			if err != nil {
				client.Close()
				continue
			}
			g.mu.Lock()
			g.conns = append(g.conns, client, server)
			g.mu.Unlock()
			go io.Copy(server, client)
			go io.Copy(client, server)
		}
	}()
}

// Shut ends all connections and takes no new ones.
func (g *Gate) Shut() {
	g.l.Close()
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, c := range g.conns {
		c.Close()
	}
	g.conns = nil
}
