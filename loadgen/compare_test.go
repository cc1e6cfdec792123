package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/plumbline/plumbline/loadgen/baseline"
	"github.com/plumbline/plumbline/loadgen/internal/testdb"
	"github.com/plumbline/plumbline/loadgen/matrix"
	"github.com/plumbline/plumbline/loadgen/result"
)

// runs is the file of a matrix whose rounds had these rates; that of 0 failed.
func runs(t *testing.T, rates ...float64) string {
	t.Helper()
	r := matrix.Report{Matrix: "wal", Scale: 1, Repeat: len(rates)}
	for i, rate := range rates {
		row := matrix.Row{Step: "wal", StorageClass: "r3", Round: i + 1, Error: "no room"}
		if rate > 0 {
			row.Result, row.Error = &result.Result{Rate: rate}, ""
		}
		r.Rows = append(r.Rows, row)
	}
	text, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "wal.json")
	if err := os.WriteFile(path, text, 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// The exit codes that the help and docs/measure/compare.md promise to CI.
func TestCompareExitCodes(t *testing.T) {
	t.Parallel()
	quick, slow, few := runs(t, 1000, 1010, 990, 1005, 995, 1000), runs(t, 800, 810, 790, 805, 795, 800), runs(t, 1000, 990)
	broken, worse := runs(t, 1000, 1010, 0, 1005, 995, 1000), runs(t, 800, 810, 0, 805, 795, 800)
	rough := runs(t, 1000, 600, 1500, 800, 1200, 1000)
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{quick, quick}, 0, "no difference that counts"},
		{[]string{quick, slow}, 3, "surely slower: the second's time is 25 % longer"},
		{[]string{"--threshold=30", quick, slow}, 0, "1 without a difference"},
		{[]string{slow, quick}, 0, "surely faster: the second's time is 20 % shorter"},
		{[]string{quick, rough}, 0, "could not have been seen"},
		{[]string{"--must-see=10", quick, rough}, 4, "inconclusive"},
		{[]string{"--must-see=10", quick, quick}, 0, "no difference that counts"},
		{[]string{"--must-see=10", quick, slow}, 3, "surely slower"},
		{[]string{"--must-see=500", quick, few}, 4, "too few"},
		{[]string{quick, broken}, 1, "failed on one side only: wal on r3: 0 of 6 runs failed in the first, 1 of 6 in the second"},
		{[]string{broken, quick}, 1, "**failed in the first**: wal on r3"},
		{[]string{"--json", quick, broken}, 1, `"side": "second"`},
		{[]string{broken, broken}, 0, "- failed in both: wal on r3"},
		{[]string{"--must-see=10", broken, broken}, 4, "- failed in both"},
		{[]string{quick, worse}, 3, "**failed in the second**: wal on r3"},
		{[]string{quick, runs(t, 0, 0)}, 1, "nothing in common that was measured: wal on r3: 0 of 6 runs failed in the first, 2 of 2 in the second"},
		{[]string{quick, "none.json"}, 1, "no such file"},
		{[]string{"--must-see=4", quick, quick}, 1, "must be above --threshold"},
		{[]string{"--threshold=-1", quick, quick}, 1, "must be a number that is not below 0"},
		{[]string{"--threshold=NaN", quick, quick}, 1, "must be a number that is not below 0"},
		{[]string{"--must-see=x", quick, quick}, 2, "try loadgen --help"},
		{[]string{"--beside=", quick, quick}, 1, "--beside wants a storage class"},
		{[]string{"--beside=local", quick, quick}, 1, `no class \"local\" in both to compare beside; both have r3`},
		{[]string{"--beside=r3", quick, quick}, 1, `nothing in both is measured beside \"r3\"`},
	} {
		command := exec.Command(binary(t), append([]string{"compare"}, c.args...)...)
		out, _ := command.CombinedOutput()
		if got := command.ProcessState.ExitCode(); got != c.code || !strings.Contains(string(out), c.want) {
			t.Errorf("%v: exit code %d, want %d and %q\n%s", c.args, got, c.code, c.want, out)
		}
	}
}

// A baseline of a real server can be recorded without pinning anything, and compared; so short a one reports that it is
// too short.
func TestBaselineRecordLive(t *testing.T) {
	t.Parallel()
	db := testdb.StartPostgres(t)
	path := filepath.Join(t.TempDir(), "baseline.json")
	out, err := exec.Command(binary(t), "baseline", "--storageclass=local", "--database=shop", "--dsn="+db.DSN(), "--profile=simple-ping", "--rate=50",
		"--warmup=200ms", "--over=12s", "--force", "--record="+path).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	r, err := baseline.ReadRecord(path)
	if err != nil {
		t.Fatal(err)
	}
	if c := r.Classes[0]; c.Database != "shop" || len(c.Intervals) != 1 || c.Intervals[0].Count < 100 || c.Intervals[0].P95 < c.Intervals[0].P50 || c.Result.Profile != "simple-ping" {
		t.Errorf("%+v", r.Classes)
	}
	command := exec.Command(binary(t), "compare", "--must-see=10", path, path)
	out, _ = command.CombinedOutput()
	if code := command.ProcessState.ExitCode(); code != 4 || !strings.Contains(string(out), fmt.Sprintf("%d and %d", 1, 1)) {
		t.Errorf("exit code %d\n%s", code, out)
	}
}
