package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/plumbline/plumbline/exporters/agent/server/servertest"
	"github.com/plumbline/plumbline/tests/agentproc"
	"github.com/plumbline/plumbline/tests/rig"
	"github.com/plumbline/plumbline/tests/testkit"
)

// neighbourRole makes this test program a fake server, see the tests below: it listens, prints that on its output, and
// waits to be killed. It must not get as far as the flags of a test.
const neighbourRole = "PLUMBLINE_TEST_NEIGHBOUR"

func init() {
	if os.Getenv(neighbourRole) == "" {
		return
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Println("cannot listen:", err)
		os.Exit(1)
	}
	fmt.Println(l.Addr().(*net.TCPAddr).Port)
	for {
		if _, err := l.Accept(); err != nil {
			os.Exit(0)
		}
	}
}

// neighbourhood is an agent beside a real server under load, and what its metrics and its log
// must never have.
type neighbourhood struct {
	t       *testing.T
	dir     string
	program string // of a fake server, that its user may run
	agent   *rig.Process
	address string
	secrets []string
}

const neighbourUser = 65534 // nobody

// newNeighbourhood starts an agent and makes a folder for the fakes.
func newNeighbourhood(t *testing.T) *neighbourhood {
	t.Helper()
	testkit.NeedBPF(t)
	n := &neighbourhood{t: t}
	var err error
	if n.dir, err = os.MkdirTemp("/var/tmp", "plumbline-neighbour-"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(n.dir) })
	own, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	n.program = filepath.Join(n.dir, "postgres")
	if out, err := exec.Command("install", "-m", "755", own, n.program).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if err := os.Chmod(n.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	shadow, err := os.ReadFile("/etc/shadow")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(shadow)) {
		n.secrets = append(n.secrets, strings.TrimSpace(line))
	}
	n.address, n.agent = run(t, "plumbline_query_servers", exec.Command(testkit.Tool(t, "plumbline-agent")))
	return n
}

// secret writes a file that only root may read, and returns its path and its text.
func (n *neighbourhood) secret() (path, text string) {
	n.t.Helper()
	text = "secret" + rand.Text()
	path = filepath.Join(n.dir, text[:12]+".key")
	if err := os.WriteFile(path, []byte(text+"\n"), 0o600); err != nil {
		n.t.Fatal(err)
	}
	n.secrets = append(n.secrets, text)
	return path, text
}

// fake starts a fake server in a folder and returns its port.
func (n *neighbourhood) fake(folder string, root string, args ...string) int {
	n.t.Helper()
	program := n.program
	if root != "" {
		program = "/postgres"
	}
	cmd := &exec.Cmd{Path: program, Args: append([]string{"postgres"}, args...), Dir: folder, Env: []string{neighbourRole + "=1"}}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: neighbourUser, Gid: neighbourUser}, Chroot: root}
	if root != "" {
		// As any user may have it: root of a user namespace of its own, in a root of its own.
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: 0, Gid: 0, NoSetGroups: true}
		cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: neighbourUser, Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: neighbourUser, Size: 1}}
	}
	p := rig.Start(n.t, cmd)
	n.t.Cleanup(p.Kill)
	port := 0
	testkit.Eventually(n.t, testkit.DefaultTimeout, func() error {
		line, _, ended := strings.Cut(p.Log.String(), "\n")
		if !ended {
			return fmt.Errorf("the fake has not printed its port: %q", line)
		}
		var err error
		port, err = strconv.Atoi(line)
		return err
	})
	return port
}

// scrape reads the agent's page, and fails if it is not valid, or has a secret, or if the log has.
func (n *neighbourhood) scrape() (page string, err error) {
	n.t.Helper()
	select {
	case <-n.agent.Done:
		n.t.Fatalf("the agent has ended:\n%s", n.agent.Log)
	default:
	}
	answer, err := http.Get("http://" + n.address + "/metrics")
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return "", err
	}
	if answer.StatusCode != http.StatusOK {
		n.t.Fatalf("the agent answers %s:\n%s", answer.Status, text)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	if _, err := parser.TextToMetricFamilies(bytes.NewReader(text)); err != nil {
		n.t.Fatalf("the page is not valid: %v", err)
	}
	for where, output := range map[string]string{"page": string(text), "log": n.agent.Log.String()} {
		if !utf8.ValidString(output) {
			n.t.Errorf("the %s is no UTF-8", where)
		}
		for _, s := range n.secrets {
			if s != "" && strings.Contains(output, s) {
				n.t.Fatalf("the %s has a secret: %.40s", where, s)
			}
		}
	}
	return string(text), nil
}

