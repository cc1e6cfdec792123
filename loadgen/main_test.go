package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/plumbline/plumbline/loadgen/internal/testdb"
	"github.com/plumbline/plumbline/loadgen/result"
	"github.com/plumbline/plumbline/tests/testkit"
)

// The program as an operator runs it: from making the tables to metrics of a steady load, and
// a clean end.
func TestPgbenchLive(t *testing.T) {
	t.Parallel()
	db := testdb.StartPostgres(t)
	s := start(t, []string{"pgbench", "--path=" + testkit.Tool(t, "pgbench"), "--dsn=" + db.DSN(), "--init", "--scale=1", "--rate=100",
		"--warmup=0s", "--database=shop", "--storageclass=local"})
	own := []string{"tool=pgbench", "profile=tpcb-like", "database=shop", "storageclass=local"}
	testkit.Eventually(t, testkit.DefaultTimeout, func() error {
		m, err := s.scrape()
		if err != nil {
			return err
		}
		for name, least := range map[string]float64{"loadgen_completed_total": 100, "loadgen_response_seconds": 100,
			"loadgen_service_seconds": 100, "loadgen_offered_total": 100, "loadgen_reports_total": 1, "loadgen_target_rate": 100} {
			if got := value(m, name, own...); got < least {
				return fmt.Errorf("%s is %v, waiting for %v", name, got, least)
			}
		}
		if value(m, "loadgen_phase", append(own, "phase=steady")...) != 1 {
			return fmt.Errorf("the load is not steady")
		}
		return nil
	})
	if code := s.stop(); code != 0 {
		t.Errorf("exit code %d after SIGTERM", code)
	}
	testkit.Eventually(t, testkit.DefaultTimeout, func() error {
		if n := db.Count("select count(*) from pg_stat_activity where application_name = 'pgbench'"); n > 0 {
			return fmt.Errorf("%d connections of pgbench left", n)
		}
		return nil
	})
}

func TestPgbenchOnce(t *testing.T) {
	t.Parallel()
	db := testdb.StartPostgres(t)
	c := exec.Command(binary(t), "pgbench", "--path="+testkit.Tool(t, "pgbench"), "--dsn="+db.DSN(), "--init", "--scale=1",
		"--rate=200", "--warmup=1s", "--once=2s", "--json", "--builtin=select-only")
	out, err := c.Output()
	if err != nil {
		t.Fatal(err)
	}
	var r result.Result
	if err := json.Unmarshal(out, &r); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if r.Tool != "pgbench" || r.Profile != "select-only" || r.Completed < 100 || r.Completed != r.Response.Count || r.Response.Quantile(0.99) <= 0 {
		t.Errorf("result %+v", r)
	}
}

