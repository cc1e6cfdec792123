package matrix

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// pretended is a fio whose first fifty writes and syncs, which are in the warm-up, take 100 ms each, and all others 1
// ms.
const pretended = `#!/bin/sh
n=0
report() {
	lat="{\"bins\":{\"100000000\":50,\"1000000\":$n}}"
	printf '{\n"jobs":[{"write":{"total_ios":%d,"lat_ns":%s},"sync":{"lat_ns":%s}}]\n}\n' $((50 + n)) "$lat" "$lat"
}
trap 'report; exit 0' INT
while :; do
	report
	sleep 0.1
	n=$((n + 10))
done
`

// A step's figure of its syncs is of the same time as its other figures: what they took in the warm-up is in none of
// them.
func TestSyncsOfTheWarmUpAreLeftOut(t *testing.T) {
	path := filepath.Join(t.TempDir(), "fio")
	if err := os.WriteFile(path, []byte(pretended), 0o755); err != nil {
		t.Fatal(err)
	}
	r := Runner{FIO: path, ProcFS: "/proc", Scale: 1, MaxClients: 1, Log: slog.New(slog.NewTextHandler(t.Output(), nil))}
	row := Row{Step: "wal", step: Step{Name: "wal", Duration: time.Second, FIO: &FIO{RW: "write", BlockKiB: 8, Depth: 1, Jobs: 1, SizeMiB: 1, Fdatasync: 1}}}
	if err := r.row(t.Context(), Target{StorageClass: "local", Directory: t.TempDir()}, &row); err != nil {
		t.Fatal(err)
	}
	writes, syncs := row.Result.Service, row.Sync
	if writes.Count == 0 || writes.Max > 0.01 {
		t.Fatalf("writes %+v, those that are measured take 1 ms", writes)
	}
	// The warm-up may end in the middle of a report, of ten.
	if syncs.Count > writes.Count+10 || syncs.Count+10 < writes.Count || syncs.Max > 0.01 || syncs.Mean > 0.0011 {
		t.Errorf("%d syncs of %v s on average and %v at the most; want %d of 1 ms", syncs.Count, syncs.Mean, syncs.Max, writes.Count)
	}
}
