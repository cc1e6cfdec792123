package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/plumbline/plumbline/manifests/kubectl-plumbline/answer"
	"github.com/plumbline/plumbline/manifests/kubectl-plumbline/try"
	"github.com/plumbline/plumbline/rules/why"
)

// leastTry is the least --for: all rules have been evaluated twice.
const leastTry = 2 * try.Evaluation

// tried is what the documents name in the place of a Prometheus.
const tried = "plumbline try"

// tryOptions is the command line of try.
type tryOptions struct {
	span           time.Duration
	spanNamed      bool
	record, replay string
	programs       string
	// target is of a cluster, and empty for this machine. The programs run there in the namespace in, of images that
	// registry and tag name, and pullSecrets are Secrets there for them.
	target, in, registry, tag string
	pullSecrets               []string
	// requestNothing means that their containers request no CPU and memory.
	requestNothing bool
	// breakDown means that the nodes of the volumes' replicas are measured, too.
	breakDown bool
}

func (o tryOptions) check() error {
	switch {
	case o.span < leastTry || o.span > try.MostSpan:
		return usageError{fmt.Errorf("--for=%v: want %v to %v", o.span, leastTry, try.MostSpan)}
	case o.replay != "" && (o.record != "" || o.target != ""):
		return usageError{errors.New("--replay measures nothing: leave out --record and the target")}
	case o.breakDown && (o.target == "" || strings.HasPrefix(o.target, "node/")):
		return usageError{errors.New("--break-down measures the nodes of a volume's replicas: want CLAIM or pod/POD")}
	case o.target != "" && o.registry == "":
		return usageError{errors.New("--registry is empty: give the registry that your images were pushed to, as the chart's value image.registry")}
	case len(o.pullSecrets) > 0 && o.target == "":
		return usageError{errors.New("--pull-secret is for the images of a target's pod: name the target")}
	case slices.ContainsFunc(o.pullSecrets, func(name string) bool { return len(validation.IsDNS1123Subdomain(name)) > 0 }):
		return usageError{fmt.Errorf("--pull-secret: %s: want the name of a Secret", why.Clean(strings.Join(o.pullSecrets, ", ")))}
	case len(validation.IsDNS1123Label(o.in)) > 0:
		return usageError{fmt.Errorf("--pod-namespace=%s is no name of a namespace", why.Clean(o.in))}
	}
	return nil
}

// explain measures this machine or a cluster's node, or reads a record, and explains each database server.
func (c *cluster) explain(ctx context.Context, w io.Writer, printer *why.Printer) error {
	o := c.o.try
	var p place
	if o.target != "" {
		var err error
		if p, err = c.place(ctx, o.target); err != nil {
			return err
		}
	}
	var m *try.Measurement
	var err error
	if c.o.live {
		m, err = c.liveTry(ctx, p)
	} else {
		m, err = c.measure(ctx, o, p)
	}
	if m == nil {
		return err
	}
	// An interrupt has ended the measuring; the answer is given all the same, and where there is no room for its record.
	return errors.Join(c.give(context.WithoutCancel(ctx), w, printer, func(c *cluster, ctx context.Context) (*reply, error) { return c.queryTry(ctx, m, p.claims) }), err)
}

// measure returns what a record has, or what is measured now; with an error, too, if that could not be recorded.
func (c *cluster) measure(ctx context.Context, o tryOptions, p place) (*try.Measurement, error) {
	if o.replay != "" {
		f, err := os.Open(o.replay)
		if err != nil {
			return nil, fmt.Errorf("--replay: %w", err)
		}
		defer f.Close()
		return try.Replay(ctx, why.Clean(o.replay), f, c.leftOut())
	}
	var record *os.File
	if o.record != "" {
		var err error
		if record, err = os.OpenFile(o.record, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600); err != nil {
			return nil, fmt.Errorf("--record: %w", err)
		}
		defer record.Close()
		// It is the user's who called sudo.
		if uid, err := strconv.Atoi(os.Getenv("SUDO_UID")); err == nil && os.Geteuid() == 0 {
			if err := record.Chown(uid, -1); err != nil {
				return nil, errors.Join(fmt.Errorf("--record: %w", err), os.Remove(o.record))
			}
		}
	}
	var m *try.Measurement
	var err error
	if o.target == "" {
		m, err = c.measureHost(ctx, o)
	} else {
		m, err = c.measureNode(ctx, p, o)
	}
	if record == nil {
		return m, err
	}
	if err == nil {
		err = cmp.Or(m.Record(record), record.Close())
	}
	if err != nil {
		err = errors.Join(err, os.Remove(o.record))
	}
	return m, err
}

