package soak

import (
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/plumbline/plumbline/loadgen/matrix"
)

// A class whose server never answers, so that its tables cannot be made, has an outage in the soak's folder.
func TestNeverReached(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	s, err := Open(folder, Plan{Duration: 2 * time.Second, Interval: 100 * time.Millisecond, Canary: Load{"tpcb-like", 50, 2, 1},
		Targets: []matrix.Target{{StorageClass: "gone", Engine: "postgres", DSN: "host=" + t.TempDir()}}}, prometheus.NewRegistry(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	d := read(t, folder)
	if len(d.Samples) != 1 || len(d.Samples[0].Outages) != 1 {
		t.Fatalf("of a class that was never reached there are the samples %+v", d.Samples)
	}
	if o := d.Samples[0].Outages[0]; o.Over || o.Seconds < 1.5 || o.Errors["connection"] < 2 || d.Samples[0].Load != "canary" || d.Samples[0].StorageClass != "gone" {
		t.Errorf("a class that was never reached is kept as %+v", d.Samples[0])
	}
}

// The time without a class lasts from the first try that failed to the beginning of the one that did not: making tables is none of it.
func TestUnreached(t *testing.T) {
	at := func(seconds int) time.Time { return evening.Add(time.Duration(seconds) * time.Second) }
	down := errors.New("down")
	var u unreached
	if _, any := u.outage(at(9)); any {
		t.Error("without a try there is an outage")
	}
	for _, second := range []int{1, 3, 6} {
		if err := u.tried(at(second), down); err != down {
			t.Errorf("the error is %v", err)
		}
	}
	if o, any := u.outage(at(9)); !any || o.Over || o.Seconds != 8 || !o.Began.Equal(at(1)) || o.Errors["connection"] != 3 {
		t.Errorf("not over it is %+v, %v", o, any)
	}
	if err := u.tried(at(10), nil); err != nil {
		t.Error(err)
	}
	if o, any := u.outage(at(99)); !any || !o.Over || o.Seconds != 9 || o.Errors["connection"] != 3 {
		t.Errorf("over it is %+v, %v", o, any)
	}
}
