package adapter

import (
	"context"
	"crypto/tls"
	"errors"
	"maps"
	"net"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
)

// Reached is a server that answered, for a driver that knows less of connection strings than libpq: one host, and
// whether it is spoken to by TLS.
type Reached struct {
	config *pgx.ConnConfig
	secure bool
	// address is where it was reached, if its host's name is not looked up.
	address string
}

// Resolved are variables of libpq's environment of which all is in what Plain returns, or that are of no account. lib/pq
// would read them again, and refuses some.
var Resolved = []string{"PGHOST", "PGHOSTADDR", "PGPORT", "PGSERVICE", "PGSERVICEFILE",
	"PGGSSENCMODE", "PGGSSDELEGATION", "PGGSSLIB", "PGKRBSRVNAME", "PGSSLCOMPRESSION"}

// Reach connects to the first server of a connection string that is taken by it, and ends the connection.
func Reach(ctx context.Context, dsn string) (*Reached, error) {
	config, addressed, err := postgresConfig(dsn)
	if err != nil {
		return nil, Final(err)
	}
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	type place struct {
		host string
		port uint16
	}
	var tried []place
	var failed []error
	all := append([]*tlsHost{{config.Host, config.Port, config.TLSConfig}}, fallbacks(config)...)
	for _, h := range all {
		one := config.Copy()
		one.Host, one.Port, one.TLSConfig, one.Fallbacks = h.host, h.port, h.tls, nil
		c, err := pgx.ConnectConfig(ctx, one)
		if err == nil {
			r := &Reached{config: one}
			_, r.secure = c.PgConn().Conn().(*tls.Conn)
			if at, ok := c.PgConn().Conn().RemoteAddr().(*net.TCPAddr); ok && addressed {
				r.address = at.AddrPort().Addr().Unmap().String()
			}
			_ = c.Close(ctx)
			return r, nil
		}
		if at := (place{h.host, h.port}); !slices.Contains(tried, at) {
			tried, failed = append(tried, at), append(failed, err)
		}
	}
	return nil, &ConnectionError{errors.Join(failed...)}
}

// tlsHost is a place to try, with TLS or without.
type tlsHost struct {
	host string
	port uint16
	tls  *tls.Config
}

func fallbacks(config *pgx.ConnConfig) (all []*tlsHost) {
	for _, f := range config.Fallbacks {
		all = append(all, &tlsHost{f.Host, f.Port, f.TLSConfig})
	}
	return all
}

// Plain is a connection string of key=value pairs in which nothing is left to find out: what lib/pq takes. dsn is the
// one it was made of.
func (r *Reached) Plain(dsn string) string {
	c := r.config
	values := map[string]string{"host": c.Host, "hostaddr": r.address, "port": strconv.Itoa(int(c.Port)), "user": c.User, "password": c.Password, "dbname": c.Database}
	maps.Copy(values, c.RuntimeParams)
	if c.ConnectTimeout > 0 {
		values["connect_timeout"] = strconv.Itoa(int(c.ConnectTimeout.Seconds()))
	}
	values["sslmode"] = "disable"
	if r.secure {
		given := parameters(dsn)
		values["sslmode"] = "require"
		if mode := given["sslmode"]; strings.HasPrefix(mode, "verify-") {
			values["sslmode"] = mode
		}
		for _, key := range []string{"sslrootcert", "sslcert", "sslkey"} {
			values[key] = given[key]
		}
	}
	var pairs []string
	for _, key := range slices.Sorted(maps.Keys(values)) {
		if values[key] != "" {
			pairs = append(pairs, key+"="+quoted(values[key]))
		}
	}
	return strings.Join(pairs, " ")
}

// parameters are those of a connection string's pairs, or of a URL's query, and of the environment.
func parameters(dsn string) map[string]string {
	values := map[string]string{}
	for key, variable := range map[string]string{"sslmode": "PGSSLMODE", "sslrootcert": "PGSSLROOTCERT", "sslcert": "PGSSLCERT", "sslkey": "PGSSLKEY"} {
		values[key] = os.Getenv(variable)
	}
	if isURL(dsn) {
		_, query, _ := strings.Cut(dsn, "?")
		for _, parameter := range strings.Split(query, "&") {
			key, value, _ := strings.Cut(parameter, "=")
			decodedKey, errKey := url.PathUnescape(key)
			if decoded, err := url.PathUnescape(value); err == nil && errKey == nil && key != "" {
				values[strings.TrimSpace(decodedKey)] = decoded
			}
		}
		return values
	}
	if pairs, err := keyValues(dsn); err == nil {
		for _, p := range pairs {
			values[p[0]] = p[1]
		}
	}
	return values
}
