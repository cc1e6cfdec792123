package server

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/plumbline/plumbline/tests/testkit"
)

// fixture is a process of a made-up procfs.
type fixture struct {
	pid, parent int
	comm        string
	args        []string
	exe         string
	ports       []int
}

// write makes the folder of a process, as far as a scan looks at it.
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
	for i, port := range f.ports {
		inode := 10*f.pid + i
		table += fmt.Sprintf("   %d: 00000000:%04X 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 %d 1\n", i, port, inode)
		// A connection of its own and another process's listener are not its ports.
		table += fmt.Sprintf("   %d: 00000000:%04X 0100007F:1234 01 00000000:00000000 00:00000000 00000000     0        0 %d 1\n", i, 40000, inode)
		table += fmt.Sprintf("   %d: 00000000:%04X 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 %d 1\n", i, 9100, 999999)
		if err := os.Symlink(fmt.Sprintf("socket:[%d]", inode), filepath.Join(dir, "fd", fmt.Sprint(i))); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range map[string]string{"stat": stat, "cmdline": strings.Join(f.args, "\x00") + "\x00", "net/tcp": table, "maps": ""} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for name, target := range map[string]string{"exe": f.exe, "cwd": t.TempDir()} {
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
		{"not listening yet", []fixture{
			{pid: 60, parent: 1, comm: "postgres", args: []string{"postgres"}},
		}, []string{"postgresql  []"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			root := t.TempDir()
			for _, p := range c.processes {
				p.write(t, root)
			}
			found, err := Scan(root, nil)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, s := range found {
				got = append(got, fmt.Sprintf("%s %s %v", s.Engine, s.Name, s.Ports))
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

// One process that cannot be read is told of and hides no other one.
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
	found, err := Scan(root, nil)
	if len(found) != 1 || found[0].PID != 10 {
		t.Errorf("found %+v, want process 10", found)
	}
	if err == nil || !strings.Contains(err.Error(), "process 9") || strings.Contains(err.Error(), "process 8") {
		t.Errorf("error %v, want one about process 9 only", err)
	}
}

// A server that is known is not looked at again, but one whose PID was used again is.
// A server whose file system hangs is followed without what is there, does not hold up the
// others, and is asked once only until it answers.
func TestScanHungFileSystem(t *testing.T) {
	root := t.TempDir()
	for _, pid := range []int{10, 20} {
		fixture{pid: pid, comm: "postgres", args: []string{"postgres", fmt.Sprintf("--cluster-name=pg%d", pid)}, ports: []int{5400 + pid}}.write(t, root)
		data, err := os.Readlink(filepath.Join(root, fmt.Sprint(pid), "cwd"))
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(data, "PG_VERSION")
		if pid == 20 {
			err = os.WriteFile(file, []byte("15\n"), 0o644)
		} else {
			err = syscall.Mkfifo(file, 0o644) // nobody writes, so that reading hangs
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	look := func() (versions []string, err error) {
		servers, err := Scan(root, nil)
		for _, s := range servers {
			versions = append(versions, s.Name+" "+s.Version)
		}
		return versions, err
	}
	for range 2 {
		versions, err := look()
		if want := []string{"pg10 ", "pg20 15"}; !slices.Equal(versions, want) {
			t.Fatalf("servers %q, want %q", versions, want)
		}
		if err == nil || !strings.Contains(err.Error(), "process 10: ") || !strings.Contains(err.Error(), "has not answered") {
			t.Fatalf("error %v does not name process 10 and its file system", err)
		}
	}
	data, err := os.Readlink(filepath.Join(root, "10", "cwd"))
	if err != nil {
		t.Fatal(err)
	}
	fifo, err := os.OpenFile(filepath.Join(data, "PG_VERSION"), os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fifo.WriteString("16\n"); err != nil {
		t.Fatal(err)
	}
	if err := fifo.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(fifo.Name()); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(fifo.Name(), []byte("16\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, time.Minute, func() error {
		versions, err := look()
		if err == nil && !slices.Equal(versions, []string{"pg10 16", "pg20 15"}) {
			err = fmt.Errorf("servers %q", versions)
		}
		return err
	})
}

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
			found, err := Scan(root, map[ID]Server{c.known: {ID: c.known, Name: "as known"}})
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
		if got := clusterName(strings.Fields(line)); got != want {
			t.Errorf("%s: %q, want %q", line, got, want)
		}
	}
}
