package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/api"
	promv1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"
)

// watch looks at a Prometheus' alerts.
type watch struct{ api promv1.API }

func newWatch(url string) (*watch, error) {
	client, err := api.NewClient(api.Config{Address: url})
	if err != nil {
		return nil, err
	}
	return &watch{promv1.NewAPI(client)}, nil
}

// firing is an alert that began to fire.
type firing struct {
	name, class, suspect, server string
	after                        time.Duration
}

func (f firing) String() string {
	var labels []string
	for _, l := range [][2]string{{"class", f.class}, {"suspect", f.suspect}, {"server", f.server}} {
		if l[1] != "" {
			labels = append(labels, l[0]+" "+l[1])
		}
	}
	return fmt.Sprintf("%s (%s; %s)", f.name, strings.Join(labels, ", "), f.after.Round(time.Second))
}

const every = 2 * time.Second

// regression are the alerts this is about; the others speak of states and of the measuring itself.
func regression(name string) bool {
	return slices.Contains([]string{"CanarySlow", "CanaryHostSlow", "QueryLatencyShifted", "BlockLatencyShifted",
		"ReplicaStraggler", "SyncOverheadHigh", "WalSyncSlow", "QueueDominates"}, name)
}

// firings returns what begins to fire after a moment, until a canary's alert does and a minute
// after it, or until the deadline.
func (w *watch) firings(ctx context.Context, began time.Time, deadline time.Duration) ([]firing, error) {
	var seen []firing
	known := map[string]bool{}
	end := began.Add(deadline)
	for time.Now().Before(end) {
		answer, err := w.api.Alerts(ctx)
		if err != nil {
			slog.Warn("Prometheus does not tell its alerts; trying again", "err", err)
		}
		for _, a := range answer.Alerts {
			name, key := string(a.Labels["alertname"]), a.Labels.String()
			if a.State != promv1.AlertStateFiring || known[key] || a.ActiveAt.Before(began) || !regression(name) {
				continue
			}
			known[key] = true
			f := firing{name, string(a.Labels["storageclass"]), string(a.Labels["suspect"]), string(a.Labels["server"]), time.Since(began)}
			slog.Info("fires", "alert", f.String())
			seen = append(seen, f)
			if strings.HasPrefix(name, "Canary") {
				end = earlier(end, time.Now().Add(time.Minute))
			}
		}
		if err := sleep(ctx); err != nil {
			return nil, err
		}
	}
	return seen, nil
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// calm waits until no canary has been slow for two minutes.
func (w *watch) calm(ctx context.Context, deadline time.Duration) error {
	return w.await(ctx, 2*deadline, `absent(max_over_time(loadgen:slow:bool{window=~"5m|10m"}[2m])) and on () (count(loadgen:comparable:bool) >= 3)`)
}

// await waits until an expression has a value.
func (w *watch) await(ctx context.Context, deadline time.Duration, expr string) error {
	last := errors.New("no value")
	for end := time.Now().Add(deadline); time.Now().Before(end); {
		answer, _, err := w.api.Query(ctx, expr, time.Now())
		if v, ok := answer.(model.Vector); err == nil && ok && len(v) > 0 {
			return nil
		}
		if err != nil {
			last = err
		}
		if err := sleep(ctx); err != nil {
			return err
		}
	}
	return fmt.Errorf("%s: %w within %s", expr, last, deadline)
}

// sleep is the distance of two looks.
func sleep(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(every):
		return nil
	}
}
