package main

import (
	"context"
	"errors"
	"io"

	"github.com/plumbline/plumbline/manifests/kubectl-plumbline/answer"
	"github.com/plumbline/plumbline/rules/why"
)

// topOptions are those of the command top.
type topOptions struct {
	by    string
	limit uint
}

// defaultTop is how many queries are listed.
const defaultTop = 20

// top lists the queries of a claim's, a pod's or a class' servers, or of one server.
func (c *cluster) top(ctx context.Context, w io.Writer, printer *why.Printer) error {
	return c.give(ctx, w, printer, (*cluster).queryTop)
}

func (c *cluster) queryTop(ctx context.Context) (*reply, error) {
	_, subjects, err := c.subjects(ctx)
	if err != nil {
		return nil, err
	}
	_, api, err := c.oneCluster(ctx)
	if err != nil {
		return nil, err
	}
	now := c.now()
	found, err := why.FindTop(ctx, api, subjects, now, c.o.window, c.o.top.by)
	if err != nil {
		return nil, err
	}
	most := int(c.o.top.limit)
	if most <= 0 || most > len(found.Queries) {
		most = len(found.Queries)
	}
	r := &reply{document: answer.NewTop(c.head(answer.KindTop, now), found, most), text: func(_ io.Writer, printer *why.Printer) error { printer.Top(found, most); return nil }}
	if len(found.Queries) == 0 {
		r.no = errors.New("no query is known")
	}
	return r, nil
}
