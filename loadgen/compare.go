package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"

	"github.com/plumbline/plumbline/loadgen/compare"
)

// exitCode is a command's outcome that is no failure: it has an exit code of its own.
type exitCode int

const (
	slower       exitCode = 3
	inconclusive exitCode = 4
	unknowable   exitCode = 5
)

func (e exitCode) Error() string {
	return map[exitCode]string{slower: "the second is slower", inconclusive: "nothing is slower, but it could not have been seen", unknowable: "it cannot be known"}[e]
}

// compareRun is the command line of `loadgen compare`.
type compareRun struct {
	a, b               string
	threshold, mustSee float64
	json               bool
	beside             string
	besideSet          bool
}

func (p *program) addCompare() {
	var r compareRun
	c := p.add("compare", "Compare two matrices, two baselines or two soaks. Exit code 0: nothing is slower; 3: something surely is; "+
		"4: nothing is, but --must-see's slowdown could not have been seen; 1: they cannot be compared, or something failed on one side only; 2: a wrong command line.",
		func(context.Context, *slog.Logger) error { return r.run(os.Stdout) },
		"loadgen compare last-week.json today.json",
		"loadgen compare --must-see=10 baseline-2026-10.json baseline-2026-11.json",
		"loadgen compare --threshold=10 soak-before soak-after",
		"loadgen compare --beside=local soak-before soak-after")
	c.Arg("first", "A matrix's JSON (--output), a baseline's (--record), or a soak's folder.").Required().StringVar(&r.a)
	c.Arg("second", "The same of another time.").Required().StringVar(&r.b)
	c.Flag("threshold", "Differences up to this many percent do not count.").Default("5").Float64Var(&r.threshold)
	c.Flag("must-see", "Exit code 4 unless a slowdown of this many percent would have been seen in each pair, four times out of five; 0: no such demand.").
		Default("0").Float64Var(&r.mustSee)
	c.Flag("beside", "Compare the times as multiples of this storage class's of the same interval or round: what slowed both by the same factor is not seen, and what moved that class alone is seen in all others.").
		PlaceHolder("CLASS").IsSetByUser(&r.besideSet).StringVar(&r.beside)
	c.Flag("json", "Print JSON.").BoolVar(&r.json)
}

func (r *compareRun) run(out io.Writer) error {
	if r.mustSee != 0 && !(r.mustSee > r.threshold) {
		return errors.New("--must-see must be above --threshold: what does not count is never seen")
	}
	if r.besideSet && r.beside == "" {
		return errors.New("--beside wants a storage class, and has none")
	}
	found, err := compare.Paths(r.a, r.b, compare.Options{Threshold: r.threshold / 100, MustSee: r.mustSee / 100, Beside: r.beside})
	if err != nil {
		return err
	}
	write := found.WriteMarkdown
	if r.json {
		write = found.WriteJSON
	}
	if err := write(out); err != nil {
		return err
	}
	switch {
	case found.Slower():
		return slower
	case found.Mismatch() != nil:
		return found.Mismatch()
	case r.mustSee > 0 && (len(found.Blind(r.mustSee/100)) > 0 || len(found.Failures)+len(found.Lone) > 0):
		return inconclusive
	}
	return nil
}
