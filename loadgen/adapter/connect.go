package adapter

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// connectTimeout bounds one try to connect.
const connectTimeout = 10 * time.Second

// PostgresConfig reads a connection string, a bare database name, or "" for the PG*
// environment alone. Its error never repeats a password.
func PostgresConfig(dsn string) (*pgx.ConnConfig, error) {
	if dsn != "" && !strings.Contains(dsn, "=") && !strings.Contains(dsn, "://") {
		dsn = "dbname='" + strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(dsn) + "'"
	}
	config, err := pgx.ParseConfig(dsn)
	if err != nil {
		return nil, refusal(dsn)
	}
	if config.RuntimeParams["application_name"] == "" {
		config.RuntimeParams["application_name"] = "loadgen"
	}
	return config, nil
}

// refusal is why pgx does not take a connection string. pgx's own error repeats the string, and knows passwords in some forms only. So the
// string is read again without its password, and what is told of that error is its reason alone.
func refusal(dsn string) error {
	rest, _, err := SplitPassword(dsn)
	if err != nil {
		return err
	}
	_, err = pgx.ParseConfig(rest)
	var parse *pgconn.ParseConfigError
	if !errors.As(err, &parse) {
		return errors.New("connection string: it cannot be read: blanks and quotes in its password must be quoted, and no zero byte can be in it")
	}
	told := *parse
	told.ConnString = ""
	return errors.New("connection string: " + strings.TrimPrefix(told.Error(), "cannot parse ``: "))
}

// Connect opens one connection to PostgreSQL.
func Connect(ctx context.Context, dsn string) (*pgx.Conn, error) {
	config, err := PostgresConfig(dsn)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	return pgx.ConnectConfig(ctx, config)
}
