// Package querytest reads what the query collector exports, for tests.
package querytest

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/plumbline/plumbline/exporters/agent/collector"
	"github.com/plumbline/plumbline/exporters/agent/collector/collectortest"
	"github.com/plumbline/plumbline/tests/testkit"
)

// LogOn moves a data directory's write-ahead log to another file system.
func LogOn(t testing.TB, data, mount string) {
	t.Helper()
	log := filepath.Join(data, "pg_wal")
	owner, err := os.Stat(log)
	if err != nil {
		t.Fatal(err)
	}
	s := owner.Sys().(*syscall.Stat_t)
	copied := filepath.Join(mount, "pg_wal")
	if err := os.CopyFS(copied, os.DirFS(log)); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(log); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(copied, log); err != nil {
		t.Fatal(err)
	}
	err = filepath.Walk(copied, func(path string, _ os.FileInfo, err error) error {
		if err != nil {
			return err
		}
		return os.Lchown(path, int(s.Uid), int(s.Gid))
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Lchown(log, int(s.Uid), int(s.Gid)); err != nil {
		t.Fatal(err)
	}
}

// Seen is what a collector reports of one server.
type Seen struct {
	Counts map[string]uint64  // by command
	Sums   map[string]float64 // seconds by command
	Phases map[string]map[string]float64
	Reads  map[string]float64 // by cache
	Lost   map[string]float64 // by reason
	// Pipelined are statements that came before others were through, and behind the seconds they waited for those.
	Pipelined, Behind float64
	// Unknown are executions of prepared statements whose command is not known.
	Unknown float64
	// InFlight are statements under way.
	InFlight float64
}

// Total is the number of all statements.
func (s Seen) Total() uint64 { return SumOf(s.Counts) }

// SumOf adds up counts.
func SumOf(counts map[string]uint64) (n uint64) {
	for _, c := range counts {
		n += c
	}
	return n
}

// Minus returns what was added since before.
func (s Seen) Minus(before Seen) Seen {
	d := Seen{Counts: map[string]uint64{}, Sums: map[string]float64{}, Phases: map[string]map[string]float64{},
		Reads: map[string]float64{}, Lost: map[string]float64{},
		Pipelined: s.Pipelined - before.Pipelined, Behind: s.Behind - before.Behind, Unknown: s.Unknown - before.Unknown}
	for command, n := range s.Counts {
		if n == before.Counts[command] {
			continue
		}
		d.Counts[command] = n - before.Counts[command]
		d.Sums[command] = s.Sums[command] - before.Sums[command]
		d.Phases[command] = map[string]float64{}
		for phase, v := range s.Phases[command] {
			d.Phases[command][phase] = v - before.Phases[command][phase]
		}
	}
	for k, v := range s.Reads {
		d.Reads[k] = v - before.Reads[k]
	}
	for k, v := range s.Lost {
		if v != before.Lost[k] {
			d.Lost[k] = v - before.Lost[k]
		}
	}
	return d
}

// Collect returns what c reports of the server with this label.
func Collect(t testing.TB, c collector.Collector, server string) Seen {
	t.Helper()
	s := Seen{Counts: map[string]uint64{}, Sums: map[string]float64{}, Phases: map[string]map[string]float64{},
		Reads: map[string]float64{}, Lost: map[string]float64{}}
	for _, f := range collectortest.Gather(t, c) {
		for _, m := range f.Metric {
			l := collectortest.Labels(m)
			if l["server"] != server {
				continue
			}
			switch f.GetName() {
			case "plumbline_query_duration_seconds":
				s.Counts[l["command"]] = m.Histogram.GetSampleCount()
				s.Sums[l["command"]] = m.Histogram.GetSampleSum()
			case "plumbline_query_phase_seconds_total":
				if s.Phases[l["command"]] == nil {
					s.Phases[l["command"]] = map[string]float64{}
				}
				s.Phases[l["command"]][l["phase"]] = m.Counter.GetValue()
			case "plumbline_query_lost_total":
				s.Lost[l["reason"]] = m.Counter.GetValue()
			case "plumbline_query_file_reads_total":
				s.Reads[l["cache"]] = m.Counter.GetValue()
			case "plumbline_query_commands_unknown_total":
				s.Unknown = m.Counter.GetValue()
			case "plumbline_query_pipelined_total":
				s.Pipelined = m.Counter.GetValue()
			case "plumbline_query_pipelined_wait_seconds_total":
				s.Behind = m.Counter.GetValue()
			case "plumbline_query_in_flight":
				s.InFlight += m.Gauge.GetValue()
			}
		}
	}
	return s
}

// AtRest is Collect, once no statement is under way: a client may have its answer before the server's task gets to the point where a
// statement is counted.
func AtRest(t testing.TB, c collector.Collector, server string) Seen {
	t.Helper()
	testkit.Eventually(t, testkit.DefaultTimeout, func() error {
		if s := Collect(t, c, server); s.InFlight != 0 {
			return fmt.Errorf("%v statements are under way", s.InFlight)
		}
		return nil
	})
	// Once more: what ended between that scrape's counters and its gauge is in neither.
	return Collect(t, c, server)
}

// During returns what c reports of a server for the time that f takes, from when it is at rest until as many statements
// were counted as f makes.
func During(t testing.TB, c collector.Collector, server string, statements uint64, f func()) Seen {
	t.Helper()
	before := AtRest(t, c, server)
	f()
	return Since(t, c, server, before, statements)
}

// Since is the second half of during.
func Since(t testing.TB, c collector.Collector, server string, before Seen, statements uint64) Seen {
	t.Helper()
	var got Seen
	testkit.Eventually(t, testkit.DefaultTimeout, func() error {
		got = Collect(t, c, server).Minus(before)
		if n := got.Total(); n < statements {
			return fmt.Errorf("%d statements of %d: %v, lost %v", n, statements, got.Counts, got.Lost)
		}
		return nil
	})
	return got
}

// WantCounts fails unless exactly these statements were seen and nothing was lost.
func WantCounts(t testing.TB, got Seen, want map[string]uint64) {
	t.Helper()
	if !maps.Equal(got.Counts, want) {
		t.Errorf("statements %v, want %v", got.Counts, want)
	}
	if len(got.Lost) != 0 || got.Unknown != 0 {
		t.Errorf("lost %v, %v of unknown command", got.Lost, got.Unknown)
	}
}

// WantSum fails unless every command's phases add up to its duration.
func WantSum(t testing.TB, got Seen) {
	t.Helper()
	for command, duration := range got.Sums {
		sum := 0.0
		for _, v := range got.Phases[command] {
			sum += v
		}
		if sum < duration*0.999 || sum > duration*1.001 {
			t.Errorf("%s took %.6f s, but its phases add up to %.6f s: %v", command, duration, sum, got.Phases[command])
		}
	}
}

// WaitForServer waits until the collector reports a server with this label, and returns its metrics.
func WaitForServer(t testing.TB, c collector.Collector, server string) (info map[string]string) {
	t.Helper()
	testkit.Eventually(t, testkit.DefaultTimeout, func() error {
		for _, f := range collectortest.Gather(t, c) {
			for _, m := range f.Metric {
				if info = collectortest.Labels(m); f.GetName() == "plumbline_server_info" && info["server"] == server {
					return nil
				}
			}
		}
		return fmt.Errorf("no server %s", server)
	})
	return info
}

// Run executes one statement in the simple protocol: one round trip, no preparation.
func Run(t testing.TB, c *pgx.Conn, statement string) {
	t.Helper()
	if _, err := c.PgConn().Exec(context.Background(), statement).ReadAll(); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}

// Wakeups is what the query collector has of the time from a server's wake-ups to its statements, in seconds.
func Wakeups(t testing.TB, c collector.Collector, label string) (sum float64, series int) {
	t.Helper()
	for _, f := range collectortest.Gather(t, c) {
		if f.GetName() != "plumbline_query_wakeup_seconds_total" {
			continue
		}
		for _, m := range f.Metric {
			if collectortest.Labels(m)["server"] == label {
				sum += m.GetCounter().GetValue()
				series++
			}
		}
	}
	return sum, series
}

// UntilAsleep waits until a server's thread, or process, sleeps: one that is still awake when the next statement comes
// is not woken for it.
func UntilAsleep(t testing.TB, tid int) {
	t.Helper()
	testkit.Eventually(t, testkit.DefaultTimeout, func() error {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", tid))
		if err != nil {
			return err
		}
		if _, state, _ := bytes.Cut(stat, []byte(") ")); !bytes.HasPrefix(state, []byte("S ")) {
			return fmt.Errorf("thread %d does not sleep: %s", tid, stat)
		}
		return nil
	})
}
