package server

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/plumbline/plumbline/exporters/agent/untrusted"
	"github.com/plumbline/plumbline/tests/testkit"
)

// inNamespace makes a process in a network namespace of a made-up procfs.
func inNamespace(t *testing.T, root string, pid int, namespace string) process {
	t.Helper()
	fixture{pid: pid, comm: "postgres", args: []string{"postgres"}, ports: []int{5400 + pid}}.write(t, root)
	p := newProcess(root, pid)
	dir := filepath.Join(p.dir, "ns")
	if err := errors.Join(os.Mkdir(dir, 0o755), os.Symlink("net:["+namespace+"]", filepath.Join(dir, "net"))); err != nil {
		t.Fatal(err)
	}
	return p
}

// withoutEnd makes the table of a process's sockets one that is not read to its end before end is called.
func withoutEnd(t *testing.T, p process) (table string, end func()) {
	t.Helper()
	table = filepath.Join(p.dir, "net", "tcp")
	if err := errors.Join(os.Remove(table), syscall.Mkfifo(table, 0o600)); err != nil {
		t.Fatal(err)
	}
	return table, func() {
		if f, err := os.OpenFile(table, os.O_RDWR, 0); err == nil {
			f.Close()
		}
	}
}

// unfinished makes the table of a process's sockets one of these lines whose rest does not come before the test ends.
func unfinished(t *testing.T, p process, lines string) {
	t.Helper()
	table, _ := withoutEnd(t, p)
	f, err := os.OpenFile(table, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	if _, err := f.WriteString(lines); err != nil {
		t.Fatal(err)
	}
}

// tableOf returns the lines of the table of a process's sockets: the heading, its listener, another one's, and a
// connection.
func tableOf(t *testing.T, p process) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(p.dir, "net", "tcp"))
	lines := slices.Collect(strings.Lines(string(text)))
	if err != nil || len(lines) != 4 {
		t.Fatalf("table %q, %v", lines, err)
	}
	return lines
}

// has reports whether a process's own listener is among these.
func (l listeners) has(p process) bool {
	at, ok := l[fmt.Sprint(10*p.pid)]
	return ok && int(at.Port()) == 5400+p.pid
}

// The tables of a namespace are read once, also if they cannot be understood; only an error that comes from a process's
// end is not held against the others.
func TestNetworksReadOnce(t *testing.T) {
	root := t.TempDir()
	broken, same, other := inNamespace(t, root, 10, "1"), inNamespace(t, root, 20, "1"), inNamespace(t, root, 30, "2")
	ended, left := inNamespace(t, root, 40, "3"), inNamespace(t, root, 50, "3")
	line := "   0: zz:1538 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 100 1\n"
	if err := errors.Join(os.WriteFile(filepath.Join(broken.dir, "net", "tcp"), []byte(line), 0o644), os.RemoveAll(ended.dir+"/net")); err != nil {
		t.Fatal(err)
	}
	n := newNetworks(untrusted.NewCalls(time.Hour, untrusted.DefaultHanging))
	_, first := n.of(broken)
	if _, err := n.of(same); first == nil || err == nil || err.Error() != first.Error() {
		t.Errorf("the errors are %v and %v, want the first one twice", first, err)
	}
	if l, err := n.of(other); err != nil || !l.has(other) {
		t.Errorf("in another namespace %v, %v", l, err)
	}
	// The process that has ended was the first to read, and the other one waits for the same answer.
	if _, mine := n.reader("net:[3]", ended); !mine {
		t.Error("the first one is not to read")
	}
	if l, err := n.of(left); err != nil || !l.has(left) {
		t.Errorf("beside a process that has ended %v, %v", l, err)
	}
}

// A table that takes its time holds up nobody in another namespace.
func TestNetworksApart(t *testing.T) {
	root := t.TempDir()
	slow, other := inNamespace(t, root, 10, "1"), inNamespace(t, root, 20, "2")
	heading := tableOf(t, slow)[0]
	table, end := withoutEnd(t, slow)
	defer end()
	n := newNetworks(untrusted.NewCalls(time.Hour, untrusted.DefaultHanging))
	slowly, answered := make(chan error, 1), make(chan error, 1)
	go func() {
		_, err := n.of(slow)
		slowly <- err
	}()
	var writer *os.File
	testkit.Eventually(t, testkit.DefaultTimeout, func() (err error) {
		writer, err = os.OpenFile(table, os.O_WRONLY|syscall.O_NONBLOCK, 0) // when it is being read
		return err
	})
	defer writer.Close()
	go func() {
		_, err := n.of(other)
		answered <- err
	}()
	testkit.Eventually(t, testkit.DefaultTimeout, func() error {
		select {
		case err := <-answered:
			if err != nil {
				t.Error(err)
			}
			return nil
		default:
			return errors.New("another namespace's table is not read")
		}
	})
	if _, err := writer.WriteString(heading); err != nil {
		t.Error(err)
	}
	writer.Close()
	if err := <-slowly; err != nil {
		t.Error(err)
	}
}

