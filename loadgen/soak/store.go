package soak

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"sync"
	"time"

	"github.com/plumbline/plumbline/loadgen/internal/outfile"
	"github.com/plumbline/plumbline/loadgen/result"
	"github.com/plumbline/plumbline/loadgen/stats"
)

// Sample is what one load on one class did in one interval.
type Sample struct {
	Time         time.Time          `json:"time"` // its end
	StorageClass string             `json:"storageclass"`
	Load         string             `json:"load"` // canary, or the phase's name
	Offered      uint64             `json:"offered"`
	Completed    uint64             `json:"completed"`
	Failed       uint64             `json:"failed"`
	Skipped      uint64             `json:"skipped"`
	Saturated    bool               `json:"saturated,omitempty"` // the generator, ever since the start
	Response     stats.Distribution `json:"response"`
	Service      stats.Distribution `json:"service"`
	// Outages are the times without a commit that ended in the interval, or with the load.
	Outages []result.Outage `json:"outages,omitempty"`
}

// Event is something that happened.
type Event struct {
	Time time.Time `json:"time"`
	// Kind is soak, phase, fault or machine; What is begin, end, failed or unmended.
	Kind   string `json:"kind"`
	Name   string `json:"name"`
	What   string `json:"what"`
	Detail string `json:"detail,omitempty"`
}

const stateFile, samplesFile, eventsFile = "soak.json", "samples.jsonl", "events.jsonl"

// Kinds and whats of events.
const (
	SoakEvent, PhaseEvent, FaultEvent = "soak", "phase", "fault"
	// MachineEvent is of the machine that the soak runs on: suspended, or its clock was set. Both of its ends are
	// written when it is over.
	MachineEvent       = "machine"
	Begin, End, Failed = "begin", "end", "failed"
	// Unmended is of a fault that was done and could not be undone: it stays in effect, and the next start retries. One
	// that could not be done either has an end.
	Unmended = "unmended"
)

// state is what a soak must remember over its own restarts.
type state struct {
	Began time.Time `json:"began"`
	Plan  Plan      `json:"plan"`
}

// store appends to a soak's folder, as the only one.
type store struct {
	lock *os.File
	// unlocked is why lock keeps no other soak away, nil if it does.
	unlocked error
	mu       sync.Mutex
	samples  *samples
	events   *lineFile
}

// Begun is whether folder holds a soak that was started before.
func Begun(folder string) bool {
	_, err := os.Stat(filepath.Join(folder, stateFile))
	return err == nil
}

// open begins a soak in folder, or goes on with the one that is there.
func open(folder string, plan Plan, now time.Time) (s *store, data *Data, err error) {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return nil, nil, err
	}
	lock, unlocked, err := lockFolder(folder)
	if err != nil {
		return nil, nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, unlock(lock))
		}
	}()
	if data, err = begin(folder, plan, now); err != nil {
		return nil, nil, err
	}
	s = &store{lock: lock, unlocked: unlocked}
	if s.samples, err = openSamples(folder, now); err != nil {
		return nil, nil, err
	}
	if s.events, err = appendTo(filepath.Join(folder, eventsFile)); err != nil {
		return nil, nil, errors.Join(err, s.samples.close())
	}
	if err = outfile.SyncFolder(folder); err != nil {
		return nil, nil, errors.Join(err, s.samples.close(), s.events.close())
	}
	return s, data, nil
}

// begin writes a new soak's state, or reads what there is of the one that goes on.
func begin(folder string, plan Plan, now time.Time) (*Data, error) {
	path := filepath.Join(folder, stateFile)
	// Not the samples: after days they are more than a small pod's memory.
	data, err := readState(folder)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		text, err := json.MarshalIndent(state{now.UTC(), plan}, "", "  ")
		if err != nil {
			return nil, err
		}
		// Whole and on the disk, or not at all: a half one would stop every later start.
		file := outfile.File{Path: path, Mode: 0o644}
		err = file.Write(func(w io.Writer) error {
			_, err := w.Write(text)
			return err
		})
		if err != nil {
			return nil, err
		}
		return readState(folder)
	case err != nil:
		return nil, err
	case !same(data.Plan, plan):
		return nil, fmt.Errorf("%s holds a soak of another plan; take another folder, or the plan it was begun with", folder)
	}
	return data, nil
}

// same compares plans as they are kept: without connection strings, which may change.
func same(a, b Plan) bool {
	kept := func(p Plan) (out Plan) {
		text, err := json.Marshal(p)
		if err == nil {
			_ = json.Unmarshal(text, &out)
		}
		return out
	}
	return reflect.DeepEqual(kept(a), kept(b))
}

// lost are the files in which a line was only half there.
func (s *store) lost(folder string) (files []string) {
	if s.samples.file.lost {
		files = append(files, filepath.Join(folder, samplesFile))
	}
	if s.events.lost {
		files = append(files, filepath.Join(folder, eventsFile))
	}
	return files
}

func (s *store) sample(v Sample) error {
	line, err := json.Marshal(v)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.samples.write(append(line, '\n'), v.Time)
}

// event keeps an event, and has it on the disk: a fault that is done after it has to be mended also if the machine dies
// in it. Samples, of which there are many, come to the disk when the kernel likes.
func (s *store) event(v Event) error {
	line, err := json.Marshal(v)
	if err != nil {
		return err
	}
	s.mu.Lock()
	err = s.events.write(append(line, '\n'))
	s.mu.Unlock()
	if err != nil {
		return err
	}
	return s.events.on.Sync()
}

// close ends the files, and frees the folder.
func (s *store) close() error {
	return errors.Join(s.samples.close(), s.events.close(), unlock(s.lock))
}
