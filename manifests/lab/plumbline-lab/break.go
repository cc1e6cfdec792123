package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/plumbline/plumbline/manifests/lab/damage"
	"github.com/plumbline/plumbline/manifests/lab/sandbox"
)

// reportInterval is how often a break prints what is measured of it.
const reportInterval = 15 * time.Second

// runBreak damages a running lab for a while, prints what is measured of it, and heals it.
func runBreak(ctx context.Context, o options, kind, class string, duration time.Duration) (err error) {
	lab, err := running(o)
	if err != nil {
		return err
	}
	r, err := newReporter(lab)
	if err != nil {
		return err
	}
	b, err := damage.Begin(ctx, lab, kind, class)
	if err != nil {
		return err
	}
	defer func() {
		err = errors.Join(err, b.Heal())
		if err == nil {
			fmt.Println("healed")
		}
	}()
	fmt.Printf("%s, for %s. It ends by itself, with Ctrl-C, or by `plumbline-lab heal`. What is seen of it:\n", b.What, duration)
	end := time.After(duration)
	tick := time.NewTicker(reportInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-end:
			return nil
		case <-tick.C:
			if err := r.reportBroken(ctx, b); err != nil && ctx.Err() == nil {
				fmt.Println("not known:", err)
			}
		}
	}
}

// reportBroken prints the words of the class that is broken, or of all.
func (r *reporter) reportBroken(ctx context.Context, b *damage.Broken) error {
	findings, err := r.find(ctx, r.lab.Live())
	for _, f := range findings {
		if b.Class == "" || f.Target.Class == b.Class {
			fmt.Printf("%s %s\n", f.At.Format(time.TimeOnly), f.Words())
		}
	}
	return err
}

// heal takes back what a break has done.
func heal(ctx context.Context, o options) error {
	if !sandbox.Exists(o.dir) {
		return fmt.Errorf("no lab in %s; nothing is broken", o.dir)
	}
	what, err := damage.Heal(ctx, o.dir)
	switch {
	case err != nil:
		return err
	case what == "":
		fmt.Println("nothing is broken")
	default:
		fmt.Printf("healed: break %s\n", what)
	}
	return nil
}
