package adapter

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"os"
	"slices"
	"strconv"
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
	config, _, err := postgresConfig(dsn)
	return config, err
}

// postgresConfig also reports whether the hosts have addresses, so that their names are not looked up.
func postgresConfig(dsn string) (config *pgx.ConnConfig, addressed bool, err error) {
	if dsn != "" && !strings.Contains(dsn, "=") && !strings.Contains(dsn, "://") {
		dsn = "dbname=" + quoted(dsn)
	}
	if config, err = pgx.ParseConfig(dsn); err != nil {
		return nil, false, refusal(dsn)
	}
	// As by libpq: from the string, else from the service, else from the environment, which pgx leaves out.
	addresses, given := config.RuntimeParams["hostaddr"]
	if !given {
		addresses = os.Getenv("PGHOSTADDR")
	}
	addressed = addresses != ""
	// An address goes before a socket, which pgx takes as its default also where a service names no host.
	if addressed && (!hasHost(dsn) || strings.HasPrefix(config.Host, "/")) {
		if config, err = pgx.ParseConfig(withHost(dsn, addresses)); err != nil {
			return nil, false, refusal(dsn)
		}
		addresses = ""
	}
	if err := lookUp(config, addresses); err != nil {
		return nil, false, err
	}
	// Else the client sends the server parameters that only libpq knows, and the server refuses.
	name := cmp.Or(config.RuntimeParams["application_name"], config.RuntimeParams["fallback_application_name"], "loadgen")
	maps.DeleteFunc(config.RuntimeParams, func(key, _ string) bool { return slices.Contains(libpqOnly, key) })
	config.RuntimeParams["application_name"] = name
	if strings.EqualFold(config.RuntimeParams["client_encoding"], "auto") {
		delete(config.RuntimeParams, "client_encoding")
	}
	return config, addressed, nil
}

// libpqOnly are the parameters of libpq's connection strings that are not the server's, and that pgx does not know:
// what it does without is of no account to a load.
var libpqOnly = []string{"hostaddr", "fallback_application_name", "keepalives", "keepalives_idle", "keepalives_interval", "keepalives_count", "tcp_user_timeout",
	"gssencmode", "gsslib", "gssdelegation", "krbsrvname", "sslcompression", "sslcrl", "sslcrldir", "requirepeer", "requiressl", "ssl_min_protocol_version",
	"ssl_max_protocol_version", "sslkeylogfile", "load_balance_hosts", "scram_client_key", "scram_server_key", "authtype", "tty",
	"oauth_issuer", "oauth_client_id", "oauth_client_secret", "oauth_scope"}

// hasHost reports whether a connection string, or the environment, names a host or a service, which may have one.
func hasHost(dsn string) bool {
	if given := parameters(dsn); cmp.Or(os.Getenv("PGHOST"), os.Getenv("PGSERVICE"), given["host"], given["service"]) != "" {
		return true
	}
	if isURL(dsn) {
		rest, _ := splitURL(dsn)
		_, rest, _ = strings.Cut(rest, "://")
		if i := strings.IndexAny(rest, "@/"); i >= 0 && rest[i] == '@' {
			rest = rest[i+1:]
		}
		return rest != "" && !strings.ContainsAny(rest[:1], "/?")
	}
	return false
}

// withHost adds a host to a connection string.
func withHost(dsn, host string) string {
	switch {
	case !isURL(dsn):
		return dsn + " host=" + quoted(host)
	case strings.Contains(dsn, "?"):
		return dsn + "&host=" + url.QueryEscape(host)
	}
	return dsn + "?host=" + url.QueryEscape(host)
}

// lookUp has the hosts of a configuration be at the addresses of hostaddr, one each: their names are then only for
// their certificates. Hosts of one name are tried one after the other.
func lookUp(config *pgx.ConnConfig, list string) error {
	if list == "" {
		return nil
	}
	type place struct{ host, address, port string }
	var places []place
	all := append([]*pgconn.FallbackConfig{{Host: config.Host, Port: config.Port, TLSConfig: config.TLSConfig}}, config.Fallbacks...)
	for i := 0; i < len(all); i++ {
		h := all[i]
		places = append(places, place{host: h.Host, port: strconv.Itoa(int(h.Port))})
		// One host with TLS and without, in either order.
		if i+1 < len(all) && all[i+1].Host == h.Host && all[i+1].Port == h.Port && (all[i+1].TLSConfig == nil) != (h.TLSConfig == nil) {
			i++
		}
	}
	addresses := strings.Split(list, ",")
	if len(places) != len(addresses) {
		return fmt.Errorf("connection string: hostaddr, or PGHOSTADDR, has %d addresses; want one for each host, of which there are %d", len(addresses), len(places))
	}
	for i := range places {
		places[i].address = addresses[i]
	}
	// All places of a name are tried where it first is.
	type once struct {
		host   string
		secure bool
	}
	seen := map[once]bool{{config.Host, config.TLSConfig != nil}: true}
	config.Fallbacks = slices.DeleteFunc(config.Fallbacks, func(f *pgconn.FallbackConfig) bool {
		this := once{f.Host, f.TLSConfig != nil}
		defer func() { seen[this] = true }()
		return seen[this]
	})
	usual := config.LookupFunc
	config.LookupFunc = func(ctx context.Context, host string) (found []string, err error) {
		for _, p := range places {
			if p.host != host {
				continue
			}
			at := []string{p.address}
			if p.address == "" {
				if at, err = usual(ctx, host); err != nil {
					continue
				}
			}
			for _, address := range at {
				found = append(found, net.JoinHostPort(address, p.port))
			}
		}
		if len(found) > 0 {
			return found, nil
		}
		return nil, err
	}
	return nil
}

// refusal returns why pgx does not take a connection string. pgx's own error repeats the string, and knows passwords in
// some forms only. So the string is read again without its password, and only that error's reason is returned.
func refusal(dsn string) error {
	rest, _ := splitURL(dsn)
	var err error
	if !isURL(dsn) {
		if rest, _, err = splitPassword(dsn); err != nil {
			return err
		}
	}
	_, err = pgx.ParseConfig(rest)
	var parse *pgconn.ParseConfigError
	if !errors.As(err, &parse) {
		return errors.New("connection string: it cannot be read: blanks and quotes in its password must be quoted, and no zero byte can be in it")
	}
	cleaned := *parse
	cleaned.ConnString = ""
	return errors.New("connection string: " + strings.TrimPrefix(cleaned.Error(), "cannot parse ``: "))
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
