package server

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/plumbline/plumbline/exporters/agent/untrusted"
	"github.com/plumbline/plumbline/tests/testkit"
)

// listenOn is the environment variable that makes this test's program one that listens on these addresses.
const listenOn = "PLUMBLINE_TEST_LISTEN_ON"

// TestListener is no test: it is the program that listens for others.
func TestListener(t *testing.T) {
	addresses := os.Getenv(listenOn)
	if addresses == "" {
		return
	}
	for _, address := range strings.Fields(addresses) {
		if _, err := net.Listen("tcp", address); err != nil {
			t.Fatal(err)
		}
	}
	fmt.Println("ready")
	for {
		time.Sleep(time.Hour) // it is killed
	}
}

// listenAs starts a program of this name that listens in a network namespace of its own, and returns that and how to
// end it.
func listenAs(t *testing.T, name string, addresses ...string) (pid int, namespace string, end func()) {
	t.Helper()
	program := filepath.Join(t.TempDir(), name)
	self, err := os.Executable()
	if err == nil {
		err = os.Symlink(self, program)
	}
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, "-test.run=^TestListener$")
	cmd.Env = append(os.Environ(), listenOn+"="+strings.Join(addresses, " "))
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	end = func() {
		cmd.Process.Kill()
		cmd.Wait()
	}
	t.Cleanup(end)
	if n, err := out.Read(make([]byte, 64)); n == 0 {
		t.Fatalf("%s does not listen: %v", name, err)
	}
	namespace, err = os.Readlink(fmt.Sprintf("/proc/%d/ns/net", cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	return cmd.Process.Pid, namespace, end
}

// foundIn returns those of UnknownListeners in some network namespaces: other programs of this machine may listen, too.
func (s UnknownListeners) foundIn(namespaces ...string) (found []string) {
	for _, l := range s.Listeners {
		if slices.Contains(namespaces, l.Namespace) {
			found = append(found, l.String())
		}
	}
	slices.Sort(found)
	return found
}

// A program that listens on a database's port is found and named, in whatever network namespace, unless it is a server
// or a proxy that is known.
func TestUnknownListenersFound(t *testing.T) {
	testkit.NeedRoot(t)
	scanner := NewScanner("/proc", untrusted.NewCalls(time.Hour, untrusted.DefaultHanging))
	l := scanner.Listeners()
	pid, mine, end := listenAs(t, "mystery-database", "0.0.0.0:5432", "[::]:6379", "0.0.0.0:8080")
	_, another, _ := listenAs(t, "another", "0.0.0.0:5432", "[::]:33060")
	namespaces := []string{mine, another}
	for name, address := range map[string]string{"pgbouncer": "0.0.0.0:5432", "postgres": "[::]:5432", "mariadbd": "0.0.0.0:3306", "systemd-socket-proxyd": "0.0.0.0:6379", "alloydb-auth-proxy": "[::]:5432",
		"elsewhere": "0.0.0.0:33060"} {
		_, namespace, _ := listenAs(t, name, address)
		namespaces = append(namespaces, namespace)
	}
	scan := func() UnknownListeners {
		t.Helper()
		found, err := l.Scan(maxNamespaces)
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	found := scan()
	got := found.foundIn(namespaces...)
	want := []string{fmt.Sprintf("process %d (mystery-databas) listens on port 5432 of postgresql", pid), fmt.Sprintf("process %d (mystery-databas) listens on port 6379 of redis", pid)}
	if of := found.foundIn(mine); !slices.Equal(of, want) {
		t.Errorf("found %q, want %q", of, want)
	}
	if len(got) != 3 || len(found.foundIn(another)) != 1 {
		t.Errorf("found %q; want those two and one more", got)
	}
	if again := scan().foundIn(namespaces...); !slices.Equal(again, got) {
		t.Errorf("the second time %q, want %q", again, got)
	}
	// A name that is added makes it a server.
	var err error
	if scanner.Programs, err = NewPrograms("postgresql=another"); err != nil {
		t.Fatal(err)
	}
	end()
	if last := scan().foundIn(namespaces...); len(last) != 0 {
		t.Errorf("in the end %q", last)
	}
}

// A scan covers as many network namespaces as allowed, one after the other in turn, and keeps what is known of the
// others.
func TestUnknownListenersInTurn(t *testing.T) {
	root := t.TempDir()
	const namespaces = 5
	for i := range namespaces {
		pid := 10 + i
		fixture{pid: pid, comm: "mystery", args: []string{"mystery"}, ports: []int{5432}}.write(t, root)
		dir := filepath.Join(root, fmt.Sprint(pid), "ns")
		if err := errors.Join(os.Mkdir(dir, 0o755), os.Symlink(fmt.Sprintf("net:[%d]", i), filepath.Join(dir, "net"))); err != nil {
			t.Fatal(err)
		}
	}
	l := NewScanner(root, untrusted.NewCalls(time.Hour, untrusted.DefaultHanging)).Listeners()
	for n := range namespaces {
		found, err := l.Scan(1)
		if err != nil || len(found.Listeners) != n+1 {
			t.Errorf("after %d scans %d are known, %v", n+1, len(found.Listeners), err)
		}
	}
	// A table that is not understood is counted, and costs no other listener there.
	table := filepath.Join(root, "10", "net", "tcp")
	text, err := os.ReadFile(table)
	if err != nil {
		t.Fatal(err)
	}
	lines := slices.Collect(strings.Lines(string(text)))
	lines = slices.Insert(lines, 1, "   0: zz:1538 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 7 1\n")
	if err := os.WriteFile(table, []byte(strings.Join(lines, "")), 0o644); err != nil {
		t.Fatal(err)
	}
	if found, err := l.Scan(namespaces); found.IncompleteNamespaces != 1 || len(found.Listeners) != namespaces || err == nil || !strings.Contains(err.Error(), `local address "zz:1538"`) {
		t.Errorf("%d tables are not understood and %d listeners known, %v; want 1 and %d", found.IncompleteNamespaces, len(found.Listeners), err, namespaces)
	}
	// What has ended is forgotten.
	if err := os.RemoveAll(filepath.Join(root, "11")); err != nil {
		t.Fatal(err)
	}
	if found, _ := l.Scan(1); len(found.Listeners) != namespaces-1 || len(l.known) != namespaces-1 {
		t.Errorf("%d listeners and %d network namespaces are remembered, want %d", len(found.Listeners), len(l.known), namespaces-1)
	}
}

// More network namespaces than are remembered are counted.
func TestUnknownListenersBeyond(t *testing.T) {
	root := t.TempDir()
	for i := range 3 {
		dir := filepath.Join(root, fmt.Sprint(10+i), "ns")
		if err := errors.Join(os.MkdirAll(dir, 0o755), os.Symlink(fmt.Sprintf("net:[%d]", i), filepath.Join(dir, "net"))); err != nil {
			t.Fatal(err)
		}
	}
	l := NewScanner(root, untrusted.NewCalls(time.Hour, untrusted.DefaultHanging)).Listeners()
	l.most = 2
	if found, _ := l.Scan(2); found.Beyond != 1 || len(l.known) != 2 {
		t.Errorf("%d are beyond the bound and %v known, want 1 and 2", found.Beyond, slices.Collect(maps.Keys(l.known)))
	}
}

// Each engine's port is one engine's, so that a reason names it.
func TestPortsOfEngines(t *testing.T) {
	if got := fmt.Sprint(SystemsWithDefaultPort()); got != "[mysql postgresql redis]" {
		t.Errorf("ports of %s are scanned", got)
	}
	for port, engine := range byPort {
		if isOther := kinds[engine].isOther; isOther != nil && isOther(port, []uint16{port}) {
			t.Errorf("port %d of %s is not for clients", port, engine)
		}
	}
}
