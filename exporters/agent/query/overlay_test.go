package query

import (
	"fmt"
	"net"
	"os"
	osexec "os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/plumbline/plumbline/exporters/agent/query/querytest"
	"github.com/plumbline/plumbline/tests/testkit"
)

// Two servers on one image: the same program file under two overlay mounts, each in its own
// PID, mount and network namespace and with the same port, as in two containers. Each
// statement is counted once, for the server that executed it.
func TestQueryOverlay(t *testing.T) {
	testkit.NeedBPF(t)
	postgres := testkit.Tool(t, "postgres")
	if link, err := filepath.EvalSymlinks(postgres); err == nil {
		postgres = link
	}
	q := startQuery(t)
	// A file system of its own for what the containers write, so that it is not below the
	// image, which is the machine's root.
	upper := t.TempDir()
	if err := unix.Mount("tmpfs", upper, "tmpfs", 0, "size=512m"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Unmount(upper, unix.MNT_DETACH) })
	var roots []string
	for _, name := range []string{"one", "two"} {
		roots = append(roots, startContainer(t, filepath.Join(upper, name), postgres))
	}
	var inodes []uint64
	for _, root := range roots {
		var s unix.Stat_t
		if err := unix.Stat(filepath.Join(root, postgres), &s); err != nil {
			t.Fatal(err)
		}
		inodes = append(inodes, s.Ino)
	}
	if inodes[0] != inodes[1] {
		t.Fatalf("the two containers do not share a program file: inodes %v", inodes)
	}
	var names []string
	for _, root := range roots {
		names = append(names, nameIn(t, q, root))
	}
	if names[0] == names[1] {
		t.Fatalf("both servers are called %s", names[0])
	}
	before := []querytest.Seen{querytest.AtRest(t, q, names[0]), querytest.AtRest(t, q, names[1])}
	counts := []int{300, 700}
	for i, root := range roots {
		c, err := net.Dial("unix", filepath.Join(root, "srv", ".s.PGSQL.5432"))
		if err != nil {
			t.Fatal(err)
		}
		w := login(t, c)
		for range counts[i] {
			w.send([]byte(message('Q', "select 1\x00")))
			w.ready(1)
		}
	}
	var got []uint64
	testkit.Eventually(t, testkit.DefaultTimeout, func() error {
		got = nil
		for i, name := range names {
			got = append(got, querytest.Collect(t, q, name).Minus(before[i]).Counts["select"])
		}
		if got[0]+got[1] < 1000 {
			return fmt.Errorf("selects %v", got)
		}
		return nil
	})
	if got[0] != 300 || got[1] != 700 {
		t.Errorf("selects %v, want 300 and 700", got)
	}
}

// nameIn returns the label of the server whose root directory this is.
func nameIn(t *testing.T, q *query, root string) string {
	t.Helper()
	want, err := os.Stat(root)
	if err != nil {
		t.Fatal(err)
	}
	name := ""
	testkit.Eventually(t, testkit.DefaultTimeout, func() error {
		q.mu.Lock()
		defer q.mu.Unlock()
		for _, f := range q.fleet.tracked {
			is, err := os.Stat(fmt.Sprintf("/proc/%d/root/", f.PID))
			if err == nil && os.SameFile(is, want) && f.label != "" {
				name = f.label
				return nil
			}
		}
		return fmt.Errorf("no server below %s", root)
	})
	return name
}

// startContainer starts PostgreSQL on the machine's root as a read-only image, with all that
// is written below dir, and returns its root as the machine sees it.
func startContainer(t *testing.T, dir, postgres string) string {
	t.Helper()
	root := filepath.Join(dir, "root")
	for _, d := range []string{"upper", "work", "root"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := unix.Mount("overlay", root, "overlay", 0,
		fmt.Sprintf("lowerdir=/,upperdir=%s,workdir=%s", filepath.Join(dir, "upper"), filepath.Join(dir, "work"))); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Unmount(root, unix.MNT_DETACH) })
	script := strings.NewReplacer("BIN", filepath.Dir(postgres)).Replace(`set -e
mount -t proc proc /proc
# In its own mount namespace: the machine's, mounted below a folder that a killed test leaves, would be removed with that.
mount -t tmpfs dev /dev
mknod -m 666 /dev/null c 1 3
mknod -m 666 /dev/zero c 1 5
mknod -m 666 /dev/urandom c 1 9
mkdir -m 1777 /dev/shm
chown postgres /srv
cd /srv
setpriv --reuid=postgres --regid=postgres --clear-groups BIN/initdb -D /srv/data -U postgres -A trust -N >/dev/null
exec setpriv --reuid=postgres --regid=postgres --clear-groups BIN/postgres -D /srv/data -k /srv -c listen_addresses=127.0.0.1
`)
	// The machine's own link configuration does not exist in a new network namespace.
	cmd := osexec.Command(testkit.Tool(t, "unshare"), "--mount", "--net", "--pid", "--fork", "--root="+root,
		"/bin/sh", "-c", "ip link set lo up; "+script)
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		// The group: it has the container's first process, whose end is that of all in it.
		// --kill-child alone is not enough, for setpriv drops the signal of the parent's death.
		syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		cmd.Wait()
		log.Close()
		if t.Failed() {
			text, _ := os.ReadFile(log.Name())
			t.Logf("%s", text)
		}
	})
	testkit.Eventually(t, testkit.DefaultTimeout, func() error {
		c, err := net.Dial("unix", filepath.Join(root, "srv", ".s.PGSQL.5432"))
		if err != nil {
			return err
		}
		return c.Close()
	})
	return root
}
