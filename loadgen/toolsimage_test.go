package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/plumbline/plumbline/loadgen/internal/testdb"
	"github.com/plumbline/plumbline/loadgen/result"
	"github.com/plumbline/plumbline/tests/certificate"
	"github.com/plumbline/plumbline/tests/testkit"
	"github.com/plumbline/plumbline/tests/testkit/toolsimage"
)

// The jobs of manifests/bench in the image they run in, as a pod runs it: a server with TLS and a password, by
// its name, on PostgreSQL and MariaDB; no shell, no file to write but below /tmp.
func TestToolsImage(t *testing.T) {
	testkit.NeedRoot(t)
	t.Parallel()
	root := toolsimage.Unpack(t, toolsimage.Image(t, toolsimage.Checkout(t)))
	// Loopback addresses of this process's own, so that the usual ports serve.
	ip := fmt.Sprintf("127.%d.%d.3", 1+os.Getpid()>>8%200, os.Getpid()%256)
	if err := os.WriteFile(filepath.Join(root, "etc/hosts"), []byte(ip+" database.test\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	db := testdb.StartPostgres(t, "listen_addresses = '"+ip+"'")
	encrypt(t, db)
	db.Exec("create role tester login superuser password 'secret'")
	db.Demand("tester")
	mysql := testdb.StartMariaDB(t, "--skip-networking=0", "--bind-address="+ip, "--port=3306").DSN()
	mysql = mysql[:strings.Index(mysql, "@")] + "@tcp(database.test:3306)" + mysql[strings.Index(mysql, "/test"):]

	const postgresql = "postgresql://tester:secret@database.test:5432/postgres?sslmode=require"
	for name, c := range map[string]struct {
		dsn       string
		arguments []string
	}{
		"pgbench":            {postgresql, []string{"pgbench", "--init", "--scale=1", "--clients=4", "--jobs=2", "--rate=0"}},
		"sysbench":           {postgresql, []string{"sysbench", "--init", "--tables=2", "--table-size=500", "--threads=2", "--rate=0"}},
		"sysbench, MariaDB":  {mysql, []string{"sysbench", "--engine=mysql", "--init", "--tables=2", "--table-size=500", "--threads=2", "--rate=0"}},
		"k6":                 {postgresql, []string{"k6", "--query=select count(*) from pg_class", "--rate=100", "--vus=5"}},
		"fio":                {"", []string{"fio", "--directory=/tmp", "--rw=write", "--bs=8k", "--fdatasync=1", "--size=4m", "--rate=0"}},
		"canary, by its own": {postgresql, []string{"canary", "--rate=50"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cmd := toolsimage.Command(root, append([]string{"/usr/local/bin/loadgen"}, append(c.arguments, "--warmup=1s", "--once=2s", "--json")...)...)
			if c.dsn != "" {
				cmd.Env = append(cmd.Env, "LOADGEN_DSN="+c.dsn)
			}
			var complaints bytes.Buffer
			cmd.Stderr = &complaints
			out, err := cmd.Output()
			if err != nil {
				t.Fatalf("%v\n%s%s", err, out, &complaints)
			}
			var r result.Result
			if err := json.Unmarshal(out, &r); err != nil || r.Tool != c.arguments[0] || r.Completed == 0 || r.Service.Count != r.Completed {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

// encrypt gives a server a certificate of its own.
func encrypt(t *testing.T, db *testdb.Postgres) {
	t.Helper()
	folder, _, _ := strings.Cut(strings.TrimPrefix(db.DSN(), "host="), " ")
	if err := certificate.Write(folder); err != nil {
		t.Fatal(err)
	}
	db.Exec("alter system set ssl_cert_file = '" + filepath.Join(folder, certificate.File) + "'")
	db.Exec("alter system set ssl_key_file = '" + filepath.Join(folder, certificate.Key) + "'")
	db.Exec("alter system set ssl = on")
	db.Exec("select pg_reload_conf()")
	testkit.Eventually(t, testkit.DefaultTimeout, func() error {
		if db.Count("select count(*) from pg_settings where name = 'ssl' and setting = 'on'") != 1 {
			return fmt.Errorf("the server has no TLS yet")
		}
		return nil
	})
}
