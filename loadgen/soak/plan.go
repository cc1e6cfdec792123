// Package soak runs canaries on storage classes for days, with phases of heavier load and with
// faults, survives its own restarts, and keeps all it measures in a folder for the report.
package soak

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.yaml.in/yaml/v3"

	"github.com/plumbline/plumbline/loadgen/driver"
	"github.com/plumbline/plumbline/loadgen/internal/given"
	"github.com/plumbline/plumbline/loadgen/matrix"
	"github.com/plumbline/plumbline/loadgen/metrics"
)

// Plan is what a soak does. Times count from its first start, restarts included.
type Plan struct {
	// Duration is how long it takes in all.
	Duration time.Duration `yaml:"duration" json:"duration"`
	// Interval is how often a sample is kept.
	Interval time.Duration `yaml:"interval" json:"interval"`
	// Canary runs always, on each class.
	Canary Load `yaml:"canary" json:"canary"`
	// Phases are heavier loads at times, beside the canary.
	Phases []Phase `yaml:"phases" json:"phases,omitempty"`
	// Faults are done to the system at times.
	Faults []Fault `yaml:"faults" json:"faults,omitempty"`
	// Targets are the storage classes.
	Targets []matrix.Target `yaml:"targets" json:"targets"`
}

// Load is a load of the driver.
type Load struct {
	Profile     string  `yaml:"profile" json:"profile"`
	Rate        float64 `yaml:"rate" json:"rate"`
	Connections int     `yaml:"connections" json:"connections"`
	Scale       int     `yaml:"scale" json:"scale"`
}

// Phase is a load from At on for For, and again Every so often, if that is set.
type Phase struct {
	Name  string        `yaml:"name" json:"name"`
	At    time.Duration `yaml:"at" json:"at"`
	For   time.Duration `yaml:"for" json:"for"`
	Every time.Duration `yaml:"every" json:"every,omitempty"`
	Load  `yaml:",inline"`
}

// Fault is a command that does damage at At, and one that mends it after For: a replica killed
// and started again, a disk slowed down and set free.
type Fault struct {
	Name string        `yaml:"name" json:"name"`
	At   time.Duration `yaml:"at" json:"at"`
	For  time.Duration `yaml:"for" json:"for"`
	Do   []string      `yaml:"do" json:"do"`
	Undo []string      `yaml:"undo" json:"undo,omitempty"`
}

// ReadPlan reads and checks a YAML file. duration replaces the plan's, unless it is 0.
func ReadPlan(path string, duration time.Duration) (*Plan, error) {
	text, err := given.ReadFile(path)
	if err != nil {
		return nil, err
	}
	p := Plan{Interval: 10 * time.Second, Canary: Load{Profile: "tpcb-like", Rate: 5}}
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	if err := d.Decode(&p); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if duration != 0 {
		p.Duration = duration
	}
	if err := p.check(filepath.Dir(path)); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return &p, nil
}

// check checks a plan whose file is in folder.
func (p *Plan) check(folder string) error {
	if p.Duration <= 0 || p.Interval <= 0 {
		return fmt.Errorf("duration and interval must be above 0")
	}
	if err := matrix.CheckTargets(p.Targets, folder); err != nil {
		return err
	}
	for _, t := range p.Targets {
		if err := (Load{Profile: "simple-ping", Rate: 1, Connections: 1, Scale: 1}).driven(t); err != nil {
			field := "dsn"
			if t.DSNFile != "" {
				field = "dsn_file"
			}
			return fmt.Errorf("storageclass %s: %s: %w", t.StorageClass, field, err)
		}
	}
	if err := p.Canary.check(p.Targets[0]); err != nil {
		return fmt.Errorf("canary: %w", err)
	}
	names := map[string]bool{"canary": true}
	for i := range p.Phases {
		f := &p.Phases[i]
		if f.Name == "" || names[f.Name] {
			return fmt.Errorf("phase %d needs a name of its own", i+1)
		}
		names[f.Name] = true
		if f.At < 0 || f.For <= 0 || f.Every < 0 || f.Every > 0 && f.Every < f.For {
			return fmt.Errorf("phase %s: at must not be below 0, for must be above 0, every not below for", f.Name)
		}
		if err := f.Load.check(p.Targets[0]); err != nil {
			return fmt.Errorf("phase %s: %w", f.Name, err)
		}
	}
	for i, f := range p.Faults {
		if f.Name == "" || names[f.Name] {
			return fmt.Errorf("fault %d needs a name of its own", i+1)
		}
		names[f.Name] = true
		if f.At < 0 || f.For < 0 || len(f.Do) == 0 {
			return fmt.Errorf("fault %s: at and for must not be below 0, and there must be a command to do", f.Name)
		}
	}
	return nil
}

// check fills in what is not given, and checks a load as the driver does, on a target that is right.
func (l *Load) check(t matrix.Target) error {
	if l.Connections == 0 {
		l.Connections = 4
	}
	if l.Scale == 0 {
		l.Scale = 1
	}
	return l.driven(t)
}

// driven reports whether the driver takes a load on a target: it would refuse it only when the soak is under way.
// Nobody sees the metrics.
func (l Load) driven(t matrix.Target) error {
	registry := prometheus.NewRegistry()
	load := metrics.NewSet(registry).Load(metrics.Labels{}, metrics.Options{})
	_, err := driver.New(l.config(t), load, driver.NewOwnMetrics(registry), slog.New(slog.DiscardHandler))
	return err
}

// unfit returns which phases and faults the duration leaves out or cuts short.
func (p *Plan) unfit() (words []string) {
	fit := func(what string, at, long time.Duration) {
		switch left := p.Duration - at; {
		case left <= 0:
			words = append(words, fmt.Sprintf("%s, at %s, is left out", what, at))
		case left < long:
			words = append(words, fmt.Sprintf("%s, at %s, ends with the soak, after %s instead of %s", what, at, left, long))
		}
	}
	for _, f := range p.Phases {
		fit("phase "+f.Name, f.At, f.For)
	}
	for _, f := range p.Faults {
		fit("fault "+f.Name, f.At, f.For)
	}
	return words
}

func (l Load) config(t matrix.Target) driver.Config {
	return driver.Config{Engine: t.Engine, DSN: t.DSN, Profile: l.Profile, Scale: l.Scale, Rate: l.Rate, Arrivals: driver.Poisson,
		Connections: l.Connections, Timeout: 10 * time.Second, Queue: 10000}
}

// window returns the run of the phase that is under way at elapsed, or the next one. ok is
// false when there is none left before end.
func (f Phase) window(elapsed, end time.Duration) (from, to time.Duration, ok bool) {
	from = f.At
	if f.Every > 0 && elapsed >= f.At+f.For {
		from += (elapsed - f.At - f.For + f.Every) / f.Every * f.Every
	}
	to = min(from+f.For, end)
	return from, to, elapsed < to && from < end
}
