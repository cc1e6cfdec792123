package main

import (
	"cmp"
	"context"
	"io"
	"slices"
	"time"

	"github.com/plumbline/plumbline/manifests/kubectl-plumbline/answer"
	"github.com/plumbline/plumbline/rules/why"
)

// reply is an answer: a document for programs and a text for people, of the same values.
type reply struct {
	document any
	text     func(w io.Writer, printer *why.Printer) error
	// words is the text without bars and tables; the text if it is nil.
	words func(w io.Writer)
	// no is set if the answer is no.
	no error
}

// replyFunc finds a reply.
type replyFunc func(*cluster, context.Context) (*reply, error)

// give writes a reply in the form that --output names.
func (c *cluster) give(ctx context.Context, w io.Writer, printer *why.Printer, do replyFunc) error {
	r, err := do(c, ctx)
	if err != nil {
		return err
	}
	if slices.Contains(answer.Formats, c.o.output) {
		err = answer.Encode(w, r.document, c.o.output)
	} else {
		err = r.text(w, printer)
	}
	return cmp.Or(err, r.no)
}

// head is what a document of this kind begins with.
func (c *cluster) head(kind string, at time.Time) answer.Head {
	h := answer.Head{APIVersion: answer.Version, Kind: kind, Time: at.UTC(), WindowSeconds: c.o.window.Seconds(), Prometheus: c.chosen}
	if c.o.clusterNamed {
		cluster := why.Clean(c.o.cluster)
		h.Cluster = &cluster
	}
	return h
}

// usageError is a command line, or a tool's argument, that is wrong.
type usageError struct{ error }

// The exit codes: an answer that is no, or none at all; and a command line that is wrong.
const (
	exitNo    = 1
	exitUsage = 2
)
