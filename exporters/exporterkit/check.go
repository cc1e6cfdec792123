package exporterkit

import (
	"fmt"
	"io"
	"text/tabwriter"
)

// CheckResult is one line of an exporter's --check.
type CheckResult struct {
	// Part is what was tried: a program, an engine, a resource of the API server.
	Part string
	// Err is nil if it works, else why it does not and what to do about it.
	Err error
	// Optional parts may fail without failing --check. Note describes what is lost without them.
	Optional bool
	// Note describes the result.
	Note string
}

// Report prints what --check found, and fails if anything that is not optional does not work.
func Report(w io.Writer, results []CheckResult) error {
	failed := 0
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, r := range results {
		state := "ok"
		switch {
		case r.Err != nil && r.Optional:
			state = "without: " + r.Err.Error()
		case r.Err != nil:
			state = "FAILED: " + r.Err.Error()
			failed++
		}
		fmt.Fprintf(table, "%s\t%s\t%s\n", r.Part, state, r.Note)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	if failed > 0 {
		return fmt.Errorf("%d of the checks failed", failed)
	}
	return nil
}
