//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/plumbline/plumbline/tests/kubetest"
)

// folderVariable gives the test inside the namespaces its own folder.
const folderVariable = "PLUMBLINE_E2E_FOLDER"

// TestMain runs the tests in namespaces of their own (network, mounts, processes, host name),
// and cleans up after them, whatever they left: the end of the namespaces' first process ends
// all others with it.
func TestMain(m *testing.M) {
	if os.Getenv(folderVariable) != "" {
		os.Exit(m.Run())
	}
	code, err := outside()
	if err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		code = 1
	}
	os.Exit(code)
}

// apart are unshare's arguments to run this program in namespaces of its own, which end with it.
func apart(args ...string) []string {
	return append([]string{"--net", "--mount", "--pid", "--fork", "--kill-child=KILL", "--mount-proc", "--uts", os.Args[0]}, args...)
}

func outside() (int, error) {
	if os.Geteuid() != 0 {
		return 1, errors.New("a node needs root")
	}
	// Within the namespaces no registry can be reached.
	if err := kubetest.Fetch("prometheus-operator", "longhorn-manager", "longhorn-instance-manager", "cloudnative-pg"); err != nil {
		return 1, err
	}
	// Database files need a real disk: on tmpfs there is no block device to measure.
	folder, err := os.MkdirTemp("/var/tmp", "pl-e2e-")
	if err != nil {
		return 1, err
	}
	defer os.RemoveAll(folder)
	defer removeCgroups(filepath.Base(folder))
	defer detachLoops(folder)
	defer leaveLonghorn(folder)
	args := apart(os.Args[1:]...)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	cmd := exec.CommandContext(ctx, "unshare", args...)
	cmd.Env = append(os.Environ(), folderVariable+"="+folder)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = nil, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	err = cmd.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return exit.ExitCode(), nil
	}
	return 0, err
}

// detachLoops detaches the loop devices whose files are in the folder: a test that was killed could not.
func detachLoops(folder string) {
	files, _ := filepath.Glob("/sys/block/loop*/loop/backing_file")
	for _, file := range files {
		if name, err := os.ReadFile(file); err == nil && strings.HasPrefix(string(name), folder+"/") {
			detachLoop(filepath.Base(filepath.Dir(filepath.Dir(file))))
		}
	}
}

// detachLoop detaches one, by its name.
func detachLoop(name string) {
	if output, err := exec.Command("losetup", "--detach", "/dev/"+name).CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "e2e: losetup --detach %s: %v %s\n", name, err, output)
	}
}

// removeCgroups removes the nodes' cgroups, whose names begin with this one, from the leaves. Processes that were just killed
// may be in them for a moment more.
func removeCgroups(name string) {
	for range 100 {
		hierarchies, _ := filepath.Glob("/sys/fs/cgroup/*/" + name + "*")
		unified, _ := filepath.Glob("/sys/fs/cgroup/" + name + "*")
		hierarchies = append(hierarchies, unified...)
		if len(hierarchies) == 0 {
			return
		}
		for _, root := range hierarchies {
			var folders []string
			filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
				if err == nil && d.IsDir() {
					folders = append(folders, path)
				}
				return nil
			})
			for _, folder := range slices.Backward(folders) {
				os.Remove(folder)
			}
		}
		time.Sleep(100 * time.Millisecond)
	}
	fmt.Fprintln(os.Stderr, "e2e: cgroups are left behind:", name)
}
