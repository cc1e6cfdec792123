package server_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/plumbline/plumbline/exporters/agent/server"
	"github.com/plumbline/plumbline/exporters/agent/server/servertest"
	"github.com/plumbline/plumbline/exporters/agent/untrusted"
	"github.com/plumbline/plumbline/tests/freeport"
	"github.com/plumbline/plumbline/tests/testkit"
)

// scanOf is what a scan finds of a process; nil if it is no server.
func scanOf(t *testing.T, pid int) *server.Server {
	t.Helper()
	s := server.NewScanner("/proc", untrusted.NewCalls(time.Minute, untrusted.DefaultHanging))
	c, ok := s.Candidate(pid)
	if !ok {
		return nil
	}
	found, err := s.ScanFunc()(c)
	if err != nil {
		t.Errorf("process %d: %v", pid, err)
	}
	return found
}

// A real Sentinel, which has written over its arguments, is no database; the server beside it is one.
func TestSentinel(t *testing.T) {
	t.Parallel()
	sentinel, _ := servertest.StartSentinel(t)
	redis := servertest.StartRedis(t, nil)
	for pid, want := range map[int]bool{sentinel: false, redis.PID: true} {
		if found := scanOf(t, pid); (found != nil) != want {
			text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
			t.Errorf("%q is %+v", text, found)
		}
	}
}

// A server has run since it was started.
func TestAge(t *testing.T) {
	t.Parallel()
	before := time.Now()
	redis := servertest.StartRedis(t, nil)
	found := scanOf(t, redis.PID)
	if found == nil {
		t.Fatal("a Redis is no server")
	}
	const tick = 10 * time.Millisecond
	if age, err := found.Age(); err != nil || age < 0 || age > time.Since(before)+tick {
		t.Errorf("it has run for %v (%v), and was started at most %v ago", age, err, time.Since(before))
	}
	first, err := found.Age()
	if err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, testkit.DefaultTimeout, func() error {
		age, err := found.Age()
		if err == nil && age < first+5*tick {
			err = fmt.Errorf("it has run for %v, before for %v", age, first)
		}
		return err
	})
}

// The bus of a real cluster's node is not for clients, wherever it is.
func TestClusterPort(t *testing.T) {
	t.Parallel()
	bus, err := freeport.Find()
	if err != nil {
		t.Fatal(err)
	}
	redis := servertest.StartRedis(t, nil, "--cluster-enabled", "yes", "--cluster-port", strconv.Itoa(bus))
	testkit.Eventually(t, testkit.DefaultTimeout, func() error {
		found := scanOf(t, redis.PID)
		if found == nil || !slices.Equal(found.Ports, []uint16{uint16(redis.Port)}) || !slices.Equal(found.Internal, []uint16{uint16(bus)}) {
			return fmt.Errorf("%+v; its bus is %d", found, bus)
		}
		return nil
	})
}

// A real MariaDB whose InnoDB has folders of its own, as Vitess makes them: the data directory is the one of the
// system's tables, the log and the tablespace are where they are.
func TestVitessLayout(t *testing.T) {
	t.Parallel()
	m := servertest.StartMariaDBApart(t, "--log-bin=../innodb/data/mine", "--relay-log=../innodb/logs/mine-relay-bin")
	found := scanOf(t, m.PID)
	if found == nil {
		t.Fatal("no server")
	}
	if found.DBSystem != server.MariaDB || found.DataPath != filepath.Join(m.Dir, "data") || found.Version == "" || !found.Owned || found.DataID == "" {
		t.Errorf("%+v", found)
	}
	if at := found.Data.Place.Path; !strings.HasSuffix(at, filepath.Base(m.Dir)+"/data") {
		t.Errorf("its data is at %s", at)
	}
	if at := found.WAL.Place.Path; !strings.HasSuffix(at, filepath.Base(m.Dir)+"/innodb/logs") {
		t.Errorf("its log is at %s", at)
	}
	if at := found.Binlog.Place.Path; !strings.HasSuffix(at, filepath.Base(m.Dir)+"/innodb/data") {
		t.Errorf("its binary log is at %s", at)
	}
	if len(found.Tablespaces) != 1 || !strings.HasSuffix(found.Tablespaces[0].Place.Path, filepath.Base(m.Dir)+"/innodb/data") {
		t.Errorf("its tablespaces are at %+v", found.Tablespaces)
	}
}

