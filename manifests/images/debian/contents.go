package debian

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// Contents are files that were taken, by where they are to be.
type Contents struct {
	system System
	// from is where each file is in the system; made are the texts of those that no file has.
	from map[string]string
	made map[string][]byte
	// Packages have the files, sorted by name.
	Packages []Package
}

// Take takes files of the system, given as where they are to be and where they are, with all that
// is known of their packages.
func (s System) Take(files map[string]string) (*Contents, error) {
	c := &Contents{system: s, from: map[string]string{}, made: map[string][]byte{}}
	if err := c.add(files); err != nil {
		return nil, err
	}
	// Which distribution the versions are of.
	if err := c.add(map[string]string{"/etc/os-release": "/usr/lib/os-release"}); err != nil {
		return nil, err
	}
	described := map[string]bool{}
	for {
		owners, named, err := s.owners(slices.Sorted(maps.Values(c.from)))
		if err != nil {
			return nil, err
		}
		var packages []string
		for _, owner := range slices.Compact(slices.Sorted(maps.Values(owners))) {
			if !described[owner] {
				packages = append(packages, owner)
			}
		}
		if len(packages) == 0 {
			all := map[string]bool{}
			for _, name := range named {
				all[name] = true
			}
			slices.SortFunc(c.Packages, func(a, b Package) int { return strings.Compare(a.Name, b.Name) })
			return c, s.verify(slices.Sorted(maps.Keys(described)), all)
		}
		// A licence that a package refers to may be another package's file.
		for _, name := range packages {
			described[name] = true
			if err := c.describe(name); err != nil {
				return nil, err
			}
		}
	}
}

// add notes files; one that is not there is an error.
func (c *Contents) add(files map[string]string) error {
	for _, target := range slices.Sorted(maps.Keys(files)) {
		real, err := c.system.real(files[target])
		if err != nil {
			return err
		}
		info, err := os.Stat(c.system.at(real))
		if err != nil {
			return err
		}
		if !info.Mode().IsRegular() {
			return fmt.Errorf("%s: it is no file", files[target])
		}
		c.from[target] = real
	}
	return nil
}

// describe adds what dpkg knows of a package, where scanners of images look for it, and its licence.
func (c *Contents) describe(name string) error {
	p, err := c.system.status(name)
	if err != nil {
		return err
	}
	text, licences, err := c.system.copyright(p.Name)
	if err != nil {
		return err
	}
	c.Packages = append(c.Packages, p)
	c.made[StatusFolder+p.Name] = p.Status
	c.made["/usr/share/doc/"+p.Name+"/copyright"] = text
	for _, l := range licences {
		err := c.add(map[string]string{l: l})
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // a name that is only spoken of
			return err
		}
	}
	return nil
}

// StatusFolder is where an image has a file for each package it holds files of.
const StatusFolder = "/var/lib/dpkg/status.d/"

// Write puts the files below a folder, in the place of what it wrote there before. Programs may be
// run, all may be read; no file is run as its owner.
func (c *Contents) Write(folder string) (err error) {
	if _, err := os.Stat(folder); err == nil {
		if _, err := os.Stat(filepath.Join(folder, StatusFolder)); err != nil {
			return fmt.Errorf("%s: it is there, and was not written by this program, which would empty it", folder)
		}
	}
	if err := os.MkdirAll(filepath.Dir(folder), 0o755); err != nil {
		return err
	}
	work, err := os.MkdirTemp(filepath.Dir(folder), "."+filepath.Base(folder))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	for _, target := range slices.Sorted(maps.Keys(c.from)) {
		file := c.system.at(c.from[target])
		info, err := os.Stat(file)
		if err != nil {
			return err
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		if err := write(work, target, text, info.Mode()&0o100 != 0); err != nil {
			return err
		}
	}
	for _, target := range slices.Sorted(maps.Keys(c.made)) {
		if err := write(work, target, c.made[target], false); err != nil {
			return err
		}
	}
	if err := os.RemoveAll(folder); err != nil {
		return err
	}
	if err := os.Chmod(work, 0o755); err != nil {
		return err
	}
	return os.Rename(work, folder)
}

func write(root, target string, text []byte, program bool) error {
	mode := fs.FileMode(0o644)
	if program {
		mode = 0o755
	}
	file := filepath.Join(root, filepath.FromSlash(target))
	if err := os.MkdirAll(path.Dir(file), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(file, text, mode); err != nil {
		return err
	}
	return os.Chmod(file, mode) // whatever the umask
}
