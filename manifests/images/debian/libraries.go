package debian

import (
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/plumbline/plumbline/manifests/images/program"
)

// triples are what Debian's paths of libraries call the architectures of program.Machines.
var triples = map[string]string{"amd64": "x86_64-linux-gnu", "arm64": "aarch64-linux-gnu"}

// Triple is what Debian's paths of libraries call an architecture of Go's; "" if it is not known here.
func Triple(arch string) string { return triples[arch] }

// object is what is read of an ELF file.
type object struct {
	machine elf.Machine
	// loader is the program interpreter's path; "" in a library.
	loader string
	// needed are the libraries it requires, path where the loader looks for them first.
	needed, path []string
}

// read reads an ELF file of the system.
func (s System) read(file string) (*object, error) {
	real, err := s.real(file)
	if err != nil {
		return nil, err
	}
	f, err := elf.Open(s.at(real))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	o := &object{machine: f.Machine}
	if o.loader, err = program.Loader(f); err != nil {
		return nil, err
	}
	if o.needed, err = f.ImportedLibraries(); err != nil {
		return nil, err
	}
	// An older DT_RPATH holds for the libraries' own libraries as well; no package of Debian's may have one.
	if old, err := f.DynString(elf.DT_RPATH); err != nil || len(old) > 0 {
		return nil, errors.Join(err, fmt.Errorf("it has an RPATH %v, which is not known here", old))
	}
	paths, err := f.DynString(elf.DT_RUNPATH)
	if err != nil {
		return nil, err
	}
	for _, p := range paths {
		for _, folder := range strings.Split(p, ":") {
			folder = strings.NewReplacer("${ORIGIN}", path.Dir(real), "$ORIGIN", path.Dir(real)).Replace(folder)
			o.path = append(o.path, path.Clean(folder))
		}
	}
	return o, nil
}

// Libraries are the shared libraries that programs and plugins need, their own libraries' too, and the loader: each
// where it is found by a loader that has no cache and looks into the system's own folders only. Names are of libraries
// that are opened at run time without being listed as needed. A program for another architecture than arch, as Go names
// it, is an error.
func (s System) Libraries(arch string, objects []string, names ...string) ([]string, error) {
	machine, known := program.Machines[arch]
	if !known {
		return nil, fmt.Errorf("%s: an architecture whose libraries are not known here", arch)
	}
	found := map[string]bool{}
	for _, name := range names {
		file, err := s.library(arch, name, nil)
		if err != nil {
			return nil, err
		}
		found[file] = true
	}
	seen := map[string]bool{}
	for queue := append(slices.Clone(objects), slices.Sorted(maps.Keys(found))...); len(queue) > 0; queue = queue[1:] {
		file := queue[0]
		if seen[file] {
			continue
		}
		seen[file] = true
		o, err := s.read(file)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		if o.machine != machine {
			return nil, fmt.Errorf("%s: is for %s, not for %s", file, o.machine, arch)
		}
		if o.loader != "" {
			found[o.loader] = true
		}
		for _, name := range o.needed {
			if strings.HasPrefix(name, "ld-linux-") {
				continue // the loader, which is there already
			}
			library, err := s.library(arch, name, o.path)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", file, err)
			}
			found[library] = true
			queue = append(queue, library)
		}
	}
	return slices.Sorted(maps.Keys(found)), nil
}

// library finds a library as the loader does, in the folders of the object that needs it first.
func (s System) library(arch, name string, first []string) (string, error) {
	folders := append(slices.Clone(first), "/lib/"+Triple(arch), "/usr/lib/"+Triple(arch), "/lib", "/usr/lib")
	for _, folder := range folders {
		folder, err := s.real(folder)
		if err != nil {
			return "", err
		}
		file := path.Join(folder, name)
		candidate, err := s.read(file)
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			return "", fmt.Errorf("%s: %w", file, err)
		case candidate.machine == program.Machines[arch]:
			return file, nil
		}
	}
	return "", fmt.Errorf("needs %s, which is in none of %s: mend its package with apt-get install --fix-broken", name, strings.Join(folders, ", "))
}
