package predict

import (
	"fmt"
	"io"

	"github.com/plumbline/plumbline/loadgen/internal/given"
)

// Input is what a prediction goes by: a workload where it is now, the same time's measurements of the class it is on,
// and measurements of the class it may move to. It is the file of `loadgen predict --from-file`; schema.json describes
// it.
type Input struct {
	Version  int      `json:"version"`
	Workload Workload `json:"workload"`
	// From is the class that the workload is on, To the target.
	From Class `json:"from"`
	To   Class `json:"to"`
}

// Version is that of the input's form.
const Version = 1

// Workload is what a database server did, by windows of time.
type Workload struct {
	Name   string `json:"name"`
	Engine string `json:"engine"`
	// Clients is how many sessions work at the same time, each waiting for its answer before it goes on. 0: not known;
	// then statements are taken to come at the rate at which they came, whatever their answers take.
	Clients int `json:"clients,omitempty"`
	// Sessions is how many connections there are: what may be under way at once; 0 is not known.
	Sessions int `json:"sessions,omitempty"`
	// Think is the shape of the time from an answer to the session's next statement of a kind that waits for storage,
	// ThinkSeconds its mean; 0: what the measured rate of so many clients leaves, which is vague where answers take
	// much longer. Only with Clients.
	Think        Think   `json:"think,omitempty"`
	ThinkSeconds float64 `json:"think_seconds,omitempty"`
	// Cores is how many CPUs the server may use; 0 is not known.
	Cores float64 `json:"cores,omitempty"`
	// SameCache is set if as many of the reads reach storage there as do here.
	SameCache bool     `json:"same_cache,omitempty"`
	Windows   []Window `json:"windows"`
}

// Think is the shape of think times.
type Think string

const (
	Exponential Think = "exponential"
	Constant    Think = "constant"
)

// Window is a piece of time. Windows do not overlap.
type Window struct {
	Seconds    float64     `json:"seconds"`
	Statements []Statement `json:"statements"`
}

// Statement is what a window has of one kind of statement, such as all commits.
type Statement struct {
	Kind string `json:"kind"`
	// Response is how long they took.
	Response Histogram `json:"response"`
	// Phases are all their seconds by where they went: cpu, runqueue, client, wait, read, write, sync.
	Phases map[string]float64 `json:"phases"`
}

// Class is what a storage class does: of one volume, or of several, with windows for each.
type Class struct {
	Name     string `json:"name"`
	Replicas int    `json:"replicas,omitempty"`
	// Shared is how many volumes and replicas of others are on the block device whose requests the windows have; 0 for
	// calls on files.
	Shared int `json:"shared,omitempty"`
	// Volumes is how many it has, if the windows are of some of them only: those whose load was nearest. 0 is not
	// known.
	Volumes int `json:"volumes,omitempty"`
	// Pooled are the storage classes whose volumes are taken together.
	Pooled  []string `json:"pooled,omitempty"`
	Windows []Load   `json:"windows"`
}

// Load is what one volume of a class did in a piece of time.
type Load struct {
	Seconds float64 `json:"seconds"`
	// Volume is which; windows without a name are of one volume.
	Volume string `json:"volume,omitempty"`
	// Operations are either calls on files (sync, write, read) or requests of the block device (write, flush, read).
	// With sync they are calls.
	Operations map[string]Operation `json:"operations"`
}

// Operation is one kind of operation.
type Operation struct {
	Times Histogram `json:"times"`
	// Bytes is their mean size; 0 is not known.
	Bytes float64 `json:"bytes,omitempty"`
}

// Read reads an input and checks it.
func Read(r io.Reader) (*Input, error) {
	var in Input
	if err := decode(r, &in); err != nil {
		return nil, err
	}
	return &in, in.Validate()
}

// ReadClass reads a class's measurements, such as loadgen probe writes, and checks them.
func ReadClass(r io.Reader) (Class, error) {
	var c Class
	if err := decode(r, &c); err != nil {
		return c, err
	}
	return c, c.validate()
}

func decode(r io.Reader, into any) error {
	text, err := given.ReadAll(r)
	if err != nil {
		return err
	}
	if err := given.Decode(text, into, true, 1); err != nil {
		return fmt.Errorf("%w (it is %s)", err, given.What(text))
	}
	return nil
}

// Validate returns which field is wrong.
func (in *Input) Validate() error {
	w := in.Workload
	switch {
	case in.Version != Version:
		return fmt.Errorf("version is %d; this program reads %d", in.Version, Version)
	case w.Clients < 0 || w.Clients > 10_000:
		return fmt.Errorf("workload.clients is %d; want 0 to 10000", w.Clients)
	case w.Sessions < 0 || !possible(w.Cores):
		return fmt.Errorf("workload.sessions and workload.cores must not be below 0, nor above %g", mostNumber)
	case !possible(w.ThinkSeconds):
		return fmt.Errorf("workload.think_seconds is %v; want 0 to %g", w.ThinkSeconds, mostNumber)
	case w.Think != "" && w.Think != Exponential && w.Think != Constant:
		return fmt.Errorf("workload.think is %q; want %s or %s", w.Think, Exponential, Constant)
	}
	for i, win := range w.Windows {
		at := fmt.Sprintf("workload.windows[%d]", i)
		if err := long(win.Seconds); err != nil {
			return fmt.Errorf("%s.%w", at, err)
		}
		for j, s := range win.Statements {
			at := fmt.Sprintf("%s.statements[%d]", at, j)
			if s.Kind == "" {
				return fmt.Errorf("%s has no kind", at)
			}
			if err := s.Response.validate(); err != nil {
				return fmt.Errorf("%s.response (%s): %w", at, s.Kind, err)
			}
			for phase, seconds := range s.Phases {
				if !possible(seconds) {
					return fmt.Errorf("%s.phases.%s (%s) is %v; want 0 to %g", at, phase, s.Kind, seconds, mostNumber)
				}
			}
		}
	}
	if err := in.From.validate(); err != nil {
		return fmt.Errorf("from.%w", err)
	}
	if err := in.To.validate(); err != nil {
		return fmt.Errorf("to.%w", err)
	}
	return nil
}

const (
	// mostNumber is above all that anybody measures: sums and ratios of what is not are numbers, too.
	mostNumber = 1e15
	// leastWindow is the shortest window, in seconds.
	leastWindow = 1e-3
)

// possible is whether a number may have been measured.
func possible(v float64) bool { return v >= 0 && v <= mostNumber }

// long checks a window's length.
func long(seconds float64) error {
	if seconds >= leastWindow && seconds <= mostNumber {
		return nil
	}
	return fmt.Errorf("seconds is %v; want %g to %g", seconds, leastWindow, mostNumber)
}

func (c Class) validate() error {
	if c.Shared < 0 {
		return fmt.Errorf("shared is %d; want 0 or more", c.Shared)
	}
	if c.Volumes < 0 {
		return fmt.Errorf("volumes is %d; want 0 or more", c.Volumes)
	}
	for i, l := range c.Windows {
		if err := long(l.Seconds); err != nil {
			return fmt.Errorf("windows[%d].%w", i, err)
		}
		for name, o := range l.Operations {
			if err := o.Times.validate(); err != nil {
				return fmt.Errorf("windows[%d].operations.%s.times: %w", i, name, err)
			}
			if !possible(o.Bytes) {
				return fmt.Errorf("windows[%d].operations.%s.bytes is %v; want 0 to %g", i, name, o.Bytes, mostNumber)
			}
		}
	}
	return nil
}
