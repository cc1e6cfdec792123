package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/plumbline/plumbline/loadgen/internal/testdb"
	"github.com/plumbline/plumbline/loadgen/result"
	"github.com/plumbline/plumbline/tests/testkit"
)

// once runs a load and returns its result, its exit code, its complaints and how long it took.
func once(t *testing.T, args ...string) (r result.Result, code int, log string, took time.Duration) {
	t.Helper()
	c := exec.Command(binary(t), append(args, "--json")...)
	var out, complaints bytes.Buffer
	c.Stdout, c.Stderr = &out, &complaints
	began := time.Now()
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	_ = ended(c)
	if out.Len() > 0 {
		if err := json.Unmarshal(out.Bytes(), &r); err != nil {
			t.Fatalf("%v\n%s", err, out.String())
		}
	}
	return r, c.ProcessState.ExitCode(), complaints.String(), time.Since(began)
}

// Without a warm-up the count begins when the time does: what fio's first report has is of its first second, and no
// more.
func TestRateOfShortRuns(t *testing.T) {
	t.Parallel()
	for name, more := range map[string][]string{"no warm-up": {"--warmup=0s"}, "warm-up": {"--warmup=2s"}, "both directions": {"--warmup=0s", "--rw=randrw"}} {
		t.Run(name, func(t *testing.T) {
			// A machine that pauses makes it longer, and has fio catch up: then it is measured again.
			testkit.Eventually(t, testkit.DefaultTimeout, func() error {
				r, code, log, _ := once(t, append([]string{"fio", "--path=" + testkit.Tool(t, "fio"), "--directory=" + testdb.Folder(t), "--bs=4k", "--size=4m", "--rate=50", "--once=2s"}, more...)...)
				if code != 0 || r.Completed == 0 {
					t.Fatalf("exit code %d: %+v\n%s", code, r, log)
				}
				// A busy machine may make it less.
				if r.Rate > 1.1*r.TargetRate || math.Abs(r.Rate*r.Seconds-float64(r.Completed)) > 3 || r.Seconds < 1.9 || r.Seconds > 3.5 {
					return fmt.Errorf("%.1f/s of %v/s, %d in %.2f s", r.Rate, r.TargetRate, r.Completed, r.Seconds)
				}
				return nil
			})
		})
	}
}

// What was due before the tool first worked is not in the count, which begins with it.
func TestCountBeginsWithTheTool(t *testing.T) {
	t.Parallel()
	db := testdb.StartPostgres(t)
	// A machine that pauses makes the count longer: then it is taken again.
	testkit.Eventually(t, testkit.DefaultTimeout, func() error {
		db.Stop()
		time.AfterFunc(4*time.Second, db.Start)
		r, code, log, took := once(t, "pgbench", "--path="+testkit.Tool(t, "pgbench"), "--dsn="+db.DSN(), "--init", "--scale=1", "--builtin=select-only", "--rate=50", "--warmup=0s", "--once=3s")
		if code != 0 || took < 4*time.Second {
			t.Fatalf("exit code %d after %v\n%s", code, took, log)
		}
		if r.Offered > 230 || r.Skipped["down"]+r.Skipped["tool"] > 0 {
			return fmt.Errorf("%d were offered in %.1f s at 50/s, skipped %v", r.Offered, r.Seconds, r.Skipped)
		}
		return nil
	})
}

