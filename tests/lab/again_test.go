package lab

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/plumbline/plumbline/manifests/lab/sandbox"
	"github.com/plumbline/plumbline/manifests/lab/supervise"
	"github.com/plumbline/plumbline/tests/testkit"
)

// awaitStatus waits until the lab's status has words on a process.
func awaitStatus(t *testing.T, name string, words ...string) {
	t.Helper()
	testkit.Eventually(t, defaultTimeout, func() error {
		out, err := command("status").CombinedOutput()
		if err != nil {
			return fmt.Errorf("status: %w\n%s", err, out)
		}
		for line := range strings.Lines(string(out)) {
			if !strings.HasPrefix(line, name+": ") {
				continue
			}
			for _, w := range words {
				if !strings.Contains(line, w) {
					return fmt.Errorf("no %q in %q", w, line)
				}
			}
			return nil
		}
		return fmt.Errorf("status has nothing on %s", name)
	})
}

// isUp waits until a process runs and another life than the one before.
func isUp(t *testing.T, name string, after int) (life int) {
	t.Helper()
	client := supervise.At(dir)
	eventually(t, name+" is up", func() error {
		p, err := client.Process(context.Background(), name)
		if err == nil && (!p.Up() || p.State.Life <= after) {
			err = fmt.Errorf("%s is not up: life %d, %s, %s", name, p.State.Life, p.State.Phase, p.State.Waiting)
		}
		life = p.State.Life
		return err
	})
	return life
}

// A process that died is restarted and reported, with growing pauses if it dies repeatedly; one that was stopped on
// purpose stays stopped until it is started.
func TestDiedIsStartedAgain(t *testing.T) {
	running(t)
	agent := filepath.Join(dir, "bin", "plumbline-agent")
	life := isUp(t, "agent", 0)
	signal(t, process(t, dir, agent), syscall.SIGKILL)
	life = isUp(t, "agent", life)
	awaitStatus(t, "agent", "started again once", "exit code -1 (a signal)", filepath.Join(dir, "logs", "agent.log"))

	signal(t, process(t, dir, agent), syscall.SIGKILL)
	life = isUp(t, "agent", life)
	awaitStatus(t, "agent", "started again 2 times", "held back for 2s, as it ends again and again")

	if out, err := command("stop", "--signal=9", "agent").CombinedOutput(); err != nil {
		t.Fatalf("stop: %v\n%s", err, out)
	}
	awaitStatus(t, "agent", "stopped on purpose", "plumbline-lab start agent", "started again 2 times")
	const window = 10 // seconds, many times what a start takes
	eventually(t, "no scrape of the agent", func() error {
		n, err := number(prometheus, fmt.Sprintf(`max(max_over_time(up{job="plumbline-agent"}[%ds]))`, window))
		if err == nil && n != 0 {
			err = fmt.Errorf("it was scraped within %d s", window)
		}
		return err
	})
	if pid, err := sandbox.Find(dir, agent); err == nil {
		t.Errorf("the agent runs as %d although it was stopped", pid)
	}
	if out, err := command("start", "agent").CombinedOutput(); err != nil {
		t.Fatalf("start: %v\n%s", err, out)
	}
	isUp(t, "agent", life)
	eventually(t, "the agent is scraped", func() error {
		n, err := number(prometheus, `max(up{job="plumbline-agent"})`)
		if err == nil && n != 1 {
			err = fmt.Errorf("up is %v", n)
		}
		return err
	})
}
