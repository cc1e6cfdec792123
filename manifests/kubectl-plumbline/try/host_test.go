package try_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/plumbline/plumbline/exporters/agent/server/servertest"
	"github.com/plumbline/plumbline/manifests/kubectl-plumbline/answer"
	"github.com/plumbline/plumbline/rules/layers"
	"github.com/plumbline/plumbline/tests/pgserver"
	"github.com/plumbline/plumbline/tests/rig"
	"github.com/plumbline/plumbline/tests/schematest"
	"github.com/plumbline/plumbline/tests/testkit"
	"github.com/plumbline/plumbline/tests/world"
)

func TestMain(m *testing.M) { world.Main(m) }

// unpacked makes a folder as a release's archive has it. Only root may enter the one that it is in, as it may be root's
// home.
var unpacked = sync.OnceValues(func() (string, error) {
	home, err := os.MkdirTemp("/var/tmp", "try-")
	if err != nil {
		return "", err
	}
	dir := filepath.Join(home, "plumbline")
	if err := os.Mkdir(dir, 0o755); err != nil {
		return "", err
	}
	for program, source := range map[string]string{"plumbline": "manifests/kubectl-plumbline", "plumbline-agent": "exporters/agent"} {
		build := exec.Command("go", "build", "-o", filepath.Join(dir, program), "./"+source)
		build.Dir = testkit.Root()
		if text, err := build.CombinedOutput(); err != nil {
			return "", fmt.Errorf("%w: %s", err, text)
		}
	}
	exporter, err := testkit.Find("ebpf_exporter")
	if err != nil {
		return "", err
	}
	blockio := filepath.Join(testkit.Root(), "exporters", "blockio")
	script := `mkdir "$1/blockio" && cp -L "$2" "$1/ebpf_exporter" && cp "$3/blkio.yaml" "$3/blkio.bpf.o" "$1/blockio/"`
	if text, err := exec.Command("/bin/sh", "-c", script, "sh", dir, exporter, blockio).CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %s", err, text)
	}
	return dir, nil
})

// programs is such a folder.
func programs(t *testing.T) string {
	t.Helper()
	testkit.NeedBPF(t)
	testkit.Tool(t, "ebpf_exporter")
	dir, err := unpacked()
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// plumbline prepares the program; its standard error is shown if the test fails.
func plumbline(t *testing.T, arguments ...string) (cmd *exec.Cmd, out, errs *output) {
	t.Helper()
	cmd = exec.Command(filepath.Join(programs(t), "plumbline"), arguments...)
	out, errs = &output{}, &output{}
	cmd.Stdout, cmd.Stderr = out, errs
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("%v\n%s%s", arguments, out, errs)
		}
	})
	return cmd, out, errs
}

// output is what a running program has written.
type output struct {
	mu sync.Mutex
	bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.Buffer.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.Buffer.String()
}