func (c *cluster) measureHost(ctx context.Context, o tryOptions) (*try.Measurement, error) {
	m, err := try.New(c.leftOut())
	if err != nil {
		return nil, err
	}
	began := c.now()
	c.note("Loading the programs that measure.")
	err = try.Host(ctx, o.programs, func(ctx context.Context, exporters []try.Exporter) error {
		return c.measureAll(ctx, m, exporters, nil, began)
	})
	if err != nil {
		return nil, err
	}
	return m, nil
}

// measureAll measures, and shows how far that is.
func (c *cluster) measureAll(ctx context.Context, m *try.Measurement, exporters []try.Exporter, claims []why.Subject, began time.Time) error {
	of := c.o.try.span
	c.note("Measuring for %v, after %.1f s; an interrupt ends it sooner.", of, c.now().Sub(began).Seconds())
	progress := func(evaluated bool) {
		if c.scraped != nil && m.Window() > 0 {
			c.scraped(m)
			return
		}
		if !evaluated || m.Window() >= of || c.notes == nil {
			return // the answer follows
		}
		findings, err := findAll(ctx, m, claims, m.Window())
		if err != nil {
			c.note("%v of %v: %s", m.Window(), of, why.Line(err))
			return
		}
		c.note("%v of %v", m.Window(), of)
		why.PlainPrinter(c.notes).Stacks(findings)
	}
	return m.Measure(ctx, of, exporters, progress)
}

// leftOut notes what is left out of the answer, each once.
func (c *cluster) leftOut() func(error) {
	noted := map[string]bool{}
	return func(err error) {
		if text := why.Line(err); !noted[text] && len(noted) < mostWarnings {
			noted[text] = true
			c.note("The answer may lack something: %s", text)
		}
	}
}

// findAll returns what is known of each subject, of each database server if there are none.
func findAll(ctx context.Context, m *try.Measurement, subjects []why.Subject, window time.Duration) (findings []*why.Finding, err error) {
	if len(subjects) == 0 {
		if subjects, err = why.Servers(ctx, m, m.Last); err != nil {
			return nil, err
		}
	}
	if len(subjects) == 0 {
		if broken := why.FollowChain(ctx, m, m.Last, window).Broken(); broken != nil && broken.Name == "kernel" {
			return nil, errors.New(broken.Missing + " plumbline-agent --check reports what")
		}
		return nil, errors.New("no database server was found; docs/understand/statements.md lists which programs are recognised")
	}
	for _, s := range subjects {
		f, err := why.Find(ctx, m, s, m.Last, window)
		if err != nil {
			return nil, err
		}
		findings = append(findings, f)
	}
	return findings, nil
}

// queryTry explains what was measured, the slowest server first.
func (c *cluster) queryTry(ctx context.Context, m *try.Measurement, claims []why.Subject) (*reply, error) {
	findings, err := findAll(ctx, m, claims, m.Window())
	if err != nil {
		return nil, err
	}
	slices.SortStableFunc(findings, func(a, b *why.Finding) int {
		_, x, _ := a.Main()
		_, y, _ := b.Main()
		return cmp.Compare(y, x) // without a mean, which is NaN, last
	})
	c.chosen, c.o.window = tried, m.Window()
	d := &answer.Why{Head: c.head(answer.KindWhy, m.Last)}
	for _, f := range findings {
		d.Items = append(d.Items, answer.NewFinding(f))
	}
	return &reply{document: d, text: func(w io.Writer, printer *why.Printer) error {
		if len(findings) > 1 {
			printer.Stacks(findings)
		}
		for i, f := range findings {
			if i > 0 || len(findings) > 1 {
				fmt.Fprintln(w)
			}
			printer.Why(f)
		}
		return nil
	}}, nil
}
