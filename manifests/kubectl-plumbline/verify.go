package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/prometheus/common/model"

	"github.com/plumbline/plumbline/rules/why"
)

// askAgain is how long verify waits between two looks, and oneLook how long one may take: a network policy
// drops packets and answers nothing.
const (
	askAgain = 3 * time.Second
	oneLook  = 30 * time.Second
)

// verify proves the chain from a statement to its claim, or says which link is missing and what to do next. It
// looks until the chain is whole or the wait is over: after an installation it takes some scrapes.
func (c *cluster) verify(ctx context.Context, w io.Writer) error {
	c.silent = true
	prometheus, err := c.findPrometheus(ctx)
	if err != nil {
		return err
	}
	until := time.Now().Add(c.o.wait)
	for {
		look, done := context.WithTimeout(ctx, oneLook)
		chain := why.FollowChain(look, c.among(prometheus), c.now(), c.o.window)
		done()
		if chain.Broken() == nil || !time.Now().Add(askAgain).Before(until) {
			return c.tell(w, chain)
		}
		select {
		case <-ctx.Done():
			return c.tell(w, chain)
		case <-time.After(askAgain):
		}
	}
}

// tell says what was found, and of what is missing what to do.
func (c *cluster) tell(w io.Writer, chain *why.Chain) error {
	fmt.Fprintf(w, "From a statement to its claim, in Prometheus at %s, over %s:\n\n", c.asked, model.Duration(c.o.window))
	for _, l := range chain.Links {
		if l.Found != "" {
			fmt.Fprintf(w, "  found    %-11s %s\n", l.Name, l.Found)
		} else {
			fmt.Fprintf(w, "  MISSING  %s\n", l.Name)
		}
	}
	fmt.Fprintln(w)
	for _, j := range chain.Joined {
		fmt.Fprintf(w, "%s on node %s: its statements' time belongs to volume %s, claim %s/%s, class %s.\n", j.Server, j.Node, j.Volume, j.Namespace, j.Claim, j.Class)
	}
	broken := chain.Broken()
	if broken == nil {
		for _, left := range chain.Left {
			fmt.Fprintf(w, "Not joined: %s.\n", left)
		}
		fmt.Fprintln(w, "The chain is whole.")
		return nil
	}
	fmt.Fprintf(w, "%s\n\nWhat to do next:\n", broken.Missing)
	for i, step := range broken.Next {
		fmt.Fprintf(w, "  %d. %s\n", i+1, step)
	}
	return fmt.Errorf("the chain from a statement to its claim is broken at: %s", broken.Name)
}
