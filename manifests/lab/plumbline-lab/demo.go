package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"
)

// runDemo starts a lab, shows the live table for a while, then a summary, and removes the lab.
func runDemo(ctx context.Context, o options, duration, every time.Duration) (err error) {
	begin := time.Now()
	lab, err := startLab(ctx, o)
	if err != nil {
		return endOf(ctx, o, err)
	}
	defer func() { err = errors.Join(err, removeLab(o.dir)) }()
	fmt.Printf("everything runs after %.0f s; waiting for a steady load\n", time.Since(begin).Seconds())

	v, err := newView(lab)
	if err != nil {
		return err
	}
	if err := v.awaitFull(ctx, o.wait); err != nil {
		return interrupted(ctx, err)
	}
	fmt.Printf("first full row after %.0f s; Prometheus is at %s meanwhile\n\n", time.Since(begin).Seconds(), lab.URL("prometheus"))

	end := time.After(duration)
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		fmt.Println(time.Now().Format(time.TimeOnly))
		if err := v.live(ctx, os.Stdout); err != nil {
			return interrupted(ctx, err)
		}
		fmt.Println()
		select {
		case <-ctx.Done():
			return interrupted(ctx, ctx.Err())
		case <-end:
			fmt.Printf("Summary of the last %s\n", duration)
			return v.summary(ctx, os.Stdout, duration)
		case <-tick.C:
		}
	}
}

// interrupted says in one line that the user ended the demo.
func interrupted(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return errors.New("interrupted; cleaning up")
	}
	return err
}

// endOf removes what a failed start has left, but never a lab that was there before.
func endOf(ctx context.Context, o options, err error) error {
	if errors.Is(err, errStarted) {
		return errors.Join(interrupted(ctx, err), removeLab(o.dir))
	}
	return err
}
