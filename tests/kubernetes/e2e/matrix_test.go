//go:build e2e

package e2e

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/plumbline/plumbline/loadgen/matrix"
	"github.com/plumbline/plumbline/tests/rig"
	"github.com/plumbline/plumbline/tests/testkit"
)

// experiment runs a published experiment by the bench's chart, in a namespace of its own, with values beside those of its file, and
// returns the report of the job's log, which stays in build/e2e with its page.
func (n *node) experiment(name, values string, limit time.Duration) *matrix.Report {
	n.t.Helper()
	n.kubectl("create", "namespace", "matrix")
	defer n.kubectl("delete", "namespace", "matrix", "--timeout=5m")
	n.write("etc/matrix.yaml", imageValues+values)
	n.helm("matrix", "install", name, benchChart(), "-f", benchChart(name+".yaml"), "-f", n.path("etc", "matrix.yaml"))
	defer n.helm("matrix", "uninstall", name, "--wait")
	testkit.Eventually(n.t, limit, func() error {
		done, err := n.try("get", "job/matrix-"+name, "--namespace=matrix", "--output=jsonpath={.status.conditions[?(@.status==\"True\")].type}")
		if err == nil && !strings.Contains(done, "Complete") && !strings.Contains(done, "Failed") {
			err = errors.New("the job's conditions: " + done)
		}
		return err
	})
	log := filepath.Join(testkit.Root(), "build", "e2e", "matrix-"+name+".log")
	n.must(os.WriteFile(log, []byte(n.kubectl("logs", "job/matrix-"+name, "--namespace=matrix")), 0o644))
	page := strings.TrimSuffix(log, ".log") + ".html"
	if output, err := exec.Command(filepath.Join(testkit.Root(), "build", "linux", runtime.GOARCH, "loadgen"), "report", "--matrix="+log, "--html="+page).CombinedOutput(); err != nil {
		n.t.Errorf("loadgen report: %v\n%s", err, output)
	}
	report, err := matrix.Read(log)
	n.must(err)
	return report
}

// runMatrix runs an experiment on both classes in one job while each operation of one's disk is held back: the report has that class as
// surely slower, by that time at least, and names its device.
func (n *node) runMatrix(disk *rig.SlowDisk, delay time.Duration) {
	n.t.Helper()
	for _, d := range []*rig.Delay{disk.Writes, disk.Syncs} {
		d.Set(delay)
		defer d.Set(0)
	}
	report := n.experiment("wal", `
classes: [`+control+`, `+held+`]
matrix: {repeat: 4, scale: 0.3, volumeSize: 1Gi}
`, 15*time.Minute)
	if done, planned, ok := report.Interrupted(); ok || len(report.Rows) != 8 {
		n.t.Fatalf("%d runs, of %d planned %d are done", len(report.Rows), planned, done)
	}
	// Every other round is backwards.
	order := ""
	for _, row := range report.Rows {
		order += row.StorageClass[:1]
		if row.Result == nil {
			n.t.Fatalf("round %d on %s failed: %s", row.Round, row.StorageClass, row.Error)
		}
		if row.Layers == nil {
			n.t.Errorf("round %d on %s has no layers: %s", row.Round, row.StorageClass, row.NoLayers)
		}
		n.t.Logf("round %d, %s: %.2f ms an operation; limit: %s, %s", row.Round, row.StorageClass, 1e3/row.Result.Rate, row.Limit.What, row.Limit.Because)
	}
	if want := "lhhllhhl"; order != want {
		n.t.Errorf("the order of the runs is %s, want %s", order, want)
	}
	mean := func(class string) time.Duration {
		sum := 0.0
		for _, t := range matrix.Times(report.Rates("fio wal 8k", class)) {
			sum += t / 4
		}
		return time.Duration(sum * 1e9)
	}
	if slower := mean(held) - mean(control); slower < delay {
		n.t.Errorf("an operation takes %v on %s and %v on %s, whose disk holds each back for %v", mean(control), control, mean(held), held, delay)
	}
	for _, c := range report.Classes {
		n.t.Logf("%s: %s; %s; limits %v", c.StorageClass, c.Verdict, c.Words, c.Limits)
		n.report("matrix.txt", fmt.Sprintf("%s: %s; %s; limits %v\n", c.StorageClass, c.Verdict, c.Words, c.Limits))
		switch {
		case c.StorageClass == control && c.Verdict != "reference", c.StorageClass == held && c.Verdict != "surely slower":
			n.t.Errorf("%s: %s", c.StorageClass, c.Verdict)
		case c.StorageClass == held && c.Limits["device"] < 3:
			n.t.Errorf("the limits of %s are %v; its device held each operation back", held, c.Limits)
		}
	}
}
