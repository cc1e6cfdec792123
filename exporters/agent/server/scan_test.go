package server

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/plumbline/plumbline/exporters/agent/untrusted"
	"github.com/plumbline/plumbline/exporters/agent/untrusted/untrustedtest"
	"github.com/plumbline/plumbline/tests/testkit"
)

// fixture is a process of a made-up procfs.
type fixture struct {
	pid, parent int
	comm        string
	args        []string
	exe         string
	ports       []int
	group       string // its cgroup
}

// scanner returns a Scanner that waits for what a busy machine takes its time for.
func scanner(procfs string) *Scanner {
	return NewScanner(procfs, untrusted.NewCalls(testkit.DefaultTimeout, untrusted.DefaultHanging))
}

// scan reads all candidates, and returns the database servers among them once each has answered or is known to hang.
// It leaves out processes that end meanwhile. Of servers in known it reads only that they are still there. The error
// joins what could not be read of servers that are there; each of those is returned as far as it is known.
func (s *Scanner) scan(known map[ID]Server) ([]Server, error) {
	candidates, err := s.Candidates()
	found := make([]*Server, len(candidates))
	problems := make([]error, len(candidates))
	var wait sync.WaitGroup
	scan := s.ScanFunc()
	for i, c := range candidates {
		if k, ok := known[c.ID]; ok {
			found[i] = &k
			continue
		}
		wait.Go(func() { found[i], problems[i] = scan(c) })
	}
	wait.Wait()
	var servers []Server
	for _, f := range found {
		if f != nil {
			servers = append(servers, *f)
		}
	}
	return servers, errors.Join(append(problems, err)...)
}