// database starts a PostgreSQL, with all its files in a folder.
func database(t *testing.T, in, name string) *pgserver.Server {
	t.Helper()
	dir := filepath.Join(in, name+"-files")
	if text, err := exec.Command("install", "-d", "-o", pgserver.Owner, dir).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) }) // for the next one of this name
	s, err := pgserver.Start(pgserver.Options{Initdb: testkit.Tool(t, "initdb"), Postgres: testkit.Tool(t, "postgres"), Dir: dir,
		Settings: map[string]string{"cluster_name": name, "autovacuum": "off"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// busy has sessions that run statements until the test's end.
func busy(t *testing.T, s *pgserver.Server, sessions int, statements ...string) {
	t.Helper()
	repeat(t, sessions, func() func(context.Context) error {
		c := connect(t, s)
		t.Cleanup(func() { c.Close(context.Background()) })
		return func(ctx context.Context) error {
			for _, text := range statements {
				if _, err := c.Exec(ctx, text); err != nil {
					return fmt.Errorf("%s: %w", text, err)
				}
			}
			return nil
		}
	})
}

// repeat has sessions, which connect returns, that do something until the test's end.
func repeat(t *testing.T, sessions int, connect func() (do func(context.Context) error)) {
	t.Helper()
	var each []func(context.Context) error
	for range sessions {
		each = append(each, connect())
	}
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	t.Cleanup(func() { cancel(); all.Wait() })
	for _, do := range each {
		all.Go(func() {
			for ctx.Err() == nil {
				if err := do(ctx); err != nil && ctx.Err() == nil {
					t.Error(err)
					return
				}
			}
		})
	}
}

func connect(t *testing.T, s *pgserver.Server) *pgx.Conn {
	t.Helper()
	c, err := pgx.Connect(t.Context(), s.URL)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func execute(t *testing.T, s *pgserver.Server, statements ...string) {
	t.Helper()
	c := connect(t, s)
	defer c.Close(context.Background())
	for _, text := range statements {
		if _, err := c.Exec(t.Context(), text); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
	}
}

// only is the one finding of a document.
func only(t *testing.T, document []byte) answer.Finding {
	t.Helper()
	schematest.Valid(t, schematest.Compile(t, answer.Schema), document)
	var d answer.Why
	if err := json.Unmarshal(document, &d); err != nil {
		t.Fatal(err)
	}
	if len(d.Items) != 1 {
		t.Fatalf("%d findings, want 1", len(d.Items))
	}
	return d.Items[0]
}

// nothingLeft waits until none of the programs runs: the kernel may need a moment to end one that was killed.
func nothingLeft(t *testing.T) {
	t.Helper()
	testkit.Eventually(t, testkit.DefaultTimeout, func() error {
		names, err := filepath.Glob("/proc/[0-9]*/comm")
		if err != nil {
			return err
		}
		for _, file := range names {
			name, _ := os.ReadFile(file) // it may have ended
			if slices.Contains([]string{"plumbline", "plumbline-agent", "ebpf_exporter"}, strings.TrimSpace(string(name))) {
				return fmt.Errorf("%s: %s still runs", file, name)
			}
		}
		return nil
	})
}

// slowDisk makes a disk whose writes can be made to take longer.
func slowDisk(t *testing.T) *rig.SlowDisk {
	t.Helper()
	disk, err := rig.NewSlowDisk(t, t.TempDir(), 512<<20)
	if errors.Is(err, rig.ErrNotAllowed) {
		testkit.Skip(t, err.Error())
	} else if err != nil {
		t.Fatal(err)
	}
	return disk
}

// blames reports whether a device alone is the culprit, and is in the words.
func blames(f answer.Finding, device string) bool {
	return len(f.Verdict.Culprits) == 1 && f.Verdict.Culprits[0].Layer == layers.Device && strings.Contains(f.Words, "of which the device "+device)
}

// slowDatabase starts a PostgreSQL on a disk of its own whose writes take longer.
func slowDatabase(t *testing.T, name string) (s *pgserver.Server, device string) {
	t.Helper()
	disk := slowDisk(t)
	mount := filepath.Join("/var/tmp", name)
	if err := os.Mkdir(mount, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := rig.MountExt4(t, disk.Device, mount); err != nil {
		t.Fatal(err)
	}
	s = database(t, mount, name)
	t.Cleanup(func() { disk.Writes.Set(0) }) // before it is stopped
	disk.Writes.Set(slow)
	return s, filepath.Base(disk.Device)
}

// slow is how much longer a write of a slow disk takes.
const slow = 15 * time.Millisecond

// secret is in statements, parameters and a role's name's password, and must be nowhere else.
const secret = "hunter2-of-the-tests"

// A slow disk is named, by its device. The record has the same answer, Prometheus' own tool imports it, and nothing of
// what the statements contain is in it.
func TestSlowDisk(t *testing.T) {
	s, device := slowDatabase(t, "slow-disk")
	execute(t, s, "create table t (i int, s text)", "create role r password '"+secret+"'")
	busy(t, s, 1, "insert into t select 1, '"+secret+"' from generate_series(1, 100)")
	record := filepath.Join(t.TempDir(), "record.om")
	// Long enough for 20 statements also where the machine's own disk is slow.
	cmd, out, _ := plumbline(t, "try", "--for=25s", "--record="+record, "--output=json")
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	nothingLeft(t)
	if usage, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage); ok {
		t.Logf("%d MB of memory, %v of CPU", usage.Maxrss>>10, cmd.ProcessState.UserTime()+cmd.ProcessState.SystemTime())
	}
	f := only(t, out.Bytes())
	if f.Target.Server != "slow-disk" || f.Target.Device != device || f.Target.Volume != "/var/tmp/slow-disk" || !blames(f, device) {
		t.Errorf("target %+v, verdict %+v, words %q; want the device %s", f.Target, f.Verdict, f.Words, device)
	}
	if mean := f.Write.DeviceSeconds; mean == nil || *mean < slow.Seconds() {
		t.Errorf("a write takes %v in the device, want at least %v", mean, slow)
	}

	replay, again, _ := plumbline(t, "try", "--replay="+record, "-o", "json")
	if err := replay.Run(); err != nil {
		t.Fatal(err)
	}
	if again.String() != out.String() {
		t.Errorf("the record has another answer:\n%s\nwant\n%s", again, out)
	}
	text, err := os.ReadFile(record)
	if err != nil {
		t.Fatal(err)
	}
	for _, hidden := range []string{secret, "hunter2", "generate_series", "insert into"} {
		if bytes.Contains(text, []byte(hidden)) {
			t.Errorf("%q is in the record", hidden)
		}
	}
	blocks := t.TempDir()
	imported, err := exec.Command(testkit.Tool(t, "promtool"), "tsdb", "create-blocks-from", "openmetrics", record, blocks).CombinedOutput()
	if made, _ := filepath.Glob(filepath.Join(blocks, "*", "meta.json")); err != nil || len(made) == 0 {
		t.Errorf("promtool made %d blocks: %v: %s", len(made), err, imported)
	}
}

// A commit of MySQL's waits for threads of InnoDB's, and these for the disk with the logs: it is named.
func TestMySQLSlowLogDisk(t *testing.T) {
	disk := slowDisk(t)
	my := servertest.StartMySQLOn(t, func(run string, who *syscall.Credential) {
		logs := filepath.Join(run, "logs")
		if err := os.Mkdir(logs, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(rig.MountExt4(t, disk.Device, logs), os.Chown(logs, int(who.Uid), int(who.Gid))); err != nil {
			t.Fatal(err)
		}
	}, "--innodb-log-group-home-dir=/run/logs", "--log-bin=/run/logs/bin", "--innodb-log-writer-threads=ON")
	t.Cleanup(func() { disk.Writes.Set(0) }) // before it is stopped
	db := my.Open(t, nil)
	for _, text := range []string{"create database d", "create table d.t (n int)"} {
		if _, err := db.Exec(text); err != nil {
			t.Fatal(err)
		}
	}
	disk.Writes.Set(slow)
	repeat(t, 4, func() func(context.Context) error {
		return func(ctx context.Context) error {
			_, err := db.ExecContext(ctx, "insert into d.t values (1)")
			return err
		}
	})
	cmd, out, _ := plumbline(t, "try", "--for=15s", "--output=json")
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	f, device := only(t, out.Bytes()), filepath.Base(disk.Device)
	if f.Target.DBSystem != "mysql" || !blames(f, device) {
		t.Errorf("target %+v, verdict %+v, words %q; want the device %s", f.Target, f.Verdict, f.Words, device)
	}
	t.Log(f.Words)
}

// Sessions that wait for each other's locks are named, and storage is not blamed.
func TestLock(t *testing.T) {
	s := database(t, "/var/tmp", "locked")
	execute(t, s, "create table t (i int)", "insert into t values (1)")
	busy(t, s, 4, "begin", "update t set i = i + 1", "select pg_sleep(0.05)", "commit")
	cmd, out, _ := plumbline(t, "try", "--for=10s")
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	nothingLeft(t)
	// The text breaks lines.
	if text := strings.Join(strings.Fields(out.String()), " "); !strings.Contains(text, "locked") || !strings.Contains(text, "sessions hold each other up") {
		t.Errorf("no lock in:\n%s", out)
	}
}

// measuring starts the program and returns once it has measured for some seconds.
func measuring(t *testing.T, arguments ...string) (cmd *exec.Cmd, out *output) {
	t.Helper()
	cmd, out, errs := plumbline(t, append([]string{"try", "--for=10m"}, arguments...)...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, testkit.DefaultTimeout, func() error {
		if !strings.Contains(errs.String(), "s of 10m0s") {
			return fmt.Errorf("not yet: %s", errs)
		}
		return nil
	})
	return cmd, out
}

// An interrupt ends the measuring, and the answer is of what was measured. However the program ends, nothing is left.
func TestEnds(t *testing.T) {
	s := database(t, "/var/tmp", "ended")
	busy(t, s, 1, "select 1")
	temporary := t.TempDir()
	t.Setenv("TMPDIR", temporary)
	t.Run("interrupt", func(t *testing.T) {
		cmd, out := measuring(t, "--output=json")
		if err := cmd.Process.Signal(os.Interrupt); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
		nothingLeft(t)
		if f := only(t, out.Bytes()); f.Name != "ended" || f.Statement == nil || *f.Statement.Count < 20 {
			t.Errorf("%+v", f)
		}
	})
	t.Run("kill", func(t *testing.T) {
		cmd, _ := measuring(t)
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Wait(); err == nil {
			t.Error("it was not killed")
		}
		nothingLeft(t)
	})
	if left, err := os.ReadDir(temporary); err != nil || len(left) > 0 {
		t.Errorf("files are left: %v, %v", left, err)
	}
}

// What is wrong is one sentence, and nothing is left.
func TestRefuses(t *testing.T) {
	dir := programs(t)
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { taken.Close() })
	// The programs of a release, of which the exporter listens where the test does.
	occupied := filepath.Join(t.TempDir(), "occupied")
	script := fmt.Sprintf(`#!/bin/sh
exec "${0%%/*}/real" --config.dir="${0%%/*}/blockio" --config.names=blkio --web.listen-address=%s
`, taken.Addr())
	if text, err := exec.Command("cp", "-r", dir, occupied).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	exporter := filepath.Join(occupied, "ebpf_exporter")
	if err := errors.Join(os.Rename(exporter, filepath.Join(occupied, "real")), os.WriteFile(exporter, []byte(script), 0o755)); err != nil {
		t.Fatal(err)
	}
	damaged := filepath.Join(t.TempDir(), "damaged.om")
	if err := os.WriteFile(damaged, []byte("# TYPE plumbline_x gauge\nplumbline_x 1 1.5\nplumbline_x{a=\"b 1 2\n# EOF\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	existing := filepath.Join(t.TempDir(), "existing")
	if err := os.WriteFile(existing, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, want string
		code       int
		change     func(*exec.Cmd)
		flags      []string
	}{
		{"too short", "--for=1s: want 10s to 10m0s", 2, nil, []string{"--for=1s"}},
		{"too long", "--for=1h0m0s: want", 2, nil, []string{"--for=1h"}},
		{"no duration", `invalid duration "soon"`, 2, nil, []string{"--for=soon"}},
		{"record and replay", "--replay measures nothing", 2, nil, []string{"--replay=x", "--record=y"}},
		{"damaged", "damaged.om:3: no record", 1, nil, []string{"--replay=" + damaged}},
		{"no record", "no such file", 1, nil, []string{"--replay=/none"}},
		{"existing", "file exists", 1, nil, []string{"--record=" + existing}},
		{"not root", "needs root", 1, func(cmd *exec.Cmd) {
			// Through a descriptor, as the folder is root's.
			f, err := os.Open(cmd.Path)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { f.Close() })
			cmd.Path, cmd.ExtraFiles = "/proc/self/fd/3", []*os.File{f}
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		}, nil},
		{"no BTF", "no type information (BTF)", 1, func(cmd *exec.Cmd) {
			line := append([]string{"unshare", "--mount", "sh", "-c", `mount -t tmpfs none /sys/kernel/btf && exec "$@"`, "sh"}, cmd.Args...)
			cmd.Path, cmd.Args = testkit.Tool(t, "unshare"), line
		}, nil},
		{"no programs", "a program is missing: stat /usr/plumbline-agent", 1, nil, []string{"--programs=/usr"}},
		{"port taken", "ebpf_exporter ended (exit status 1): .*address already in use", 1, nil, []string{"--programs=" + occupied}},
		{"no server", "no database server was found", 1, nil, []string{"--for=10s"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			cmd, out, errs := plumbline(t, append([]string{"try"}, c.flags...)...)
			if c.change != nil {
				c.change(cmd)
			}
			var exit *exec.ExitError
			if err := cmd.Run(); err != nil && !errors.As(err, &exit) {
				t.Fatal(err)
			}
			lines := strings.Split(strings.TrimSpace(errs.String()), "\n")
			last := lines[len(lines)-1]
			if matched, err := regexp.MatchString(regexp.MustCompile(`[()]`).ReplaceAllString(c.want, `\$0`), last); err != nil || !matched ||
				cmd.ProcessState.ExitCode() != c.code || out.String() != "" {
				t.Errorf("exit code %d, want %d, with %q in the last line, and nothing on standard output", cmd.ProcessState.ExitCode(), c.code, c.want)
			}
			nothingLeft(t)
		})
	}
	if text, err := os.ReadFile(existing); err != nil || string(text) != "mine" {
		t.Errorf("the file that was there has %q: %v", text, err)
	}
}
