package main

import (
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/plumbline/plumbline/loadgen/internal/outfile"
)

// checkFiles returns which of a command's files could not be written, and of which two are one. It is called before
// hours of work for them. "" is none.
func checkFiles(paths ...string) error {
	var errs []error
	for i, path := range paths {
		if path == "" {
			continue
		}
		errs = append(errs, outfile.Check(path))
		if slices.ContainsFunc(paths[:i], func(other string) bool { return other != "" && outfile.Same(path, other) }) {
			errs = append(errs, fmt.Errorf("%s is given for two things: the second would take the first's place", path))
		}
	}
	return errors.Join(errs...)
}

// writeFile writes one of a command's files, whole or not at all. "" is none.
func writeFile(path string, write func(io.Writer) error) error {
	if path == "" {
		return nil
	}
	return outfile.Write(path, write)
}
