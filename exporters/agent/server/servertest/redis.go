package servertest

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/plumbline/plumbline/tests/freeport"
	"github.com/plumbline/plumbline/tests/testkit"
)

// Redis is a running server of Redis or Valkey that a test owns.
type Redis struct {
	Dir  string
	Port int
	PID  int
}

// StartRedis starts a server that listens on loopback and keeps its data in a folder of its own, data below Dir, which
// prepare, if not nil, may change before; the server stops when the test ends.
func StartRedis(t testing.TB, prepare func(data string), args ...string) *Redis {
	t.Helper()
	testkit.NeedRoot(t)
	who := owner(t)
	dir := workDir(t, "redis", who)
	return startRedis(t, prepare, dir, dir, who, func(args []string) *exec.Cmd {
		// One program, which is what it is called. Debian's package of the tools, which has no service, calls it
		// redis-check-rdb.
		program := filepath.Join(dir, "redis-server")
		if err := os.Symlink(testkit.Tool(t, "redis-check-rdb"), program); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(program, args...)
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: who}
		cmd.Dir = dir
		return cmd
	}, args...)
}

// StartValkey is StartRedis with a server of Valkey, which runs in a root of its own, build/valkey, and sees Dir as /run.
func StartValkey(t testing.TB, prepare func(data string), args ...string) *Redis {
	t.Helper()
	testkit.NeedRoot(t)
	who := owner(t)
	dir := workDir(t, "valkey", who)
	root := rootOf(t, "valkey", dir)
	return startRedis(t, prepare, dir, "/run", who, func(args []string) *exec.Cmd {
		return commandIn(root, who, "valkey-server", args...)
	}, args...)
}

// startRedis starts a server whose folder, dir, it sees as own.
func startRedis(t testing.TB, prepare func(data string), dir, own string, who *syscall.Credential, command func(args []string) *exec.Cmd, args ...string) *Redis {
	t.Helper()
	r := &Redis{Dir: dir, Port: freePort(t)}
	data := filepath.Join(dir, "data")
	if err := os.Mkdir(data, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(data, int(who.Uid), int(who.Gid)); err != nil {
		t.Fatal(err)
	}
	if prepare != nil {
		prepare(data)
	}
	args = append([]string{"--port", strconv.Itoa(r.Port), "--bind", "127.0.0.1", "--dir", filepath.Join(own, "data"), "--unixsocket", filepath.Join(own, "s"),
		"--save", "", "--maxclients", "300"}, args...)
	cmd := command(args)
	start(t, cmd, filepath.Join(r.Dir, "log"), syscall.SIGTERM)
	r.PID = cmd.Process.Pid
	testkit.Eventually(t, testkit.DefaultTimeout, func() error { return freeport.Listening(r.Address()) })
	return r
}

// StartSentinel starts a Sentinel, whose PID and port it returns, which ends with the test.
func StartSentinel(t testing.TB) (pid, port int) {
	t.Helper()
	testkit.NeedRoot(t)
	who := owner(t)
	dir := workDir(t, "redis", who)
	port = freePort(t)
	program, config := filepath.Join(dir, "redis-server"), filepath.Join(dir, "sentinel.conf")
	if err := errors.Join(os.Symlink(testkit.Tool(t, "redis-check-rdb"), program),
		os.WriteFile(config, []byte(fmt.Sprintf("port %d\nbind 127.0.0.1\n", port)), 0o600), os.Chown(config, int(who.Uid), int(who.Gid))); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, config, "--sentinel")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: who}
	cmd.Dir = dir
	start(t, cmd, filepath.Join(dir, "log"), syscall.SIGTERM)
	testkit.Eventually(t, testkit.DefaultTimeout, func() error { return freeport.Listening(fmt.Sprintf("127.0.0.1:%d", port)) })
	return cmd.Process.Pid, port
}

// Address is where it listens.
func (r *Redis) Address() string { return fmt.Sprintf("127.0.0.1:%d", r.Port) }

// Socket is the path of its local socket.
func (r *Redis) Socket() string { return filepath.Join(r.Dir, "s") }

// Bench runs redis-benchmark.
func (r *Redis) Bench(t testing.TB, args ...string) {
	t.Helper()
	args = append([]string{"-p", strconv.Itoa(r.Port), "-q"}, args...)
	if out, err := exec.Command(testkit.Tool(t, "redis-benchmark"), args...).CombinedOutput(); err != nil {
		t.Fatalf("redis-benchmark: %v\n%s", err, out)
	}
}

// RedisConn is a connection to a Redis server that sends what a test gives it, as it is.
type RedisConn struct {
	net.Conn
	in *bufio.Reader
}

// Connect opens a connection that is closed when the test ends; network is tcp or unix.
func (r *Redis) Connect(t testing.TB, network string) *RedisConn {
	t.Helper()
	address := r.Address()
	if network == "unix" {
		address = r.Socket()
	}
	c, err := net.Dial(network, address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return &RedisConn{c, bufio.NewReader(c)}
}

// RESP is a command as an array of strings.
func RESP(words ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "*%d\r\n", len(words))
	for _, w := range words {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(w), w)
	}
	return b.String()
}

// Do sends a command and returns its answer.
func (c *RedisConn) Do(words ...string) (string, error) { return c.Send(RESP(words...), 1) }

// Send sends bytes as they are, waits for so many answers and returns the last one.
func (c *RedisConn) Send(text string, answers int) (last string, err error) {
	// While it is sent: the server may not read on before its answers are taken.
	sent := make(chan error, 1)
	go func() {
		_, err := io.WriteString(c, text)
		sent <- err
	}()
	for range answers {
		if last, err = c.Answer(); err != nil {
			return last, err
		}
	}
	return last, <-sent
}

// Answer reads one answer or, with RESP3, one push message; that of an array are its parts, one a line.
func (c *RedisConn) Answer() (string, error) {
	line, err := c.in.ReadString('\n')
	if err != nil {
		return "", err
	}
	line = strings.TrimSuffix(line, "\r\n")
	if line == "" {
		return "", errors.New("an empty line as an answer")
	}
	switch line[0] {
	case '-':
		return "", errors.New(line[1:])
	case '$', '*', '>', '%':
		n, err := strconv.Atoi(line[1:])
		if err != nil || n < 0 {
			return "", err
		}
		if line[0] == '$' {
			text := make([]byte, n+2)
			_, err := io.ReadFull(c.in, text)
			return string(text[:n]), err
		}
		if line[0] == '%' {
			n *= 2
		}
		var parts []string
		for range n {
			part, err := c.Answer()
			if err != nil {
				return "", err
			}
			parts = append(parts, part)
		}
		return strings.Join(parts, "\n"), nil
	}
	return line[1:], nil
}

// Calls returns how often the server ran each command, by its own count: INFO commandstats. The call is one, too, which
// the next one returns.
func (c *RedisConn) Calls() (map[string]uint64, error) {
	text, err := c.Do("INFO", "commandstats")
	if err != nil {
		return nil, err
	}
	calls := map[string]uint64{}
	for line := range strings.Lines(text) {
		name, rest, ok := strings.Cut(strings.TrimPrefix(line, "cmdstat_"), ":calls=")
		if !ok {
			continue
		}
		name, _, _ = strings.Cut(name, "|")
		number, _, _ := strings.Cut(rest, ",")
		n, err := strconv.ParseUint(number, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("INFO commandstats: %q: %w", line, err)
		}
		calls[name] += n
	}
	return calls, nil
}