// Behind the first connection there are no listeners: what comes there is not read, however much it is.
func TestNetworksWithoutConnections(t *testing.T) {
	root := t.TempDir()
	p := inNamespace(t, root, 10, "1")
	unfinished(t, p, strings.Join(tableOf(t, p), ""))
	n := newNetworks(untrusted.NewCalls(time.Hour, untrusted.DefaultHanging))
	type answer struct {
		l   listeners
		err error
	}
	answers := make(chan answer, 1)
	go func() {
		l, err := n.of(p)
		answers <- answer{l, err}
	}()
	testkit.Eventually(t, testkit.DefaultTimeout, func() error {
		select {
		case a := <-answers:
			if a.err != nil || len(a.l) != 2 || !a.l.has(p) {
				t.Errorf("%v, %v", a.l, a.err)
			}
			return nil
		default:
			return errors.New("the table is read to its end")
		}
	})
}

// What was read of a table that takes too long is known, beside the error.
func TestNetworksKeepWhatIsRead(t *testing.T) {
	root := t.TempDir()
	timeout, pid := 50*time.Millisecond, 10
	testkit.Eventually(t, testkit.DefaultTimeout, func() error {
		slow := inNamespace(t, root, pid, fmt.Sprint(pid))
		unfinished(t, slow, strings.Join(tableOf(t, slow)[:2], ""))
		l, err := newNetworks(untrusted.NewCalls(timeout, untrusted.DefaultHanging)).of(slow)
		if !errors.Is(err, untrusted.ErrUnanswered) {
			t.Fatalf("%v, want no answer", err)
		}
		if !l.has(slow) {
			timeout, pid = 2*timeout, pid+1 // the machine is busy
			return fmt.Errorf("%v within %v", l, timeout)
		}
		return nil
	})
}

// A table that takes too long is given up, once for all processes of its namespace.
func TestNetworksInTime(t *testing.T) {
	root := t.TempDir()
	slow, same := inNamespace(t, root, 10, "1"), inNamespace(t, root, 20, "1")
	_, end := withoutEnd(t, slow)
	defer end()
	calls := untrusted.NewCalls(50*time.Millisecond, untrusted.DefaultHanging)
	n := newNetworks(calls)
	for _, p := range []process{slow, same} {
		if _, err := n.of(p); !errors.Is(err, untrusted.ErrUnanswered) {
			t.Errorf("process %d: %v", p.pid, err)
		}
	}
	if calls.Late() != 1 {
		t.Errorf("%d calls were late, want 1", calls.Late())
	}
}

// table6 makes a table of the process's IPv6 sockets with these lines behind the heading.
func table6(t *testing.T, p process, lines string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(p.dir, "net", "tcp6"), []byte(tableOf(t, p)[0]+lines), 0o644); err != nil {
		t.Fatal(err)
	}
}

