package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/plumbline/plumbline/loadgen/internal/testdb"
	"github.com/plumbline/plumbline/tests/testkit"
)

// A wrong command line is one clear line and a failure at once, not a load that never works.
func TestBadInput(t *testing.T) {
	t.Parallel()
	one, targets := filepath.Join(t.TempDir(), "one"), filepath.Join(t.TempDir(), "targets.yaml")
	if err := os.WriteFile(targets, []byte("targets:\n  - {storageclass: a}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"pgbench", "--path=/nowhere/pgbench"}, "/nowhere/pgbench"},
		{[]string{"pgbench", "--rate=-1"}, "--rate"},
		{[]string{"pgbench", "--builtin=tpc-z"}, "tpc-z"},
		{[]string{"pgbench", "--path=/bin/true", "--dsn=host='h password=hush"}, "--dsn"},
		{[]string{"canary", "--profile=tpc-z"}, "kv-select"},
		{[]string{"canary", "--engine=mysql", "--dsn=root:hush@nowhere"}, "user:password@"},
		{[]string{"fio", "--directory=/nowhere"}, "/nowhere"},
		{[]string{"fio", "--directory=/tmp", "--path=/nowhere/fio"}, "/nowhere/fio"},
		{[]string{"sysbench", "--path=/nowhere/sysbench"}, "/nowhere/sysbench"},
		{[]string{"matrix", "tpc-z", "--targets=/nowhere.yaml"}, "/nowhere.yaml"},
		{[]string{"baseline", "--targets=/nowhere.yaml", "--output=x"}, "/nowhere.yaml"},
		{[]string{"soak", "--plan=/nowhere.yaml", "--folder=x"}, "/nowhere.yaml"},
		{[]string{"report", "--folder=/nowhere"}, "--folder"},
		{[]string{"report", "--matrix=/nowhere.json", "--markdown="}, "--markdown is empty"},
		{[]string{"predict", "--server=shop"}, "--from-file"},
		{[]string{"predict", "--from-file=/nowhere.json"}, "/nowhere.json"},
		{[]string{"predict", "--prometheus=http://127.0.0.1:1", "--to=r3"}, "--server"},
		{[]string{"predict", "--prometheus=http://127.0.0.1:1", "--server=shop"}, "name a target"},
		{[]string{"probe", "--directory=/nowhere", "--storageclass=r3"}, "/nowhere"},
		{[]string{"report", "--matrix=/nowhere.json", "--compare=/nowhere"}, "--compare, --prometheus and --layer are of a soak"},
		{[]string{"report", "--folder=/nowhere", "--layer=a=b"}, "--layer requires --prometheus"},
		{[]string{"report", "--folder=/nowhere", "--html=" + one, "--markdown=" + one}, one + " is given for two things"},
		{[]string{"matrix", "wal", "--targets=" + targets, "--output=" + one, "--html=" + filepath.Dir(one) + "/./" + filepath.Base(one)}, "is given for two things"},
		{[]string{"baseline", "--targets=" + targets, "--database=db/shop", "--record=" + one}, "--database and --replicas are of --storageclass"},
		{[]string{"baseline", "--targets=" + targets, "--output=" + one, "--record=" + one}, "--output and --record are one file"},
		{[]string{"baseline", "--targets=" + targets, "--output=" + one, "--rate=0.02"}, "--rate=0.02 is too low for a pin"},
		{[]string{"canary", "--rate=NaN"}, "rate, connections"},
		{[]string{"canary", "--rate=Inf"}, "rate, connections"},
		{[]string{"nothing"}, "nothing"},
	} {
		out, err := exec.Command(binary(t), c.args...).CombinedOutput()
		if err == nil || !strings.Contains(string(out), c.want) || strings.Contains(string(out), "hush") || strings.Count(string(out), "\n") > 1 {
			t.Errorf("%v: %v\n%s", c.args, err, out)
		}
	}
}

// A matrix that claims more rounds than there is room for, or rows of others, is refused by the field's name.
func TestBadMatrix(t *testing.T) {
	t.Parallel()
	for what, want := range map[string]string{
		`"repeat":1000000000000000000,"rows":[{"round":1}`: "repeat is 1000000000000000000",
		`"repeat":-1,"rows":[{"round":1}`:                  "repeat is -1",
		`"repeat":4,"rows":[{"round":1},{"round":5}`:       "rows[1].round is 5; want 0 to 4",
	} {
		path := filepath.Join(t.TempDir(), "matrix.json")
		if err := os.WriteFile(path, []byte(`{"matrix":"wal","targets":[{"storageclass":"c"}],`+what+`]}`), 0o644); err != nil {
			t.Fatal(err)
		}
		for _, args := range [][]string{{"compare", path, path}, {"report", "--matrix=" + path}, {"export", "--folder=" + t.TempDir(), path}} {
			out, err := exec.Command(binary(t), args...).CombinedOutput()
			if err == nil || !strings.Contains(string(out), path+": "+want) || strings.Contains(string(out), "panic") {
				t.Errorf("%v: %v\n%s", args, err, out)
			}
		}
	}
}

// A wrong password is reported as such and retried. It is nowhere: not in the log, not in the metrics, not among
// the arguments of the tool.
func TestWrongPassword(t *testing.T) {
	t.Parallel()
	const secret = "hush-4711"
	db := testdb.StartPostgres(t)
	db.Exec("create role guest login password 'another'")
	db.Demand("guest")
	dsn := strings.Replace(db.DSN(), "user=postgres", "user=guest password="+secret, 1)
	for _, args := range [][]string{
		{"canary"},
		{"pgbench", "--path=" + testkit.Tool(t, "pgbench")},
		{"sysbench", "--path=" + testkit.Tool(t, "sysbench")},
		{"k6", "--path=" + testkit.Tool(t, "k6")},
	} {
		t.Run(args[0], func(t *testing.T) {
			t.Parallel()
			s := start(t, append(args, "--log.level=debug", "--rate=20", "--warmup=0s"), "LOADGEN_DSN="+dsn)
			testkit.Eventually(t, testkit.DefaultTimeout, func() error {
				m, err := s.scrape()
				if err != nil {
					return err
				}
				if n := value(m, "loadgen_errors_total", "kind=authentication"); n < 1 {
					return fmt.Errorf("%v authentication errors\n%s", n, s.log())
				}
				if log := s.log(); !strings.Contains(log, "password authentication failed") {
					return fmt.Errorf("the log lacks the cause:\n%s", log)
				}
				return nil
			})
			answer, err := http.Get(s.url + "/metrics")
			if err != nil {
				t.Fatal(err)
			}
			page, err := io.ReadAll(answer.Body)
			answer.Body.Close()
			if err != nil {
				t.Fatal(err)
			}
			arguments, err := exec.Command("ps", "-ewwo", "args=").Output()
			if err != nil {
				t.Fatal(err)
			}
			if code := s.stop(); code != 0 {
				t.Errorf("exit code %d after SIGTERM", code)
			}
			for where, text := range map[string]string{"log": s.log(), "metrics": string(page), "arguments": string(arguments)} {
				if strings.Contains(text, secret) {
					t.Errorf("the password stands in the %s:\n%s", where, text)
				}
			}
		})
	}
}

// A full disk costs what does not fit on it, which is reported, and not the load.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	testkit.NeedRoot(t)
	disk := testdb.Folder(t)
	if err := unix.Mount("loadgen-test", disk, "tmpfs", 0, "size=4m"); err != nil {
		testkit.Skip(t, "no small disk: "+err.Error())
	}
	t.Cleanup(func() {
		if err := unix.Unmount(disk, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	t.Run("fio", func(t *testing.T) {
		s := start(t, []string{"fio", "--path=" + testkit.Tool(t, "fio"), "--directory=" + disk, "--rw=write", "--size=32m", "--buffered"})
		testkit.Eventually(t, testkit.DefaultTimeout, func() error {
			if log := s.log(); !strings.Contains(log, "No space left on device") {
				return fmt.Errorf("the log lacks the cause:\n%s", log)
			}
			m, err := s.scrape()
			if err != nil {
				return err
			}
			if value(m, "loadgen_restarts_total", "reason=exit")+value(m, "loadgen_errors_total") < 1 {
				return fmt.Errorf("neither a restart nor an error is counted")
			}
			return nil
		})
		if code := s.stop(); code != 0 {
			t.Errorf("exit code %d after SIGTERM", code)
		}
	})
	t.Run("soak", func(t *testing.T) {
		server := testdb.StartStaller(t)
		folder, plan := filepath.Join(disk, "soak"), filepath.Join(t.TempDir(), "plan.yaml")
		text := "duration: 1h\ninterval: 100ms\ncanary: {profile: simple-ping, rate: 50}\n" +
			"targets:\n  - {storageclass: local, dsn: '" + server.DSN() + "'}\n"
		if err := os.WriteFile(plan, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		s := start(t, []string{"soak", "--plan=" + plan, "--folder=" + folder})
		wait := func(what string, is func() bool) {
			t.Helper()
			testkit.Eventually(t, testkit.DefaultTimeout, func() error {
				if !is() {
					return fmt.Errorf("waiting for %s:\n%s", what, s.log())
				}
				return nil
			})
		}
		unsaved := func() float64 {
			m, err := s.scrape()
			if err != nil {
				return 0
			}
			return value(m, "loadgen_soak_unsaved_total")
		}
		size := func() int64 {
			info, err := os.Stat(filepath.Join(folder, "samples.jsonl"))
			if err != nil {
				return 0
			}
			return info.Size()
		}
		wait("samples", func() bool { return size() > 0 })
		ballast, err := os.Create(filepath.Join(disk, "ballast"))
		if err != nil {
			t.Fatal(err)
		}
		for err == nil {
			_, err = ballast.Write(make([]byte, 4096))
		}
		if err := ballast.Close(); err != nil {
			t.Fatal(err)
		}
		wait("what could not be saved", func() bool { return unsaved() > 0 })
		if err := os.Remove(ballast.Name()); err != nil {
			t.Fatal(err)
		}
		before := size()
		wait("samples again", func() bool { return size() > before+4096 })
		if code := s.stop(); code != 0 {
			t.Errorf("exit code %d after SIGTERM", code)
		}
		out, err := exec.Command(binary(t), "report", "--folder="+folder).Output()
		if err != nil || !strings.Contains(string(out), "| canary | local |") {
			t.Errorf("the report: %v\n%s", err, out)
		}
	})
}
