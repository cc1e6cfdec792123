package sysbench

import (
	"context"
	"database/sql"

	"github.com/jackc/pgx/v5"

	"github.com/plumbline/plumbline/loadgen/adapter"
)

// database is a connection to a server of either engine.
type database interface {
	exec(ctx context.Context, statement string) error
	// each calls take with each row of a query.
	each(ctx context.Context, query string, take func(scan func(...any) error) error) error
	close()
}

// open connects by the driver of the engine.
func (t Target) open(ctx context.Context) (database, error) {
	if t.Engine == "mysql" {
		db, err := sql.Open("mysql", t.DSN)
		if err != nil {
			return nil, err
		}
		return mariadb{db}, nil
	}
	c, err := adapter.Connect(ctx, t.DSN)
	if err != nil {
		return nil, err
	}
	return postgres{c}, nil
}

type postgres struct{ c *pgx.Conn }

func (p postgres) exec(ctx context.Context, statement string) error {
	_, err := p.c.Exec(ctx, statement)
	return err
}

func (p postgres) each(ctx context.Context, query string, take func(func(...any) error) error) error {
	rows, err := p.c.Query(ctx, query)
	if err != nil {
		return err
	}
	defer rows.Close()
	return eachOf(rows, take)
}

func (p postgres) close() { _ = p.c.Close(context.Background()) }

type mariadb struct{ db *sql.DB }

func (m mariadb) exec(ctx context.Context, statement string) error {
	_, err := m.db.ExecContext(ctx, statement)
	return err
}

func (m mariadb) each(ctx context.Context, query string, take func(func(...any) error) error) error {
	rows, err := m.db.QueryContext(ctx, query)
	if err != nil {
		return err
	}
	defer rows.Close()
	return eachOf(rows, take)
}

func (m mariadb) close() { _ = m.db.Close() }

// eachOf reads the rows of either driver.
func eachOf(rows interface {
	Next() bool
	Scan(...any) error
	Err() error
}, take func(func(...any) error) error) error {
	for rows.Next() {
		if err := take(rows.Scan); err != nil {
			return err
		}
	}
	return rows.Err()
}
