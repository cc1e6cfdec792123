package baseline

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/plumbline/plumbline/loadgen/internal/given"
	"github.com/plumbline/plumbline/loadgen/internal/outfile"
)

// Output is how pins are kept.
type Output struct {
	// Version is of the program, for whoever reads the pins.
	Version string
	// History is how many previous pins are kept.
	History int
	// RefuseSlower keeps the old pins if a new one is slower by more than this share; 0 never does.
	RefuseSlower float64
}

// ToFile writes the pins to a rules file. The previous ones are kept beside it as PATH.1 (the
// newest), PATH.2 and so on, which no pattern for rules files matches.
func (o Output) ToFile(path string, baselines []Baseline, at time.Time) error {
	old, text, err := readPins(path)
	if err != nil {
		return fmt.Errorf("--output: %w", err)
	}
	if err := slower(old, baselines, o.RefuseSlower); err != nil {
		return err
	}
	// Prometheus, which is another user, may read the file at any time: it must never see half of it, nor none.
	file := outfile.File{Path: path, Mode: 0o644, Before: func() error {
		if text == nil {
			return nil
		}
		if err := o.keep(path, text); err != nil {
			return fmt.Errorf("keeping the previous pins: %w", err)
		}
		return nil
	}}
	if err := file.Write(func(w io.Writer) error { return WriteRules(w, baselines, o.Version, at) }); err != nil {
		return fmt.Errorf("--output: %w", err)
	}
	return nil
}

// CheckFile returns why the pins could not be written to a file, or the previous ones not be kept. It is called before
// a day of measuring.
func (o Output) CheckFile(path string) error {
	_, text, err := readPins(path)
	if err == nil {
		err = outfile.Check(path)
	}
	if err == nil && text != nil && o.History > 0 {
		if err = outfile.Check(newest(path)); err != nil {
			err = fmt.Errorf("keeping the previous pins: %w; --history=0 keeps none", err)
		}
	}
	if err != nil {
		return fmt.Errorf("--output: %w", err)
	}
	return nil
}

// readPins reads the rules file that is to be replaced, and its text; nil if there is none.
func readPins(path string) (old ruleFile, text []byte, err error) {
	if !outfile.Replaces(path) {
		return old, nil, nil // such as the standard output
	}
	text, err = given.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return old, nil, nil
	}
	if err == nil {
		err = yaml.Unmarshal(text, &old)
		if err != nil {
			err = fmt.Errorf("%s is no rules file, and is not overwritten: %w", path, err)
		}
	}
	return old, text, err
}

// keep makes text the newest of the previous pins.
func (o Output) keep(path string, text []byte) error {
	if o.History < 1 {
		return nil
	}
	first := outfile.File{Path: newest(path), Mode: 0o644, Before: func() error { return outfile.MakeRoom(path, o.History) }}
	return first.Write(func(w io.Writer) error {
		_, err := w.Write(text)
		return err
	})
}

// newest is the file with the newest of the previous pins.
func newest(path string) string { return path + ".1" }
