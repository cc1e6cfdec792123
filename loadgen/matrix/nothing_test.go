package matrix

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/plumbline/plumbline/loadgen/result"
)

// stuck is a fio on a disk that answers nothing after so many writes.
const stuck = `#!/bin/sh
report() { printf '{\n"jobs":[{"write":{"total_ios":%[1]d,"lat_ns":{"bins":{"1000000":%[1]d}}},"sync":{"lat_ns":{}}}]\n}\n'; }
trap 'report; exit 0' INT
while :; do
	report
	sleep 0.1
done
`

// A run in which nothing was completed has failed: it has no time of an operation, which would be the shortest of all
// classes'. One whose first operation does not come keeps no other from its run.
func TestNothingCompleted(t *testing.T) {
	was := longestSilence
	defer func() { longestSilence = was }()
	longestSilence = time.Second
	nothing(t, 0, "no operation was completed in the first 1s")
	longestSilence = was
	nothing(t, 1, "no operation was completed in ") // to its last report
}

func nothing(t *testing.T, writes int, want string) {
	path := filepath.Join(t.TempDir(), "fio")
	if err := os.WriteFile(path, fmt.Appendf(nil, stuck, writes), 0o755); err != nil {
		t.Fatal(err)
	}
	r := Runner{FIO: path, ProcFS: "/proc", Scale: 1, MaxClients: 1, Log: slog.New(slog.NewTextHandler(t.Output(), nil))}
	step := Step{Name: "wal", Duration: time.Second, FIO: &FIO{RW: "write", BlockKiB: 8, Depth: 1, Jobs: 1, SizeMiB: 1}}
	row, err := r.one(t.Context(), "wal", step, step, Target{StorageClass: "r3", Directory: t.TempDir()}, 1)
	if err != nil {
		t.Fatal(err)
	}
	if silent := strings.Contains(row.Error, "in the first"); row.Result != nil || !strings.Contains(row.Error, want) || silent != (writes == 0) {
		t.Errorf("%d writes: result %+v, error %q, want %q", writes, row.Result, row.Error, want)
	}
	report := Report{Rows: []Row{row}}
	if report.Failed() == nil {
		t.Error("it is not reported as failed")
	}
}

// A rate below one is no 0.
func TestSlowRates(t *testing.T) {
	for rate, want := range map[float64]string{0: "0", 0.0317: "0.0317", 0.4: "0.4", 4.56: "4.56", 99.94: "99.9", 1234.5: "1234"} {
		if got := perSecond(rate); got != want {
			t.Errorf("%v a second is printed as %s, want %s", rate, got, want)
		}
	}
	r := Report{Repeat: 2, Targets: []Target{{StorageClass: "a"}}, Rows: []Row{{Step: "scan", StorageClass: "a", Round: 1, Result: &result.Result{Rate: 0.02}},
		{Step: "scan", StorageClass: "a", Round: 2, Result: &result.Result{Rate: 0.04}}}}
	r.sumUp()
	var text strings.Builder
	if err := r.WriteMarkdown(&text); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"| scan | a | 0.02 |", "| scan | a | 2 | 0.03 (0.02 to 0.04) |"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("there is no %q in\n%s", want, &text)
		}
	}
}
