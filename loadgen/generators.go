package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"

	"github.com/alecthomas/kingpin/v2"

	"github.com/plumbline/plumbline/loadgen/result"
)

// addGenerators adds the flags of a load that several generators make together, each on a machine of its own.
func (l *load) addGenerators(c *kingpin.CmdClause) {
	c.Flag("generators", "How many generators make this load together; each offers its part of --rate. `loadgen merge` adds up what they print.").Default("1").IntVar(&l.generator.Of)
	c.Flag("generator", "Which of them this one is, from 0. Kubernetes' indexed jobs set it by themselves.").Default("0").Envar("JOB_COMPLETION_INDEX").IntVar(&l.generator.Number)
}

// divide makes a rate this generator's part of it.
func (l *load) divide(rate *float64) error {
	g := &l.generator
	switch {
	case g.Of < 1:
		return fmt.Errorf("--generators must be above 0")
	case g.Of == 1:
		g.Number = 0 // an indexed job of loads that have nothing to do with each other
	case g.Number < 0 || g.Number >= g.Of:
		return fmt.Errorf("--generator is %d; of %d generators the last is %d", g.Number, g.Of, g.Of-1)
	}
	*rate /= float64(g.Of)
	return nil
}

func (p *program) addMerge() {
	var (
		paths []string
		json  bool
	)
	c := p.add("merge", "Add up what the generators of one load printed (--generators, --once, --json): counts, rates, and the times themselves, of which quantiles are then taken; no quantile is averaged. "+
		"It is an error if one is missing, there twice, or of another load. Lines that are no result, such as a pod's log has, are left out: kubectl logs --tail=-1 --selector=job-name=NAME is fit for it.",
		func(context.Context, *slog.Logger) error { return runMerge(paths, json, os.Stdin, os.Stdout) },
		"loadgen merge one.json two.json",
		"loadgen merge --json pods.log")
	c.Arg("result", "Files of one or more results; - is the standard input.").Required().StringsVar(&paths)
	c.Flag("json", "Print the sum as JSON.").BoolVar(&json)
}

func runMerge(paths []string, json bool, in io.Reader, out io.Writer) error {
	var all []result.Part
	var bad []error
	for _, path := range paths {
		some, err := readResults(path, in)
		if err != nil {
			bad = append(bad, err)
		}
		all = append(all, some...)
	}
	if len(all) == 0 {
		return errors.Join(bad...)
	}
	// Where those that can be read are whole, their sum is printed; that others are not is an error all the same.
	sum, err := result.Merge(all)
	if err != nil {
		return errors.Join(append(bad, err)...)
	}
	write := sum.WriteText
	if json {
		write = sum.WriteJSON
	}
	return errors.Join(append(bad, write(out))...)
}

func readResults(path string, in io.Reader) (all []result.Part, err error) {
	if path == "-" {
		return result.ReadFrom(in, "the standard input")
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	return result.ReadFrom(file, path)
}
