package main

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"

	"github.com/plumbline/plumbline/loadgen/internal/outfile"
)

// partialEnd is what the name of a file ends with that keeps what there is of a result which is not whole, and
// keptPartials is how many are kept of earlier runs.
const (
	partialEnd   = ".partial"
	keptPartials = 5
)

// setAside logs what an earlier run has left of the result in path, and moves it out of the way: PATH.partial becomes
// PATH.partial.1, that before it PATH.partial.2 and so on. describe describes what is in such a file.
func setAside(path string, describe func(path string) (string, error), log *slog.Logger) {
	partial := path + partialEnd
	info, err := os.Lstat(partial)
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	what := "it is no file"
	if err == nil && info.Mode().IsRegular() {
		if what, err = describe(partial); err != nil {
			what, err = err.Error(), nil
		}
	}
	if err == nil {
		err = outfile.MakeRoom(partial, keptPartials)
	}
	if err == nil {
		err = os.Rename(partial, partial+".1")
	}
	if err != nil {
		log.Error("what an earlier run has left cannot be set aside", "file", partial, "what", what, "err", err)
		return
	}
	log.Warn("an earlier run did not come to its end: what it measured is kept, and is not gone on with", "file", partial+".1", "what", what)
}
