package supervise

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Phase is what a process's gate has it do.
type Phase string

const (
	// Waits is a process that is not started yet in this life.
	Waits Phase = "waits"
	// Runs is one that the gate has let through.
	Runs Phase = "runs"
)

// State is what is kept of a process over its lives.
type State struct {
	// Life counts its starts.
	Life int `json:"life"`
	// Phase is that of the present life, since Since.
	Phase Phase     `json:"phase"`
	Since time.Time `json:"since"`
	// Waiting is what it waits for.
	Waiting string `json:"waiting,omitempty"`
	// Restarts counts the starts after an exit that nobody requested.
	Restarts int `json:"restarts"`
	// Recent are the last of these, the latest last.
	Recent []Restart `json:"recent,omitempty"`
	// Requested are the last starts that were requested, with what requested them.
	Requested []string `json:"asked,omitempty"`
}

// Restart is a start after an exit that nobody requested.
type Restart struct {
	Time time.Time `json:"time"`
	// ExitCode is that of the life before, negative if a signal ended it.
	ExitCode int `json:"exit_code"`
	// Pause is for how long it was held back.
	Pause time.Duration `json:"pause"`
}

// kept is how many restarts are remembered one by one.
const kept = 20

// LogPath is where a process's output is.
func LogPath(dir, name string) string { return filepath.Join(dir, "logs", name+".log") }

func statePath(dir, name, kind string) string { return filepath.Join(dir, "processes", name+"."+kind) }

// readState returns the state of a process, an empty one before its first life.
func readState(dir, name string) (s State, err error) {
	text, err := os.ReadFile(statePath(dir, name, "json"))
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	if err != nil {
		return s, err
	}
	if err := json.Unmarshal(text, &s); err != nil {
		return s, fmt.Errorf("%s: %w", statePath(dir, name, "json"), err)
	}
	return s, nil
}

// write replaces the state in one step: others read it at any time.
func (s State) write(dir, name string) error {
	text, err := json.Marshal(s)
	if err != nil {
		return err
	}
	path := statePath(dir, name, "json")
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(path+".new", text, 0o644); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

func isStopped(dir, name string) bool {
	_, err := os.Stat(statePath(dir, name, "stopped"))
	return err == nil
}

func markStopped(dir, name string) error {
	return os.WriteFile(statePath(dir, name, "stopped"), nil, 0o644)
}

func unmarkStopped(dir, name string) error {
	err := os.Remove(statePath(dir, name, "stopped"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// markRequested records, before a process is ended, that its next start is requested.
func markRequested(dir, name, because string) error {
	return os.WriteFile(statePath(dir, name, "asked"), []byte(because), 0o644)
}

// takeRequested returns what requested this start, "" if nothing.
func takeRequested(dir, name string) string {
	path := statePath(dir, name, "asked")
	text, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	_ = os.Remove(path)
	return string(text)
}

// Describe returns one line on a process's state, "" if there is nothing to report.
func (p Process) Describe(dir string) string {
	var parts []string
	switch {
	case p.Stopped:
		parts = append(parts, fmt.Sprintf("stopped on purpose; `plumbline-lab start %s` starts it", p.Name))
	case p.IsRunning && p.State.Phase == Waits:
		parts = append(parts, "not started yet: "+p.State.Waiting)
	case !p.Up():
		parts = append(parts, p.Status+", "+ExitText(p.ExitCode))
	}
	if n := p.State.Restarts; n > 0 {
		last := p.State.Recent[len(p.State.Recent)-1]
		parts = append(parts, fmt.Sprintf("started again %s, last at %s after %s", times(n), last.Time.Local().Format(time.TimeOnly), ExitText(last.ExitCode)))
		if last.Pause > 0 {
			parts = append(parts, fmt.Sprintf("held back for %s, as it ends again and again", last.Pause))
		}
	}
	for _, because := range p.State.Requested {
		parts = append(parts, "started anew for "+because)
	}
	if len(parts) == 0 {
		return ""
	}
	return fmt.Sprintf("%s: %s; log: %s", p.Name, strings.Join(parts, "; "), LogPath(dir, p.Name))
}

func times(n int) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}

// ExitText describes how a process ended.
func ExitText(code int) string {
	if code < 0 {
		return fmt.Sprintf("exit code %d (a signal)", code)
	}
	return fmt.Sprintf("exit code %d", code)
}