// await scrapes until the page has a text.
func (n *neighbourhood) await(text string) string {
	n.t.Helper()
	var page string
	testkit.Eventually(n.t, testkit.DefaultTimeout, func() error {
		var err error
		if page, err = n.scrape(); err == nil && !strings.Contains(page, text) {
			err = fmt.Errorf("the page has no %s", text)
		}
		return err
	})
	return page
}

// resident is the agent's memory in MB, and peak the most that it was.
func (n *neighbourhood) resident() float64 { return n.memory("VmRSS:") }
func (n *neighbourhood) peak() float64     { return n.memory("VmHWM:") }

func (n *neighbourhood) memory(field string) float64 {
	n.t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", n.agent.PID()))
	if err != nil {
		n.t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); f[0] == field {
			kB, err := strconv.ParseFloat(f[1], 64)
			if err != nil {
				n.t.Fatal(err)
			}
			return kB / 1024
		}
	}
	n.t.Fatalf("no %s", field)
	return 0
}

// reads is how many read calls the agent has made.
func (n *neighbourhood) reads() uint64 {
	n.t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/io", n.agent.PID()))
	if err != nil {
		n.t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if number, ok := strings.CutPrefix(line, "syscr: "); ok {
			calls, err := strconv.ParseUint(strings.TrimSpace(number), 10, 64)
			if err != nil {
				n.t.Fatal(err)
			}
			return calls
		}
	}
	n.t.Fatal("no syscr")
	return 0
}

// version makes a folder look like a data directory.
func version(folder string) error {
	return os.WriteFile(filepath.Join(folder, "PG_VERSION"), []byte("15\n"), 0o644)
}

// unfit are the bytes that are no part of a server's name.
var unfit = regexp.MustCompile(`[^-_.:/a-zA-Z0-9]`)

// nameless matches the series of servers that neither have a name nor listen: no port is so low.
var nameless = regexp.MustCompile(`(?m)^.*server="postgresql(-\d{1,3})?".*$`)

// needStatic skips unless a program runs in a root of its own, without libraries.
func needStatic(t *testing.T, program string) {
	t.Helper()
	f, err := elf.Open(program)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			testkit.Skip(t, "needs a test program without libraries: CGO_ENABLED=0, as make test has it")
		}
	}
}

// load runs statements on a real server until its context ends, and returns how many were made.
func load(t *testing.T, ctx context.Context, pg *servertest.Postgres) (made func() uint64) {
	t.Helper()
	c := pg.Connect(t)
	result := make(chan uint64, 1)
	go func() {
		n := uint64(0)
		for ctx.Err() == nil {
			if _, err := c.Exec(context.Background(), "select 1", pgx.QueryExecModeSimpleProtocol); err != nil {
				t.Errorf("the real server: %v", err)
				break
			}
			n++
			time.Sleep(time.Millisecond) // some load, not all of the machine
		}
		result <- n
	}()
	return func() uint64 { return <-result }
}

