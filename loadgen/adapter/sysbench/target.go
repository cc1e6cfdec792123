package sysbench

import (
	"fmt"
	"net"
	"strings"

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

// longestLine is how many bytes sysbench reads of a line of its file of options, with its end.
const longestLine = 255

// option is a line of sysbench's file of options with one of MySQL's. There a bare value ends at a comma or a blank, and
// in a quoted one nothing stands for the quote itself.
func option(name, value string) (string, error) {
	quote := "'"
	if strings.Contains(value, quote) {
		quote = `"`
	}
	line := "mysql-" + name + "=" + quote + value + quote
	refused := func(why string) (string, error) {
		return "", fmt.Errorf("connection string: sysbench cannot read its %s from a file of options: %s", name, why)
	}
	switch {
	case strings.Contains(value, quote):
		return refused("it has both ' and \"")
	case strings.ContainsAny(value, "\n\x00"):
		return refused("it has a line end or a zero byte")
	case len(line) >= longestLine:
		return refused(fmt.Sprintf("it has %d bytes, %d too many", len(value), len(line)-longestLine+1))
	}
	return line, nil
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
		options, place := []string{"db-driver=mysql"}, [][2]string{{"socket", c.Addr}}
		if c.Net != "unix" {
			host, port, err := net.SplitHostPort(c.Addr)
			if err != nil {
				return nil, nil, nil, fmt.Errorf("connection string: %w", err)
			}
			place = [][2]string{{"host", host}, {"port", port}}
		}
		for _, o := range append(place, [2]string{"user", c.User}, [2]string{"password", c.Passwd}, [2]string{"db", c.DBName}) {
			line, err := option(o[0], o[1])
			if err != nil {
				return nil, nil, nil, err
			}
			options = append(options, line)
		}
		return options, nil, nil, nil
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
