package driver

import (
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/plumbline/plumbline/loadgen/internal/testdb"
	"github.com/plumbline/plumbline/loadgen/internal/testload"
	"github.com/plumbline/plumbline/loadgen/metrics"
)

// page is a log that may be read while it is written.
type page struct {
	mu   sync.Mutex
	text strings.Builder
}

func (p *page) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.Write(b)
}

func (p *page) String() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.String()
}

// A server that is gone, does not know the user, or takes no writes: the kind of its errors, the log and the phase
// report it, with every line of the log the cause, and the phase is what it was when the server is back.
func TestCauseOfAnOutage(t *testing.T) {
	t.Parallel()
	server := testdb.StartPostgres(t)
	server.Exec("create role guest login password 'right'")
	for name, c := range map[string]struct {
		change func(*Config)
		kind   metrics.ErrorKind
		words  string
	}{
		"gone":    {func(c *Config) { c.DSN = "host=" + testdb.Folder(t) + " user=postgres dbname=postgres" }, metrics.Connection, "no such file or directory"},
		"no user": {func(c *Config) { c.DSN = strings.Replace(c.DSN, "user=postgres", "user=nobody-there", 1) }, metrics.Authentication, "does not exist"},
		"standby": {func(c *Config) {
			c.DSN += " target_session_attrs=read-write options='-c default_transaction_read_only=on'"
		}, metrics.ReadOnly, "read only"},
	} {
		for _, wait := range []bool{false, true} {
			config := Config{DSN: server.DSN(), Rate: 100, Wait: wait}
			c.change(&config)
			r := newRig(t, config)
			var log page
			r.log = slog.New(slog.NewTextHandler(&log, nil))
			stop := testload.Start(t, r.Run)
			testload.Until(t, r.load, name, func(m metrics.Tally) bool { return m.Errors[c.kind] > 6 && m.Phase == metrics.Unserved })
			stop()
			for kind, n := range r.load.Tally().Errors {
				if kind != c.kind && n > 0 {
					t.Errorf("%s: %d errors are %s", name, n, kind)
				}
			}
			if text := log.String(); !strings.Contains(text, c.words) || strings.Contains(text, "not yet time") || !strings.Contains(text, "kind="+string(c.kind)) {
				t.Errorf("%s: the log is\n%s", name, text)
			}
		}
	}
}

// The phase follows the server: down while it is gone, and what it was before when it is back.
func TestPhaseOfAnOutage(t *testing.T) {
	t.Parallel()
	server := testdb.StartPostgres(t)
	r := newRig(t, Config{DSN: server.DSN(), Rate: 100})
	stop := testload.Start(t, r.Run)
	is := func(phase metrics.Phase) func(metrics.Tally) bool {
		return func(m metrics.Tally) bool { return m.Phase == phase }
	}
	testload.Await(t, r.load, 50)
	server.Stop()
	testload.Until(t, r.load, "down", is(metrics.Unserved))
	server.Start()
	testload.Until(t, r.load, "steady again", is(metrics.Steady))
	stop()
	if p := r.load.Phase(); p != metrics.Stopped {
		t.Errorf("phase %s at the end", p)
	}
}

// What only takes its time is slow, and not down.
func TestSlowIsNotDown(t *testing.T) {
	o := &NewOwnMetrics(prometheus.NewRegistry()).load(metrics.Labels{}).outages
	began := time.Now()
	o.failed(metrics.Timeout, began, began.Add(10*time.Second))
	if o.down(began.Add(20 * time.Second)) {
		t.Error("a time-out is taken for a server that refuses")
	}
	o.failed(metrics.Storage, began, began.Add(11*time.Second))
	if !o.down(began.Add(20*time.Second)) || o.down(began.Add(longOutage/2)) {
		t.Error("a full disk is down after a second")
	}
}
