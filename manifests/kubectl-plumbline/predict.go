package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/plumbline/plumbline/loadgen/predict"
)

// predict says what a server's response times would be on other storage, or why that cannot be known.
func (c *cluster) predict(ctx context.Context, w io.Writer) error {
	asked, subjects, err := c.subjects(ctx)
	if err != nil {
		return err
	}
	if len(subjects) > 1 {
		return fmt.Errorf("%s has %d claims: ask about the one of its write-ahead log", asked, len(subjects))
	}
	prometheus, err := c.findPrometheus(ctx)
	if err != nil {
		return err
	}
	api, err := c.oneCluster(ctx, prometheus)
	if err != nil {
		return err
	}
	q := c.o.predict
	q.Subject, q.At, q.Window, q.Think = subjects[0], c.now(), c.o.window, predict.Think(c.o.think)
	in, err := q.Input(ctx, api)
	if err != nil {
		return err
	}
	found, err := predict.Predict(in)
	if err != nil {
		return fmt.Errorf("what Prometheus has is not usable: %w", err)
	}
	if err := found.WriteText(w); err != nil {
		return err
	}
	if found.Refusal != nil {
		return errors.New("no prediction")
	}
	return nil
}
