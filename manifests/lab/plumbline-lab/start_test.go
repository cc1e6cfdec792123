package main

import (
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/plumbline/plumbline/manifests/lab/config"
	"github.com/plumbline/plumbline/manifests/lab/supervise"
)

// supervisor answers as process-compose does, in the folder of a lab.
func supervisor(t *testing.T, processes ...supervise.Process) (dir string) {
	t.Helper()
	dir = t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "logs"), 0o755); err != nil {
		t.Fatal(err)
	}
	socket, err := net.Listen("unix", filepath.Join(dir, "process-compose.sock"))
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if err := json.NewEncoder(w).Encode(map[string]any{"data": processes}); err != nil {
			t.Error(err)
		}
	})}
	go server.Serve(socket)
	t.Cleanup(func() { server.Close() })
	return dir
}

// The error of a lab whose program ends has the program's last words: the log may go with the lab.
func TestEndedEarly(t *testing.T) {
	ended := supervise.Process{Name: "ebpf_exporter", Status: "Completed", ExitCode: 1}
	dir := supervisor(t, ended, supervise.Process{Name: "waits", Status: "Running", IsRunning: true})
	log := "starting\nError attaching: permission denied\nplumbline-lab: ebpf_exporter waits for agent\nplumbline-lab: ebpf_exporter ended\nplumbline-lab: ebpf_exporter waits\n"
	if err := os.WriteFile(supervise.LogPath(dir, "ebpf_exporter"), []byte(log), 0o644); err != nil {
		t.Fatal(err)
	}
	for name, err := range map[string]error{
		"start": awaitReady(t.Context(), &config.Lab{Dir: dir}, time.Minute),
		"demo":  withEndings(dir, errors.New("no data within 1m0s")),
	} {
		if err == nil || !strings.Contains(err.Error(), "exit code 1") || !strings.Contains(err.Error(), "\n    starting\n    Error attaching: permission denied") {
			t.Errorf("%s: %v; want the program's last lines", name, err)
		}
	}
	// One that was started again while others are waited for.
	ended.Status, ended.IsRunning, ended.ExitCode = "Running", true, 0
	dir = supervisor(t, ended)
	state := `{"life": 2, "phase": "waits", "restarts": 1, "recent": [{"exit_code": 1}]}`
	for path, text := range map[string]string{supervise.LogPath(dir, "ebpf_exporter"): log, filepath.Join(dir, "processes", "ebpf_exporter.json"): state} {
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	if err := awaitReady(t.Context(), &config.Lab{Dir: dir}, time.Second); err == nil || !strings.Contains(err.Error(), "ebpf_exporter had ended by itself: Running, exit code 1; the end of") ||
		!strings.Contains(err.Error(), "permission denied") {
		t.Errorf("%v", err)
	}
}
