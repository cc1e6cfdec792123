// Package supervise keeps the lab's processes running. process-compose starts what has ended again;
// the gate, which runs before each of a process's lives, adds what process-compose does not have:
// pauses that grow, the order of a start after the first, processes that end with what they lie
// on, a stop on purpose that lasts, and a record of it all.
package supervise

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/plumbline/plumbline/manifests/lab/sandbox"
)

// Run turns this process into process-compose, in the lab's namespace.
func Run(dir string, private bool) error {
	if private {
		if err := sandbox.Enter(dir); err != nil {
			return err
		}
	}
	argv := []string{
		filepath.Join(dir, "bin", "process-compose"), "up",
		"--config", projectPath(dir),
		"--tui=false", "--ordered-shutdown", "--keep-project", "--disable-dotenv",
		"--use-uds", "--unix-socket", socketPath(dir),
		"--log-file", filepath.Join(dir, "logs", "supervisor.log"),
	}
	env := append(os.Environ(), sandbox.Environment(dir), "HOME="+dir, "XDG_CONFIG_HOME="+dir)
	return syscall.Exec(argv[0], argv, env)
}

func socketPath(dir string) string  { return filepath.Join(dir, "process-compose.sock") }
func projectPath(dir string) string { return filepath.Join(dir, "process-compose.yaml") }

// Process is what is known of one of the lab's processes.
type Process struct {
	// Name, Status and the rest of this group are process-compose's.
	Name      string `json:"name"`
	Status    string `json:"status"`
	IsRunning bool   `json:"is_running"`
	Ready     string `json:"is_ready"`
	// ExitCode is that of its last life, negative if a signal ended it.
	ExitCode int  `json:"exit_code"`
	PID      int  `json:"pid"`
	HasProbe bool `json:"has_ready_probe"`

	// State is the gate's.
	State State `json:"-"`
	// Stopped means that it was stopped on purpose.
	Stopped bool `json:"-"`
}

// Runs reports whether the process itself runs, and not its gate.
func (p Process) Runs() bool { return p.IsRunning && p.State.Phase == Runs }

// Up reports whether the process runs, and is ready if it has a probe.
func (p Process) Up() bool { return p.Runs() && (!p.HasProbe || p.Ready == "Ready") }

// Failed reports whether the supervisor has given up on the process.
func (p Process) Failed() bool {
	return slices.Contains([]string{"Completed", "Error", "Skipped"}, p.Status)
}

// Client talks to the lab's process-compose through its socket.
type Client struct {
	client *http.Client
	dir    string
}

// At returns a client for the lab in dir.
func At(dir string) *Client {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", socketPath(dir))
	}
	return &Client{&http.Client{Transport: &http.Transport{DialContext: dial}, Timeout: time.Minute}, dir}
}

// Processes lists the lab's processes in the order of their names.
func (c *Client) Processes(ctx context.Context) ([]Process, error) {
	var answer struct {
		Data []Process `json:"data"`
	}
	if err := c.call(ctx, http.MethodGet, "/processes", &answer); err != nil {
		return nil, err
	}
	slices.SortFunc(answer.Data, func(a, b Process) int { return strings.Compare(a.Name, b.Name) })
	for i := range answer.Data {
		if err := c.complete(&answer.Data[i]); err != nil {
			return nil, err
		}
	}
	return answer.Data, nil
}

// Process returns one of the lab's processes.
func (c *Client) Process(ctx context.Context, name string) (p Process, err error) {
	if err := c.call(ctx, http.MethodGet, "/process/"+name, &p); err != nil {
		return p, fmt.Errorf("%w; is there a process %s? See plumbline-lab status", err, name)
	}
	return p, c.complete(&p)
}

// complete adds what the gate knows.
func (c *Client) complete(p *Process) (err error) {
	p.Stopped = isStopped(c.dir, p.Name)
	p.State, err = readState(c.dir, p.Name)
	return err
}

// Signal sends a signal to one of the lab's processes.
func (c *Client) Signal(ctx context.Context, name string, s syscall.Signal) error {
	p, err := c.Process(ctx, name)
	if err != nil {
		return err
	}
	if !p.Runs() || p.PID <= 1 {
		return fmt.Errorf("%s does not run", name)
	}
	return syscall.Kill(p.PID, s)
}