// The tablespaces of a real PostgreSQL are places of its own, wherever they are; what has another's folder, or is none,
// is an error and hides none.
func TestTablespaces(t *testing.T) {
	t.Parallel()
	pg := servertest.StartPostgres(t, nil, nil)
	c := pg.Connect(t)
	var stat syscall.Stat_t
	if err := syscall.Stat(pg.Data, &stat); err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, name := range []string{"one", "two"} {
		folder, err := os.MkdirTemp("/var/tmp", "tablespace-test-")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.RemoveAll(folder) })
		if err := os.Chown(folder, int(stat.Uid), int(stat.Gid)); err != nil {
			t.Fatal(err)
		}
		for _, sql := range []string{fmt.Sprintf("CREATE TABLESPACE %s LOCATION '%s'", name, folder), fmt.Sprintf("CREATE TABLE in_%[1]s (i int) TABLESPACE %[1]s", name)} {
			if _, err := c.Exec(context.Background(), sql); err != nil {
				t.Fatal(err)
			}
		}
		want = append(want, folder)
	}
	places := func(fails string) {
		t.Helper()
		s := server.NewScanner("/proc", untrusted.NewCalls(time.Minute, untrusted.DefaultHanging))
		candidate, ok := s.Candidate(pg.PID)
		if !ok {
			t.Fatal("no server")
		}
		found, err := s.ScanFunc()(candidate)
		var got []string
		for _, s := range found.Tablespaces {
			got = append(got, "/var/tmp/"+filepath.Base(s.Place.Path))
		}
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) || (err == nil) != (fails == "") || err != nil && !strings.Contains(err.Error(), fails) {
			t.Errorf("the tablespaces are at %q, %v; want %q", got, err, want)
		}
	}
	places("")
	spaces := filepath.Join(pg.Data, "pg_tblspc")
	if err := errors.Join(os.Symlink("/root", filepath.Join(spaces, "99990")), os.Symlink("/nowhere", filepath.Join(spaces, "99991")),
		os.Symlink("/dev/zero", filepath.Join(spaces, "99992"))); err != nil {
		t.Fatal(err)
	}
	places("tablespaces: 99990: /root: not a folder of the server's user")
	// However many links there are, a server has some places only.
	for i := range 40 {
		folder := filepath.Join(want[0], fmt.Sprint(i))
		if err := errors.Join(os.Mkdir(folder, 0o700), os.Chown(folder, int(stat.Uid), int(stat.Gid)), os.Symlink(folder, filepath.Join(spaces, fmt.Sprint(20000+i)))); err != nil {
			t.Fatal(err)
		}
	}
	if found := scanAll(t, pg.PID); len(found.Tablespaces) != 16 {
		t.Errorf("%d places", len(found.Tablespaces))
	}
	for _, odd := range []string{"99990", "99991", "99992"} {
		if err := os.Remove(filepath.Join(spaces, odd)); err != nil {
			t.Fatal(err)
		}
	}
}

// scanAll is scanOf, whatever could not be read.
func scanAll(t *testing.T, pid int) server.Server {
	t.Helper()
	s := server.NewScanner("/proc", untrusted.NewCalls(time.Minute, untrusted.DefaultHanging))
	c, ok := s.Candidate(pid)
	if !ok {
		t.Fatal("no server")
	}
	found, _ := s.ScanFunc()(c)
	return *found
}

