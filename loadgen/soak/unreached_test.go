package soak

import (
	"io"
	"log/slog"
	"reflect"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/plumbline/plumbline/loadgen/driver"
	"github.com/plumbline/plumbline/loadgen/matrix"
	"github.com/plumbline/plumbline/loadgen/metrics"
	"github.com/plumbline/plumbline/loadgen/result"
)

// A class whose server never answers, so that its tables cannot be made, has an outage in the soak's folder.
func TestNeverReached(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	s, err := Open(folder, Plan{Duration: 8 * time.Second, Interval: 100 * time.Millisecond, Canary: Load{"tpcb-like", 50, 2, 1},
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

// try is one to make the tables, by the seconds it began and ended at.
type try struct {
	began, ended int
	err          error
}

// The time without a class lasts from the end of the first try that failed to the beginning of the one that did not:
// making tables is none of it. A database that is only starting when the soak begins is no outage.
func TestUnreached(t *testing.T) {
	down := tableError(t, "host="+t.TempDir())
	cut, full := io.ErrUnexpectedEOF, &pgconn.PgError{Code: "53100"}
	outage := func(began, seconds int, over bool, errors map[string]uint64) result.Outage {
		return result.Outage{Began: at(began).UTC(), Seconds: float64(seconds), Over: over, Errors: errors}
	}
	for name, c := range map[string]struct {
		tries []try
		want  []result.Outage
	}{
		"no try":   {},
		"reached":  {tries: []try{{0, 90, nil}}},
		"not over": {tries: []try{{1, 2, down}, {3, 3, down}, {6, 7, down}}, want: []result.Outage{outage(2, 3998, false, map[string]uint64{"connection": 3})}},
		"over":     {tries: []try{{1, 2, down}, {90, 99, down}, {110, 400, nil}}, want: []result.Outage{outage(2, 108, true, map[string]uint64{"connection": 2})}},
		"starting": {tries: []try{{0, 1, down}, {60, 400, nil}}},
		"starting, and down later": {tries: []try{{0, 1, down}, {20, 400, cut}, {410, 500, nil}},
			want: []result.Outage{outage(400, 10, true, map[string]uint64{"connection": 1})}},
		"starting for too long": {tries: []try{{0, 1, down}, {61, 400, nil}}, want: []result.Outage{outage(1, 60, true, map[string]uint64{"connection": 1})}},
		"lost while it filled": {tries: []try{{0, 3000, cut}, {3001, 3001, down}, {3005, 3900, nil}},
			want: []result.Outage{outage(3000, 5, true, map[string]uint64{"connection": 2})}},
		"lost twice while it filled": {tries: []try{{0, 1000, cut}, {1010, 2000, full}, {2015, 3000, nil}},
			want: []result.Outage{outage(1000, 10, true, map[string]uint64{"connection": 1}), outage(2000, 15, true, map[string]uint64{"storage": 1})}},
		"a full disk": {tries: []try{{0, 70, full}, {80, 81, full}, {90, 91, down}, {95, 99, nil}},
			want: []result.Outage{outage(70, 25, true, map[string]uint64{"storage": 2, "connection": 1})}},
	} {
		var u unreached
		for _, one := range c.tries {
			if err := u.tried(t.Context(), at(one.began), at(one.ended), one.err); err != one.err {
				t.Errorf("%s: the error is %v", name, err)
			}
		}
		if got := u.until(at(4000), at(0)); len(got)+len(c.want) > 0 && !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

func at(seconds int) time.Time { return evening.Add(time.Duration(seconds) * time.Second) }

// tableError is the error of making tables on a server that is not there.
func tableError(t *testing.T, dsn string) error {
	t.Helper()
	registry := prometheus.NewRegistry()
	config := Load{"tpcb-like", 50, 2, 1}.config(matrix.Target{StorageClass: "gone", Engine: "postgres", DSN: dsn})
	d, err := driver.New(config, metrics.NewSet(registry).Load(metrics.Labels{}, metrics.Options{}), driver.NewOwnMetrics(registry), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if err = d.Init(t.Context()); !driver.Unreached(err) {
		t.Fatalf("of a server that is not there: %v", err)
	}
	return err
}
