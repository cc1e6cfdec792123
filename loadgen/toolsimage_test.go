package main

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/plumbline/plumbline/loadgen/internal/testdb"
	"github.com/plumbline/plumbline/loadgen/result"
	"github.com/plumbline/plumbline/tests/testkit"
	"github.com/plumbline/plumbline/tests/testkit/toolsimage"
)

// The jobs of manifests/kubernetes/load/jobs in the image they run in, as a pod runs it: a server with TLS and a password, by
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
	mariadb := testdb.StartMariaDB(t)
	relay(t, net.JoinHostPort(ip, "3306"), mariadb.Socket())
	mysql := mariadb.DSN()
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
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "database.test"}, NotAfter: time.Now().Add(time.Hour)}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	folder, _, _ := strings.Cut(strings.TrimPrefix(db.DSN(), "host="), " ")
	owner, err := os.Stat(folder)
	if err != nil {
		t.Fatal(err)
	}
	who := owner.Sys().(*syscall.Stat_t)
	for kind, content := range map[string][]byte{"CERTIFICATE": certificate, "PRIVATE KEY": private} {
		file := filepath.Join(folder, strings.ReplaceAll(kind, " ", "-"))
		if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: content}), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(file, int(who.Uid), int(who.Gid)); err != nil {
			t.Fatal(err)
		}
	}
	db.Exec("alter system set ssl_cert_file = '" + filepath.Join(folder, "CERTIFICATE") + "'")
	db.Exec("alter system set ssl_key_file = '" + filepath.Join(folder, "PRIVATE-KEY") + "'")
	db.Exec("alter system set ssl = on")
	db.Exec("select pg_reload_conf()")
	testkit.Eventually(t, 30*time.Second, func() error {
		if db.Count("select count(*) from pg_settings where name = 'ssl' and setting = 'on'") != 1 {
			return fmt.Errorf("the server has no TLS yet")
		}
		return nil
	})
}

// relay lets a server that has a socket only be reached by TCP.
func relay(t *testing.T, address, socket string) {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(context.Background(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer client.Close()
				server, err := net.Dial("unix", socket)
				if err != nil {
					return
				}
				defer server.Close()
				go io.Copy(server, client)
				io.Copy(client, server)
			}()
		}
	}()
}
