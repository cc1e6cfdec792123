package driver

import (
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/plumbline/plumbline/loadgen/internal/testdb"
	"github.com/plumbline/plumbline/loadgen/metrics"
	"github.com/plumbline/plumbline/tests/testkit"
)

// The age is that of the oldest intended start, whatever order the answers come in.
func TestUnanswered(t *testing.T) {
	var u unanswered
	start := time.Now()
	at := func(s int) time.Time { return start.Add(time.Duration(s) * time.Second) }
	want := func(now, age int) {
		t.Helper()
		if got := u.age(at(now)); got != time.Duration(age)*time.Second {
			t.Errorf("at %d s the oldest is %v old, want %d s", now, got, age)
		}
	}
	want(0, 0)
	a, b, c := u.add(at(1)), u.add(at(2)), u.add(at(3))
	want(10, 9)
	u.settle(b)
	want(10, 9)
	u.settle(a)
	want(10, 7)
	u.drop(c)
	want(10, 0)
	d, e := u.add(at(11)), u.add(at(12))
	u.giveUp(e)
	u.giveUp(d)
	want(20, 9) // both were given up, and there was no answer
	f, g := u.add(at(19)), u.add(at(20))
	u.drop(g)
	want(30, 19)
	u.settle(f) // the server answers again
	want(30, 0)
	u.giveUp(u.add(at(31)))
	u.clear()
	want(40, 0)
	u.add(at(50))
	want(49, 0) // the clock of the reader is behind
}

// While the server answers nobody, the age goes on from one and the same intended start: with
// every connection hanging, with a queue that overflows, and with timeouts shorter than the stall.
func TestUnansweredInAStall(t *testing.T) {
	for name, config := range map[string]Config{
		"hanging":    {Connections: 2, Timeout: testkit.DefaultTimeout, Queue: 20},
		"timing out": {Connections: 2, Timeout: 100 * time.Millisecond},
		"skipping":   {Connections: 2, Timeout: testkit.DefaultTimeout, LatencyLimit: 50 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			server := testdb.StartStaller(t)
			config.DSN = server.DSN()
			r := newRig(t, config)
			stop := r.start(t)
			r.await(t, "the first", func(m metrics.Tally) bool { return m.Completed > 0 })
			release := server.Hold()
			held := server.Answered()
			u := &r.own.unanswered
			testkit.Eventually(t, testkit.DefaultTimeout, func() error {
				if age := u.age(time.Now()); age < time.Second {
					return fmt.Errorf("the oldest is %v old", age)
				}
				return nil
			})
			first := time.Now()
			before := u.age(first)
			offered := r.load.Tally().Offered
			r.await(t, "100 more that are due", func(m metrics.Tally) bool { return m.Offered >= offered+100 })
			second := time.Now()
			if after := u.age(second); after != before+second.Sub(first) {
				t.Errorf("%v after the first read the oldest is %v old, %v older", second.Sub(first), after, after-before)
			}
			if n := server.Answered(); n > held+uint64(config.Connections) {
				t.Fatalf("the server answered %d during the stall", n-held)
			}
			release()
			testkit.Eventually(t, testkit.DefaultTimeout, func() error {
				if age := u.age(time.Now()); age > before {
					return fmt.Errorf("the oldest is still %v old", age)
				}
				return nil
			})
			stop()
			if age := u.age(time.Now()); age != 0 || u.open.Len() != 0 {
				t.Errorf("after the end the oldest is %v old, and %d are open", age, u.open.Len())
			}
		})
	}
}

// A server that is gone does not stall; that it is gone ends what was given up.
func TestRefusedIsAnswered(t *testing.T) {
	server := testdb.StartStaller(t)
	r := newRig(t, Config{DSN: server.DSN(), Timeout: 100 * time.Millisecond})
	stop := r.start(t)
	r.await(t, "the first", func(m metrics.Tally) bool { return m.Completed > 0 })
	release := server.Hold()
	testkit.Eventually(t, testkit.DefaultTimeout, func() error {
		if age := r.own.unanswered.age(time.Now()); age < time.Second {
			return fmt.Errorf("the oldest is %v old", age)
		}
		return nil
	})
	server.Leave()
	release()
	testkit.Eventually(t, testkit.DefaultTimeout, func() error {
		if age := r.own.unanswered.age(time.Now()); age > 500*time.Millisecond {
			return fmt.Errorf("the server is gone, and the oldest is %v old", age)
		}
		return nil
	})
	stop()
}

// One series for each load's labels, also when a load takes another's place or stands beside it.
func TestUnansweredIsExported(t *testing.T) {
	registry := prometheus.NewRegistry()
	own := NewOwnMetrics(registry)
	config := Config{Engine: "postgres", DSN: "dbname=x", Profile: "simple-ping", Scale: 1, Rate: 1, Connections: 1, Timeout: time.Second, Queue: 1}
	start := func(server string) *Driver {
		load := metrics.NewSet(prometheus.NewRegistry()).Load(metrics.Labels{Tool: "canary", Profile: "p", Database: server, StorageClass: "c"}, metrics.Options{})
		d, err := New(config, load, own, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	ended, a := start("a"), start("a")
	start("b")
	ended.own.unanswered.add(time.Now().Add(-time.Hour))
	ended.own.ended.Store(true)
	again := start("a")
	a.own.unanswered.add(time.Now().Add(-time.Minute))
	again.own.unanswered.add(time.Now().Add(-20 * time.Second))
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		if f.GetName() != "loadgen_oldest_unanswered_seconds" {
			continue
		}
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetName() == "database" {
					got[l.GetValue()] = m.GetGauge().GetValue()
				}
			}
		}
	}
	if len(got) != 2 || got["a"] < 60 || got["a"] > 3000 || got["b"] != 0 {
		t.Errorf("exported are %v; want a of about 60 s and b of 0", got)
	}
}
