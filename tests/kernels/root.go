package main

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

// rootPackages are what the guest's program runs, for a root of another architecture.
var rootPackages = []string{"postgresql", "coreutils", "dash", "e2fsprogs", "kmod", "mount"}

// foreign says whether programs of an architecture do not run on this machine.
func foreign(arch string) bool { return arch != runtime.GOARCH }

// root returns the folder that is the guest's root: the machine's own, or, for another architecture, one of Debian's packages.
func (s *store) root(ctx context.Context, say func(string, ...any)) (string, error) {
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
	if s.apt == nil {
		return "", fmt.Errorf("%s is not there, and the mirror cannot be reached", folder)
	}
	say("downloading Debian's %s for %s: %s", suite, s.arch, strings.Join(rootPackages, " "))
	temporary := filepath.Join(s.dir, "newroot") // nobody else is at it: locked
	if err := errors.Join(os.RemoveAll(temporary), os.MkdirAll(filepath.Join(temporary, "debs/partial"), 0o755)); err != nil {
		return "", err
	}
	defer os.RemoveAll(temporary)
	debs, tree := filepath.Join(temporary, "debs"), filepath.Join(temporary, "tree")
	if err := s.apt.downloadAll(ctx, suite, debs, rootPackages); err != nil {
		return "", err
	}
	if err := errors.Join(skeleton(tree), unpackAll(ctx, debs, tree), copyUsers("/etc", filepath.Join(tree, "etc"))); err != nil {
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

// skeleton makes what no package's files have: the links of a merged /usr, and folders to write to.
func skeleton(tree string) error {
	for _, d := range []string{"usr/bin", "usr/sbin", "usr/lib", "etc", "root", "run", "tmp", "var/tmp", "proc", "sys", "dev"} {
		if err := os.MkdirAll(filepath.Join(tree, d), 0o755); err != nil {
			return err
		}
	}
	for _, d := range []string{"bin", "sbin", "lib"} {
		if err := os.Symlink("usr/"+d, filepath.Join(tree, d)); err != nil {
			return err
		}
	}
	return errors.Join(os.Symlink("../run", filepath.Join(tree, "var/run")),
		os.Chmod(filepath.Join(tree, "tmp"), 0o777|os.ModeSticky), os.Chmod(filepath.Join(tree, "var/tmp"), 0o777|os.ModeSticky))
}

// unpackAll unpacks the packages of a folder. Their scripts, which are of the other architecture, are not run.
func unpackAll(ctx context.Context, debs, tree string) error {
	files, _ := filepath.Glob(filepath.Join(debs, "*.deb"))
	for _, f := range files {
		// Not dpkg-deb -x, which would put folders in the place of the links.
		out, err := exec.CommandContext(ctx, "bash", "-o", "pipefail", "-c",
			`dpkg-deb --fsys-tarfile "$1" | tar -x --keep-directory-symlink -C "$2"`, "bash", f, tree).CombinedOutput()
		if err != nil {
			return fmt.Errorf("unpacking %s: %w: %s", f, err, out)
		}
	}
	return nil
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
