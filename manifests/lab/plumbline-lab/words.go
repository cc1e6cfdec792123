package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/prometheus/client_golang/api"
	promv1 "github.com/prometheus/client_golang/api/prometheus/v1"

	"github.com/plumbline/plumbline/manifests/lab/config"
	"github.com/plumbline/plumbline/rules/why"
)

// reporter describes in words what a running lab's classes do.
type reporter struct {
	lab     *config.Lab
	api     promv1.API
	printer *why.Printer
	// printed are the verdicts that were last put into words, by class.
	printed map[string]why.Verdict
}

func newReporter(lab *config.Lab) (*reporter, error) {
	client, err := api.NewClient(api.Config{Address: lab.URL("prometheus")})
	if err != nil {
		return nil, err
	}
	return &reporter{lab, promv1.NewAPI(client), why.NewPrinter(os.Stdout), map[string]why.Verdict{}}, nil
}

// find returns a finding for each class that has data.
func (r *reporter) find(ctx context.Context, window time.Duration) (findings []*why.Finding, err error) {
	now := time.Now()
	for _, c := range r.lab.Classes {
		f, err := why.Find(ctx, r.api, why.Subject{Class: c.Name}, now, window)
		if errors.Is(err, why.ErrUnknown) {
			fmt.Printf("%s: no measured volume yet\n", c.Name)
			continue
		}
		if err != nil {
			return nil, err
		}
		findings = append(findings, f)
	}
	return findings, nil
}

// show prints the classes' bars and words over a window, and returns the findings.
func (r *reporter) show(ctx context.Context, window time.Duration) ([]*why.Finding, error) {
	findings, err := r.find(ctx, window)
	if err == nil {
		r.printer.Stacks(findings)
		r.printWords(findings)
	}
	return findings, err
}

// live prints the bars as of now, and the words of each class whose verdict has changed.
func (r *reporter) live(ctx context.Context) error {
	findings, err := r.find(ctx, r.lab.Live())
	if err != nil {
		return err
	}
	r.printer.Stacks(findings)
	r.printWords(slices.DeleteFunc(findings, func(f *why.Finding) bool {
		before, ok := r.printed[f.Target.Class]
		return ok && before.Same(f.Verdict)
	}))
	return nil
}

func (r *reporter) printWords(findings []*why.Finding) {
	r.printer.Words(findings...)
	for _, f := range findings {
		r.printed[f.Target.Class] = f.Verdict
	}
}

// showWhy prints all that is known of one class.
func showWhy(ctx context.Context, o options, class string, window time.Duration) error {
	lab, err := running(o)
	if err != nil {
		return err
	}
	r, err := newReporter(lab)
	if err != nil {
		return err
	}
	f, err := why.Find(ctx, r.api, why.Subject{Class: class}, time.Now(), window)
	if err != nil {
		return err
	}
	r.printer.Why(f)
	return nil
}