// Stop ends a process with a signal, its own one for an orderly end if s is 0, and returns once it
// has ended. It stays so until Start.
func (c *Client) Stop(ctx context.Context, name string, s syscall.Signal) error {
	before, err := c.Process(ctx, name)
	if err != nil {
		return err
	}
	if err := markStopped(c.dir, name); err != nil {
		return err
	}
	if !before.Runs() {
		return nil // its gate sees the mark
	}
	return c.end(ctx, before, s, "")
}

// Start starts a process that Stop ended and returns once it is up.
func (c *Client) Start(ctx context.Context, name string) error {
	p, err := c.Process(ctx, name)
	if err != nil {
		return err
	}
	if err := unmarkStopped(c.dir, name); err != nil {
		return err
	}
	if p.Failed() {
		if err := c.call(ctx, http.MethodPost, "/process/start/"+name, nil); err != nil {
			return err
		}
	}
	return c.await(ctx, name, "up", Process.Up)
}

// Restart ends a process in order, and returns once it is up again.
func (c *Client) Restart(ctx context.Context, name string) error {
	before, err := c.Process(ctx, name)
	if err != nil {
		return err
	}
	if !before.Runs() {
		return fmt.Errorf("%s does not run", name)
	}
	if err := c.end(ctx, before, 0, "a person"); err != nil {
		return err
	}
	return c.await(ctx, name, "up again", func(p Process) bool { return p.State.Life > before.State.Life && p.Up() })
}

// Renew ends a process that runs and returns once its next life has begun, whose cause is given.
func (c *Client) Renew(ctx context.Context, name, because string) error {
	p, err := c.Process(ctx, name)
	if err != nil || !p.Runs() {
		return err
	}
	return c.end(ctx, p, 0, because)
}

// orderly is how long a process may take to end in order before it is killed.
const orderly = 10 * time.Second

// end ends a process that runs and returns once its gate has begun its next life. because is
// what the next life is started for, for the record.
func (c *Client) end(ctx context.Context, p Process, s syscall.Signal, because string) error {
	project, err := readProject(c.dir)
	if err != nil {
		return err
	}
	if s == 0 {
		s = project.Processes[p.Name].signal()
	}
	if because != "" {
		if err := markRequested(c.dir, p.Name, because); err != nil {
			return err
		}
	}
	if err := syscall.Kill(p.PID, s); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("ending %s: %w", p.Name, err)
	}
	next := func(q Process) bool { return q.State.Life > p.State.Life }
	limited, cancel := context.WithTimeout(ctx, orderly)
	defer cancel()
	if err := c.await(limited, p.Name, "ended", next); err == nil || ctx.Err() != nil {
		return err
	}
	if err := syscall.Kill(p.PID, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("killing %s: %w", p.Name, err)
	}
	return c.await(ctx, p.Name, "ended", next)
}

// await waits until a process is as wanted.
func (c *Client) await(ctx context.Context, name, what string, is func(Process) bool) error {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		p, err := c.Process(ctx, name)
		if err == nil && is(p) {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("%s is not %s: %s, %s; see its log %s", name, what, p.Status, p.State.Phase, LogPath(c.dir, name)), ctx.Err(), err)
		case <-tick.C:
		}
	}
}

// StopAll requests an orderly shutdown: load before database, database before volume, and so on.
func (c *Client) StopAll(ctx context.Context) error {
	return c.call(ctx, http.MethodPost, "/project/stop", nil)
}

func (c *Client) call(ctx context.Context, method, path string, into any) error {
	request, err := http.NewRequestWithContext(ctx, method, "http://process-compose"+path, nil)
	if err != nil {
		return err
	}
	response, err := c.client.Do(request)
	if err != nil {
		return fmt.Errorf("the lab's supervisor: %w", err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("the lab's supervisor answers %s to %s", response.Status, path)
	}
	if into == nil {
		return nil
	}
	return json.NewDecoder(response.Body).Decode(into)
}
