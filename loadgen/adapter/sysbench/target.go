package sysbench

import (
	"fmt"
	"net"

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

// options are sysbench's own for the target, in its file of options, where no other user sees them. arguments are those
// of its command line, env of its environment. PostgreSQL's connection string is in the place of the database's name,
// where libpq reads it as everywhere; sysbench's own defaults of a host, a user and so on would override it. For MySQL,
// sysbench has no option for most of a string's settings; timeouts have no effect, and one that demands TLS is refused,
// as sysbench would send the password and all data in clear.
func (t Target) options() (options, arguments, env []string, err error) {
	if t.Engine == "mysql" {
		c, err := mysql.ParseDSN(t.DSN)
		if err != nil {
			return nil, nil, nil, fmt.Errorf("connection string: not of the form user:password@unix(/path)/database or user:password@tcp(host:port)/database")
		}
		if tls := c.TLSConfig; tls != "" && tls != "false" && tls != "preferred" {
			return nil, nil, nil, fmt.Errorf("connection string: tls=%s demands TLS, which loadgen cannot demand of sysbench on MySQL: take the canary, or leave tls out where the network may carry the password in clear", tls)
		}
		options := []string{"db-driver=mysql", "mysql-user=" + c.User, "mysql-password=" + c.Passwd, "mysql-db=" + c.DBName}
		if c.Net == "unix" {
			return append(options, "mysql-socket="+c.Addr), nil, nil, nil
		}
		host, port, err := net.SplitHostPort(c.Addr)
		if err != nil {
			return nil, nil, nil, fmt.Errorf("connection string: %w", err)
		}
		return append(options, "mysql-host="+host, "mysql-port="+port), nil, nil, nil
	}
	if _, err := adapter.PostgresConfig(t.DSN); err != nil {
		return nil, nil, nil, err
	}
	rest, password, err := adapter.SplitPassword(t.DSN)
	if err != nil {
		return nil, nil, nil, err
	}
	if password != "" {
		env = []string{"PGPASSWORD=" + password}
	}
	return []string{"db-driver=pgsql"}, []string{"--pgsql-host=", "--pgsql-port=", "--pgsql-user=", "--pgsql-password=", "--pgsql-db=" + rest}, env, nil
}
