package sysbench

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/plumbline/plumbline/loadgen/adapter"
)

// releaseTimeout is how long a server may take to give a lock back.
const releaseTimeout = 10 * time.Second

// lock connects for the lock under which sysbench's tables are made in the database.
func (t Target) lock(ctx context.Context) (adapter.Lock, error) {
	if t.Engine != "mysql" {
		return adapter.PostgresLock(ctx, t.DSN, makingTable)
	}
	config, err := mysql.ParseDSN(t.DSN)
	if err != nil {
		return nil, err
	}
	db, err := sql.Open("mysql", t.DSN)
	if err != nil {
		return nil, err
	}
	l := &mysqlLock{db: db}
	if l.c, err = db.Conn(ctx); err == nil {
		err = l.c.QueryRowContext(ctx, "select coalesce(database(), '')").Scan(&l.database)
	}
	if err != nil {
		l.Close()
		return nil, fmt.Errorf("connecting to the database %s for its lock: %w", config.DBName, err)
	}
	return l, nil
}

// mysqlLock is a lock by GET_LOCK, which belongs to a session.
type mysqlLock struct {
	db       *sql.DB
	c        *sql.Conn
	database string
}

// name has the database in it, as these locks are of the whole server; it may have 64 characters.
func (l *mysqlLock) name() string {
	return fmt.Sprintf("%s_%x", makingTable, sha256.Sum256([]byte(l.database)))[:64]
}

// mysqlNoLock are the codes of a server that has no such function, or forbids it as Percona XtraDB Cluster does.
var mysqlNoLock = []uint16{1105, 1235, 1305}

func (l *mysqlLock) Take(ctx context.Context, wait time.Duration) (bool, error) {
	var got sql.NullInt64
	err := l.c.QueryRowContext(ctx, fmt.Sprintf("select get_lock('%s', %d)", l.name(), int(math.Ceil(wait.Seconds())))).Scan(&got)
	var refused *mysql.MySQLError
	if errors.As(err, &refused) && slices.Contains(mysqlNoLock, refused.Number) {
		err = fmt.Errorf("%w: %w", adapter.ErrNoLock, err)
	}
	return got.Int64 == 1, err
}

func (l *mysqlLock) Ping(ctx context.Context) error {
	_, err := l.c.ExecContext(ctx, "do 0")
	return err
}

func (l *mysqlLock) Database() string { return l.database }

func (l *mysqlLock) Close() {
	if l.c != nil {
		ctx, cancel := context.WithTimeout(context.Background(), releaseTimeout)
		defer cancel()
		// So that the lock is free when this returns; the end of the connection gives it back as well.
		_, _ = l.c.ExecContext(ctx, "do release_lock('"+l.name()+"')")
		_ = l.c.Close()
	}
	_ = l.db.Close()
}
