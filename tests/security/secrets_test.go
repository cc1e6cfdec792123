package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/plumbline/plumbline/exporters/agent/server/servertest"
	"github.com/plumbline/plumbline/tests/rig"
	"github.com/plumbline/plumbline/tests/testkit"
)

// marked is a text that is nowhere else.
type marked struct{ password, query string }

// guarded is a server that wants a password, which has the mark; and one user of it.
func guarded(t *testing.T, m marked) (pg *servertest.Postgres, dsn string) {
	t.Helper()
	pg = servertest.StartPostgres(t, map[string]string{"cluster_name": "guarded", "log_statement": "all", "shared_preload_libraries": "pg_stat_statements"}, nil)
	c := pg.Connect(t)
	for _, s := range []string{
		fmt.Sprintf("create role marked login superuser password '%s'", m.password),
		"create database marked owner marked",
		"alter system set log_statement = 'all'",
	} {
		if _, err := c.Exec(context.Background(), s); err != nil {
			t.Fatal(err)
		}
	}
	rules := "local all postgres trust\nhost all postgres 127.0.0.1/32 trust\nhost all marked 127.0.0.1/32 scram-sha-256\n"
	if err := os.WriteFile(filepath.Join(pg.Data, "pg_hba.conf"), []byte(rules), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Exec(context.Background(), "select pg_reload_conf()"); err != nil {
		t.Fatal(err)
	}
	url := func(password string) string {
		return fmt.Sprintf("postgres://marked:%s@127.0.0.1:%d/marked?sslmode=disable", password, pg.Port)
	}
	testkit.Eventually(t, testkit.DefaultTimeout, func() error {
		c, err := pgx.Connect(context.Background(), url("wrong"))
		if err == nil {
			_ = c.Close(context.Background())
			return fmt.Errorf("the server takes any password")
		}
		return nil
	})
	return pg, url(m.password)
}

// outputs is all that is readable from outside, by where it came from.
type outputs map[string]string

func (o outputs) get(t *testing.T, url string) {
	t.Helper()
	answer, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	o[url] = string(text)
}

// pages are those that a program could have on its port; a missing one exposes nothing.
var pages = []string{"/", "/metrics", "/-/healthy", "/debug/pprof/", "/debug/pprof/cmdline", "/debug/vars", "/config"}

// run starts a program of ours that serves pages, and awaits a text in its metrics.
func run(t *testing.T, awaited string, cmd *exec.Cmd) (address string, p *rig.Process) {
	t.Helper()
	address = testkit.FreeAddress(t)
	cmd.Args = append(cmd.Args, "--web.listen-address="+address, "--log.level=debug")
	p = rig.Start(t, cmd)
	testkit.Eventually(t, testkit.DefaultTimeout, func() error {
		answer, err := http.Get("http://" + address + "/metrics")
		if err != nil {
			return err
		}
		defer answer.Body.Close()
		text, err := io.ReadAll(answer.Body)
		if err == nil && !strings.Contains(string(text), awaited) {
			err = fmt.Errorf("%s has no %s yet:\n%s", cmd.Args[0], awaited, p.Log)
		}
		return err
	})
	return address, p
}

// A password in a DSN, in an environment, in a plan, and the text of a query are in no metric,
// page, log, result, report or command line of ours.
func TestSecretsStayInside(t *testing.T) {
	testkit.NeedBPF(t)
	m := marked{"secret" + rand.Text(), "query" + rand.Text()}
	pg, dsn := guarded(t, m)
	agent, loadgen := testkit.Tool(t, "plumbline-agent"), testkit.Tool(t, "loadgen")
	out := outputs{}
	folder := t.TempDir()

	agentAt, agentProcess := run(t, `server="guarded"`, exec.Command(agent))
	withDSN := func(args ...string) *exec.Cmd {
		cmd := exec.Command(loadgen, args...)
		cmd.Env = append(os.Environ(), "LOADGEN_DSN="+dsn)
		return cmd
	}
	canaryAt, canary := run(t, `loadgen_phase{database="guarded",phase="steady"`, withDSN("canary", "--database=guarded", "--storageclass=local", "--rate=20", "--warmup=1s"))
	pgbenchAt, pgbench := run(t, `loadgen_phase{database="guarded",phase="steady"`, withDSN("pgbench", "--database=guarded", "--storageclass=local", "--rate=20", "--warmup=1s", "--init", "--scale=1", "--work-dir="+t.TempDir()))
	// Wrong in a way that programs like to quote. It retries, and logs each attempt: some seconds of that are enough.
	while, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	wrong := exec.CommandContext(while, loadgen, "canary", "--database=guarded", "--storageclass=local", "--once=2s", "--warmup=0s")
	wrong.Env = append(os.Environ(), "LOADGEN_DSN="+strings.Replace(dsn, "/marked?", "/nowhere?", 1))
	output, _ := wrong.CombinedOutput()
	out["loadgen with a wrong database"] = string(output)
	wrong = exec.CommandContext(while, loadgen, "canary", "--database=guarded", "--storageclass=local", "--once=2s")
	wrong.Env = append(os.Environ(), "LOADGEN_DSN=postgres://marked:"+m.password+"@127.0.0.1:notaport/marked")
	output, _ = wrong.CombinedOutput()
	out["loadgen with a wrong DSN"] = string(output)

	plan := filepath.Join(folder, "plan.yaml")
	text := fmt.Sprintf("duration: 8s\ncanary: {profile: tpcb-like, rate: 20}\ntargets:\n  - {storageclass: local, engine: postgres, dsn: %q}\n", dsn)
	if err := os.WriteFile(plan, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	kept, page := filepath.Join(folder, "soak"), filepath.Join(folder, "soak.html")
	output, err := exec.Command(loadgen, "soak", "--web.listen-address="+testkit.FreeAddress(t), "--plan="+plan, "--folder="+kept).CombinedOutput()
	if err != nil {
		t.Fatalf("soak: %v\n%s", err, output)
	}
	out["soak's log"] = string(output)
	output, err = exec.Command(loadgen, "report", "--folder="+kept, "--html="+page).CombinedOutput()
	if err != nil {
		t.Fatalf("report: %v\n%s", err, output)
	}
	out["report"] = string(output)

	c, err := pgx.Connect(context.Background(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []string{
		"select '" + m.query + "'", "select length($1)", "create table " + m.query + " (i int)", "selekt " + m.query,
		"/* " + m.query + " */ select 1", "prepare " + m.query + " as select 1", m.query,
	} {
		if strings.Contains(s, "$1") {
			_, _ = c.Exec(context.Background(), s, m.query)
		} else {
			_, _ = c.Exec(context.Background(), s)
		}
	}
	_ = c.Close(context.Background())
	// Beside the exporters of ours, the one that reads statements' statistics for the lab.
	exporterAt := testkit.FreeAddress(t)
	exporter := exec.Command(testkit.Tool(t, "postgres_exporter"), "--web.listen-address="+exporterAt, "--collector.stat_statements", "--log.level=debug")
	exporter.Env = append(os.Environ(), "DATA_SOURCE_NAME="+dsn)
	exporterProcess := rig.Start(t, exporter)
	testkit.Eventually(t, testkit.DefaultTimeout, func() error {
		_, err := http.Get("http://" + exporterAt + "/metrics")
		return err
	})

	for _, address := range []string{agentAt, canaryAt, pgbenchAt, exporterAt} {
		for _, p := range pages {
			if address == exporterAt && p != "/metrics" && p != "/" {
				continue // what else it serves is not ours
			}
			out.get(t, "http://"+address+p)
		}
	}
	for name, p := range map[string]*rig.Process{"agent": agentProcess, "canary": canary, "pgbench adapter": pgbench, "postgres_exporter": exporterProcess} {
		out[name+"'s log"] = p.Log.String()
		for pid, line := range commandLines(t, p.PID()) {
			out[fmt.Sprintf("command line of %s (%d)", name, pid)] = line
		}
	}
	if err := filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || path == plan {
			return err
		}
		text, err := os.ReadFile(path)
		out[path] = string(text)
		return err
	}); err != nil {
		t.Fatal(err)
	}

	for from, text := range out {
		for what, mark := range map[string]string{"password": m.password, "query's text": m.query} {
			if i := strings.Index(text, mark); i >= 0 {
				t.Errorf("the %s is in %s: …%s…", what, from, text[max(0, i-60):min(len(text), i+60)])
			}
		}
	}
	// The marks were really used, and the outputs are those of these programs.
	log, err := os.ReadFile(pg.Log)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(log), m.query) {
		t.Error("the server got no marked query")
	}
	for from, want := range map[string]string{
		"http://" + agentAt + "/metrics": `plumbline_query_duration_seconds_count{command="select",db_system="postgresql",server="guarded"}`,
		page:                             "<html", "soak's log": "level=",
	} {
		if !strings.Contains(out[from], want) {
			t.Errorf("%s has no %s: what was searched is not what it should be", from, want)
		}
	}
	if n := strings.Count(fmt.Sprint(keys(out)), "command line of pgbench adapter"); n < 2 {
		t.Errorf("%d command lines of the pgbench adapter, want those of it and of pgbench", n)
	}
}

func keys(o outputs) (k []string) {
	for from := range o {
		k = append(k, from)
	}
	return k
}

// commandLines returns those of a process and all it started.
func commandLines(t *testing.T, pid int) map[int]string {
	t.Helper()
	lines := map[int]string{}
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil {
		t.Fatal(err)
	}
	lines[pid] = string(text)
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range tasks {
		children, err := os.ReadFile(path)
		if err != nil {
			continue // a thread that has ended
		}
		for _, child := range strings.Fields(string(children)) {
			id, err := strconv.Atoi(child)
			if err != nil {
				t.Fatal(err)
			}
			if text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", id)); err == nil {
				lines[id] = string(text)
			}
		}
	}
	return lines
}
