// Package sandbox keeps the lab apart from the machine: a mount namespace of its own for
// its processes, a mark by which they and their loop devices are found again, and what it
// takes to remove them, even after the lab was killed.
package sandbox

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// markFile makes a folder recognisable as a lab's state, so that nothing else is ever removed.
const markFile = ".plumbline-lab"

// Vacant refuses a folder that holds a lab or something else.
func Vacant(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if Exists(dir) {
		return fmt.Errorf("a lab is already there in %s; run `make lab-status` to see it or `make lab-down` to remove it", dir)
	}
	if len(entries) > 0 {
		return fmt.Errorf("%s is not empty and not a lab's; set LAB_DIR to another folder", dir)
	}
	return nil
}

// Create makes the lab's folder.
func Create(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, markFile), []byte("made by plumbline-lab; remove with `make lab-down`\n"), 0o644)
}

// Exists reports whether dir holds a lab, running or not.
func Exists(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, markFile))
	return err == nil
}

// Command prepares argv to run as the lab's supervisor: in a session of its own, so that it
// outlives the terminal, and in a private mount namespace if the machine allows one. The
// child must call Enter first.
func Command(private bool, argv ...string) *exec.Cmd {
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if private {
		cmd.SysProcAttr.Unshareflags = syscall.CLONE_NEWNS
	}
	return cmd
}

// Enter marks the private mount namespace that the process is in as the lab's, by an empty
// /run of its own: Longhorn's engine puts its socket there, under a fixed path.
func Enter(dir string) error {
	if err := unix.Mount(mountMark(dir), "/run", "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=755"); err != nil {
		return fmt.Errorf("private /run: %w", err)
	}
	return nil
}

// mountMark is the source of the lab's /run; it is seen in /proc/PID/mountinfo of every
// process of the lab, and of no other.
func mountMark(dir string) string { return "plumbline-lab:" + dir }
