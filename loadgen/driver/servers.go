package driver

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/plumbline/plumbline/loadgen/adapter"
)

// servers are the servers that one database may be at: a primary and those that may follow it.
type servers struct {
	dials []dialer
	first atomic.Int32 // tried first: the one that worked last
}

// newServers reads the connection strings. Of several, one is only taken while it can be written to.
func newServers(engine string, dsns []string) (*servers, error) {
	s := &servers{}
	for _, dsn := range dsns {
		d, err := newDialer(engine, dsn, len(dsns) > 1)
		if err != nil {
			return nil, err
		}
		s.dials = append(s.dials, d)
	}
	return s, nil
}

// dial connects to the first server that takes it, and returns which. Each has its share of the time that is left, for
// one that is cut off does not refuse but hangs.
func (s *servers) dial(ctx context.Context) (conn, int, error) {
	first, all := int(s.first.Load()), len(s.dials)
	var failed error
	for i := range all {
		n := (first + i) % all
		c, err := s.try(ctx, n, all-i)
		if err == nil {
			s.first.Store(int32(n))
			return c, n, nil
		}
		if all > 1 {
			err = fmt.Errorf("server %d of %d: %w", n+1, all, err)
		}
		if failed != nil {
			err = fmt.Errorf("%w; %w", failed, err)
		}
		if failed = err; ctx.Err() != nil {
			break
		}
	}
	return nil, 0, failed
}

func (s *servers) try(ctx context.Context, n, left int) (conn, error) {
	if deadline, ok := ctx.Deadline(); ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Until(deadline)/time.Duration(left))
		defer cancel()
	}
	return s.dials[n](ctx)
}

// lost notes that a connection to a server broke: the next one is tried before it.
func (s *servers) lost(n int) {
	s.first.CompareAndSwap(int32(n), int32((n+1)%len(s.dials)))
}

// onlyWritable makes a configuration refuse servers that cannot be written to, as target_session_attrs=read-write does,
// unless it has that parameter itself.
func onlyWritable(config *pgx.ConnConfig, dsn string) {
	if config.ValidateConnect == nil && !strings.Contains(dsn, "target_session_attrs") && os.Getenv("PGTARGETSESSIONATTRS") == "" {
		config.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsReadWrite
	}
}

// writable checks of a MySQL server what target_session_attrs=read-write checks of PostgreSQL.
func (m *mariadb) writable(ctx context.Context) error {
	var answer string
	if err := m.c.QueryRowContext(ctx, "select cast(@@global.read_only as char)").Scan(&answer); err != nil {
		return err
	}
	if answer != "0" && answer != "OFF" {
		return adapter.ErrReadOnly
	}
	return nil
}
