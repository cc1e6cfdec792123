package collector

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/plumbline/plumbline/exporters/exporterkit"
)

// Run polls until ctx ends. The time between two polls varies, so that the exporters of several machines, which want
// the same locks of glusterd's, do not meet again and again.
func (g *Gluster) Run(ctx context.Context) {
	for {
		g.poll(ctx, g.o.Interval)
		select {
		case <-ctx.Done():
			return
		case <-time.After(g.o.Interval/2 + rand.N(g.o.Interval)):
		}
	}
}

// poll queries the volumes and the states of their bricks, then runs the commands that each volume needs, as far as
// time allows. What a command does not return is left out until it does.
func (g *Gluster) poll(ctx context.Context, within time.Duration) {
	began := time.Now()
	err := exporterkit.Recovered(func() error { g.pollAll(ctx, began, within); return nil })
	if err != nil {
		err = g.failed(ctx, commandInfo, "", err)
		g.mu.Lock()
		defer g.mu.Unlock()
		g.polled, g.err, g.volumes = began, err, nil
	}
}

// pollAll is poll, which a panic ends.
func (g *Gluster) pollAll(ctx context.Context, began time.Time, within time.Duration) {
	ticks := g.unit(ctx)
	volumes, err := g.list(ctx)
	if err == nil && len(volumes) > 0 {
		g.status(ctx, volumes)
	}
	if ctx.Err() != nil {
		return
	}
	g.show(began, ticks, volumes, err)
	g.commandVolumes(ctx, volumes, began.Add(within))
}

// show exposes a poll's answers to scrapes. The volumes' former counts and heals stay until the next query.
func (g *Gluster) show(began time.Time, ticks float64, volumes []*volume, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	former := map[string]*volume{}
	for _, v := range g.volumes {
		former[v.name] = v
	}
	for _, v := range volumes {
		if old := former[v.name]; old != nil {
			v.inherit(old, time.Now())
		}
	}
	g.polled, g.ticks, g.volumes, g.err = began, ticks, volumes, err
}

// commandVolumes queries each volume's profile and heals until the time is over. The next poll continues where this one
// stops: commands that hang delay neither the bricks' states nor always the same volumes.
func (g *Gluster) commandVolumes(ctx context.Context, volumes []*volume, until time.Time) {
	commands := []func(context.Context, *volume){g.profile, g.heal}
	for i := range len(commands) * len(volumes) {
		if ctx.Err() != nil || i > 0 && !time.Now().Before(until) {
			return
		}
		g.next %= len(commands) * len(volumes) // there were more volumes before
		v, run := volumes[g.next/len(commands)], commands[g.next%len(commands)]
		g.next++
		if g.queries(v) {
			run(ctx, v)
		}
	}
}

// queries reports whether this exporter queries the volume's profile and heals. Each such command takes a lock on all
// machines. With --bricks=local a volume without a brick here is therefore left to the machines that have one.
func (g *Gluster) queries(v *volume) bool {
	return g.o.Bricks != "local" || slices.ContainsFunc(v.bricks, func(b *brick) bool { return b.local })
}

// tooOld is the age at which answers are not shown any more. While single volumes' commands hang, the next ones come
// before that.
func (g *Gluster) tooOld() time.Duration { return 3 * (g.o.Interval + g.o.CLI.Timeout + g.o.CLI.Pause) }
