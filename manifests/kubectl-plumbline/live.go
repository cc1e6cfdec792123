package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/plumbline/plumbline/manifests/kubectl-plumbline/live"
	"github.com/plumbline/plumbline/manifests/kubectl-plumbline/try"
	"github.com/plumbline/plumbline/rules/why"
)

const (
	// refresh is the least time from one view to the next. A store that answers slowly is left alone for restful times as
	// long as it took.
	refresh = time.Second
	restful = 4
	// liveWindow is how far back the means of a live measurement go, mostLive how many databases are shown.
	liveWindow = 10 * time.Second
	mostLive   = 30
)

// finder finds what a view shows.
type finder func(context.Context) ([]*why.Finding, error)

// liveNotes keeps the last notes, which a screen shows, where standard error would be drawn over.
type liveNotes struct {
	mu   sync.Mutex
	last []string
}

// Write implements io.Writer.
func (n *liveNotes) Write(text []byte) (int, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for line := range bytes.Lines(text) {
		n.last = append(n.last, strings.TrimRight(string(line), "\n"))
	}
	n.last = n.last[max(0, len(n.last)-3):]
	return len(text), nil
}

func (n *liveNotes) lines() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return append([]string(nil), n.last...)
}

// show shows views until they end or the user quits. produce sends them until its context ends.
func (c *cluster) show(ctx context.Context, produce func(context.Context, chan<- live.View)) error {
	ctx, cancel := context.WithCancel(ctx)
	views, done := make(chan live.View), make(chan struct{})
	go func() {
		defer close(done)
		defer close(views)
		produce(ctx, views)
	}()
	defer func() {
		cancel()
		for range views { // until produce has seen that it is over
		}
		<-done
	}()
	if live.Terminal(os.Stdin, os.Stdout) {
		return live.Show(ctx, os.Stdin, os.Stdout, views)
	}
	live.Print(os.Stdout, views)
	return nil
}

// live shows what find finds, until the user quits.
func (c *cluster) live(ctx context.Context, find finder) error {
	notes := &liveNotes{}
	c.notes = notes
	return c.show(ctx, func(ctx context.Context, views chan<- live.View) {
		for ctx.Err() == nil {
			began := time.Now()
			one, stop := context.WithTimeout(ctx, queryTimeout)
			findings, err := find(one)
			stop()
			select {
			case views <- live.View{At: began, Window: c.o.window, Findings: findings, Notes: notes.lines(), Err: err}:
			case <-ctx.Done():
			}
			select {
			case <-time.After(max(refresh, restful*time.Since(began))):
			case <-ctx.Done():
			}
		}
	})
}

// liveStatus shows the slowest database server of each storage class.
func (c *cluster) liveStatus(ctx context.Context) error {
	_, api, err := c.oneCluster(ctx)
	if err != nil {
		return err
	}
	return c.live(ctx, func(ctx context.Context) (findings []*why.Finding, err error) {
		err = c.classes(ctx, api, c.now(), func(_ string, f *why.Finding, _ error) {
			if f != nil {
				findings = append(findings, f)
			}
		})
		if err == nil && len(findings) == 0 {
			err = errors.New(noServer)
		}
		return findings, err
	})
}

// liveWhy shows each database server of a target, the slowest if there are too many.
func (c *cluster) liveWhy(ctx context.Context) error {
	_, subjects, err := c.subjects(ctx)
	if err != nil {
		return err
	}
	_, api, err := c.oneCluster(ctx)
	if err != nil {
		return err
	}
	return c.live(ctx, func(ctx context.Context) (findings []*why.Finding, err error) {
		now := c.now()
		var unknown error
		for _, s := range subjects {
			each, failed := why.FindEach(ctx, api, s, now, c.o.window, mostLive-len(findings))
			if failed != nil && !errors.Is(failed, why.ErrUnknown) {
				return nil, failed
			}
			findings, unknown = append(findings, each...), errors.Join(unknown, failed)
		}
		if len(findings) == 0 {
			return nil, unknown
		}
		return findings, nil
	})
}

// liveTry measures as try does, and shows what is found meanwhile. A user who quits ends the measuring.
func (c *cluster) liveTry(ctx context.Context, p place) (m *try.Measurement, err error) {
	before, notes := c.notes, &liveNotes{}
	c.notes = notes
	shown := c.show(ctx, func(ctx context.Context, views chan<- live.View) {
		next := time.Time{}
		c.scraped = func(m *try.Measurement) {
			began := time.Now()
			if began.Before(next) {
				return
			}
			window := min(m.Window(), liveWindow)
			findings, err := findAll(ctx, m, p.claims, window)
			next = began.Add(restful * time.Since(began))
			select {
			case views <- live.View{At: m.Last, Window: window, Findings: findings, Notes: notes.lines(), Err: err}:
			case <-ctx.Done():
			}
		}
		m, err = c.measure(ctx, c.o.try, p)
	})
	c.notes, c.scraped = before, nil
	for _, line := range notes.lines() {
		c.note("%s", line)
	}
	return m, errors.Join(err, shown)
}