// sysbench, k6 and fio run once, each with its result on the standard output.
func TestOthersOnce(t *testing.T) {
	t.Parallel()
	db := testdb.StartPostgres(t)
	for _, args := range [][]string{
		{"sysbench", "--path=" + testkit.Tool(t, "sysbench"), "--dsn=" + db.DSN(), "--init", "--table-size=500", "--rate=40"},
		{"k6", "--path=" + testkit.Tool(t, "k6"), "--dsn=" + db.DSN(), "--rate=40"},
		{"fio", "--path=" + testkit.Tool(t, "fio"), "--directory=" + testdb.Folder(t), "--size=4m", "--fdatasync=1"},
	} {
		t.Run(args[0], func(t *testing.T) {
			t.Parallel()
			out, err := exec.Command(binary(t), append(args, "--warmup=1s", "--once=2s", "--json")...).Output()
			if err != nil {
				t.Fatal(err)
			}
			var r result.Result
			if err := json.Unmarshal(out, &r); err != nil || r.Tool != args[0] || r.Completed == 0 || r.Service.Count != r.Completed {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

// The canary as an operator runs it, from no tables to metrics, its own state among them.
func TestCanaryLive(t *testing.T) {
	t.Parallel()
	db := testdb.StartPostgres(t)
	s := start(t, []string{"canary", "--dsn=" + db.DSN(), "--rate=100", "--profile=wal-commit", "--warmup=0s", "--database=shop", "--storageclass=local"})
	own := []string{"tool=canary", "profile=wal-commit", "database=shop", "storageclass=local"}
	testkit.Eventually(t, testkit.DefaultTimeout, func() error {
		m, err := s.scrape()
		if err != nil {
			return err
		}
		for name, least := range map[string]float64{"loadgen_completed_total": 100, "loadgen_response_seconds": 100,
			"loadgen_dispatch_lag_seconds": 100, "loadgen_target_rate": 100} {
			if got := value(m, name, own...); got < least {
				return fmt.Errorf("%s is %v, waiting for %v", name, got, least)
			}
		}
		for _, name := range []string{"loadgen_saturated", "loadgen_queue_length", "loadgen_late_total"} {
			if m[name] == nil {
				return fmt.Errorf("no %s", name)
			}
		}
		return nil
	})
	if code := s.stop(); code != 0 {
		t.Errorf("exit code %d after SIGTERM", code)
	}
}

// A server that is not there is retried, not an end: metrics report it from the start.
func TestCanaryWithoutServer(t *testing.T) {
	t.Parallel()
	s := start(t, []string{"canary", "--dsn=host=" + testdb.Folder(t) + " user=nobody dbname=none", "--rate=20"})
	testkit.Eventually(t, testkit.DefaultTimeout, func() error {
		m, err := s.scrape()
		if err != nil {
			return err
		}
		if n := value(m, "loadgen_errors_total", "kind=connection"); n < 2 {
			return fmt.Errorf("%v connection errors", n)
		}
		if value(m, "loadgen_phase", "phase=down") != 1 {
			return fmt.Errorf("not in phase down")
		}
		return nil
	})
	if code := s.stop(); code != 0 {
		t.Errorf("exit code %d after SIGTERM", code)
	}
}

func TestCanaryOnce(t *testing.T) {
	t.Parallel()
	db := testdb.StartPostgres(t)
	out, err := exec.Command(binary(t), "canary", "--dsn="+db.DSN(), "--rate=200", "--arrivals=poisson", "--profile=kv-select",
		"--warmup=1s", "--once=2s").Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"canary kv-select", "200.00/s requested", "response", "p99", "per 1,000"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("no %q in the result:\n%s", want, out)
		}
	}
}

// What is stopped before its time is not taken for the whole: its result and its exit code report it.
func TestOnceCutShort(t *testing.T) {
	t.Parallel()
	server := testdb.StartStaller(t)
	c := exec.Command(binary(t), "canary", "--dsn="+server.DSN(), "--profile=simple-ping", "--rate=100", "--warmup=0s", "--once=1h", "--json")
	var out strings.Builder
	c.Stdout = &out
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Process.Kill() })
	testkit.Eventually(t, testkit.DefaultTimeout, func() error {
		if n := server.Answered(); n < 100 {
			return fmt.Errorf("%d answers", n)
		}
		return nil
	})
	if err := c.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	_ = ended(c)
	var r result.Result
	if err := json.Unmarshal([]byte(out.String()), &r); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	if code := c.ProcessState.ExitCode(); code != 1 || r.Completed == 0 || !strings.Contains(strings.Join(r.Notes, "; "), " s of 1h0m0s") {
		t.Errorf("exit code %d, %d completed, notes %q", code, r.Completed, r.Notes)
	}
}

// Several servers from the environment, of which one answers; its restart is in the result.
func TestCanaryOutage(t *testing.T) {
	t.Parallel()
	db := testdb.StartPostgres(t)
	c := exec.Command(binary(t), "canary", "--rate=100", "--profile=write-mostly", "--working-set=1MiB", "--warmup=0s", "--once=20s", "--json")
	c.Env = append(os.Environ(), "LOADGEN_DSN=host="+testdb.Folder(t)+" user=postgres dbname=postgres\n"+db.DSN())
	var out strings.Builder
	c.Stdout = &out
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Process.Kill() })
	testkit.Eventually(t, testkit.DefaultTimeout, func() error {
		if db.Count("select count(*) from information_schema.tables where table_name = 'loadgen_ready'") == 0 {
			return fmt.Errorf("no tables yet")
		}
		if n := db.Count("select count(*) from loadgen_accounts where balance <> 0"); n < 50 {
			return fmt.Errorf("%d accounts written", n)
		}
		return nil
	})
	db.Stop()
	db.Start()
	if err := ended(c); err != nil {
		t.Fatal(err)
	}
	var r result.Result
	if err := json.Unmarshal([]byte(out.String()), &r); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	seconds := 0.0
	for _, o := range r.Outages {
		seconds += o.Seconds
		if !o.Over || o.Errors["connection"] == 0 {
			t.Errorf("outage %+v", o)
		}
	}
	if len(r.Outages) == 0 || seconds <= 0 || r.Profile != "write-mostly" || r.Response.Count != r.Offered {
		t.Errorf("outages %+v; %d response times of %d offered", r.Outages, r.Response.Count, r.Offered)
	}
	var text strings.Builder
	if err := r.WriteText(&text); err != nil || !strings.Contains(text.String(), " s without a commit from ") {
		t.Errorf("%v\n%s", err, text.String())
	}
}

