package main

import (
	"errors"
	"io"

	"github.com/plumbline/plumbline/loadgen/internal/outfile"
)

// checkFiles says which of a command's files could not be written, before hours are spent on what is to be in them. "" is none.
func checkFiles(paths ...string) error {
	var errs []error
	for _, path := range paths {
		if path != "" {
			errs = append(errs, outfile.Check(path))
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