// The files of data directories show the version and which of the two engines it is: MySQL since 8.4, MySQL before,
// MariaDB whose program is called mysqld.
func TestMySQLFiles(t *testing.T) {
	const history = `{"file_format":"1","upgrade_history":[{"date":"2024-05-01 10:00:00","version":"8.4.0","maturity":"LTS","initialize":true}`
	text, err := os.ReadFile(testkit.Tool(t, "sleep"))
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(t.TempDir(), "mysqld")
	if err := os.WriteFile(program, text, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		files   map[string]string
		engine  server.DBSystem
		version string
	}{
		"MySQL 8.4":                {map[string]string{"mysql.ibd": "", "mysql_upgrade_history": history + "]}"}, server.MySQL, "8.4.0"},
		"upgraded to 9.7":          {map[string]string{"ibdata1": "", "mysql_upgrade_history": history + `,{"version":"9.7.1-commercial"}]}`}, server.MySQL, "9.7.1"},
		"MySQL 8.0":                {map[string]string{"auto.cnf": "", "mysql_upgrade_info": "8.0.36"}, server.MySQL, "8.0.36"},
		"MariaDB 10.3 of RHEL":     {map[string]string{"ibdata1": "", "mysql_upgrade_info": "10.3.39-MariaDB"}, server.MariaDB, "10.3.39"},
		"MariaDB without a file":   {map[string]string{"aria_log_control": ""}, server.MariaDB, ""},
		"a broken history":         {map[string]string{"mysql.ibd": "", "mysql_upgrade_history": history}, server.MySQL, ""},
		"a history of other text":  {map[string]string{"mysql.ibd": "", "mysql_upgrade_history": `{"upgrade_history":[{"version":"root:x:0:0"}]}`}, server.MySQL, ""},
		"InnoDB's files elsewhere": {map[string]string{"mysql/db.MYD": "", "mysql_upgrade_info": "8.0.36"}, server.MySQL, "8.0.36"},
		"no data directory":        {map[string]string{"readme": ""}, server.MySQL, ""},
	} {
		t.Run(name, func(t *testing.T) {
			data := t.TempDir()
			for file, text := range c.files {
				file = filepath.Join(data, file)
				if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(text), 0o644)); err != nil {
					t.Fatal(err)
				}
			}
			cmd := exec.Command(program, "600")
			cmd.Dir = data
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
			testkit.Eventually(t, testkit.DefaultTimeout, func() error {
				if found := scanOf(t, cmd.Process.Pid); found == nil || found.DBSystem != c.engine || found.Version != c.version || (found.DataDirectory == "") != (name == "no data directory") {
					return fmt.Errorf("%+v", found)
				}
				return nil
			})
		})
	}
}

// A port in an option file is not for clients either. Of several lines the last one counts.
func TestOptionFile(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("/var/tmp", "my-cnf-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	port, err := freeport.Find()
	if err != nil {
		t.Fatal(err)
	}
	main, more := filepath.Join(dir, "my.cnf"), filepath.Join(dir, "more", "x.cnf")
	if err := errors.Join(os.Chmod(dir, 0o755), os.Mkdir(filepath.Join(dir, "more"), 0o755),
		os.WriteFile(main, []byte("[client]\nmysqlx_port=1\n[mysqld]\nmysqlx_port=3\n!includedir "+filepath.Dir(more)+"\n"), 0o644),
		os.WriteFile(more, []byte(fmt.Sprintf("[mysqld]\nmysqlx_port=4\nloose_mysqlx_port = %d\n# mysqlx_port=2\n", port)), 0o644)); err != nil {
		t.Fatal(err)
	}
	// A shell that waits for its input stands for MySQL, which MariaDB, without the X plugin, does not.
	text, err := os.ReadFile("/bin/sh")
	program, data := filepath.Join(dir, "mysqld"), filepath.Join(dir, "data")
	if err = errors.Join(err, os.WriteFile(program, text, 0o755), os.MkdirAll(filepath.Join(data, "mysql"), 0o755)); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, "-c", "read line", "--defaults-file="+main)
	cmd.Dir = data
	input, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		input.Close()
		cmd.Wait()
	})
	testkit.Eventually(t, testkit.DefaultTimeout, func() error {
		if found := scanOf(t, cmd.Process.Pid); found == nil || !slices.Contains(found.UnsupportedPorts, uint16(port)) || slices.Contains(found.UnsupportedPorts, 3) || slices.Contains(found.UnsupportedPorts, 4) {
			return fmt.Errorf("%+v; its port is %d", found, port)
		}
		return nil
	})
}
