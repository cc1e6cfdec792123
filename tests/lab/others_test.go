package lab

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/plumbline/plumbline/exporters/agent/server/servertest"
	"github.com/plumbline/plumbline/tests/testkit"
)

// otherDatabases runs what the lab does not have: MariaDB, mysqld_exporter and a soak on it
// whose plan has a fault, and a Prometheus that scrapes them. It returns Prometheus' address.
func otherDatabases(t *testing.T) string {
	t.Helper()
	exporter, loadgen, server := testkit.Tool(t, "mysqld_exporter"), testkit.Tool(t, "loadgen"), testkit.Tool(t, "prometheus")
	folder := t.TempDir()
	file := func(name string) string { return filepath.Join(folder, name) }

	db := servertest.StartMariaDB(t)
	if _, err := db.Open(t, nil).Exec("CREATE DATABASE soak"); err != nil {
		t.Fatal(err)
	}
	exporterAt, soakAt, prometheusAt := testkit.FreeAddress(t), testkit.FreeAddress(t), testkit.FreeAddress(t)
	writeFile(t, file("my.cnf"), fmt.Sprintf("[client]\nuser=root\npassword=\nhost=127.0.0.1\nport=%d\n", db.Port))
	background(t, exec.Command(exporter, "--web.listen-address="+exporterAt, "--config.my-cnf="+file("my.cnf")))

	writeFile(t, file("plan.yaml"), fmt.Sprintf(`duration: 1h
canary: {profile: tpcb-like, rate: 20}
faults:
  - {name: nothing at all, at: 0s, for: 50m, do: ["true"]}
targets:
  - {storageclass: elsewhere, engine: mysql, dsn: "root@unix(%s)/soak"}
`, db.Socket()))
	background(t, exec.Command(loadgen, "soak", "--web.listen-address="+soakAt, "--plan="+file("plan.yaml"), "--folder="+file("soak")))

	// A baseline as loadgen baseline would write it, if it had an hour.
	writeFile(t, file("baseline.yaml"), `groups:
  - name: pinned
    rules:
      - {record: loadgen:baseline_response_seconds, expr: "0.01 * group by (tool, profile, storageclass) (loadgen_target_rate)", labels: {quantile: "0.95"}}
      - {record: loadgen:baseline_target_rate, expr: "max by (tool, profile, storageclass) (loadgen_target_rate)"}
`)
	writeFile(t, file("prometheus.yml"), fmt.Sprintf(`global: {scrape_interval: 3s, scrape_timeout: 3s, evaluation_interval: 3s, scrape_native_histograms: true}
rule_files: [baseline.yaml, %q]
scrape_configs:
  - {job_name: mysqld-exporter, static_configs: [{targets: [%q], labels: {server: elsewhere, storageclass: elsewhere}}]}
  - {job_name: soak, honor_labels: true, static_configs: [{targets: [%q]}]}
`, filepath.Join(testkit.Root(), "rules", "canary.rules.yaml"), exporterAt, soakAt))
	background(t, exec.Command(server, "--config.file="+file("prometheus.yml"), "--storage.tsdb.path="+file("tsdb"), "--web.listen-address="+prometheusAt))
	return "http://" + prometheusAt
}

// background runs a program until the test ends, and logs its output if the test fails.
func background(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	log, err := os.Create(filepath.Join(t.TempDir(), filepath.Base(cmd.Path)+".log"))
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait()
		close(ended)
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-ended:
		case <-time.After(20 * time.Second):
			_ = cmd.Process.Kill()
			<-ended
		}
		log.Close()
		if text, err := os.ReadFile(log.Name()); err == nil && t.Failed() {
			t.Logf("%s:\n%s", filepath.Base(cmd.Path), text)
		}
	})
}
