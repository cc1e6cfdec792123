package supervise

import (
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"
)

const (
	// window is the time over which ends count together.
	window = 5 * time.Minute
	// longestPause bounds the pause before a start.
	longestPause = time.Minute
	// probed is how long the supervisor's probe of a former life can be taken for that of the present
	// one: probes have a period of 1 s.
	probed = 2 * time.Second
	// tick is how often a waiting gate checks.
	tick = 200 * time.Millisecond
)

// GatesWords begin each line that a gate writes to the log of its process.
const GatesWords = "plumbline-lab: "

// pause returns how long a process is held back that has ended n times in a window: not the first
// time, then 2, 4, 8 s and so on.
func pause(n int) time.Duration {
	if n < 2 {
		return 0
	}
	return min(longestPause, time.Second<<min(n-1, 10))
}

// Gate returns when a process may be started: once what it needs is there. Before a life that is not
// the first it records the end of the one before and waits: for as long as somebody has stopped the
// process on purpose, and for a pause that grows with each end. It ends and renews what has to be.
func Gate(ctx context.Context, dir, name string, log io.Writer) error {
	g := gate{dir: dir, name: name, client: At(dir), log: log, began: time.Now()}
	project, err := readProject(dir)
	if err != nil {
		return err
	}
	g.project = project
	if g.state, err = readState(dir, name); err != nil {
		return err
	}
	g.state.Life++
	if g.state.Life > 1 {
		if err := g.again(ctx); err != nil {
			return err
		}
	}
	if err := g.needs(ctx); err != nil {
		return err
	}
	g.state.Waiting = ""
	return g.enter(Runs)
}

type gate struct {
	dir, name string
	client    *Client
	project   *Project
	state     State
	log       io.Writer
	// began is when the gate did, after the end of the former life.
	began time.Time
}

func (g *gate) enter(p Phase) error {
	g.state.Phase, g.state.Since = p, time.Now()
	return g.state.write(g.dir, g.name)
}

// waiting records what the process waits for, and logs it once.
func (g *gate) waiting(what string) error {
	if g.state.Waiting == what {
		return nil
	}
	fmt.Fprintf(g.log, "%s%s %s\n", GatesWords, g.name, what)
	g.state.Waiting = what
	return g.enter(Waits)
}

// again is all that a start after the first waits for.
func (g *gate) again(ctx context.Context) error {
	var hold time.Duration
	requestedBy := takeRequested(g.dir, g.name)
	if mark := g.project.Processes[g.name].Lab.Stale; mark != "" && requestedBy == "" {
		if err := os.WriteFile(mark, nil, 0o644); err != nil {
			return err
		}
	}
	switch {
	case requestedBy != "":
		g.state.Requested = append(g.state.Requested[max(0, len(g.state.Requested)-kept+1):], requestedBy)
	case !isStopped(g.dir, g.name):
		r := Restart{Time: time.Now(), ExitCode: g.exitCode(ctx)}
		g.state.Recent = append(g.state.Recent[max(0, len(g.state.Recent)-kept+1):], r)
		g.state.Restarts++
		n := 0
		for _, one := range g.state.Recent {
			if r.Time.Sub(one.Time) < window {
				n++
			}
		}
		hold = pause(n)
		g.state.Recent[len(g.state.Recent)-1].Pause = hold
		if err := g.waiting(fmt.Sprintf("ended with %s; it is started again, in %s", ExitText(r.ExitCode), hold)); err != nil {
			return err
		}
	default:
		if err := g.waiting("was stopped on purpose"); err != nil {
			return err
		}
	}
	if err := g.enter(Waits); err != nil {
		return err
	}
	until := time.Now().Add(hold)
	if err := g.until(ctx, func() (string, error) {
		switch {
		case isStopped(g.dir, g.name):
			return "was stopped on purpose", nil
		case time.Now().Before(until):
			return g.state.Waiting, nil
		}
		return "", nil
	}); err != nil {
		return err
	}
	for _, other := range g.project.lyingOn(g.name) {
		if err := g.renew(ctx, other, false); err != nil {
			return err
		}
	}
	for _, other := range g.project.Processes[g.name].Lab.Fresh {
		if err := g.renew(ctx, other, true); err != nil {
			return err
		}
	}
	return nil
}

// needs waits for what the process needs.
func (g *gate) needs(ctx context.Context) error {
	lab := g.project.Processes[g.name].Lab
	if len(lab.Needs)+len(lab.LiesOn) == 0 {
		return nil
	}
	return g.until(ctx, func() (string, error) {
		missing, err := g.missing(ctx)
		switch {
		case err != nil:
			return "waits for the supervisor", nil
		case len(missing) > 0:
			return "waits for " + strings.Join(missing, " "), nil
		}
		return "", nil
	})
}

// until waits until busy has nothing more to wait for.
func (g *gate) until(ctx context.Context, busy func() (string, error)) error {
	t := time.NewTicker(tick)
	defer t.Stop()
	for {
		what, err := busy()
		if err != nil || what == "" {
			return err
		}
		if err := g.waiting(what); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-t.C:
		}
	}
}

// exitCode queries the exit code of the previous run. Without an answer it is that of a signal.
func (g *gate) exitCode(ctx context.Context) int {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	p, err := g.client.Process(ctx, g.name)
	if err != nil {
		fmt.Fprintf(g.log, "%sexit code unknown: %v\n", GatesWords, err)
		return -1
	}
	return p.ExitCode
}

// renew ends another process, so that it is restarted, and with up awaits that. One that somebody stopped on purpose
// stays so; one that has been started since this one ended is new enough.
func (g *gate) renew(ctx context.Context, other string, up bool) error {
	p, err := g.client.Process(ctx, other)
	if err != nil || p.Stopped {
		return err
	}
	next := p.State.Life
	if p.Runs() && p.State.Since.Before(g.began) {
		if err := g.waiting(fmt.Sprintf("has %s started anew, too", other)); err != nil {
			return err
		}
		// What nothing lies on has nothing to leave in order on a storage that is gone.
		signal := syscall.SIGKILL
		if up || len(g.project.lyingOn(other)) > 0 {
			signal = 0
		}
		if err := g.client.end(ctx, p, signal, "the restart of "+g.name); err != nil {
			return err
		}
		next++
	}
	if !up {
		return nil
	}
	return g.client.await(ctx, other, "up again", func(q Process) bool {
		return q.State.Life >= next && q.Up() && time.Since(q.State.Since) > probed || q.Stopped || g.project.Processes[other].stale()
	})
}

// missing names what the process needs and is not there.
func (g *gate) missing(ctx context.Context) (missing []string, err error) {
	// What it lies on, however far below: that is renewed in order before any of it is of use again.
	for _, name := range g.project.below(g.name) {
		p, err := g.client.Process(ctx, name)
		if err != nil {
			return nil, err
		}
		if !p.Runs() {
			missing = append(missing, name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(g.project.Processes[g.name].Lab.Needs)) {
		if slices.Contains(missing, name) {
			continue
		}
		p, err := g.client.Process(ctx, name)
		if err != nil {
			return nil, err
		}
		there := p.Runs()
		switch g.project.Processes[g.name].Lab.Needs[name] {
		case healthy:
			there = there && p.Ready == "Ready" && (p.State.Life == 1 || time.Since(p.State.Since) > probed)
		case logReady:
			there = there && p.Ready == "Ready"
		}
		if !there && !g.project.Processes[name].stale() {
			missing = append(missing, name)
		}
	}
	return missing, nil
}