// A neighbour without rights, which may start any program under any name, learns nothing through the agent that he may
// not read himself, and neither ends it, nor spoils its page, nor costs another server's numbers.
func TestHostileNeighbour(t *testing.T) {
	n := newNeighbourhood(t)
	pg := servertest.StartPostgres(t, map[string]string{"cluster_name": "real", "autovacuum": "off"}, nil)
	n.await(`server="real"`)
	before, err := agentproc.Scrape(t.Context(), "http://"+n.address+"/metrics")
	if err != nil {
		t.Fatal(err)
	}
	selects := func(m agentproc.Metrics) float64 {
		return m.Sum("plumbline_query_duration_seconds", "server", "real", "command", "select")
	}
	lost := func(m agentproc.Metrics) float64 { return m.Sum("plumbline_query_lost_total", "server", "real") }
	under, end := context.WithCancel(t.Context())
	defer end()
	made := load(t, under, pg)
	start := n.resident()

	for _, c := range []struct {
		name string
		make func(t *testing.T, folder string) error
		args []string
		// other is a folder of another name, and root makes it the fake's root.
		other string
		root  bool
	}{
		{name: "an absolute link to the passwords", make: func(_ *testing.T, f string) error { return os.Symlink("/etc/shadow", filepath.Join(f, "PG_VERSION")) }},
		{name: "a relative link to a secret", make: func(_ *testing.T, f string) error {
			path, _ := n.secret()
			to, err := filepath.Rel(f, path)
			return errors.Join(err, os.Symlink(to, filepath.Join(f, "PG_VERSION")))
		}},
		{name: "a magic link to a secret", make: func(_ *testing.T, f string) error {
			path, _ := n.secret()
			return os.Symlink("/proc/self/root"+path, filepath.Join(f, "PG_VERSION"))
		}},
		{name: "a FIFO", make: func(_ *testing.T, f string) error { return syscall.Mkfifo(filepath.Join(f, "PG_VERSION"), 0o666) }},
		{name: "a link to an endless device", make: func(_ *testing.T, f string) error { return os.Symlink("/dev/zero", filepath.Join(f, "PG_VERSION")) }},
		{name: "a file of 1 GiB", make: func(_ *testing.T, f string) error {
			path := filepath.Join(f, "PG_VERSION")
			return errors.Join(os.WriteFile(path, []byte("15"), 0o644), os.Truncate(path, 1<<30))
		}},
		{name: "a folder that is no UTF-8", other: "\xff\xfe\n\"", make: func(_ *testing.T, f string) error {
			return os.WriteFile(filepath.Join(f, "PG_VERSION"), []byte("15\n"), 0o644)
		}},
		{name: "a name that is no UTF-8", args: []string{"-c", "cluster_name=\xff\xfe\n\"}"}, make: func(*testing.T, string) error { return nil }},
		// As long as the kernel lets one argument be.
		{name: "a very long name", args: []string{"-c", "cluster_name=" + strings.Repeat("n", 127<<10)}, make: func(*testing.T, string) error { return nil }},
		{name: "a log's link to a secret", make: func(_ *testing.T, f string) error {
			path, _ := n.secret()
			return errors.Join(os.WriteFile(filepath.Join(f, "PG_VERSION"), []byte("15\n"), 0o644), os.Symlink(path, filepath.Join(f, "pg_wal")))
		}},
		{name: "configuration that is a link to a secret", make: func(_ *testing.T, f string) error {
			path, text := n.secret()
			return errors.Join(version(f), os.WriteFile(path, []byte("cluster_name = '"+text+"'\n"), 0o600), os.Symlink(path, filepath.Join(f, "postgresql.conf")))
		}},
		{name: "configuration that is a FIFO, and a device without end", make: func(_ *testing.T, f string) error {
			return errors.Join(version(f), syscall.Mkfifo(filepath.Join(f, "postgresql.conf"), 0o666), os.Symlink("/dev/zero", filepath.Join(f, "postgresql.auto.conf")))
		}},
		{name: "configuration that includes secrets, itself, and what has no end", make: func(_ *testing.T, f string) error {
			path, secret := n.secret()
			if err := os.WriteFile(path, []byte("cluster_name = '"+secret+"'\n"), 0o600); err != nil {
				return err
			}
			text := fmt.Sprintf("include '%s'\ninclude_dir '/etc'\ninclude_dir '/proc/self'\ninclude '/proc/1/environ'\n%s", path, strings.Repeat("include 'postgresql.conf'\n", 1000))
			return errors.Join(version(f), os.WriteFile(filepath.Join(f, "postgresql.conf"), []byte(text), 0o644))
		}},
		{name: "a root of its own with links that lead out of it", root: true, make: func(t *testing.T, f string) error {
			path, _ := n.secret()
			out, err := exec.Command("install", "-m", "755", n.program, filepath.Join(f, "postgres")).CombinedOutput()
			if err != nil {
				t.Logf("%s", out)
			}
			etc := filepath.Join(f, "etc")
			return errors.Join(err, os.Mkdir(etc, 0o755), os.Symlink(path, filepath.Join(etc, "hostname")), os.Symlink(path, filepath.Join(f, "PG_VERSION")))
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			mine := *n
			mine.t = t
			folder, err := os.MkdirTemp(n.dir, "data-"+c.other)
			if err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(c.make(t, folder), os.Chmod(folder, 0o755)); err != nil {
				t.Fatal(err)
			}
			root := ""
			if c.root {
				needStatic(t, n.program)
				root, folder = folder, "/"
			}
			port := mine.fake(folder, root, c.args...)
			// The fake is tracked: its own claims have been read.
			label := fmt.Sprintf(`server="postgresql-%d"`, port)
			if info, err := os.Lstat(filepath.Join(folder, "PG_VERSION")); err == nil && info.Mode().IsRegular() && !c.root {
				// It is called by its data directory; what does not fit into a name is replaced.
				label = `server="postgresql:` + unfit.Split(folder, 2)[0]
			}
			if len(c.args) > 0 {
				label = map[bool]string{true: `server="____`, false: `server="nnnn`}[strings.Contains(c.args[1], "\xff")]
			}
			mine.await(label)
			mine.await(`server="real"`)
			// Neither a call that waits for what never comes, nor one that reads without end.
			mine.await("\nplumbline_agent_file_calls_hanging 0\n")
			if peak := mine.peak(); peak > start+64 {
				t.Errorf("the agent needed %.0f MB, %.0f before", peak, start)
			}
			n.secrets = mine.secrets
		})
	}

	t.Run("10,000 short-lived servers", func(t *testing.T) {
		mine := *n
		mine.t = t
		page := mine.await(`server="real"`)
		ours, memory, reads := len(nameless.FindAllString(page, -1)), mine.resident(), mine.reads()
		// true under a server's name, and one in a hundred that stays for a moment.
		for name, from := range map[string]string{"true": "true", "sleep": "sleep"} {
			dir := filepath.Join(n.dir, name)
			if err := os.Mkdir(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			if out, err := exec.Command("install", "-m", "755", testkit.Tool(t, from), filepath.Join(dir, "postgres")).CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
		}
		storm := exec.Command("/bin/sh", "-c", `i=0; while [ $i -lt 100 ]; do i=$((i+1)); sleep/postgres 0.5 & j=0; while [ $j -lt 99 ]; do j=$((j+1)); true/postgres; done; done; wait`)
		storm.Dir = n.dir
		storm.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: neighbourUser, Gid: neighbourUser}}
		p := rig.Start(t, storm)
		largest := memory
		testkit.Eventually(t, testkit.DefaultTimeout, func() error {
			if _, err := mine.scrape(); err != nil {
				return err
			}
			largest = max(largest, mine.resident())
			select {
			case <-p.Done:
				return nil
			default:
				return errors.New("the storm goes on")
			}
		})
		each := float64(mine.reads()-reads) / 10000
		t.Logf("memory: %.0f MB before, %.0f MB at most; %.1f reads for each short-lived server", memory, largest, each)
		if largest > memory+32 {
			t.Errorf("the agent's memory went from %.0f to %.0f MB", memory, largest)
		}
		// Those that never served a client leave nothing, but the count of failures to follow them, once the agent has
		// seen their end.
		testkit.Eventually(t, testkit.DefaultTimeout, func() error {
			page := mine.await(`server="real"`)
			if now := len(nameless.FindAllString(page, -1)); now > ours+1 {
				return fmt.Errorf("from %d to %d series of servers without a name", ours, now)
			}
			return nil
		})
		// A scan of all processes for each of them would be several hundred.
		if each > 50 {
			t.Errorf("%.0f reads for each", each)
		}
	})

	end()
	want := float64(made())
	if want < 20 {
		t.Errorf("only %.0f statements were made beside all this", want)
	}
	testkit.Eventually(t, testkit.DefaultTimeout, func() error {
		now, err := agentproc.Scrape(t.Context(), "http://"+n.address+"/metrics")
		if err != nil {
			return err
		}
		if got := selects(now) - selects(before); got != want {
			return fmt.Errorf("%.0f statements of the real server were counted, %.0f made", got, want)
		}
		// The login that was under way when the server was found may not have been understood.
		if lost := lost(now) - lost(before); lost != 0 {
			return fmt.Errorf("%.0f events of the real server are lost", lost)
		}
		return nil
	})
}
