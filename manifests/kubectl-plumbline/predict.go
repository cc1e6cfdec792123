package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/plumbline/plumbline/loadgen/predict"
	"github.com/plumbline/plumbline/manifests/kubectl-plumbline/answer"
	"github.com/plumbline/plumbline/rules/why"
)

// predict reports a server's expected response times on other storage, or why they cannot be predicted.
func (c *cluster) predict(ctx context.Context, w io.Writer) error {
	return c.give(ctx, w, nil, (*cluster).queryPredict)
}

func (c *cluster) queryPredict(ctx context.Context) (*reply, error) {
	q := c.o.predict
	q.At, q.Window, q.Think = c.now(), c.o.window, predict.Think(c.o.think)
	if err := q.Check(); err != nil {
		return nil, usageError{err}
	}
	target, subjects, err := c.subjects(ctx)
	if err != nil {
		return nil, err
	}
	if len(subjects) > 1 {
		return nil, fmt.Errorf("%s has %d claims: name the one of its write-ahead log", target, len(subjects))
	}
	_, api, err := c.oneCluster(ctx)
	if err != nil {
		return nil, err
	}
	q.Subject = subjects[0]
	in, err := q.Input(ctx, api)
	if err != nil {
		return nil, err
	}
	found, err := predict.Predict(in)
	if err != nil {
		return nil, fmt.Errorf("what Prometheus has is not usable: %w", err)
	}
	r := &reply{document: answer.NewPrediction(c.head(answer.KindPredict, q.At), q.Windows, found),
		text: func(w io.Writer, _ *why.Printer) error { return found.WriteText(w) }}
	if found.Refusal != nil {
		r.no = errors.New("no prediction")
	}
	return r, nil
}
