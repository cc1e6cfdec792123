package soak

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/plumbline/plumbline/tests/testkit"
)

// stamps is a shell command that ends with a status when a file is there, and leaves two files with the times of its
// beginning and its end. A file's own time is that of the kernel's last tick, which a machine that pauses has late.
func stamps(name, goOn string, status int) []string {
	const stamp = "date +%%s%%N > %[1]s.new; mv %[1]s.new %[1]s."
	return []string{"sh", "-c", fmt.Sprintf(stamp+"began; until [ -e %[2]s ]; do sleep 0.01; done; "+stamp+"ended; exit %[3]d", name, goOn, status)}
}

// A fault's window, in the folder and in the metric, is from its command's beginning to the end of its mending: also of
// one that could not be done, that is interrupted, or that the soak's end cuts short.
func TestFaultWindow(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		status    int
		interrupt bool
		duration  time.Duration
	}{
		"could not be done":     {3, false, time.Hour},
		"interrupted":           {0, true, time.Hour},
		"beyond the soak's end": {0, false, 2 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := t.TempDir()
			path := func(name string) string { return filepath.Join(in, name) }
			stamp := func(name string) time.Time {
				text, err := os.ReadFile(path(name))
				if err != nil {
					t.Fatal(err)
				}
				ns, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
				if err != nil {
					t.Fatal(err)
				}
				return time.Unix(0, ns)
			}
			await := func(what string, is func() bool) {
				t.Helper()
				testkit.Eventually(t, testkit.DefaultTimeout, func() error {
					if !is() {
						return errors.New(what + ": not yet")
					}
					return nil
				})
			}
			there := func(name string) func() bool {
				return func() bool {
					_, err := os.Stat(path(name))
					return err == nil
				}
			}
			touch := func(name string) {
				if err := os.WriteFile(path(name), nil, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			plan := unreachedPlan(t, Fault{Name: "slow disk", For: 30 * time.Minute, Do: stamps(path("do"), path("done"), c.status), Undo: stamps(path("undo"), path("undone"), 0)})
			plan.Duration = c.duration
			folder := t.TempDir()
			s, err := Open(folder, plan, prometheus.NewRegistry(), slog.New(slog.DiscardHandler))
			if err != nil {
				t.Fatal(err)
			}
			ctx, stop := context.WithCancel(t.Context())
			t.Cleanup(stop)
			ended := make(chan error, 1)
			go func() { ended <- s.Run(ctx) }()
			gauge := func() float64 { return testutil.ToFloat64(s.faults.WithLabelValues("slow disk")) }
			await("the fault", there("do.began"))
			if v := gauge(); v != 1 {
				t.Errorf("while the fault is done the metric is %v", v)
			}
			touch("done")
			await("what it does", there("do.ended"))
			if c.interrupt {
				stop()
			}
			await("the mending", there("undo.began"))
			if v := gauge(); v != 1 {
				t.Errorf("while the fault is mended the metric is %v", v)
			}
			touch("undone")
			await("its end", func() bool { return events(read(t, folder), FaultEvent, "slow disk", End) == 1 })
			if v := gauge(); v != 0 {
				t.Errorf("after the fault was mended the metric is %v", v)
			}
			stop()
			if err := <-ended; err != nil {
				t.Error(err)
			}
			for _, e := range read(t, folder).Events {
				switch {
				case e.Kind != FaultEvent:
				case e.What == Begin && e.Time.After(stamp("do.began")):
					t.Errorf("the window begins at %s, and the command at %s", e.Time, stamp("do.began"))
				case e.What == End && e.Time.Before(stamp("undo.ended")):
					t.Errorf("the window ends at %s, and the mending at %s", e.Time, stamp("undo.ended"))
				}
			}
		})
	}
}