// write makes the folder of a process, as far as a scan reads it.
func (f fixture) write(t *testing.T, root string) {
	t.Helper()
	dir := filepath.Join(root, fmt.Sprint(f.pid))
	for _, d := range []string{"fd", "net"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	// The start time is the 22nd field.
	stat := fmt.Sprintf("%d (%s) S %d %s %d 0\n", f.pid, f.comm, f.parent, strings.TrimSpace(strings.Repeat("0 ", 17)), 1000+f.pid)
	table := "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
	connections := "" // the kernel prints them behind all listeners
	for i, port := range f.ports {
		inode := 10*f.pid + i
		table += fmt.Sprintf("   %d: 00000000:%04X 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 %d 1\n", i, port, inode)
		// A connection of its own and another process's listener are not its ports.
		connections += fmt.Sprintf("   %d: 00000000:%04X 0100007F:1234 01 00000000:00000000 00:00000000 00000000     0        0 %d 1\n", i, 40000, inode)
		table += fmt.Sprintf("   %d: 00000000:%04X 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 %d 1\n", i, 9100, 999999)
		if err := os.Symlink(fmt.Sprintf("socket:[%d]", inode), filepath.Join(dir, "fd", fmt.Sprint(i))); err != nil {
			t.Fatal(err)
		}
	}
	status := fmt.Sprintf("Name:\tx\nUid:\t1\t%d\t1\t1\n", os.Geteuid())
	for name, text := range map[string]string{"stat": stat, "status": status, "cmdline": strings.Join(f.args, "\x00") + "\x00", "net/tcp": table + connections, "maps": "", "cgroup": f.group} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for name, target := range map[string]string{"exe": f.exe, "cwd": t.TempDir(), "root": "/"} {
		if target != "" {
			if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func TestScan(t *testing.T) {
	for _, c := range []struct {
		name      string
		processes []fixture
		want      []string // engine name ports
	}{
		{"PostgreSQL with children", []fixture{
			{pid: 10, parent: 1, comm: "postgres", args: []string{"/usr/bin/postgres", "-D", "/data", "-c", "cluster_name=main"}, ports: []int{5432}},
			{pid: 11, parent: 10, comm: "postgres", args: []string{"postgres: main: checkpointer "}},
			{pid: 12, parent: 10, comm: "postgres", args: []string{"postgres: main: u d 127.0.0.1(4711) idle"}},
		}, []string{"postgresql main [5432]"}},
		{"what PostgreSQL left when its main process was killed", []fixture{
			{pid: 15, parent: 1, comm: "postgres", args: []string{"postgres: main: u d 127.0.0.1(4711) idle"}},
			{pid: 16, parent: 1, comm: "postgres", args: []string{"postgres: checkpointer "}},
			{pid: 17, parent: 1, comm: "postgres", args: []string{"postgres"}, ports: []int{5432}},
		}, []string{"postgresql  [5432]"}},
		{"PostgreSQL below another program in a container", []fixture{
			{pid: 1, comm: "patroni", args: []string{"patroni"}},
			{pid: 20, parent: 1, comm: "postgres", args: []string{"postgres", "--cluster-name=ha", "-p", "5433"}, ports: []int{5433}},
		}, []string{"postgresql ha [5433]"}},
		{"a link of another name", []fixture{
			{pid: 30, parent: 1, comm: "mysqld", exe: "/usr/sbin/mariadbd", args: []string{"mysqld"}, ports: []int{3306, 33060}},
		}, []string{"mariadb  [3306]"}},
		{"MySQL, replaced on disk", []fixture{
			{pid: 31, parent: 1, comm: "mysqld", exe: "/usr/sbin/mysqld (deleted)", args: []string{"mysqld"}, ports: []int{3307}},
		}, []string{"mysql  [3307]"}},
		{"runs that serve nobody", []fixture{
			{pid: 40, parent: 1, comm: "postgres", args: []string{"postgres", "--boot", "-F"}},
			{pid: 41, parent: 1, comm: "postgres", args: []string{"postgres", "--single", "template1"}},
			{pid: 42, parent: 1, comm: "mariadbd", args: []string{"mariadbd", "--bootstrap"}},
		}, nil},
		{"other programs", []fixture{
			{pid: 50, parent: 1, comm: "postgres_export", args: []string{"postgres_exporter"}},
			{pid: 51, parent: 1, comm: "a) (postgres", args: []string{"odd name"}},
		}, nil},
		{"as nixpkgs wraps them", []fixture{
			{pid: 70, parent: 1, comm: ".postgres-wrapp", exe: "/nix/store/x-postgresql-and-plugins-15.8/bin/.postgres-wrapped", args: []string{"/usr/lib/postgresql/bin/postgres", "-D", "/etc/postgresql"}, ports: []int{5432}},
			{pid: 71, parent: 70, comm: ".postgres-wrapp", exe: "/nix/store/x-postgresql-and-plugins-15.8/bin/.postgres-wrapped", args: []string{"postgres: checkpointer "}},
			{pid: 72, parent: 1, comm: ".mariadbd-wrapp", exe: "/nix/store/y/bin/.mariadbd-wrapped", args: []string{"/nix/store/y/bin/mariadbd"}, ports: []int{3306}},
			{pid: 73, parent: 1, comm: ".redis-server-w", exe: "/nix/store/z/bin/.redis-server-wrapped_", args: []string{"redis-server *:6379"}, ports: []int{6379}},
			{pid: 74, parent: 1, comm: ".mysqld-wrapped", exe: "/nix/store/y/bin/.mariadbd-wrapped", args: []string{"mysqld"}, ports: []int{3307}},
		}, []string{"postgresql  [5432]", "mariadb  [3306]", "redis  [6379]", "mariadb  [3307]"}},
		{"below a script of its own name", []fixture{
			{pid: 80, parent: 1, comm: "postgres", exe: "/usr/bin/bash", args: []string{"/bin/bash", "/usr/local/bin/postgres"}},
			{pid: 81, parent: 80, comm: "postgres", exe: "/usr/lib/postgresql/15/bin/postgres", args: []string{"postgres"}, ports: []int{5432}},
			{pid: 82, parent: 81, comm: "postgres", exe: "/usr/lib/postgresql/15/bin/postgres", args: []string{"postgres: checkpointer "}},
			{pid: 83, parent: 1, comm: "mysqld", exe: "/usr/bin/dash", args: []string{"/bin/sh", "/usr/sbin/mysqld"}},
			{pid: 84, parent: 83, comm: "mysqld", exe: "/usr/sbin/mysqld", args: []string{"/usr/sbin/mysqld"}, ports: []int{3306}},
		}, []string{"postgresql  [5432]", "mysql  [3306]"}},
		{"below mysqld_safe and an image's entrypoint", []fixture{
			{pid: 85, parent: 1, comm: "docker-entrypoi", exe: "/usr/bin/bash", args: []string{"/bin/bash", "/usr/local/bin/docker-entrypoint.sh", "mysqld"}},
			{pid: 86, parent: 85, comm: "mysqld_safe", exe: "/usr/bin/dash", args: []string{"/bin/sh", "/usr/bin/mysqld_safe"}},
			{pid: 87, parent: 86, comm: "mysqld", exe: "/usr/sbin/mysqld", args: []string{"/usr/sbin/mysqld"}, ports: []int{3306}},
		}, []string{"mysql  [3306]"}},
		{"a Galera node that copies another one's data", []fixture{
			{pid: 130, parent: 1, comm: "mysqld", args: []string{"mysqld"}, ports: []int{3306}, group: "0::/pxc\n"},
			{pid: 131, parent: 130, comm: "sh", args: []string{"sh", "-c", "wsrep_sst_xtrabackup-v2 --role joiner"}, group: "0::/pxc\n"},
			{pid: 132, parent: 131, comm: "wsrep_sst_xtrab", args: []string{"bash", "-ue", "/usr/bin/wsrep_sst_xtrabackup-v2"}, group: "0::/pxc\n"},
			{pid: 133, parent: 132, comm: "mysqld", args: []string{"mysqld", "--skip-networking", "--read_only=OFF"}, group: "0::/pxc\n"},
		}, []string{"mysql  [3306]"}},
		{"a server that another one's script has started in another container", []fixture{
			{pid: 135, parent: 1, comm: "mysqld", args: []string{"mysqld"}, ports: []int{3306}, group: "0::/one\n"},
			{pid: 136, parent: 135, comm: "sh", args: []string{"sh", "-c", "nsenter"}, group: "0::/one\n"},
			{pid: 137, parent: 136, comm: "mysqld", args: []string{"mysqld"}, ports: []int{3307}, group: "0::/two\n"},
		}, []string{"mysql  [3306]", "mysql  [3307]"}},
		{"two below one supervisor", []fixture{
			{pid: 140, parent: 1, comm: "supervisord", args: []string{"supervisord"}, group: "0::/both\n"},
			{pid: 141, parent: 140, comm: "mysqld", args: []string{"mysqld"}, ports: []int{3306}, group: "0::/both\n"},
			{pid: 142, parent: 140, comm: "mysqld", args: []string{"mysqld"}, ports: []int{3307}, group: "0::/both\n"},
		}, []string{"mysql  [3306]", "mysql  [3307]"}},
		{"runs of MySQL's that serve nobody", []fixture{
			{pid: 90, parent: 1, comm: "mysqld", args: []string{"mysqld", "--initialize=1"}},
			{pid: 91, parent: 1, comm: "mysqld", args: []string{"mysqld", "--initialize_insecure=ON"}},
			{pid: 92, parent: 1, comm: "mariadbd", args: []string{"mariadbd", "--wsrep_recover"}},
			{pid: 93, parent: 1, comm: "mysqld", args: []string{"mysqld", "--user=mysql", "--wsrep-recover", "--log-error=/tmp/x"}},
			{pid: 94, parent: 1, comm: "mysqld", args: []string{"mysqld", "--validate-config"}},
			{pid: 95, parent: 1, comm: "mysqld", args: []string{"mysqld", "--loose-initialize=true"}},
			{pid: 96, parent: 1, comm: "mysqld", args: []string{"mysqld", "-I"}},
			{pid: 97, parent: 1, comm: "mysqld", args: []string{"mysqld", "--initialize=0", "--init-file=/x", "--skip-wsrep-recover"}, ports: []int{3306}},
		}, []string{"mysql  [3306]"}},
		{"runs of PostgreSQL's that serve nobody", []fixture{
			{pid: 100, parent: 1, comm: "postgres", args: []string{"postgres", "-D", "/data", "-C", "data_checksums"}},
			{pid: 101, parent: 1, comm: "postgres", args: []string{"postgres", "-Cshared_buffers"}},
		}, nil},
		{"Redis and Valkey, Sentinels, what they fork", []fixture{
			{pid: 110, parent: 1, comm: "redis-server", args: []string{"redis-server *:26379 [sentinel]"}, ports: []int{26379}},
			{pid: 111, parent: 1, comm: "valkey-server", args: []string{"valkey-server 127.0.0.1:26380 [sentinel]"}, ports: []int{26380}},
			{pid: 112, parent: 1, comm: "redis-server", args: []string{"redis-server", "sentinel.conf", "--sentinel"}},
			{pid: 113, parent: 1, comm: "redis-server", args: []string{"redis-rdb-bgsave *:6379"}},
			{pid: 114, parent: 1, comm: "redis-server", args: []string{"redis-server *:6379"}, ports: []int{6379}},
		}, []string{"redis  [6379]"}},
		{"ports that are not for clients", []fixture{
			{pid: 120, parent: 1, comm: "redis-server", args: []string{"redis-server *:7000 [cluster]"}, ports: []int{7000, 17000}},
			{pid: 121, parent: 1, comm: "redis-server", args: []string{"redis-server *:7001 [cluster]"}, ports: []int{7001, 9999}},
			{pid: 122, parent: 1, comm: "redis-server", args: []string{"redis-server *:7002"}, ports: []int{7002, 7003}},
			{pid: 123, parent: 1, comm: "mysqld", args: []string{"mysqld", "--mysqlx_port=33070"}, ports: []int{3306, 33070}},
			{pid: 124, parent: 1, comm: "mysqld", args: []string{"mysqld", "--loose-mysqlx-port=33071", "--loose-group_replication_local_address=10.0.0.1:33161"}, ports: []int{3307, 33071, 33161}},
			{pid: 125, parent: 1, comm: "mariadbd", args: []string{"mariadbd", "--wsrep_provider_options=gcache.size=1G; gmcast.listen_addr = tcp://0.0.0.0:5567"}, ports: []int{3308, 4568, 5567}},
			{pid: 126, parent: 1, comm: "mysqld", args: []string{"mysqld", "--port=33060"}, ports: []int{33060}},
		}, []string{"redis  [7000]", "redis  [7001]", "redis  [7002 7003]", "mysql  [3306]", "mysql  [3307]", "mariadb  [3308]", "mysql  [33060]"}},
		{"not listening yet", []fixture{
			{pid: 60, parent: 1, comm: "postgres", args: []string{"postgres"}},
		}, []string{"postgresql  []"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			root := t.TempDir()
			for _, p := range c.processes {
				p.write(t, root)
			}
			s := scanner(root)
			found, err := s.scan(nil)
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range c.processes {
				// One at a time as all together, but for what a script has started, which the made-up procfs does not list.
				one, ok := s.Candidate(p.pid)
				all := slices.ContainsFunc(found, func(f Server) bool { return f.ID == one.ID })
				if all && !ok {
					t.Errorf("process %d alone is no candidate", p.pid)
				}
			}
			var got []string
			for _, s := range found {
				got = append(got, fmt.Sprintf("%s %s %v", s.DBSystem, s.Name, s.Ports))
				if s.StartTicks != uint64(1000+s.PID) {
					t.Errorf("PID %d began at %d, want %d", s.PID, s.StartTicks, 1000+s.PID)
				}
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("found %q, want %q", got, c.want)
			}
		})
	}
}

// One process that cannot be read is reported and hides no other one.
func TestScanKeepsOthers(t *testing.T) {
	root := t.TempDir()
	fixture{pid: 10, parent: 1, comm: "postgres", args: []string{"postgres"}, ports: []int{5432}}.write(t, root)
	if err := os.MkdirAll(filepath.Join(root, "9"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "9", "stat"), []byte("9 (postgres) S 1"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(root, "8"), 0o755); err != nil { // ended meanwhile
		t.Fatal(err)
	}
	found, err := scanner(root).scan(nil)
	if len(found) != 1 || found[0].PID != 10 {
		t.Errorf("found %+v, want process 10", found)
	}
	if err == nil || !strings.Contains(err.Error(), "process 9") || strings.Contains(err.Error(), "process 8") {
		t.Errorf("error %v, want one about process 9 only", err)
	}
}

// A server whose file system hangs is followed without what is there, does not hold up the others, and is read once
// only until it answers. One whose memory hangs, as /proc/PID/cmdline then does, is followed if it listens.
func TestScanHung(t *testing.T) {
	hung, release := untrustedtest.HungMount(t)
	root := t.TempDir()
	for _, pid := range []int{10, 20, 30, 40} {
		f := fixture{pid: pid, comm: "postgres", args: []string{"postgres", fmt.Sprintf("--cluster-name=pg%d", pid)}}
		if pid != 40 {
			f.ports = []int{5400 + pid}
		}
		f.write(t, root)
	}
	replace := func(pid int, name string) {
		t.Helper()
		path := filepath.Join(root, fmt.Sprint(pid), name)
		target := hung
		if name != "cwd" {
			target = filepath.Join(hung, name)
		}
		if err := errors.Join(os.Remove(path), os.Symlink(target, path)); err != nil {
			t.Fatal(err)
		}
	}
	replace(10, "cwd")
	replace(10, "maps")
	data, err := os.Readlink(filepath.Join(root, "20", "cwd"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(data, "PG_VERSION"), []byte("15\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	replace(30, "cmdline")
	replace(40, "cmdline")
	timeout := 200 * time.Millisecond
	var calls *untrusted.Calls
	testkit.Eventually(t, testkit.DefaultTimeout, func() error {
		calls = untrusted.NewCalls(timeout, untrusted.DefaultHanging)
		timeout *= 2 // on a busy machine more is late than what hangs
		s := NewScanner(root, calls)
		for range 3 {
			servers, err := s.scan(nil)
			var got []string
			for _, s := range servers {
				got = append(got, fmt.Sprintf("%d %s %s %v %v %v", s.PID, s.Name, s.Version, s.Ports, s.NoName, s.NoLibrary))
			}
			if want := []string{"10 pg10  [5410] false true", "20 pg20 15 [5420] false false", "30   [5430] true false"}; !slices.Equal(got, want) {
				return fmt.Errorf("servers %q, want %q", got, want)
			}
			for _, want := range []string{"process 10: ", "data directory of process 10", "loaded libraries of process 10", "process 30: command line", "process 40: command line"} {
				if err == nil || !strings.Contains(err.Error(), want) {
					return fmt.Errorf("error %v does not name %s", err, want)
				}
			}
		}
		if calls.Hanging() != 4 || calls.Late() != 4 {
			return fmt.Errorf("%d calls hang and %d were late, want 4: each is made once", calls.Hanging(), calls.Late())
		}
		return nil
	})
	release()
	testkit.Eventually(t, testkit.DefaultTimeout, func() error {
		if n := calls.Hanging(); n != 0 {
			return fmt.Errorf("%d calls hang", n)
		}
		return nil
	})
}

// What hangs of a server counts for its user in its cgroup: a neighbour may choose the one, but not the other.
func TestOwner(t *testing.T) {
	root := t.TempDir()
	for pid, cgroup := range map[int]string{10: "0::/a\n", 20: "0::/b\n", 30: "0::/a\n", 40: "4:pids:/\n0::/\n", 50: ""} {
		fixture{pid: pid, comm: "postgres", args: []string{"postgres"}, ports: []int{5400 + pid}}.write(t, root)
		if cgroup == "" {
			continue
		}
		if err := os.WriteFile(filepath.Join(root, fmt.Sprint(pid), "cgroup"), []byte(cgroup), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	found, err := scanner(root).scan(nil)
	if len(found) != 5 || err != nil {
		t.Fatalf("found %+v, %v", found, err)
	}
	owners := map[int]untrusted.Owner{}
	for _, s := range found {
		owners[s.PID] = s.Owner()
		if s.Owner().User != fmt.Sprint(os.Geteuid()) {
			t.Errorf("process %d is user %q's", s.PID, s.Owner().User)
		}
	}
	if owners[10] != owners[30] || owners[10] == owners[20] || owners[10].Group == "" {
		t.Errorf("in cgroups: %+v", owners)
	}
	if owners[40] != owners[50] || owners[40].Group != "" {
		t.Errorf("in no cgroup of their own: %+v", owners)
	}
}

// What a server reports of itself becomes a number, valid text, or nothing.
func TestScanHostile(t *testing.T) {
	const secret = "root:*:20228:0:99999:7:::"
	shadow := filepath.Join(t.TempDir(), "shadow")
	if err := os.WriteFile(shadow, []byte(secret), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name   string
		engine string
		marker func(path string) error
	}{
		{"an absolute link", "postgres", func(path string) error { return os.Symlink(shadow, path) }},
		{"a magic link", "postgres", func(path string) error { return os.Symlink("/proc/self/root"+shadow, path) }},
		{"a FIFO", "postgres", func(path string) error { return syscall.Mkfifo(path, 0o644) }},
		{"a link to an endless device", "postgres", func(path string) error { return os.Symlink("/dev/zero", path) }},
		{"a huge file", "postgres", func(path string) error {
			return errors.Join(os.WriteFile(path, []byte("15"), 0o644), os.Truncate(path, 1<<30))
		}},
		{"a file of another kind", "postgres", func(path string) error { return os.WriteFile(path, []byte(secret), 0o644) }},
		{"another user's file", "postgres", func(path string) error {
			return errors.Join(os.WriteFile(path, []byte("15"), 0o644), os.Chown(path, 12345, 12345))
		}},
		{"MariaDB's", "mariadbd", func(path string) error {
			dir := filepath.Dir(path)
			return errors.Join(os.WriteFile(filepath.Join(dir, "ibdata1"), nil, 0o644),
				os.Symlink(shadow, filepath.Join(dir, "mariadb_upgrade_info")), os.Symlink(shadow, filepath.Join(dir, "mysql_upgrade_info")))
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			testkit.NeedRoot(t) // to give a file away
			root := t.TempDir()
			name := strings.Repeat("\xff\xfe\n", 1<<18)
			fixture{pid: 10, comm: c.engine, args: []string{c.engine, "--cluster-name=" + name}, ports: []int{5432}}.write(t, root)
			data := filepath.Join(t.TempDir(), "\xff\xfe\x01")
			cwd := filepath.Join(root, "10", "cwd")
			if err := errors.Join(os.Mkdir(data, 0o755), os.Remove(cwd), os.Symlink(data, cwd), c.marker(filepath.Join(data, "PG_VERSION"))); err != nil {
				t.Fatal(err)
			}
			found, err := scanner(root).scan(nil)
			if len(found) != 1 {
				t.Fatalf("found %v, %v", found, err)
			}
			s := found[0]
			if s.Version != "" || strings.Contains(fmt.Sprint(s, err), "20228") {
				t.Errorf("version %q of %+v, %v", s.Version, s, err)
			}
			for _, text := range []string{s.Name, s.DataDirectory, fmt.Sprint(err)} {
				if !utf8.ValidString(text) || len(text) > 4096 || strings.ContainsAny(text, "\x01") {
					t.Errorf("not fit for a label or a log: %q", text)
				}
			}
			if len(s.Name) > untrusted.MaxLabel {
				t.Errorf("the name has %d bytes", len(s.Name))
			}
		})
	}
}

// The log's link is followed within the server's own root, to a folder of the server's user.
func TestPostgresLog(t *testing.T) {
	testkit.NeedRoot(t)
	outside := t.TempDir()
	for _, c := range []struct {
		name, target string
		owner        int
		found, fails bool
	}{
		{"absolute", "/wal", 0, true, false},
		{"relative", "../wal", 0, true, false},
		{"out of the root", outside, 0, false, false}, // it is not there: the server may be on its way
		{"another user's", "/wal", 12345, false, true},
		{"a file", "/data/PG_VERSION", 0, false, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			root, own := t.TempDir(), t.TempDir()
			fixture{pid: 10, comm: "postgres", args: []string{"postgres"}, ports: []int{5432}}.write(t, root)
			dir := filepath.Join(root, "10")
			data := filepath.Join(own, "data")
			if err := errors.Join(os.Mkdir(data, 0o755), os.Mkdir(filepath.Join(own, "wal"), 0o755), os.Chown(filepath.Join(own, "wal"), c.owner, 0),
				os.WriteFile(filepath.Join(data, "PG_VERSION"), []byte("15\n"), 0o644), os.Symlink(c.target, filepath.Join(data, "pg_wal")),
				os.Remove(filepath.Join(dir, "cwd")), os.Symlink(data, filepath.Join(dir, "cwd")),
				os.Remove(filepath.Join(dir, "root")), os.Symlink(own, filepath.Join(dir, "root"))); err != nil {
				t.Fatal(err)
			}
			found, err := scanner(root).scan(nil)
			if len(found) != 1 || found[0].Version != "15" {
				t.Fatalf("found %+v, %v", found, err)
			}
			if (err != nil) != c.fails || (found[0].WAL.Mount.Device != "") != c.found {
				t.Errorf("log on %+v, %v", found[0].WAL, err)
			}
		})
	}
}

// The binary log has an index, also one with an ending of its own; a replica's relay log, which has one, too, and Aria's log do not count.
func TestMySQLBinlog(t *testing.T) {
	p := process{root: "/proc", pid: os.Getpid(), dir: "/proc/self"}
	for _, c := range []struct{ logs, open string }{
		{"", "data/aria_log.00000001 data/h-relay-bin.000002 data/h-relay-bin.index"},
		{"", "log/mysql-bin.000007"}, // its index is opened yet
		{"log", "data/h-relay-bin.000002 data/h-relay-bin.index log/mysql-bin.1000000 log/mysql-bin.index"},
		{"log", "data/aria_log.00000001 log/mysql-bin.000007 log/mysql-bin.log.index"},
	} {
		t.Run(c.open, func(t *testing.T) {
			dir := t.TempDir()
			for name := range strings.FieldsSeq(c.open) {
				if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
					t.Fatal(err)
				}
				f, err := os.Create(filepath.Join(dir, name))
				if err != nil {
					t.Fatal(err)
				}
				defer f.Close()
			}
			at, err := mysqlBinlog(p)
			if err != nil || (at.Place.Path != "") != (c.logs != "") || c.logs != "" && !strings.HasSuffix(at.Place.Path, filepath.Join(filepath.Base(dir), c.logs)) {
				t.Errorf("%s: %+v, %v", c.open, at, err)
			}
		})
	}
}

// A server that is known is not scanned again, but one whose PID was used again is.
func TestScanKnown(t *testing.T) {
	root := t.TempDir()
	fixture{pid: 10, parent: 1, comm: "postgres", args: []string{"postgres"}, ports: []int{5432}}.write(t, root)
	for _, c := range []struct {
		name  string
		known ID
		want  string
	}{
		{"the same", ID{10, 1010}, "as known"},
		{"another one with its PID", ID{10, 7}, "postgresql-5432"},
	} {
		t.Run(c.name, func(t *testing.T) {
			found, err := scanner(root).scan(map[ID]Server{c.known: {ID: c.known, Name: "as known"}})
			if err != nil || len(found) != 1 {
				t.Fatalf("found %+v, %v", found, err)
			}
			name := found[0].Name
			if name == "" {
				name = found[0].DefaultName()
			}
			if name != c.want {
				t.Errorf("found %s, want %s", name, c.want)
			}
		})
	}
}

func TestClusterName(t *testing.T) {
	for line, want := range map[string]string{
		"postgres -D /data":                            "",
		"postgres -c cluster_name=a":                   "a",
		"postgres -ccluster_name=b":                    "b",
		"postgres --cluster_name=c --port=1":           "c",
		"postgres --cluster-name=d":                    "d",
		"postgres -c cluster_name=e -c cluster_name=f": "f",
		"postgres -c shared_buffers=1GB":               "",
	} {
		if got := setting(strings.Fields(line), nameSetting); got != want {
			t.Errorf("%s: %q, want %q", line, got, want)
		}
	}
}