// A table of one family that does not answer, or is not whole, costs nothing of the other's, and is reported.
func TestNetworksOfOneFamily(t *testing.T) {
	for name, c := range map[string]struct {
		broken string // of the two tables
		make   func(t *testing.T, table string) error
		want   error
	}{
		"IPv6 without an answer": {"tcp6", func(_ *testing.T, table string) error { return syscall.Mkfifo(table, 0o600) }, untrusted.ErrUnanswered},
		"IPv4 without an answer": {"tcp", func(_ *testing.T, table string) error { return syscall.Mkfifo(table, 0o600) }, untrusted.ErrUnanswered},
		"IPv6 empty":             {"tcp6", func(_ *testing.T, table string) error { return os.WriteFile(table, nil, 0o600) }, errCutOff},
		"IPv6 that ends within a line": {"tcp6", func(_ *testing.T, table string) error {
			return os.WriteFile(table, []byte("  sl  local_address a b c d e f g h\n   0: 0000:15"), 0o600)
		}, errCutOff},
		"IPv4 that ends within a line": {"tcp", func(_ *testing.T, table string) error {
			return os.WriteFile(table, []byte("  sl  local_address a b c d e f g h\n   0: 0000:15"), 0o600)
		}, errCutOff},
		"IPv6 that cannot be read": {"tcp6", func(_ *testing.T, table string) error { return os.Mkdir(table, 0o700) }, syscall.EISDIR},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			p := inNamespace(t, root, 10, "1")
			whole, err := os.ReadFile(filepath.Join(p.dir, "net", "tcp"))
			if err != nil {
				t.Fatal(err)
			}
			broken := filepath.Join(p.dir, "net", c.broken)
			for _, table := range []string{"tcp", "tcp6"} {
				if err := os.WriteFile(filepath.Join(p.dir, "net", table), whole, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			// Its files are gone, which is not to hide the rest.
			cwd := filepath.Join(p.dir, "cwd")
			if err := errors.Join(os.Remove(broken), c.make(t, broken), os.Remove(cwd), os.Symlink(filepath.Join(root, "none"), cwd)); err != nil {
				t.Fatal(err)
			}
			timeout := 50 * time.Millisecond
			testkit.Eventually(t, testkit.DefaultTimeout, func() error {
				found, err := NewScanner(root, untrusted.NewCalls(timeout, untrusted.DefaultHanging)).scan(nil)
				timeout *= 2 // on a busy machine the whole table is late, too
				if !errors.Is(err, c.want) {
					return fmt.Errorf("error %w, want %w", err, c.want)
				}
				if len(found) != 1 || !slices.Equal(found[0].Ports, []uint16{5410}) || !found[0].MorePorts {
					return fmt.Errorf("found %+v, want port 5410 and that there may be others", found)
				}
				return nil
			})
			if f, err := os.OpenFile(broken, os.O_RDWR|syscall.O_NONBLOCK, 0); err == nil {
				f.Close() // the reader goes on
			}
		})
	}
}

// Both families' listeners count, and a table that is whole shows that there are no others.
func TestNetworksOfBothFamilies(t *testing.T) {
	root := t.TempDir()
	p := inNamespace(t, root, 10, "1")
	table6(t, p, "   0: 00000000000000000000000001000000:1F90 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 101 1\n")
	if err := os.Symlink("socket:[101]", filepath.Join(p.dir, "fd", "7")); err != nil {
		t.Fatal(err)
	}
	found, err := scanner(root).scan(nil)
	if err != nil || len(found) != 1 || !slices.Equal(found[0].Ports, []uint16{5410, 8080}) || found[0].MorePorts {
		t.Errorf("found %+v, %v", found, err)
	}
}

// Ports that are not for clients, known later than others, leave room for those that are.
func TestManyInternalPorts(t *testing.T) {
	s := Server{DBSystem: MySQL, Ports: []uint16{4030, 4444, 4567, 4568, 33306}}
	s.sortPorts()
	s.addInternal([]uint16{4030, 4444, 4567, 4568})
	if !slices.Equal(s.Ports, []uint16{33306}) {
		t.Errorf("ports %v", s.Ports)
	}
}

// What an earlier scan found stays if this one could not see all, without what turns out to be for no clients.
func TestKeepPorts(t *testing.T) {
	at := func(port uint16) netip.AddrPort { return netip.AddrPortFrom(netip.IPv4Unspecified(), port) }
	before := Server{DBSystem: Redis, Ports: []uint16{6379}, Listening: []netip.AddrPort{at(6379)}}
	now := Server{DBSystem: Redis, Ports: []uint16{7000, 16379}, Listening: []netip.AddrPort{at(7000), at(16379)}}
	for _, c := range []struct {
		more bool
		want []uint16
	}{{true, []uint16{6379, 7000}}, {false, []uint16{7000, 16379}}} {
		s := now
		s.MorePorts = c.more
		s.KeepPorts(before)
		if !slices.Equal(s.Ports, c.want) || len(s.Listening) != len(c.want) {
			t.Errorf("more %v: ports %v at %v, want %v", c.more, s.Ports, s.Listening, c.want)
		}
		if !slices.Equal(before.Ports, []uint16{6379}) || !slices.Equal(now.Ports, []uint16{7000, 16379}) {
			t.Errorf("what was found before is %v, and now %v", before.Ports, now.Ports)
		}
	}
}
