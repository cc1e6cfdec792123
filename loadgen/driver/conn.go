package driver

import (
	"context"
	"database/sql"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"

	"github.com/plumbline/plumbline/loadgen/adapter"
)

// conn is one connection to a database, of either engine. Statements mark parameters by '?'.
type conn interface {
	Exec(ctx context.Context, statement string, parameters ...any) error
	// Read reads all rows of a query and returns the first column of the last, an integer.
	Read(ctx context.Context, query string, parameters ...any) (int64, error)
	// Rollback ends a transaction under way, if there is one.
	Rollback(ctx context.Context) error
	// Address queries the server for where it can be reached.
	Address(ctx context.Context) (address, error)
	Engine() string
	Close()
}

// closeGrace is how long a server may take to hear that a connection is closed.
const closeGrace = time.Second

// dialer makes one connection.
type dialer func(ctx context.Context) (conn, error)

// Engines are the database engines the driver speaks to.
var Engines = []string{"postgres", "mysql"}

// newDialer reads a connection string. With writable, servers that take no writes are refused.
func newDialer(engine, dsn string, writable bool) (dialer, error) {
	switch engine {
	case "postgres":
		config, err := adapter.PostgresConfig(dsn)
		if err != nil {
			return nil, err
		}
		if writable {
			onlyWritable(config, dsn)
		}
		return func(ctx context.Context) (conn, error) {
			c, err := pgx.ConnectConfig(ctx, config)
			if err != nil {
				return nil, err
			}
			return postgres{c}, nil
		}, nil
	case "mysql":
		config, err := mysql.ParseDSN(dsn)
		if err != nil {
			return nil, fmt.Errorf("connection string: not of the form user:password@unix(/path)/database or user:password@tcp(host:port)/database")
		}
		config.Logger = &mysql.NopLogger{} // errors are returned; they need no second way out
		connector, err := mysql.NewConnector(config)
		if err != nil {
			return nil, fmt.Errorf("connection string: %w", err)
		}
		return func(ctx context.Context) (conn, error) {
			pool := sql.OpenDB(connector)
			pool.SetMaxOpenConns(1)
			c, err := pool.Conn(ctx)
			if err != nil {
				pool.Close()
				return nil, err
			}
			m := &mariadb{pool: pool, c: c, prepared: map[string]*sql.Stmt{}}
			if writable {
				if err := m.writable(ctx); err != nil {
					m.Close()
					return nil, err
				}
			}
			return m, nil
		}, nil
	}
	return nil, fmt.Errorf("unknown engine %q; there are %s", engine, strings.Join(Engines, ", "))
}

// postgres prepares each statement at its first use on a connection (pgx does).
type postgres struct{ c *pgx.Conn }

// numbered turns the '?' of a statement into $1, $2 and so on. The profiles' statements have
// no question mark elsewhere.
func numbered(statement string) string {
	var b strings.Builder
	n := 0
	for _, r := range statement {
		if r != '?' {
			b.WriteRune(r)
			continue
		}
		n++
		b.WriteString("$" + strconv.Itoa(n))
	}
	return b.String()
}

func (p postgres) Exec(ctx context.Context, statement string, parameters ...any) error {
	if len(parameters) == 0 {
		// Not worth preparing: begin, commit, and the large inserts that fill a table.
		parameters = []any{pgx.QueryExecModeSimpleProtocol}
	}
	_, err := p.c.Exec(ctx, numbered(statement), parameters...)
	return err
}

func (p postgres) Read(ctx context.Context, query string, parameters ...any) (int64, error) {
	rows, err := p.c.Query(ctx, numbered(query), parameters...)
	if err != nil {
		return 0, err
	}
	defer rows.Close()
	return lastOf(rows)
}

// lastOf reads all rows of either driver and returns the first column of the last.
func lastOf(rows interface {
	Next() bool
	Scan(...any) error
	Err() error
}) (int64, error) {
	var last int64
	for rows.Next() {
		if err := rows.Scan(&last); err != nil {
			return 0, err
		}
	}
	return last, rows.Err()
}

func (p postgres) Rollback(ctx context.Context) error {
	if p.c.IsClosed() {
		return net.ErrClosed
	}
	if p.c.PgConn().TxStatus() == 'I' {
		return nil
	}
	_, err := p.c.Exec(ctx, "rollback")
	return err
}

func (p postgres) Engine() string { return "postgres" }

func (p postgres) Close() {
	ctx, cancel := context.WithTimeout(context.Background(), closeGrace)
	defer cancel()
	_ = p.c.Close(ctx)
}

// mariadb is a connection to MySQL or MariaDB; a pool of one, because database/sql has no other.
type mariadb struct {
	pool     *sql.DB
	c        *sql.Conn
	prepared map[string]*sql.Stmt
}

func (m *mariadb) statement(ctx context.Context, text string) (*sql.Stmt, error) {
	if s := m.prepared[text]; s != nil {
		return s, nil
	}
	s, err := m.c.PrepareContext(ctx, text)
	if err == nil {
		m.prepared[text] = s
	}
	return s, err
}

func (m *mariadb) Exec(ctx context.Context, statement string, parameters ...any) error {
	if len(parameters) == 0 {
		_, err := m.c.ExecContext(ctx, statement)
		return err
	}
	s, err := m.statement(ctx, statement)
	if err == nil {
		_, err = s.ExecContext(ctx, parameters...)
	}
	return err
}

func (m *mariadb) Read(ctx context.Context, query string, parameters ...any) (int64, error) {
	var rows *sql.Rows
	var err error
	if len(parameters) == 0 {
		rows, err = m.c.QueryContext(ctx, query)
	} else {
		var s *sql.Stmt
		if s, err = m.statement(ctx, query); err == nil {
			rows, err = s.QueryContext(ctx, parameters...)
		}
	}
	if err != nil {
		return 0, err
	}
	defer rows.Close()
	return lastOf(rows)
}

func (m *mariadb) Rollback(ctx context.Context) error {
	_, err := m.c.ExecContext(ctx, "rollback")
	return err
}

func (m *mariadb) Engine() string { return "mysql" }

func (m *mariadb) Close() {
	_ = m.c.Close()
	_ = m.pool.Close()
}
