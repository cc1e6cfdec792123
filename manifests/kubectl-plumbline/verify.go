package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/plumbline/plumbline/manifests/kubectl-plumbline/answer"
	"github.com/plumbline/plumbline/rules/why"
)

// retryPause is how long verify waits between two tries, and tryTimeout how long one may take: a network policy
// drops packets and answers nothing.
const (
	retryPause = 3 * time.Second
	tryTimeout = 30 * time.Second
)

// verify checks the chain from a statement to its claim, or reports which link is missing and what to do next. It
// retries until the chain is complete or the wait is over: after an installation this takes some scrapes.
func (c *cluster) verify(ctx context.Context, w io.Writer) error {
	return c.give(ctx, w, nil, (*cluster).queryVerify)
}

func (c *cluster) queryVerify(ctx context.Context) (*reply, error) {
	c.silent = true
	prometheus, err := c.findPrometheus(ctx)
	if err != nil {
		return nil, err
	}
	until := time.Now().Add(c.o.wait)
	for {
		limited, done := context.WithTimeout(ctx, tryTimeout)
		at := c.now()
		chain := why.FollowChain(limited, c.among(prometheus), at, c.o.window)
		done()
		v := answer.NewVerification(c.head(answer.KindVerify, at), chain)
		if v.Whole || !time.Now().Add(retryPause).Before(until) {
			return c.verified(v, chain), nil
		}
		select {
		case <-ctx.Done():
			return c.verified(v, chain), nil
		case <-time.After(retryPause):
		}
	}
}

func (c *cluster) verified(v *answer.Verification, chain *why.Chain) *reply {
	r := &reply{document: v, text: func(w io.Writer, _ *why.Printer) error { c.print(w, chain); return nil }}
	if broken := chain.Broken(); broken != nil {
		r.no = fmt.Errorf("the chain from a statement to its claim is broken at: %s", broken.Name)
	}
	return r
}

// print prints what was found, and what to do about what is missing.
func (c *cluster) print(w io.Writer, chain *why.Chain) {
	p := why.PlainPrinter(w)
	fmt.Fprintf(w, "From a statement to its claim, in Prometheus at %s, over the last %s:\n\n", c.chosen, why.Span(c.o.window))
	for _, l := range chain.Links {
		if l.Found != "" {
			fmt.Fprintf(w, "  found    %-11s %s\n", l.Name, l.Found)
		} else {
			fmt.Fprintf(w, "  MISSING  %s\n", l.Name)
		}
	}
	fmt.Fprintln(w)
	for _, j := range chain.Joined {
		p.Wrap(fmt.Sprintf("%s on node %s: its statements' time belongs to volume %s, claim %s/%s, class %s.", j.Server, j.Node, j.Volume, j.Namespace, j.Claim, j.Class))
	}
	if len(chain.Unidentified) > 0 {
		if len(chain.Joined) > 0 {
			fmt.Fprintln(w)
		}
		fmt.Fprintln(w, "Not identified by agents:")
		for _, u := range chain.Unidentified {
			p.Wrap("- " + u.String())
		}
		fmt.Fprintln(w)
	}
	broken := chain.Broken()
	if broken == nil {
		for _, left := range chain.Left {
			p.Wrap(fmt.Sprintf("Not joined: %s.", left))
		}
		fmt.Fprintln(w, "The chain is whole.")
		return
	}
	p.Wrap(broken.Missing)
	fmt.Fprintln(w, "\nWhat to do next:")
	for i, step := range broken.Next {
		p.Wrap(fmt.Sprintf("%d. %s", i+1, step))
	}
}
