package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/plumbline/plumbline/loadgen/internal/testdb"
	"github.com/plumbline/plumbline/loadgen/result"
	"github.com/plumbline/plumbline/tests/testkit"
)

// Several generators make one load, as the pods of an indexed job, on a database without tables; what they print is
// added up.
func TestGenerators(t *testing.T) {
	t.Parallel()
	db := testdb.StartPostgres(t)
	for name, c := range map[string]struct {
		of   int
		rate float64
		args []string
	}{
		"canary": {3, 90, []string{"canary", "--dsn=" + db.DSN(), "--profile=kv-select"}},
		"k6":     {2, 40, []string{"k6", "--path=" + testkit.Tool(t, "k6"), "--dsn=" + db.DSN()}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			folder := t.TempDir()
			var files []string
			wait := make([]func() error, c.of)
			for i := range c.of {
				cmd := exec.Command(binary(t), append(c.args, fmt.Sprintf("--rate=%v", c.rate), fmt.Sprintf("--generators=%d", c.of), "--warmup=1s", "--once=3s", "--json")...)
				cmd.Env = append(os.Environ(), fmt.Sprintf("JOB_COMPLETION_INDEX=%d", i))
				var out bytes.Buffer
				cmd.Stdout, cmd.Stderr = &out, &out // as a pod's log has both
				if err := cmd.Start(); err != nil {
					t.Fatal(err)
				}
				path := filepath.Join(folder, fmt.Sprintf("%d.log", i))
				files = append(files, path)
				wait[i] = func() error {
					if err := cmd.Wait(); err != nil {
						return fmt.Errorf("%w: %s", err, out.String())
					}
					return os.WriteFile(path, out.Bytes(), 0o600)
				}
			}
			for _, w := range wait {
				if err := w(); err != nil {
					t.Fatal(err)
				}
			}
			var all []result.Part
			completed := uint64(0)
			for _, path := range files {
				some, err := readResults(path, nil)
				if err != nil || len(some) != 1 {
					t.Fatalf("%s: %d results, %v", path, len(some), err)
				}
				if got, want := some[0].TargetRate, c.rate/float64(c.of); math.Abs(got-want) > 1e-9 {
					t.Errorf("a generator's target is %v/s, want %v", got, want)
				}
				all, completed = append(all, some...), completed+some[0].Completed
			}
			out, err := exec.Command(binary(t), append([]string{"merge", "--json"}, files...)...).Output()
			if err != nil {
				t.Fatal(err)
			}
			var m result.Total
			if err := json.Unmarshal(out, &m); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			if m.Completed != completed || m.Service.Count != completed || m.Generators != c.of || m.TargetRate != c.rate {
				t.Errorf("sum %+v of %d", m, completed)
			}
			// Each does its part and no more: together what was requested, not so many times that.
			if offered := float64(m.Offered) / m.Seconds; offered < c.rate/2 || offered > 1.5*c.rate {
				t.Errorf("%.1f/s were offered, want about %v", offered, c.rate)
			}
			for _, r := range all {
				if r.Offered*uint64(c.of) > 2*m.Offered {
					t.Errorf("one of %d generators offered %d of %d", c.of, r.Offered, m.Offered)
				}
			}
			text, err := exec.Command(binary(t), append([]string{"merge"}, files[1:]...)...).CombinedOutput()
			if err == nil || !strings.Contains(string(text), "these are missing: [0]") {
				t.Errorf("one is missing: %v\n%s", err, text)
			}
		})
	}
	text, err := exec.Command(binary(t), "canary", "--dsn="+db.DSN(), "--generators=2", "--generator=2", "--once=1s").CombinedOutput()
	if err == nil || !strings.Contains(string(text), "--generator is 2; of 2 generators the last is 1") {
		t.Errorf("a generator that there is not: %v\n%s", err, text)
	}
}
