package sysbench

import (
	"fmt"
	"net"
	"strconv"

	"github.com/go-sql-driver/mysql"

	"github.com/plumbline/plumbline/loadgen/adapter"
)

// Target is where the database is.
type Target struct {
	// Engine is postgres or mysql.
	Engine string
	// DSN is in pgx's or go-sql-driver's form.
	DSN string
}

// options are sysbench's own for the target. sysbench has none for most of what a connection
// string can say (TLS files, time-outs); those take no effect.
func (t Target) options() ([]string, error) {
	if t.Engine == "mysql" {
		c, err := mysql.ParseDSN(t.DSN)
		if err != nil {
			return nil, fmt.Errorf("connection string: not of the form user:password@unix(/path)/database or user:password@tcp(host:port)/database")
		}
		options := []string{"db-driver=mysql", "mysql-user=" + c.User, "mysql-password=" + c.Passwd, "mysql-db=" + c.DBName}
		if c.Net == "unix" {
			return append(options, "mysql-socket="+c.Addr), nil
		}
		host, port, err := net.SplitHostPort(c.Addr)
		if err != nil {
			return nil, fmt.Errorf("connection string: %w", err)
		}
		return append(options, "mysql-host="+host, "mysql-port="+port), nil
	}
	c, err := adapter.PostgresConfig(t.DSN)
	if err != nil {
		return nil, err
	}
	return []string{"db-driver=pgsql", "pgsql-host=" + c.Host, "pgsql-port=" + strconv.Itoa(int(c.Port)), "pgsql-user=" + c.User,
		"pgsql-password=" + c.Password, "pgsql-db=" + c.Database}, nil
}
