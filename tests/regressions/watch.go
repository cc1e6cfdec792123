package main

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	promv1 "github.com/prometheus/client_golang/api/prometheus/v1"

	"github.com/plumbline/plumbline/tests/pause"
	"github.com/plumbline/plumbline/tests/promapi"
)

// watch reads a Prometheus' alerts.
type watch struct{ *promapi.Server }

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
		answer, err := w.Alerts(ctx)
		if err != nil {
			slog.Warn("Prometheus does not return its alerts; trying again", "err", err)
		}
		for _, a := range answer.Alerts {
			name, key := string(a.Labels["alertname"]), a.Labels.String()
			if a.State != promv1.AlertStateFiring || known[key] || a.ActiveAt.Before(began) || !regression(name) {
				continue
			}
			known[key] = true
			f := firing{name, string(a.Labels["storageclass"]), "", string(cmp.Or(a.Labels["database"], a.Labels["server"])), time.Since(began)}
			if f.suspect, err = w.suspect(ctx, f); err != nil {
				slog.Warn("Prometheus does not return the suspect", "err", err)
			}
			slog.Info("fires", "alert", f.String())
			seen = append(seen, f)
			if strings.HasPrefix(name, "Canary") {
				end = earlier(end, time.Now().Add(time.Minute))
			}
		}
		if err := pause.For(ctx, every); err != nil {
			return nil, err
		}
	}
	return seen, nil
}

// suspect returns the layer that the rules suspect when an alert of a canary fires; none for other alerts.
func (w *watch) suspect(ctx context.Context, f firing) (string, error) {
	switch f.name {
	case "CanaryHostSlow":
		return "host", nil
	case "CanarySlow":
		found, err := w.Vector(ctx, fmt.Sprintf("loadgen:suspect:info{database=%q, storageclass=%q}", f.server, f.class))
		if err != nil || len(found) == 0 {
			return "", err
		}
		return string(found[0].Metric["suspect"]), nil
	}
	return "", nil
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// calm waits until no canary has been slow for two minutes, and no alert of the class of the next damage fires any
// more: one that continues could not be distinguished from a new one.
func (w *watch) calm(ctx context.Context, deadline time.Duration, class string) error {
	return w.Await(ctx, 4*deadline, fmt.Sprintf(`absent(max_over_time(loadgen:slow:bool{window=~"5m|10m"}[2m]))
		and on () absent(ALERTS{alertname=~"Canary.*", alertstate="firing", storageclass=%q})
		and on () (count(loadgen:comparable:bool) >= 3)`, class))
}
