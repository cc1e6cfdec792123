package supervise

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/plumbline/plumbline/tests/testkit"
)

// The first end costs no pause; each further one within the window doubles it, up to a minute.
func TestPausesGrow(t *testing.T) {
	var got []time.Duration
	for n := range 10 {
		got = append(got, pause(n)/time.Second)
	}
	if want := []time.Duration{0, 0, 2, 4, 8, 16, 32, 60, 60, 60}; !slices.Equal(got, want) {
		t.Errorf("pauses %v, want %v", got, want)
	}
}

func lab(t *testing.T, project string) string {
	t.Helper()
	dir := t.TempDir()
	for _, folder := range []string{"processes", "logs"} {
		if err := os.Mkdir(filepath.Join(dir, folder), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(projectPath(dir), []byte(project), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// What lies on a process ends before what that lies on.
func TestLyingOn(t *testing.T) {
	dir := lab(t, `processes:
  engine: {}
  bridge: {x-lab: {lies_on: [engine]}}
  volume: {x-lab: {lies_on: [bridge]}}
  postgresql: {x-lab: {lies_on: [volume]}}
  readprobe: {x-lab: {lies_on: [volume]}}
  agent: {}
`)
	p, err := readProject(dir)
	if err != nil {
		t.Fatal(err)
	}
	for on, want := range map[string]string{"engine": "postgresql readprobe volume bridge", "volume": "postgresql readprobe", "agent": ""} {
		if got := strings.Join(p.lyingOn(on), " "); got != want {
			t.Errorf("on %s lie %q, want %q", on, got, want)
		}
	}
	if got := strings.Join(p.below("readprobe"), " "); got != "volume bridge engine" {
		t.Errorf("below the read probe are %q", got)
	}
}

// The gate lets a process through at once the first time, records an exit that nobody requested, and holds a process
// that was stopped on purpose until it is started again.
func TestGate(t *testing.T) {
	dir := lab(t, "processes: {agent: {}}\n")
	var log bytes.Buffer
	open := func() State {
		t.Helper()
		if err := Gate(t.Context(), dir, "agent", &log); err != nil {
			t.Fatal(err)
		}
		s, err := readState(dir, "agent")
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	if s := open(); s.Life != 1 || s.Phase != Runs || s.Restarts != 0 {
		t.Errorf("first life: %+v", s)
	}
	if s := open(); s.Life != 2 || s.Restarts != 1 || len(s.Recent) != 1 || s.Recent[0].Pause != 0 {
		t.Errorf("after an end: %+v", s)
	}
	if err := markRequested(dir, "agent", "a person"); err != nil {
		t.Fatal(err)
	}
	if s := open(); s.Life != 3 || s.Restarts != 1 || !slices.Equal(s.Requested, []string{"a person"}) {
		t.Errorf("after a requested restart: %+v", s)
	}

	if err := markStopped(dir, "agent"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	gate := make(chan error, 1)
	go func() { gate <- Gate(ctx, dir, "agent", &log) }()
	testkit.Eventually(t, testkit.DefaultTimeout, func() error {
		s, err := readState(dir, "agent")
		if err == nil && (s.Phase != Waits || s.Waiting != "was stopped on purpose" || s.Restarts != 1) {
			err = fmt.Errorf("stopped on purpose: %+v", s)
		}
		return err
	})
	cancel()
	if err := <-gate; err == nil {
		t.Error("a process that was stopped on purpose was started")
	}
	if err := unmarkStopped(dir, "agent"); err != nil {
		t.Fatal(err)
	}
	if s := open(); s.Phase != Runs {
		t.Errorf("started again: %+v", s)
	}
	if text := log.String(); !strings.Contains(text, "ended with exit code") || !strings.Contains(text, "stopped on purpose") {
		t.Errorf("the log is %q", text)
	}
}

// The description has what was restarted, how often, after what, and where its log is.
func TestDescribe(t *testing.T) {
	recent := []Restart{{Time: time.Now(), ExitCode: 2}, {Time: time.Now(), ExitCode: -1, Pause: 2 * time.Second}}
	for name, c := range map[string]struct {
		p    Process
		want []string
	}{
		"well":      {Process{Name: "a", IsRunning: true, State: State{Life: 1, Phase: Runs}}, nil},
		"restarted": {Process{Name: "a", IsRunning: true, State: State{Life: 3, Phase: Runs, Restarts: 2, Recent: recent}}, []string{"a: started again 2 times", "exit code -1 (a signal)", "held back for 2s", "log: /lab/logs/a.log"}},
		"stopped":   {Process{Name: "a", IsRunning: true, Stopped: true, State: State{Life: 2, Phase: Waits}}, []string{"a: stopped on purpose", "plumbline-lab start a"}},
		"waits":     {Process{Name: "a", IsRunning: true, State: State{Life: 2, Phase: Waits, Waiting: "waits for b"}}, []string{"not started yet: waits for b"}},
		"requested": {Process{Name: "a", IsRunning: true, State: State{Life: 2, Phase: Runs, Requested: []string{"the restart of b"}}}, []string{"started anew for the restart of b"}},
	} {
		text := c.p.Describe("/lab")
		if c.want == nil && text != "" {
			t.Errorf("%s: %q", name, text)
		}
		for _, w := range c.want {
			if !strings.Contains(text, w) {
				t.Errorf("%s: no %q in %q", name, w, text)
			}
		}
	}
}