// A soak that is killed in the middle goes on when started again, ends by itself, and has a
// report with both runs in it.
func TestSoakKilledAndReport(t *testing.T) {
	t.Parallel()
	db := testdb.StartPostgres(t)
	folder := filepath.Join(t.TempDir(), "first")
	plan := filepath.Join(t.TempDir(), "plan.yaml")
	text := "duration: 40s\ninterval: 200ms\ncanary: {profile: simple-ping, rate: 50}\n" +
		"faults:\n  - {name: pause, at: 1s, for: 1s, do: ['true'], undo: ['true']}\n" +
		"targets:\n  - {storageclass: local, local: true, dsn: '" + db.DSN() + "'}\n"
	if err := os.WriteFile(plan, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	report := func() string {
		out, err := exec.Command(binary(t), "report", "--folder="+folder, "--html="+folder+".html").Output()
		if err != nil {
			return ""
		}
		return string(out)
	}
	s := start(t, []string{"soak", "--plan=" + plan, "--folder=" + folder})
	testkit.Eventually(t, testkit.DefaultTimeout, func() error {
		if !strings.Contains(report(), "| canary | local |") {
			return fmt.Errorf("no canary in the report of the running soak")
		}
		return nil
	})
	if err := s.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := s.cmd.Wait(); err == nil {
		t.Fatal("the soak was over before it was killed") // the next start would stay
	}
	s = start(t, []string{"soak", "--plan=" + plan, "--folder=" + folder})
	if err := ended(s.cmd); err != nil {
		t.Errorf("the soak ended with %v", err)
	}
	page := report()
	for _, want := range []string{"100 % of the plan", "soak not running", "fault pause"} {
		if !strings.Contains(page, want) {
			t.Errorf("no %q in the report:\n%s", want, page)
		}
	}
	if html, err := os.ReadFile(folder + ".html"); err != nil || !strings.Contains(string(html), "new uPlot(") {
		t.Errorf("the page: %d bytes, %v", len(html), err)
	}
}

// A soak that waits begins when its databases answer: before that there is no folder of it, and the error names the
// class.
func TestSoakWaits(t *testing.T) {
	t.Parallel()
	folder, secrets := filepath.Join(t.TempDir(), "soak"), t.TempDir()
	db := testdb.StartPostgres(t)
	db.Stop()
	for name, text := range map[string]string{"plan.yaml": "duration: 10s\ninterval: 200ms\ncanary: {profile: simple-ping, rate: 50}\n" +
		"targets:\n  - {storageclass: local, dsn_file: local}\n", "local": db.DSN() + "\n"} {
		if err := os.WriteFile(filepath.Join(secrets, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	arguments := []string{"soak", "--plan=" + filepath.Join(secrets, "plan.yaml"), "--folder=" + folder}
	text, err := exec.Command(binary(t), append(arguments, "--wait=1s")...).CombinedOutput()
	if err == nil || !strings.Contains(string(text), "--wait: the database of storageclass local did not answer within 1s") {
		t.Errorf("%v\n%s", err, text)
	}
	if _, err := os.Stat(folder); err == nil {
		t.Error("it has begun")
	}
	s := start(t, append(arguments, "--wait=10m"))
	db.Start()
	testkit.Eventually(t, testkit.DefaultTimeout, func() error {
		out, err := exec.Command(binary(t), "report", "--folder="+folder).CombinedOutput()
		if err != nil || !strings.Contains(string(out), "100 % of the plan") || !strings.Contains(string(out), "| canary | local |") {
			return fmt.Errorf("%v\n%s", err, out)
		}
		return nil
	})
	if code := s.stop(); code != 0 {
		t.Errorf("exit code %d after SIGTERM", code)
	}
	// What goes on does not wait: its databases are down, and that is what it measures.
	db.Stop()
	s = start(t, append(arguments, "--wait=1h"))
	if code := s.stop(); code != 0 {
		t.Errorf("exit code %d of one that goes on", code)
	}
}
