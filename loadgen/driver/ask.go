package driver

import (
	"context"
	"net"
)

// Address queries a server for where it answers, as the node agent knows it: HOST:PORT, or "" at the other end of a
// Unix socket.
func Address(ctx context.Context, engine, dsn string) (string, error) {
	dial, err := newDialer(engine, dsn, false)
	if err != nil {
		return "", err
	}
	c, err := dial(ctx)
	if err != nil {
		return "", err
	}
	defer c.Close()
	a, err := c.Address(ctx)
	if err != nil || a == (address{}) {
		return "", err
	}
	return net.JoinHostPort(a.host, a.port), nil
}
