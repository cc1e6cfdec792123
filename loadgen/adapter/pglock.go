package adapter

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// postgresLock is an advisory lock of a transaction: a pooler may give a session to somebody else, but no transaction.
type postgresLock struct {
	c        *pgx.Conn
	key      int64
	database string
}

// PostgresLock connects to PostgreSQL for the advisory lock of a name. It is of the database that the connection string
// names.
func PostgresLock(ctx context.Context, dsn, name string) (Lock, error) {
	c, err := Connect(ctx, dsn)
	if err != nil {
		return nil, err
	}
	l := &postgresLock{c: c}
	if err := c.QueryRow(ctx, "select current_database()").Scan(&l.database); err != nil {
		l.Close()
		return nil, fmt.Errorf("asking for the name of the database %s: %w", c.Config().Database, err)
	}
	hash := fnv.New64a()
	hash.Write([]byte(name))
	l.key = int64(hash.Sum64())
	return l, nil
}

func (l *postgresLock) Take(ctx context.Context, wait time.Duration) (bool, error) {
	// A timeout of 0 is none. Only PostgreSQL 17 and later have one for transactions.
	_, err := l.c.Exec(ctx, fmt.Sprintf("begin; set local lock_timeout = %d; set local statement_timeout = 0; "+
		"set local idle_in_transaction_session_timeout = 0; "+
		"select set_config(name, '0', true) from pg_settings where name = 'transaction_timeout'; select pg_advisory_xact_lock(%d)", max(wait.Milliseconds(), 1), l.key))
	if err == nil {
		return true, nil
	}
	var refused *pgconn.PgError
	if !errors.As(err, &refused) {
		return false, err
	}
	if _, err := l.c.Exec(ctx, "rollback"); err != nil {
		return false, err
	}
	switch {
	case refused.Code == "55P03": // lock_not_available
		return false, nil
	case strings.HasPrefix(refused.Code, "42"), strings.HasPrefix(refused.Code, "0A"): // it knows no such function, parameter or feature
		return false, fmt.Errorf("%w: %w", ErrNoLock, err)
	}
	return false, err
}

func (l *postgresLock) Ping(ctx context.Context) error {
	_, err := l.c.Exec(ctx, "select 1")
	return err
}

func (l *postgresLock) Database() string { return l.database }

func (l *postgresLock) Close() {
	ctx, cancel := context.WithTimeout(context.Background(), pingTimeout)
	defer cancel()
	if l.key != 0 {
		// So that the lock is free when this returns; the end of the connection gives it back as well.
		_, _ = l.c.Exec(ctx, "rollback")
	}
	_ = l.c.Close(ctx)
}