// A tool that fails by itself is no slow database: its end is in the notes, the JSON and the exit code, and not in the
// response times.
func TestToolsOwnFailure(t *testing.T) {
	t.Parallel()
	db := testdb.StartPostgres(t)
	script := filepath.Join(t.TempDir(), "dies.sql")
	// One in ten divides by zero, at which pgbench ends.
	if err := os.WriteFile(script, []byte("\\set n random(0, 9)\nselect 1 / :n;\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	r, code, log, _ := once(t, "pgbench", "--path="+testkit.Tool(t, "pgbench"), "--dsn="+db.DSN(), "--script="+script, "--rate=50", "--warmup=0s", "--once=6s")
	if code != 1 || r.Completed == 0 || len(r.ToolEnds) == 0 || r.ToolEnds[0].Times == 0 || !strings.Contains(r.ToolEnds[0].Cause, "division by zero") {
		t.Errorf("exit code %d, ends %+v\n%s", code, r.ToolEnds, log)
	}
	if notes := strings.Join(r.Notes, "; "); !strings.Contains(notes, "the load tool ended by itself") || !strings.Contains(notes, "division by zero") || !strings.Contains(notes, "were not sent because the load tool was down") {
		t.Errorf("notes %q", r.Notes)
	}
	if r.Skipped["tool"] == 0 || r.Skipped["down"] > 0 || r.Response.Quantile(0.5) > 1 {
		t.Errorf("skipped %v, response p50 %v s", r.Skipped, r.Response.Quantile(0.5))
	}
}

// What a tool refuses for good is not retried, with --once or without; the cause is logged.
func TestRefusedForGood(t *testing.T) {
	t.Parallel()
	db := testdb.StartPostgres(t)
	folder := testdb.Folder(t)
	write := func(name, text string) string {
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	pgbench, fio := "--path="+testkit.Tool(t, "pgbench"), "--path="+testkit.Tool(t, "fio")
	for want, args := range map[string][]string{
		"failed parsing bs=many":   {"fio", fio, "--directory=" + folder, "--bs=many"},
		"nosuch":                   {"fio", fio, "--directory=" + folder, "--ioengine=nosuch"},
		"size too small":           {"fio", fio, "--directory=" + folder, "--size=1k"},
		"unexpected function name": {"pgbench", pgbench, "--dsn=" + db.DSN(), "--script=" + write("a.sql", "\\set a foo(\n")},
		"syntax error at or near":  {"pgbench", pgbench, "--dsn=" + db.DSN(), "--script=" + write("b.sql", "selec 1;\n")},
		"scale must be in range":   {"pgbench", pgbench, "--dsn=" + db.DSN(), "--init", "--scale=99999999999"},
	} {
		for _, more := range [][]string{{"--once=2s"}, {"--web.listen-address=127.0.0.1:0"}} {
			c := exec.Command(binary(t), append(args, more...)...)
			var log bytes.Buffer
			c.Stderr = &log
			if err := c.Start(); err != nil {
				t.Fatal(err)
			}
			_ = ended(c)
			retried := strings.Contains(log.String(), "it is started again") || strings.Contains(log.String(), "it is tried again")
			if c.ProcessState.ExitCode() != 1 || retried || !strings.Contains(log.String(), want) {
				t.Errorf("%v %v: exit code %d, retried: %v\n%s", args, more, c.ProcessState.ExitCode(), retried, log.String())
			}
		}
	}
}

// Each way to write a connection string is taken by each tool.
func TestConnectionStrings(t *testing.T) {
	t.Parallel()
	db := testdb.StartPostgres(t)
	socket := strings.TrimSuffix(strings.TrimPrefix(db.DSN(), "host="), " user=postgres dbname=postgres")
	services := filepath.Join(t.TempDir(), "services")
	if err := os.WriteFile(services, []byte("[shop]\nhost="+socket+"\nuser=postgres\ndbname=postgres\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	escaped := url.PathEscape(socket)
	for name, dsn := range map[string]string{
		"escaped socket": "postgresql://postgres@" + escaped + "/postgres",
		"query":          "postgresql:///postgres?host=" + escaped + "&user=postgres",
		"several hosts":  "postgresql://postgres@%2Fnowhere," + escaped + "/postgres?target_session_attrs=read-write",
		"pairs":          "host=/nowhere," + socket + " port=5432,5432 user = postgres dbname='postgres' keepalives=1",
		"service":        "service=shop",
	} {
		for _, args := range [][]string{
			{"canary", "--profile=simple-ping"},
			{"pgbench", "--path=" + testkit.Tool(t, "pgbench"), "--init", "--scale=1", "--builtin=select-only"},
			{"sysbench", "--path=" + testkit.Tool(t, "sysbench"), "--init", "--table-size=100", "--script=oltp_point_select"},
		} {
			c := exec.Command(binary(t), append(args, "--dsn="+dsn, "--rate=50", "--warmup=0s", "--once=1s")...)
			c.Env = append(os.Environ(), "PGSERVICEFILE="+services)
			if out, err := c.CombinedOutput(); err != nil {
				t.Errorf("%s by %s: %v\n%s", name, args[0], err, out)
			}
		}
	}
}

// Of several files one that is no result is named, with what it is, and costs none of the others.
func TestOneBadFile(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	server := testdb.StartStaller(t)
	parts := make([]string, 2)
	for i := range parts {
		out, err := exec.Command(binary(t), "canary", "--dsn="+server.DSN(), "--profile=simple-ping", "--rate=40", "--warmup=0s", "--once=1s", "--json", "--generators=2",
			"--generator="+string(rune('0'+i))).Output()
		if err != nil {
			t.Fatal(err)
		}
		parts[i] = filepath.Join(folder, string(rune('0'+i))+".json")
		if err := os.WriteFile(parts[i], out, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	bad := filepath.Join(folder, "bad.json")
	if err := os.WriteFile(bad, []byte("{\n\"tool\": \"canary\",\n\"seconds\": \"ten\"\n}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	c := exec.Command(binary(t), append([]string{"merge", bad, "/nowhere.json"}, parts...)...)
	var out, log bytes.Buffer
	c.Stdout, c.Stderr = &out, &log
	err := c.Run()
	if err == nil || !strings.Contains(out.String(), "the sum of 2 generators") {
		t.Errorf("%v: the good ones are not added up\n%s%s", err, out.String(), log.String())
	}
	for _, want := range []string{bad + ": line 3, column 16: seconds is a JSON string; want a number", "/nowhere.json"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("no %q in\n%s", want, log.String())
		}
	}
	for _, args := range [][]string{{"compare", parts[0], parts[1]}, {"export", "--folder=" + folder + "/otava", parts[0]}, {"report", "--matrix=" + parts[0]}} {
		text, err := exec.Command(binary(t), args...).CombinedOutput()
		if err == nil || !strings.Contains(string(text), parts[0]+": not a matrix's result") || !strings.Contains(string(text), "it is the result of one of several generators") {
			t.Errorf("%v: %v\n%s", args, err, text)
		}
	}
}

// Of nothing there are no times, rather than times of 0.
func TestNothingIsNotZero(t *testing.T) {
	t.Parallel()
	c := exec.Command(binary(t), "canary", "--dsn=host="+testdb.Folder(t)+" user=postgres dbname=postgres", "--profile=simple-ping", "--rate=40", "--warmup=0s", "--once=1s", "--json")
	out, _ := c.Output()
	var got struct {
		CPU     *float64 `json:"cpu_seconds_per_1000"`
		Service struct {
			Mean      *float64 `json:"mean"`
			Quantiles []any    `json:"quantiles"`
		} `json:"service"`
	}
	if err := json.Unmarshal(out, &got); err != nil || got.CPU != nil || got.Service.Mean != nil || len(got.Service.Quantiles) > 0 || c.ProcessState.ExitCode() != 1 {
		t.Errorf("exit code %d, %v\n%s", c.ProcessState.ExitCode(), err, out)
	}
}
