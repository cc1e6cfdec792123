package driver

import (
	"context"
	"database/sql"
	"net/netip"
	"strconv"
	"strings"
)

// address is where a server reports that it can be reached: what the node agent, too, knows it by. The zero address is
// of one that cannot report it, such as at the other end of a Unix socket.
type address struct{ host, port string }

// Queries that any user may run, each with one text as its answer: the host, a space, the port. Behind a Service, a
// pooler or a balancer they identify the instance that answers.
const (
	// postgresAddress queries the address that the connection came in at; null on a Unix socket.
	postgresAddress = "select pg_catalog.host(pg_catalog.inet_server_addr()) || ' ' || pg_catalog.inet_server_port()"
	// mysqlAddress queries the host's name, which is the pod's: MySQL reports no addresses.
	mysqlAddress = "select concat(@@hostname, ' ', @@port)"
)

// parseAddress reads a server's answer. What is no address and port, or no name of a host, is none.
func parseAddress(answer string) address {
	host, port, _ := strings.Cut(answer, " ")
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return address{}
	}
	if ip, err := netip.ParseAddr(host); err == nil {
		return address{ip.Unmap().WithZone("").String(), port}
	}
	const longest = 253 // of a name in DNS
	if host == "" || len(host) > longest || strings.Trim(host, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-.") != "" {
		return address{}
	}
	return address{host, port}
}

func (p postgres) Address(ctx context.Context) (address, error) {
	results, err := p.c.PgConn().Exec(ctx, postgresAddress).ReadAll()
	if err != nil || len(results) == 0 || len(results[0].Rows) == 0 || len(results[0].Rows[0]) == 0 {
		return address{}, err
	}
	return parseAddress(string(results[0].Rows[0][0])), nil
}

func (m *mariadb) Address(ctx context.Context) (address, error) {
	var answer sql.NullString
	err := m.c.QueryRowContext(ctx, mysqlAddress).Scan(&answer)
	return parseAddress(answer.String), err
}
