package lab

import (
	"bytes"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/plumbline/plumbline/manifests/lab/sandbox"
	"github.com/plumbline/plumbline/tests/testkit"
)

// restored fails the test unless nothing of the lab in dir is left on the machine.
func restored(t *testing.T, dir string, portBase int) {
	t.Helper()
	if pids, err := sandbox.Processes(dir); err != nil || len(pids) > 0 {
		t.Errorf("processes left: %v %v", pids, err)
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("%s is left: %v", dir, err)
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(mounts), dir) {
		t.Errorf("something is still mounted below %s", dir)
	}
	for _, path := range backingFiles(t) {
		if text, err := os.ReadFile(path); err == nil && strings.HasPrefix(string(text), dir) {
			t.Errorf("%s is still attached to %s", path, bytes.TrimSpace(text))
		}
	}
	for _, folder := range workFolders() {
		if !slices.Contains(workBefore, folder) {
			t.Errorf("%s is left", folder)
		}
	}
	for port := portBase; port < portBase+40; port++ {
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err != nil {
			t.Errorf("port %d is still taken: %v", port, err)
			continue
		}
		l.Close()
	}
}

// workBefore are those that were there before these tests.
var workBefore = workFolders()

// workFolders are the load generators' in the system's folder for temporary files: one that is killed cannot remove its
// own.
func workFolders() []string {
	folders, _ := filepath.Glob(filepath.Join(os.TempDir(), "loadgen-*"))
	return folders
}

func backingFiles(t *testing.T) []string {
	t.Helper()
	paths, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	if err != nil {
		t.Fatal(err)
	}
	return paths
}

// process returns the lab's process whose command line holds all the words.
func process(t *testing.T, dir string, words ...string) int {
	t.Helper()
	pid, err := sandbox.Find(dir, words...)
	if err != nil {
		t.Fatal(err)
	}
	return pid
}

// signal sends a signal to one of the lab's own processes.
func signal(t *testing.T, pid int, s syscall.Signal) {
	t.Helper()
	if err := syscall.Kill(pid, s); err != nil {
		t.Fatalf("%s to process %d: %v", s, pid, err)
	}
}

// defaultTimeout is how long a test waits for what a quiet machine does within a minute.
const defaultTimeout = 6 * time.Minute

// eventually waits until f returns no error, and logs how long that took.
func eventually(t *testing.T, what string, f func() error) {
	t.Helper()
	start := time.Now()
	testkit.Eventually(t, defaultTimeout, f)
	t.Logf("%s after %.1f s", what, time.Since(start).Seconds())
}
