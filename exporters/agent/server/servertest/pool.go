package servertest

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/plumbline/plumbline/tests/testkit"
)

// Pool is a stand-in for a MariaDB, whose threads do what a test commands; see poolserver.
type Pool struct {
	PID     int
	t       testing.TB
	address string
	in      io.Writer
	answers *bufio.Scanner
}

// StartPool builds and starts a Pool, and stops it when the test ends.
func StartPool(t testing.TB) *Pool {
	t.Helper()
	testkit.NeedRoot(t)
	// The agent knows a server by its program's name.
	program := filepath.Join(t.TempDir(), "mariadbd")
	build := exec.Command(testkit.Tool(t, "go"), "build", "-o", program, "./exporters/agent/server/servertest/poolserver")
	build.Dir = testkit.Root()
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", build, err, out)
	}
	cmd := exec.Command(program)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	p := &Pool{PID: cmd.Process.Pid, t: t, in: in, answers: bufio.NewScanner(out)}
	p.address = p.answer()
	return p
}

func (p *Pool) answer() string {
	p.t.Helper()
	if !p.answers.Scan() {
		p.t.Fatalf("poolserver has ended: %v", p.answers.Err())
	}
	return p.answers.Text()
}

// Do lets one of its threads (0 to 2) do something (accept, read, answer, close, rest) with a connection, and waits
// until that is done.
func (p *Pool) Do(thread int, what string, connection int) {
	p.t.Helper()
	if _, err := fmt.Fprintln(p.in, thread, what, connection); err != nil {
		p.t.Fatal(err)
	}
	if a := p.answer(); a != "done" {
		p.t.Fatalf("poolserver answered %q", a)
	}
}

// Dial makes a connection that one of its threads accepts as this number.
func (p *Pool) Dial(thread, connection int) net.Conn {
	p.t.Helper()
	c, err := net.Dial("tcp", p.address)
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { c.Close() })
	p.Do(thread, "accept", connection)
	return c
}
