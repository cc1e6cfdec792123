package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/plumbline/plumbline/tests/testkit"
)

// rootPackages are what the guest's program runs, for a root of another architecture.
var rootPackages = []string{"postgresql", "coreutils", "dash", "e2fsprogs", "kmod", "lvm2", "mount", "util-linux", "iproute2", "open-iscsi", "tgt", "istgt"}

// foreign reports whether programs of an architecture do not run on this machine.
func foreign(arch string) bool { return arch != runtime.GOARCH }

// root returns the folder that is the guest's root: the machine's own, or, for another architecture, one of Debian's
// packages.
func (s *store) root(ctx context.Context, logf func(string, ...any)) (string, error) {
	if !foreign(s.arch) {
		return "/", nil
	}
	unlock, err := s.lock("root")
	if err != nil {
		return "", err
	}
	defer unlock()
	release, err := os.ReadFile("/etc/os-release")
	if err != nil {
		return "", err
	}
	// The machine's own suite: its PostgreSQL then reads what this machine's initdb made.
	suite := codename(string(release))
	folder := filepath.Join(s.dir, rootName(suite, rootPackages))
	if _, err := os.Stat(folder); err == nil {
		return folder, copyUsers("/etc", filepath.Join(folder, "etc"))
	}
	logf("downloading Debian's %s for %s: %s", suite, s.arch, strings.Join(rootPackages, " "))
	temporary := filepath.Join(s.dir, "newroot") // locked: no other process uses it
	if err := errors.Join(os.RemoveAll(temporary), os.Mkdir(temporary, 0o755)); err != nil {
		return "", err
	}
	defer os.RemoveAll(temporary)
	tree := filepath.Join(temporary, "tree")
	fetch := exec.CommandContext(ctx, filepath.Join(testkit.Root(), "tools", "sysroot"), append([]string{"--with-dependencies", s.arch, tree}, rootPackages...)...)
	if out, err := fetch.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %s", err, bytes.TrimSpace(out))
	}
	if err := errors.Join(mountPoints(tree), copyUsers("/etc", filepath.Join(tree, "etc"))); err != nil {
		return "", err
	}
	return folder, os.Rename(tree, folder)
}

// rootName names a root by all that decides what is in it: one of other packages is no use.
func rootName(suite string, packages []string) string {
	return fmt.Sprintf("root-%s-%08x", suite, crc32.ChecksumIEEE([]byte(strings.Join(packages, " "))))
}

// codename is that of a distribution's release, by its /etc/os-release.
func codename(release string) string {
	for line := range strings.Lines(release) {
		if name, ok := strings.CutPrefix(line, "VERSION_CODENAME="); ok {
			return strings.Trim(name, "\"\n")
		}
	}
	return ""
}

// mountPoints makes what no package's files have: folders to mount on and to write to.
func mountPoints(tree string) error {
	for _, d := range []string{"etc", "root", "run", "tmp", "var/tmp", "proc", "sys", "dev"} {
		if err := os.MkdirAll(filepath.Join(tree, d), 0o755); err != nil {
			return err
		}
	}
	return errors.Join(os.Chmod(filepath.Join(tree, "tmp"), 0o777|os.ModeSticky), os.Chmod(filepath.Join(tree, "var/tmp"), 0o777|os.ModeSticky))
}

// copyUsers copies the names of users and groups: the machine's own users own the shared files.
func copyUsers(from, to string) error {
	for _, name := range []string{"passwd", "group"} {
		text, err := os.ReadFile(filepath.Join(from, name))
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(to, name), text, 0o644); err != nil {
			return err
		}
	}
	return nil
}
