package baseline

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"go.yaml.in/yaml/v3"
)

// Output says how pins are kept.
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
	text, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("--output: %w", err)
	}
	if err == nil {
		var old ruleFile
		if err := yaml.Unmarshal(text, &old); err != nil {
			return fmt.Errorf("--output: %s is no rules file, and is not overwritten: %w", path, err)
		}
		if err := slower(old, baselines, o.RefuseSlower); err != nil {
			return err
		}
	}
	// Prometheus may read the file at any time: it must never see half of it, nor none.
	file, err := os.CreateTemp(filepath.Dir(path), ".baseline-*")
	if err != nil {
		return fmt.Errorf("--output: %w", err)
	}
	defer os.Remove(file.Name())
	err = errors.Join(WriteRules(file, baselines, o.Version, at), file.Chmod(0o644), file.Close())
	if err != nil {
		return fmt.Errorf("--output: %w", err)
	}
	if text != nil {
		if err := o.keep(path, text); err != nil {
			return fmt.Errorf("keeping the previous pins: %w", err)
		}
	}
	return os.Rename(file.Name(), path)
}

// keep makes text the newest of the previous pins.
func (o Output) keep(path string, text []byte) error {
	if o.History < 1 {
		return nil
	}
	name := func(n int) string { return fmt.Sprintf("%s.%d", path, n) }
	for n := o.History; n > 1; n-- {
		if err := os.Rename(name(n-1), name(n)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return os.WriteFile(name(1), text, 0o644)
}
