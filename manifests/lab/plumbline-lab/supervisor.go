package main

import (
	"context"
	"encoding/json"
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

// runSupervisor turns this process into process-compose, in the lab's namespace.
func runSupervisor(dir string, private bool) error {
	if private {
		if err := sandbox.Enter(dir); err != nil {
			return err
		}
	}
	argv := []string{
		filepath.Join(dir, "bin", "process-compose"), "up",
		"--config", filepath.Join(dir, "process-compose.yaml"),
		"--tui=false", "--ordered-shutdown", "--keep-project", "--disable-dotenv",
		"--use-uds", "--unix-socket", supervisorSocket(dir),
		"--log-file", filepath.Join(dir, "logs", "supervisor.log"),
	}
	env := append(os.Environ(), sandbox.Environment(dir), "HOME="+dir, "XDG_CONFIG_HOME="+dir)
	return syscall.Exec(argv[0], argv, env)
}

func supervisorSocket(dir string) string { return filepath.Join(dir, "process-compose.sock") }

// process is what process-compose says of one of its processes.
type process struct {
	Name      string `json:"name"`
	Status    string `json:"status"`
	IsRunning bool   `json:"is_running"`
	Ready     string `json:"is_ready"`
	ExitCode  int    `json:"exit_code"`
	Restarts  int    `json:"restarts"`
	PID       int    `json:"pid"`
	HasProbe  bool   `json:"has_ready_probe"`
}

// up says whether the process does what it is there for.
func (p process) up() bool { return p.IsRunning && (!p.HasProbe || p.Ready == "Ready") }

// failed says whether the process has ended although all of the lab's are to stay.
func (p process) failed() bool {
	return slices.Contains([]string{"Completed", "Error", "Skipped"}, p.Status)
}

// supervisor talks to the lab's process-compose through its socket.
type supervisor struct {
	client *http.Client
	dir    string
}

func newSupervisor(dir string) *supervisor {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", supervisorSocket(dir))
	}
	return &supervisor{&http.Client{Transport: &http.Transport{DialContext: dial}, Timeout: time.Minute}, dir}
}

// processes lists the lab's processes in the order of their names.
func (s *supervisor) processes(ctx context.Context) ([]process, error) {
	var answer struct {
		Data []process `json:"data"`
	}
	if err := s.call(ctx, http.MethodGet, "/processes", &answer); err != nil {
		return nil, err
	}
	slices.SortFunc(answer.Data, func(a, b process) int { return strings.Compare(a.Name, b.Name) })
	return answer.Data, nil
}

// stop asks for an orderly end: load before database, database before volume, and so on.
func (s *supervisor) stop(ctx context.Context) error {
	return s.call(ctx, http.MethodPost, "/project/stop", nil)
}

func (s *supervisor) call(ctx context.Context, method, path string, into any) error {
	request, err := http.NewRequestWithContext(ctx, method, "http://process-compose"+path, nil)
	if err != nil {
		return err
	}
	response, err := s.client.Do(request)
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
