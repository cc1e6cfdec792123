package driver

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/plumbline/plumbline/loadgen/internal/testdb"
	"github.com/plumbline/plumbline/loadgen/internal/testload"
	"github.com/plumbline/plumbline/loadgen/metrics"
	"github.com/plumbline/plumbline/tests/testkit"
)

func TestParseAddress(t *testing.T) {
	for answer, want := range map[string]address{
		"10.244.0.5 5432":               {"10.244.0.5", "5432"},
		"::ffff:10.244.0.5 5432":        {"10.244.0.5", "5432"},
		"fd00::5 5432":                  {"fd00::5", "5432"},
		"fe80::1%eth0 5432":             {"fe80::1", "5432"},
		"mysql-r1-0 3306":               {"mysql-r1-0", "3306"},
		"":                              {},
		"1":                             {},
		"mysql-r1-0 0":                  {}, // listens on a socket only
		"mysql-r1-0 -1":                 {},
		"10.0.0.1 65536":                {},
		"10.0.0.1 5432 x":               {},
		" 5432":                         {},
		"a\nb 5432":                     {},
		"a\"b 5432":                     {},
		strings.Repeat("a", 254) + " 1": {},
	} {
		if got := parseAddress(answer); got != want {
			t.Errorf("%q is %v, want %v", answer, got, want)
		}
	}
}

// TestServerAddress: a load reports which server it reaches, keeps that while none can be reached, and follows to
// another one; an ordinary user may query it. On a socket there is none.
func TestServerAddress(t *testing.T) {
	// Loopback addresses of this process's own, so that the usual port serves both.
	start := func(last int) (*testdb.Postgres, string) {
		ip := fmt.Sprintf("127.%d.%d.%d", 1+os.Getpid()>>8%200, os.Getpid()%256, last)
		server := testdb.StartPostgres(t, "listen_addresses = '"+ip+"'")
		server.Exec("create role visitor login")
		return server, ip
	}
	first, firstIP := start(1)
	second, secondIP := start(2)
	second.Stop()
	dsn := fmt.Sprintf("host=%s,%s user=visitor dbname=postgres sslmode=disable connect_timeout=60", firstIP, secondIP)

	registry := prometheus.NewRegistry()
	load := metrics.NewSet(registry).Load(metrics.Labels{Tool: "canary", Database: "shop"}, metrics.Options{Target: 50, Penalty: time.Second})
	d, err := New(Config{Engine: "postgres", Profile: "simple-ping", Scale: 1, Rate: 50, Arrivals: Constant, Connections: 3,
		Timeout: 5 * time.Second, Queue: 100, Seed: 1, DSN: dsn}, load, NewOwnMetrics(registry), slog.New(slog.NewTextHandler(t.Output(), nil)))
	if err != nil {
		t.Fatal(err)
	}
	if got := reached(t, registry); got != "" {
		t.Errorf("before it ran it reached %q", got)
	}
	stop := testload.Start(t, d.Run)
	await(t, registry, firstIP+" 5432")
	first.Stop()
	testload.Until(t, load, "errors", func(m metrics.Tally) bool { return m.Errors[metrics.Connection] > 3 })
	if got := reached(t, registry); got != firstIP+" 5432" {
		t.Errorf("while none answers it is at %q", got)
	}
	second.Start()
	await(t, registry, secondIP+" 5432")
	if at, err := Address(t.Context(), "postgres", dsn); err != nil || at != secondIP+":5432" {
		t.Errorf("over TCP it returns %q, %v", at, err)
	}
	if at, err := Address(t.Context(), "postgres", second.DSN()); err != nil || at != "" {
		t.Errorf("over a socket it returns %q, %v", at, err)
	}
	stop()
	if got := reached(t, registry); got != "" {
		t.Errorf("after it ended it is at %q", got)
	}

	socket, err := newDialer("postgres", second.DSN(), false)
	if err != nil {
		t.Fatal(err)
	}
	c, err := socket(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if at, err := c.Address(context.Background()); err != nil || at != (address{}) {
		t.Errorf("a socket has address %v, %v", at, err)
	}
}

// A MySQL server reports its host's name, which on Kubernetes is its pod's.
func TestMySQLServerAddress(t *testing.T) {
	server := testdb.StartMariaDB(t)
	dial, err := newDialer("mysql", server.DSN(), false)
	if err != nil {
		t.Fatal(err)
	}
	c, err := dial(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	at, err := c.Address(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if at != (address{}) {
		t.Errorf("a server without a port is at %v", at)
	}
	name, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	// Its answer once it listens.
	var answer string
	err = c.(*mariadb).c.QueryRowContext(context.Background(), strings.Replace(mysqlAddress, "@@port", "3306", 1)).Scan(&answer)
	if at := parseAddress(answer); err != nil || at != (address{name, "3306"}) {
		t.Errorf("it is at %v, want host %q (%v)", at, name, err)
	}
}

// reached returns the one address that is exported, or "".
func reached(t *testing.T, registry *prometheus.Registry) string {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, f := range families {
		if f.GetName() != "loadgen_server_address_info" {
			continue
		}
		for _, m := range f.Metric {
			l := map[string]string{}
			for _, p := range m.Label {
				l[p.GetName()] = p.GetValue()
			}
			if l["database"] != "shop" || m.GetGauge().GetValue() != 1 {
				t.Errorf("odd series %v", m)
			}
			all = append(all, l["address"]+" "+l["port"])
		}
	}
	if len(all) > 1 {
		t.Errorf("several at once: %q", all)
	}
	return strings.Join(all, ",")
}

func await(t *testing.T, registry *prometheus.Registry, want string) {
	t.Helper()
	testkit.Eventually(t, testkit.DefaultTimeout, func() error {
		if got := reached(t, registry); got != want {
			return fmt.Errorf("at %q, want %q", got, want)
		}
		return nil
	})
}
