// Package servertest runs real database servers for tests.
package servertest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/plumbline/plumbline/tests/freeport"
	"github.com/plumbline/plumbline/tests/pgserver"
	"github.com/plumbline/plumbline/tests/testkit"
)

// Postgres is a running PostgreSQL server that a test owns.
type Postgres struct{ *pgserver.Server }

// StartPostgres initialises and starts a server with settings, and stops it when the test
// ends. prepare, if not nil, is called between the two with the data directory.
func StartPostgres(t testing.TB, settings map[string]string, prepare func(data string)) *Postgres {
	t.Helper()
	return startPostgres(t, pgserver.Options{Initdb: testkit.Tool(t, "initdb"), Postgres: testkit.Tool(t, "postgres"), Settings: settings, Prepare: prepare})
}

// Unstable are the versions that Debian has in no stable suite, as far as tools/unstable got them.
func Unstable() []int { return majors("postgresql-") }

// Fetched are the versions that tools/postgresql got.
func Fetched() []int { return majors("postgresql/") }

// majors are the numbers after prefix in the names of build.
func majors(prefix string) (majors []int) {
	prefix = filepath.Join(testkit.Root(), "build") + "/" + prefix
	found, _ := filepath.Glob(prefix + "*")
	for _, at := range found {
		if major, err := strconv.Atoi(strings.TrimPrefix(at, prefix)); err == nil {
			majors = append(majors, major)
		}
	}
	return majors
}

// StartPostgresOf is StartPostgres with a server of another version, which tools/postgresql got.
func StartPostgresOf(t testing.TB, major int, settings map[string]string, prepare func(data string)) *Postgres {
	t.Helper()
	testkit.NeedRoot(t)
	if name := fmt.Sprintf("postgresql-%d", major); slices.Contains(Unstable(), major) {
		dir := workDir(t, "pg", owner(t))
		root := rootOf(t, name, dir)
		for _, path := range []string{"/dev", "/etc/passwd"} { // what initdb looks for
			mount(t, path, filepath.Join(root, path), 0)
		}
		bin := fmt.Sprintf("/usr/lib/postgresql/%d/bin/", major)
		return startPostgres(t, pgserver.Options{Root: root, Dir: dir, Initdb: bin + "initdb", Postgres: bin + "postgres", Settings: settings, Prepare: prepare})
	}
	from, err := filepath.EvalSymlinks(filepath.Join(testkit.Root(), "build", "postgresql", strconv.Itoa(major)))
	if err != nil {
		testkit.Skip(t, fmt.Sprintf("needs PostgreSQL %d; `tools/postgresql %d` gets it", major, major))
	}
	// The cache is root's alone, and the server runs as somebody else. Its programs stay root's.
	programs := workDir(t, "pg-programs", &syscall.Credential{})
	if err := os.Chmod(programs, 0o755); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("cp", "-a", from+"/.", programs).CombinedOutput(); err != nil {
		t.Fatalf("copying PostgreSQL %d: %v\n%s", major, err, out)
	}
	bin := filepath.Join(programs, "bin")
	return startPostgres(t, pgserver.Options{Initdb: filepath.Join(bin, "initdb"), Postgres: filepath.Join(bin, "postgres"), Settings: settings, Prepare: prepare})
}

func startPostgres(t testing.TB, o pgserver.Options) *Postgres {
	t.Helper()
	testkit.NeedRoot(t)
	if o.Dir == "" {
		o.Dir = workDir(t, "pg", owner(t))
	}
	s, err := pgserver.Start(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			text, _ := os.ReadFile(s.Log)
			t.Logf("PostgreSQL:\n%s", text)
		}
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	})
	return &Postgres{s}
}

// Connect opens a connection that is closed when the test ends.
func (p *Postgres) Connect(t testing.TB) *pgx.Conn {
	t.Helper()
	c, err := pgx.Connect(context.Background(), p.URL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close(context.Background()) })
	return c
}

// Bench runs pgbench against the server, with a script of its own.
func (p *Postgres) Bench(t testing.TB, script string, args ...string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "script.sql")
	if err := os.WriteFile(file, []byte(script), 0o644); err != nil {
		t.Fatal(err)
	}
	args = append([]string{"-n", "-h", "127.0.0.1", "-p", strconv.Itoa(p.Port), "-U", "postgres", "-f", file}, args...)
	if out, err := exec.Command(testkit.Tool(t, "pgbench"), append(args, "postgres")...).CombinedOutput(); err != nil {
		t.Fatalf("pgbench: %v\n%s", err, out)
	}
}

// start runs a server in the background and ends it with the test: first by the signal stop, then by force. Its output is shown
// if the test fails.
func start(t testing.TB, cmd *exec.Cmd, log string, stop syscall.Signal) {
	t.Helper()
	out, err := os.Create(log)
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		cmd.Wait()
		out.Close()
		close(ended)
	}()
	t.Cleanup(func() {
		cmd.Process.Signal(stop)
		select {
		case <-ended:
		case <-time.After(20 * time.Second):
			cmd.Process.Kill()
			<-ended
		}
		if t.Failed() {
			text, _ := os.ReadFile(log)
			t.Logf("%s:\n%s", filepath.Base(cmd.Path), text)
		}
	})
}

// owner returns the credentials of the system user that the servers run as. It is PostgreSQL's for
// MariaDB's, too, whose package without a service has none.
func owner(t testing.TB) *syscall.Credential {
	t.Helper()
	u, err := user.Lookup(pgserver.Owner)
	if err != nil {
		testkit.Skip(t, "needs the user "+pgserver.Owner+" of PostgreSQL's package")
	}
	uid, _ := strconv.Atoi(u.Uid)
	gid, _ := strconv.Atoi(u.Gid)
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
}

// workDir makes a folder on a disk (not in memory) that goes away with the test.
func workDir(t testing.TB, prefix string, who *syscall.Credential) string {
	t.Helper()
	dir, err := os.MkdirTemp("/var/tmp", prefix+"-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chown(dir, int(who.Uid), int(who.Gid)); err != nil {
		t.Fatal(err)
	}
	return dir
}

// freePort returns a TCP port for a server.
func freePort(t testing.TB) int {
	t.Helper()
	port, err := freeport.Find()
	if err != nil {
		t.Fatal(err)
	}
	return port
}
