package adapter

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
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
		return nil, fmt.Errorf("connection string: %w", err)
	}
	if config.RuntimeParams["application_name"] == "" {
		config.RuntimeParams["application_name"] = "loadgen"
	}
	return config, nil
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
